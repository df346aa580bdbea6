"""Advice before the first step, and the same advice from `deeplda doctor`."""

import numpy as np
import pytest

from deeplda.batch_rule import needed_samples
from deeplda.data import Data, Part
from deeplda.report.diagnosis import diagnose
from deeplda.training.conditions import poor_conditions
from deeplda.training.config import RunConfig
from deeplda.training.metrics import EpochRow, Scores, SummaryRow

NAMES = ("ant", "bee", "cow", "doe", "elk")


def data(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    part = Part(np.zeros((len(labels), 1, 4, 4), dtype=np.uint8), labels)
    return Data("insects", part, part, part, NAMES[: len(counts)])


def advice(counts=(100,) * 5, **settings):
    return [
        str(found) for found in poor_conditions(RunConfig(**{"epochs": 20, "batch_size": 50} | settings), data(counts))
    ]


def test_nothing_to_improve():
    assert advice() == []


@pytest.mark.parametrize(("batch_size", "epochs", "steps"), [(500, 20, 20), (50, 8, 80), (499, 44, 88)])
def test_few_steps(batch_size, epochs, steps):
    (found,) = advice(batch_size=batch_size, epochs=epochs)
    assert f"{steps} steps in {epochs} epochs" in found
    assert f"smaller --batch-size ({batch_size} here)" in found
    assert advice(batch_size=batch_size, epochs=2 * epochs * 90 // steps) == []


def test_the_steps_of_the_quick_recipe_on_cifar10_are_enough():
    assert advice((9600,) * 5, batch_size=2000, epochs=4) == []


@pytest.mark.parametrize(("subclasses", "groups"), [(1, 5), (3, 15), ("auto", 5)])
def test_few_samples_of_each_class_in_a_batch(subclasses, groups):
    settings = {"subclasses": subclasses, "embedding_dim": groups}
    needed = needed_samples(groups, groups)
    assert advice(batch_size=needed, **settings) == []
    (found,) = advice(batch_size=needed - groups, **settings)
    assert f"{groups} classes and {groups} dimensions need {needed} samples" in found
    assert "--batch-size" in found
    assert advice(batch_size=needed - groups, objective="cce", **settings) == []


def test_small_classes():
    assert advice((100, 100, 10, 100, 100)) == []
    (found,) = advice((100, 100, 9, 100, 100))
    assert 'The class "cow" has only 9 training samples.' in found
    (found,) = advice((100, 8, 9, 1, 100))
    assert 'The class "doe" has only 1 training sample, and 2 others of the 5 classes have fewer than 10.' in found


def finished(config, counts):
    """Return the metrics of a run that classifies everything as the next class."""
    table = np.roll(np.diag([20] * len(counts)), 1, axis=1).tolist()
    figures = {"accuracy": 0.0, "balanced_accuracy": 0.0}
    scores = Scores(n=20 * len(counts), accuracy=0.0, predictors={"hyperplanes": figures}, confusion=table)
    steps = -(-sum(counts) // config.batch_size)
    epochs = [
        EpochRow(
            epoch=epoch + 1,
            loss=-1.0,
            steps=steps,
            learning_rate=0.1,
            seconds=1.0,
            validation=scores,
            eigenvalues=[1.0] * 4,
        )
        for epoch in range(config.epochs)
    ]
    end = {"class_names": list(NAMES), "train_counts": list(counts), "validation": scores, "test": scores}
    return [*epochs, SummaryRow(epochs=config.epochs, best_epoch=1, seconds=1.0, **end)]


@pytest.mark.parametrize(
    ("counts", "settings"),
    [
        ((100,) * 5, {"batch_size": 500}),
        ((100,) * 5, {"batch_size": 10}),
        ((100, 100, 9, 100, 100), {}),
        ((4,) * 5, {"batch_size": 12, "epochs": 3}),
        ((100,) * 5, {}),
    ],
)
def test_the_doctor_gives_the_same_advice_after_a_poor_run(counts, settings):
    config = RunConfig(**{"epochs": 20, "batch_size": 50} | settings)
    before = {(found.what, found.why, found.do) for found in poor_conditions(config, data(counts))}
    after = {(found.what, found.why, found.do) for found in diagnose(finished(config, counts), config)}
    assert before <= after
    assert bool(before) == bool(settings or counts != (100,) * 5)
