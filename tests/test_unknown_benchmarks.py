"""The parts of benchmarks/unknown_inputs.py and benchmarks/new_classes.py, on tiny data."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeplda.data import Part, load_data
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate, gather_both_statistics
from small_model import digits, small_model


@pytest.fixture
def unknown_inputs(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import unknown_inputs

    yield unknown_inputs
    for name in ("unknown_inputs", "new_classes", "first_run"):
        sys.modules.pop(name, None)


@pytest.fixture
def new_classes(unknown_inputs):
    assert unknown_inputs
    return sys.modules["new_classes"]


@pytest.fixture
def model():
    found, part = small_model(), Part(*digits())
    statistics = gather_both_statistics(found, part)
    found._fit_statistics(statistics.outputs)
    found._set_feature_statistics(statistics.features, statistics.some)
    evaluate(found, part, calibrate=True)
    return found


def test_the_scores_of_the_benchmark_are_those_of_the_model(unknown_inputs, model):
    images, labels = digits()
    noise = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    train, samples = (unknown_inputs.Layers.of(model, pixels) for pixels in (images, noise))
    found = {(rule, layer): score for rule, layer, score in unknown_inputs.scores(train, labels, samples)}
    assert len(found) == 9
    for (rule, layer), score in found.items():
        if rule != "all neighbours" and (rule, layer) != ("neighbours", "outputs"):
            expected = model.unknown_score(noise, rule=rule, layer=layer)
            np.testing.assert_allclose(score, expected, rtol=1e-3, atol=1e-3)


def test_the_twentieth_neighbour(unknown_inputs):
    rows = np.random.default_rng(0).standard_normal((30, 4))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.sort(np.linalg.norm(unit[:, None] - unit[None], axis=2), 1)[:, 19]
    np.testing.assert_allclose(unknown_inputs.neighbour_distances(rows, rows), expected, atol=1e-3)


def test_rates(unknown_inputs):
    """Of 100 known scores 1 to 100, the 95 % quantile is 95.05: four of the five unknown ones are below it."""
    known, unknown = np.arange(1.0, 101), np.array([0.5, 50.5, 94.5, 95.04, 200.0])
    area = np.mean([(unknown[:, None] > known).mean(1)])
    assert unknown_inputs.rates(known, unknown) == (pytest.approx(100 * area), 80.0)


def test_rows_that_are_there_are_not_measured_again(unknown_inputs):
    rows = [{"network": "pillai", "seed": 0, "unknown": "mnist"}]
    assert not unknown_inputs.missing(rows, "pillai", 0, ["mnist"])
    assert unknown_inputs.missing(rows, "pillai", 0, ["mnist", "cifar100"])
    assert unknown_inputs.missing(rows, "pillai", 1, ["mnist"])
    assert unknown_inputs.missing(rows, "cross-entropy", 0, ["mnist"])


def test_no_class_of_the_choice_is_both_known_and_unknown(unknown_inputs, monkeypatch):
    data = load_data("digits")
    monkeypatch.setattr(unknown_inputs, "CHOICE_IMAGES", 300)
    known, validation, unknown = unknown_inputs.choice(data, 0)
    assert known.class_names == tuple("0134678")
    assert len(known.train) == 300
    assert validation is known.val
    (images,) = unknown.values()
    labels = [data.train.labels[np.flatnonzero((data.train.inputs == image).all((1, 2, 3)))[0]] for image in images]
    assert set(labels) == {2, 5, 9}


def test_grey_images_get_three_channels_of_32_by_32(unknown_inputs):
    found = unknown_inputs.colour(np.full((2, 1, 28, 28), 7, dtype=np.uint8))
    np.testing.assert_array_equal(found, np.full((2, 3, 32, 32), 7))


def test_the_summary_compares_with_the_default(unknown_inputs):
    rows = [
        {
            "network": "pillai", "seed": seed, "unknown": "mnist", "rule": rule, "layer": "features", "auc": area,
            "accepted": 10 * seed,
        }
        for rule, areas in (("neighbours", (80, 82, 84)), ("relative", (79, 82, 85)))
        for seed, area in enumerate(areas)
    ]  # fmt: skip
    lines = list(unknown_inputs.summary(rows))
    assert "82.00  10.00   +0.00 ± 0.00 from the default" in lines[0]
    assert "82.00  10.00   +0.00 ± 2.48 from the default" in lines[1]


def test_new_classes_are_added_as_the_model_does(new_classes, model):
    """The rule add_class of the benchmark decides as the model does after the same examples."""
    images, labels = digits()
    config = RunConfig()
    seen = new_classes.Layers.of(model, images)
    new = np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8), dtype=np.uint8)
    added = new_classes.Layers.of(model, new)
    layer, rule = new_classes.rules(config)["add_class"]
    samples = np.concatenate([getattr(seen, layer), getattr(added, layer)])
    decided = rule(samples, np.concatenate([labels, np.full(5, 10)]), getattr(seen, layer))
    model.add_class(new, "new")
    np.testing.assert_array_equal(np.asarray(model.class_names)[decided], model.predict(images))


def test_shrunk_lda_against_scikit_learn(new_classes):
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 5])
    samples, others = rng.standard_normal((75, 6)) + labels[:, None], rng.standard_normal((200, 6)) + 1
    centred = samples - np.stack([samples[labels == label].mean(0) for label in range(3)])[labels]

    class Shrunk:
        def fit(self, _):
            covariance = centred.T @ centred / 75
            self.covariance_ = 0.8 * covariance + 0.2 * np.trace(covariance) / 6 * np.eye(6)
            return self

    # scikit-learn averages the covariances of the classes by their priors, so all of them are the pooled one here.
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Shrunk(), priors=[1 / 3] * 3)
    np.testing.assert_array_equal(
        new_classes.shrunk_lda(samples, labels, others), lda.fit(samples, labels).predict(others)
    )


def test_one_network_from_training_to_rows(new_classes):
    """Two classes are left out of a few digits; the rows have every rule, and the old classes are found."""
    data = load_data("digits")
    few = replace(data, train=data.train.take(np.arange(400)))
    config = RunConfig(epochs=2, batch_size=200)
    rows = list(new_classes.measured(few, config, np.array([0, 1]), [5]))
    assert [row["rule"] for row in rows] == ["before", *new_classes.rules(config)]
    assert all(0 <= row["new"] <= 100 and row["old"] > 50 for row in rows[1:])
    assert len(list(new_classes.summary([{"network": "pillai", "seed": 0, **row} for row in rows]))) == 5
