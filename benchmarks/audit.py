"""How well an audit finds planted wrong labels, beside cleanlab on out-of-fold probabilities of the same network.

    python benchmarks/audit.py results/audit.csv --cleanlab VENV/bin/python --data-dir DATA

For each rate, kind of noise and seed, labels of the training and validation images are made wrong. "audit" trains one
network and ranks its training images by the margins that the training has kept. "cleanlab" trains a network for each of
five folds, and a process of the interpreter `--cleanlab`, which has cleanlab installed, ranks the images by the
probability of their given label in the network that was not trained on them. Both have the same settings.

The file has a row for each rule: the precision at the true number of mistakes, the area under the precision-recall
curve (average precision), the number of images that it calls wrong (as many as `wrong_share` estimates on the
validation images; cleanlab's `find_label_issues`), the precision of these, and the seconds of its trainings. For
"audit", it also has the test accuracy of the network, and of one trained without the images that it calls wrong. Rows
that are there already are not computed again.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from result_rows import append_rows, matching, read_rows
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from deeplda.audit import wrong_share
from deeplda.data import Data, load_data
from deeplda.data.label_noise import with_label_noise
from deeplda.experiments.recipes import read_recipe
from deeplda.sampling import stratified_sample
from deeplda.training.config import FitConfig
from deeplda.training.evaluation import evaluate
from deeplda.training.loop import train
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import Classifier, build_trainee

_FOLDS = 5
_CLEANLAB = """
import sys
import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores

arrays = np.load(sys.argv[1])
labels, probabilities = arrays["labels"], arrays["probabilities"]
scores = get_label_quality_scores(labels, probabilities)
np.savez(sys.argv[2], scores=scores, wrong=find_label_issues(labels, probabilities, n_jobs=1))
"""
_COLUMNS = (
    "data", "samples", "kind", "rate", "seed", "epochs", "arithmetic", "threads", "rule", "mistakes", "precision",
    "average_precision", "found", "precision_of_found", "seconds", "accuracy", "accuracy_without_found",
)  # fmt: skip


class Found(NamedTuple):
    """The samples as a rule judges them: low scores and `wrong` mark wrong labels."""

    scores: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    seconds: float


def main() -> None:
    """Compute the missing rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--cleanlab", help="Python interpreter that has cleanlab; without it, only audit is measured")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--samples", type=int, default=50_000, help="training images, stratified by class")
    parser.add_argument("--recipe", default="quick")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--precision", default="float32", help="that of the training")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.4])
    parser.add_argument("--kinds", nargs="+", default=["symmetric", "pairs"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    clean = load_data(options.data, data_dir=options.data_dir)
    some = stratified_sample(clean.train.labels, options.samples, 0)
    clean = replace(clean, train=clean.train.take(some))
    rules: dict[str, Callable[[FitConfig, Data, Classifier, float], Found]] = {"audit": _audit}
    if options.cleanlab:
        rules["cleanlab"] = lambda config, data, _classifier, _seconds: _cleanlab(config, data, options.cleanlab)
    for seed, kind, rate in product(options.seeds, options.kinds, options.rates):
        # The validation set is scored once, after the last epoch, because no epoch is chosen.
        own = {
            "epochs": options.epochs,
            "evaluate_every": options.epochs,
            "batch_size": options.batch_size,
            "precision": options.precision,
            "seed": seed,
        }
        config = FitConfig.parse({**read_recipe(options.recipe), **own, "tta": None}, "the settings")
        cell = {"data": options.data, "samples": len(clean.train), "kind": kind, "rate": rate, "seed": seed}
        cell |= {"epochs": options.epochs, "arithmetic": options.precision, "threads": torch.get_num_threads()}
        done = matching(read_rows(options.output), **cell)
        missing = [rule for rule in rules if not matching(done, rule=rule)]
        if not missing:
            continue
        data = with_label_noise(clean, rate, kind, seed)
        mistakes = data.train.labels != clean.train.labels
        classifier, seconds = _trained(config, data)
        for rule in missing:
            found = rules[rule](config, data, classifier, seconds)
            row = {**cell, "rule": rule, **_measured(mistakes, found)}
            if rule == "audit":
                row |= _accuracies(config, data, classifier, found)
            append_rows(options.output, _COLUMNS, [row])
            print(row, flush=True)


def _trained(config: FitConfig, data: Data) -> tuple[Classifier, float]:
    """Return a trained classifier and the seconds of its training."""
    start = time.monotonic()
    trainee = build_trainee(config, data)
    train(config, data, trainee, MemoryRun(), Progress())
    return trainee, time.monotonic() - start


def _audit(_config: FitConfig, data: Data, classifier: Classifier, seconds: float) -> Found:
    assert classifier.margins is not None
    margins = classifier.margins.means().astype(np.float64)
    share = wrong_share(classifier.model.decision_function(data.val.inputs), data.val.labels).middle
    wrong = np.zeros(len(margins), dtype=bool)
    wrong[np.argsort(margins, kind="stable")[: round(share * len(margins))]] = True
    return Found(margins, wrong, seconds)


def _cleanlab(config: FitConfig, data: Data, python: str) -> Found:
    """Return the judgement of cleanlab, given the probabilities of networks that were not trained on the samples."""
    labels, start = data.train.labels, time.monotonic()
    probabilities = np.empty((len(labels), len(data.class_names)))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=config.seed)
    for rest, held in folds.split(np.zeros(len(labels)), labels):
        classifier, _ = _trained(config, replace(data, train=data.train.take(rest)))
        probabilities[held] = classifier.model.predict_proba(data.train.take(held).inputs)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, labels=labels, probabilities=probabilities)
        subprocess.run([python, "-c", _CLEANLAB, str(given), str(found)], check=True)
        arrays = np.load(found)
        return Found(arrays["scores"], arrays["wrong"], time.monotonic() - start)


def _measured(mistakes: NDArray[np.bool_], found: Found) -> dict[str, object]:
    first = np.argsort(found.scores, kind="stable")[: mistakes.sum()]
    return {
        "mistakes": int(mistakes.sum()),
        "precision": round(float(mistakes[first].mean()), 4),
        "average_precision": round(float(average_precision_score(mistakes, -found.scores)), 4),
        "found": int(found.wrong.sum()),
        "precision_of_found": round(float(mistakes[found.wrong].mean()), 4) if found.wrong.any() else "",
        "seconds": round(found.seconds, 1),
    }


def _accuracies(config: FitConfig, data: Data, classifier: Classifier, found: Found) -> dict[str, float]:
    """Return the test accuracy of the classifier, and of one trained without the images that are called wrong."""
    without = replace(data, train=data.train.take(np.flatnonzero(~found.wrong)))
    models = {"accuracy": classifier.model, "accuracy_without_found": _trained(config, without)[0].model}
    scores = {name: evaluate(model, data.test) for name, model in models.items()}
    return {name: round(float(score.accuracy), 4) for name, score in scores.items() if score is not None}


if __name__ == "__main__":
    main()
