"""What a report shows of a run, read from its folder, its model and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeplda.data import Data, Part
from deeplda.errors import InputError, got
from deeplda.loading import load
from deeplda.model import Model, ModelCard
from deeplda.predictors import FeatureStatistics, discriminant_directions
from deeplda.report.analysis import fisher_ratios, single_dimension_accuracy
from deeplda.sampling import stratified_sample
from deeplda.training.config import DATA_SETTINGS, RunConfig
from deeplda.training.evaluation import gather_statistics
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import read_environment, read_metrics, summary_row

_SEED = 0
# Training samples from which the discriminant directions of a cross-entropy network are found.
_FIT_SAMPLES = 5_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What a finished run's folder says, without its model.

    Attributes:
        rows: of metrics.jsonl, one an epoch; without those that the file has lost.
        summary: its last row, the scores of the kept model.
    """

    path: Path
    config: RunConfig
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.summary["class_names"])

    @property
    def scores(self) -> dict[str, Any]:
        """Of the whole test part, as `evaluate` gives them."""
        scores: dict[str, Any] = self.summary["test"]
        return scores


@dataclass(frozen=True, eq=False)
class RunContents(RunRecord):
    """A finished run with the model's view of its test part.

    Attributes:
        sizes: how many samples the training, validation and test part have.
        places: (n,) which samples of the test part are shown, in random order, so that none is always drawn on top.
        names: of the shown ones, such as "test sample 17", or the file.
        samples: the shown ones, uint8 images n x C x H x W or float32 rows n x features.
        labels, decided: (n,) places in class_names.
        probabilities: (n,) of the class decided for.
        embedding: (n, d) float32, the network's output.
        coordinates: (n, m) float32, the discriminant coordinates that `axes` names.
        fisher_ratios, single_accuracies: (d,) what each output dimension alone tells of the classes.
    """

    card: ModelCard
    sizes: dict[str, int]
    places: NDArray[np.int64]
    names: tuple[str, ...]
    samples: NDArray[np.uint8] | NDArray[np.float32]
    labels: NDArray[np.int64]
    decided: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    embedding: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    axes: tuple[str, ...]
    fisher_ratios: Floats
    single_accuracies: Floats

    @property
    def images(self) -> bool:
        """Whether the samples are images (else rows of numbers)."""
        return self.samples.ndim == 4


def read_record(folder: Path) -> RunRecord:
    """What the folder of a finished run says. Raises InputError where it is no run, or not finished."""
    config = RunConfig.of(folder)
    summary = summary_row(folder)
    if summary is None:
        raise InputError(
            got(f"{folder} is not finished", need="a finished run", do=f"deeplda train --resume --run {folder}")
        )
    if "class_names" not in summary:
        raise InputError(f"{folder} is the autoencoder of a run: give the folder of the run itself")
    rows = [row for row in read_metrics(folder) if row["kind"] == "epoch"]
    return RunRecord(folder, config, read_environment(folder), rows, summary)


def read_contents(
    folder: Path,
    *,
    points: int = 10_000,
    data_dir: Path | None = None,
    network: str | None = None,
) -> RunContents:
    """All of a finished run.

    Args:
        points: at most about so many samples of the part are shown, stratified.
        data_dir: where known data is, if it has moved.
        network: for a network of your own, as in `load`.

    Raises InputError where the run is not finished, or its model or data cannot be had.
    """
    return read_many([read_record(folder)], points=points, data_dir=data_dir, network=network)[0]


def read_many(
    records: Sequence[RunRecord],
    *,
    points: int,
    data_dir: Path | None = None,
    network: str | None = None,
) -> list[RunContents]:
    """The contents of several runs; data that runs next to each other share is read once."""
    found: list[RunContents] = []
    before: RunConfig | None = None
    for record in records:
        config = record.config if data_dir is None else record.config.model_copy(update={"data_dir": data_dir})
        if before is None or any(getattr(config, name) != getattr(before, name) for name in DATA_SETTINGS):
            data, before = read_data(config), config
        found.append(_look(record, load(record.path, network=network), data, points))
    return found


def finished_trials(sweep: Path) -> list[RunRecord]:
    """The finished runs of a sweep's folder, the best by validation first. Raises InputError where there is none."""
    folders = sorted(file.parent for file in (sweep / "trials").glob("*/run.toml"))
    records = [read_record(folder) for folder in folders if summary_row(folder) is not None]
    if not records:
        raise InputError(
            got(f"{sweep} has no finished trial", need="at least one", do="let deeplda sweep finish some first")
        )
    return sorted(records, key=_validation_accuracy, reverse=True)


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (folder / "sweep.toml").is_file()


def _validation_accuracy(record: RunRecord) -> float:
    scores = record.summary["validation"]
    return float(scores["accuracy"]) if scores else 0.0


def _look(record: RunRecord, model: Model, data: Data, points: int) -> RunContents:
    """The record with the model's view of the test part."""
    _check_unchanged(record, model, data)
    places = np.random.default_rng(_SEED).permutation(stratified_sample(data.test.labels, points, _SEED))
    shown = data.test.take(places)
    embedding = torch.cat(list(model.embeddings(shown.inputs)))
    if not embedding.isfinite().all():
        raise InputError(
            got(f"the model of {record.path} gives values that are not finite", need="a sound model", do="train again")
        )
    scores, statistics = model.class_scores(embedding), _statistics(model, data.train)
    coordinates, axes = _coordinates(statistics, model.card, embedding)
    fisher, accuracy = _power(_class_means(statistics, model.card), shown.labels, embedding.numpy())
    return RunContents(
        **vars(record),
        card=model.card,
        sizes={"training": len(data.train), "validation": len(data.val), "test": len(data.test)},
        places=places,
        names=tuple(f"test sample {place}" for place in places) if shown.files is None else shown.files,
        samples=shown.inputs,
        labels=shown.labels,
        decided=scores.argmax(1).numpy(),
        probabilities=scores.softmax(1).amax(1).numpy(),
        embedding=embedding.float().numpy(),
        coordinates=coordinates,
        axes=axes,
        fisher_ratios=fisher,
        single_accuracies=accuracy,
    )


def _check_unchanged(record: RunRecord, model: Model, data: Data) -> None:
    """Raise InputError where the data is not what the scores of the run are of."""
    trained_on = record.environment.get("data_fingerprint", data.fingerprint)
    if (data.class_names, data.sample_shape, data.fingerprint) != (
        model.class_names,
        model.card.sample_shape,
        trained_on,
    ):
        raise InputError(
            got(
                f"{record.config.data} has changed since {record.path} was trained",
                need="the data as it was",
                do="bring it back, or train again",
            )
        )


def _statistics(model: Model, train: Part) -> FeatureStatistics:
    """The statistics of the training part that the model keeps; cross-entropy keeps none, so they are gathered here."""
    if model.statistics is not None:
        return model.statistics
    return gather_statistics(model, train.take(stratified_sample(train.labels, _FIT_SAMPLES, _SEED)))


def _coordinates(
    statistics: FeatureStatistics, card: ModelCard, embedding: torch.Tensor
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """The embedding in discriminant coordinates, strongest first, and their names.

    Where there is only one, the second spreads the samples at random, so that they can be told apart.
    """
    alpha = 1.0 if "softmax" in card.predictors else card.alpha
    directions = _turned(discriminant_directions(statistics, alpha, card.lam).flip(0))
    eigenvalues = ((directions @ statistics.between()) * directions).sum(1).tolist()
    mean = statistics.counts @ statistics.means / statistics.counts.sum()
    found = ((embedding.double() - mean) @ directions.T).float().numpy()
    names = tuple(f"discriminant {i} (eigenvalue {v:.3g})" for i, v in enumerate(eigenvalues, 1))
    if len(names) > 1:
        return found, names
    spread = np.random.default_rng(_SEED).uniform(-1, 1, (len(found), 1)).astype(np.float32)
    return np.concatenate([found, spread], 1), (*names, "random spread, without meaning")


def _turned(directions: torch.Tensor) -> torch.Tensor:
    """The rows with the sign that makes their largest entry positive, as the solver's sign means nothing."""
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return directions * torch.where(largest < 0, -1.0, 1.0)


def _class_means(statistics: FeatureStatistics, card: ModelCard) -> Floats:
    """Mean of the training samples of each class, (C, d); where the statistics are of subclasses, of these together."""
    classes, means = len(card.class_names), statistics.means
    if len(means) == classes:
        return np.asarray(means)
    member = torch.nn.functional.one_hot(torch.tensor(card.subclass_map.parents)).T * statistics.counts
    return np.asarray(member @ means / member.sum(1, keepdim=True))


def _power(means: Floats, labels: NDArray[np.int64], embedding: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Fisher ratio and accuracy of each output dimension alone, (d,) each; NaN for samples of one class alone."""
    if len(np.unique(labels)) < 2:
        nothing = np.full(embedding.shape[1], np.nan)
        return nothing, nothing
    # In one dimension LDA is the nearest class mean, so the means stand for the training samples.
    accuracy = single_dimension_accuracy(means, np.arange(len(means)), embedding, labels)
    return fisher_ratios(embedding, labels), accuracy
