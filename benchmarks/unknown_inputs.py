"""Inputs that belong to none of the classes: which rule and which layer notice them best?

    python benchmarks/unknown_inputs.py choose [--output results/unknown-choice.csv]
    python benchmarks/unknown_inputs.py report [--output results/unknown-inputs.csv]
    python benchmarks/unknown_inputs.py photos --work WORK [--output results/unknown-photos.csv]

`choose` trains the recipe `quick` on 20,000 images of seven of CIFAR-10's classes. The validation images of these are
the known samples, and training images of the other three the unknown ones. `report` trains `fast-cifar10` on all of
CIFAR-10. Its test images are known, and the test images of the sets given by `--unknown` are not; greyscale images get
three equal channels, and all are resized to 32 x 32.
`photos` runs `deeplda train --minutes 2` on 400 photos of circles, crosses, squares and triangles, as `first_run.py`
writes them with each seed. Its validation photos are known; photos of stars, which are of the same kind, and test
images of STL-10, which are not, are unknown. WORK keeps the photos and the runs.

With `choose` and `report`, each network is trained with Pillai's statistic and with cross-entropy. Every rule of
`Model.unknown_score` is applied to each network, on the outputs and on the last hidden layer. "neighbours" are stored
as in a model, up to 2,000 of them; on the outputs, which models do not store, the rule is the same. "all neighbours" is
the 20th nearest of all training samples. The CSV file has one row for each network, seed, unknown set, rule and layer:
the area under the ROC curve and the share of unknown samples that are accepted if 95 % of the known ones are. Networks
whose rows are all there are not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import first_run
import numpy as np
import torch
from new_classes import trained, without
from numpy.typing import NDArray
from result_rows import Row, append_rows, matching, read_rows
from scipy.stats import t
from sklearn.metrics import roc_auc_score

from deeplda import load
from deeplda.data import Data, Part, load_data, read_images
from deeplda.data.images import resize_arrays
from deeplda.experiments.recipes import read_recipe
from deeplda.memory import keep_freed_memory
from deeplda.model import Model
from deeplda.predictors import FeatureStatistics
from deeplda.predictors.unknown_scores import MOST_NEIGHBOURS, DistanceRule, NeighbourScore, UnknownScore, unit_rows
from deeplda.sampling import stratified_sample
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import split_of

Floats = NDArray[np.float64]
COLUMNS = ("network", "seed", "unknown", "rule", "layer", "auc", "accepted")
# Cross-entropy has the learning rate that validation chose for it in docs/studies/fair-comparison.md.
NETWORKS: dict[str, dict[str, Any]] = {
    "pillai": {},
    "cross-entropy": {"objective": "cce", "learning_rate": 0.5},
    "cross-entropy, smoothed": {"objective": "cce", "learning_rate": 0.5, "label_smoothing": 0.2},
}
DISTANCES: tuple[DistanceRule, ...] = ("relative", "mahalanobis")
NEIGHBOUR = 20
_BLOCK = 1000
# The classes that seed S of `choose` leaves out.
LEFT_OUT = ((2, 5, 9), (0, 3, 7), (1, 4, 6))
CHOICE_IMAGES = 20_000
# Of `photos`: the name of its network in the rows, and the number of images of each unknown kind.
PLAIN, STRANGERS = "deeplda train --minutes 2", 300


@dataclass(frozen=True)
class Layers:
    """What a network computes for some samples.

    Attributes:
        outputs: (n, embedding_dim).
        features: (n, d), its last hidden layer.
        highest: (n,), the highest probability.
    """

    outputs: Floats
    features: Floats
    highest: Floats

    @classmethod
    def of(cls, model: Model, images: NDArray[np.uint8]) -> Layers:
        both = torch.cat(list(model._batches(model._with_features, images)))
        outputs, features = both.double().tensor_split([model.card.embedding_dim], 1)
        highest = model.class_probabilities(both[:, : outputs.shape[1]]).amax(1)
        return cls(outputs.numpy(), features.numpy(), highest.numpy())


def scores(train: Layers, labels: NDArray[np.int64], samples: Layers) -> Iterator[tuple[str, str, Floats]]:
    """Yield every rule, layer and unknown score (n,), given the training set with its labels."""
    yield "probability", "outputs", 1 - samples.highest
    for layer in ("outputs", "features"):
        seen, found = getattr(train, layer), getattr(samples, layer)
        statistics = FeatureStatistics.for_labels(labels)
        statistics.update(seen, labels)
        for rule in DISTANCES:
            yield rule, layer, UnknownScore(statistics, rule)(torch.from_numpy(found)).numpy()
        some = stratified_sample(labels, MOST_NEIGHBOURS, seed=0)
        stored = NeighbourScore(unit_rows(torch.from_numpy(seen[some])))
        yield "neighbours", layer, stored(torch.from_numpy(found)).numpy()
        yield "all neighbours", layer, neighbour_distances(seen, found)


def neighbour_distances(seen: Floats, found: Floats) -> Floats:
    """Return the distance (n,) of each sample to the 20th nearest training sample, all scaled to length 1."""
    rows, others = (unit_rows(torch.from_numpy(values)) for values in (found, seen))
    nearest = [
        torch.cdist(block, others).kthvalue(min(NEIGHBOUR, len(others)), 1).values for block in rows.split(_BLOCK)
    ]
    return torch.cat(nearest).double().numpy()


def rates(known: Floats, unknown: Floats) -> tuple[float, float]:
    """Return the area under the ROC curve, and the share of unknown samples below the 95 % quantile of the known."""
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    area = roc_auc_score(truth, np.concatenate([known, unknown]))
    return round(100 * area, 3), round(100 * float(np.mean(unknown <= np.quantile(known, 0.95))), 3)


def measured(model: Model, data: Data, known: Part, unknown: dict[str, NDArray[np.uint8]]) -> list[Row]:
    """Return the rows of one network, without its name and seed."""
    train = Layers.of(model, np.asarray(data.train.inputs))
    of_known = scores(train, data.train.labels, Layers.of(model, np.asarray(known.inputs)))
    by_rule = {(rule, layer): found for rule, layer, found in of_known}
    rows: list[Row] = []
    for name, images in unknown.items():
        for rule, layer, found in scores(train, data.train.labels, Layers.of(model, images)):
            area, accepted = rates(by_rule[rule, layer], found)
            rows.append({"unknown": name, "rule": rule, "layer": layer, "auc": area, "accepted": accepted})
    return rows


def colour(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images as N x 3 x 32 x 32."""
    resized = resize_arrays(images, (32, 32))
    return np.repeat(resized, 3, axis=1) if resized.shape[1] == 1 else resized


def choice(data: Data, seed: int) -> tuple[Data, Part, dict[str, NDArray[np.uint8]]]:
    """Return the data to train on, the known samples and the unknown ones, none of which are test images."""
    left_out = np.array(LEFT_OUT[seed])
    known = without(data, left_out)
    few = np.sort(np.random.default_rng(seed).permutation(len(known.train))[:CHOICE_IMAGES])
    places = np.flatnonzero(np.isin(data.train.labels, left_out))[: 3 * len(known.val)]
    name = "left out " + " ".join(map(str, left_out))
    return replace(known, train=known.train.take(few)), known.val, {name: np.asarray(data.train.inputs[places])}


def photo_case(seed: int, work: Path, data_dir: Path | None) -> tuple[Model, Data, dict[str, NDArray[np.uint8]]]:
    """Return a model of photos with their data, and the unknown images as the model sees them."""
    folder, run, stars = work / f"photos-{seed}", work / "runs" / f"photos-{seed}", work / "stars"
    if not folder.exists():
        first_run.write_photos(folder, seed=seed)
    if not stars.exists():
        stars.mkdir()
        rng = np.random.default_rng(0)
        for number in range(STRANGERS):
            first_run.photo("star", rng).save(stars / f"{number:04}.jpg")
    first_run.deeplda("train", str(folder), "--minutes", "2", "--run", str(run), "--resume")
    model = load(run)
    channels, *size = model.card.sample_shape
    others = load_data("stl10", data_dir=data_dir).test.inputs[:STRANGERS]
    unknown = {
        "stars": read_images(sorted(stars.iterdir()), channels=channels, image_size=tuple(size)),
        "stl10": resize_arrays(np.asarray(others), (size[0], size[1])),
    }
    return model, read_data(RunConfig.of(run), split_of(run)), unknown


def missing(rows: Iterable[Row], network: str, seed: int, unknown: Iterable[str]) -> bool:
    """Return whether the rows lack those of an unknown set for this network and seed."""
    there = {row["unknown"] for row in matching(rows, network=network, seed=seed)}
    return not set(unknown) <= there


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each network, unknown set, rule and layer, best first, with its lead over the default rule.

    The first number is the mean area under the ROC curve, the second the mean share of unknown samples accepted.
    """
    areas: dict[tuple[str, ...], list[float]] = {}
    accepted: dict[tuple[str, ...], list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        key = tuple(str(row[name]) for name in ("network", "unknown", "rule", "layer"))
        areas.setdefault(key, []).append(float(row["auc"]))
        accepted.setdefault(key, []).append(float(row["accepted"]))
    for key, found in sorted(areas.items(), key=lambda item: (*item[0][:2], -np.mean(item[1]))):
        default = areas[(*key[:2], "neighbours", "features")]
        line = f"{key[0]:24} {key[1]:16} {key[2]:12} {key[3]:9} {np.mean(found):6.2f} {np.mean(accepted[key]):6.2f}"
        yield line + (paired(np.subtract(found, default)) if len(found) == len(default) > 1 else "")


def paired(differences: Floats) -> str:
    """Return the mean of differences over the seeds with its 95 % interval."""
    half = t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return f"   {differences.mean():+.2f} ± {half:.2f} from the default"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("choose", "report", "photos"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["pillai", "cross-entropy"])
    parser.add_argument("--unknown", nargs="+", default=["cifar100", "fashion-mnist", "mnist"], help="sources")
    parser.add_argument("--data-dir", type=Path, help="the folder with the known data sets")
    parser.add_argument("--work", type=Path, help="the folder for the photos and runs of photos")
    parser.add_argument("--output", type=Path, help="a CSV file, which is read to resume")
    options = parser.parse_args()
    keep_freed_memory()
    rows = read_rows(options.output)
    if options.what == "photos":
        if options.work is None:
            raise SystemExit("pass --work FOLDER")
        for seed in range(options.seeds):
            if missing(rows, PLAIN, seed, ["stars", "stl10"]):
                model, own, unknown = photo_case(seed, options.work, options.data_dir)
                found = [{"network": PLAIN, "seed": seed, **row} for row in measured(model, own, own.val, unknown)]
                append_rows(options.output, COLUMNS, found)
                rows += found
        print("\n".join(summary(rows)))
        return
    data = load_data("cifar10", data_dir=options.data_dir)
    strangers: dict[str, NDArray[np.uint8]] = {}
    if options.what == "report":
        sources = {Path(name).stem: load_data(name, data_dir=options.data_dir).test for name in options.unknown}
        strangers = {name: colour(np.asarray(part.inputs)) for name, part in sources.items()}
    settings = read_recipe("quick" if options.what == "choose" else "fast-cifar10") | {"data": "cifar10"}
    cases: Callable[[int], tuple[Data, Part, dict[str, NDArray[np.uint8]]]] = (
        (lambda seed: choice(data, seed)) if options.what == "choose" else (lambda _seed: (data, data.test, strangers))
    )
    for seed in range(options.seeds):
        own, known, unknown = cases(seed)
        for network in options.networks:
            if missing(rows, network, seed, unknown):
                config = RunConfig.model_validate(settings | {"seed": seed} | NETWORKS[network])
                found = measured(trained(own, config), own, known, unknown)
                found = [{"network": network, "seed": seed, **row} for row in found]
                append_rows(options.output, COLUMNS, found)
                rows += found
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
