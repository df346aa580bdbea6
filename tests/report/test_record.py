"""A report shows what the model computes from the data."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh
from trained_runs import image_set, row_set, train_run

from deeplda import load
from deeplda.data import load_data
from deeplda.errors import InputError
from deeplda.report.record import Environment, finished_trials, inspect_run, inspect_runs, is_sweep, read_record
from metric_scores import scores_with

NAMES = ("cat", "dog", "owl")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    images = image_set(home / "images.npz", NAMES)
    train_run(home / "lda", images, alpha=0.3)
    train_run(home / "cce", images, objective="cce", embedding_dim=5)
    return home


@pytest.fixture(scope="module")
def lda(home):
    return inspect_run(home / "lda")


def test_decisions_are_those_that_were_scored(lda):
    right = lda.decided == lda.labels
    assert right.mean() == lda.scores.accuracy == lda.summary.test.accuracy
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (lda.labels, lda.decided), 1)
    assert counts.tolist() == lda.scores.confusion


def test_samples_labels_and_embedding_belong_together(home, lda):
    part = load_data(home / "images.npz").test
    assert sorted(lda.places) == list(range(len(part)))
    assert not np.array_equal(lda.places, np.sort(lda.places))
    np.testing.assert_array_equal(lda.samples, part.inputs[lda.places])
    np.testing.assert_array_equal(lda.labels, part.labels[lda.places])
    model = load(home / "lda")
    np.testing.assert_allclose(lda.embedding, model.transform(part.inputs)[lda.places], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(lda.probabilities, model.predict_proba(lda.samples).max(1), rtol=1e-5)


def scatters(embedding, labels):
    """S_W and S_B by the paper's sums, divided by n."""
    mean, d = embedding.mean(0), embedding.shape[1]
    within, between = np.zeros((d, d)), np.zeros((d, d))
    for c in np.unique(labels):
        own = embedding[labels == c]
        within += (own - own.mean(0)).T @ (own - own.mean(0)) / len(labels)
        between += len(own) / len(labels) * np.outer(own.mean(0) - mean, own.mean(0) - mean)
    return within, between


@pytest.mark.parametrize(("name", "alpha"), [("lda", 0.3), ("cce", 1.0)])
def test_coordinates_solve_the_eigenproblem_of_the_training_part(home, name, alpha):
    run = inspect_run(home / name)
    part = load_data(home / "images.npz").train
    embedding = load(home / name).transform(part.inputs).astype(np.float64)
    within, between = scatters(embedding, part.labels)
    regular = alpha * within + (1 - alpha) * np.diag(np.diag(within)) + 1e-3 * np.eye(len(within))
    values, vectors = eigh(between, regular)
    expected = (run.embedding - embedding.mean(0)) @ vectors[:, [-1, -2]]
    signs = np.sign((expected * run.coordinates).sum(0))
    np.testing.assert_allclose(run.coordinates, expected * signs, rtol=1e-3, atol=1e-3)
    assert run.axes == tuple(f"discriminant {i} (eigenvalue {values[-i]:.3g})" for i in (1, 2))


def test_the_power_of_a_dimension_is_measured_on_the_means_of_the_training_part(home, lda):
    part = load_data(home / "images.npz").train
    trained = load(home / "lda").transform(part.inputs)
    means = np.stack([trained[part.labels == c].mean(0) for c in range(3)])
    for j, accuracy in enumerate(lda.single_accuracies):
        nearest = np.abs(lda.embedding[:, j, None] - means[:, j]).argmin(1)
        assert accuracy == pytest.approx((nearest == lda.labels).mean())
    within, between = scatters(lda.embedding.astype(np.float64), lda.labels)
    np.testing.assert_allclose(lda.fisher_ratios, np.diag(between) / np.diag(within), rtol=1e-6)


@pytest.mark.parametrize("objective", ["rdlda", "cce"])
def test_with_subclasses_all_is_about_classes(home, tmp_path, objective):
    settings = {"subclasses": 2, "cluster_on": "inputs", "embedding_dim": "subclasses", "objective": objective}
    run = inspect_run(train_run(tmp_path / "run", home / "images.npz", **settings))
    assert run.card.parents is not None
    assert (run.decided == run.labels).mean() == run.scores.accuracy
    part = load_data(home / "images.npz").train
    trained = load(tmp_path / "run").transform(part.inputs)
    means = np.stack([trained[part.labels == c].mean(0) for c in range(3)])
    nearest = np.abs(run.embedding[:, 0, None] - means[:, 0]).argmin(1)
    assert run.single_accuracies[0] == pytest.approx((nearest == run.labels).mean())


def test_a_large_part_is_sampled_by_class(home):
    run = inspect_run(home / "lda", points=30)
    assert np.bincount(run.labels).tolist() == [10, 10, 10]
    assert run.sizes == {"test": 60, "validation": 27, "training": 153}
    assert run.scores.n == 60


def test_two_classes_get_a_second_axis_that_says_what_it_is(tmp_path):
    data = row_set(tmp_path / "rows.npz", ("no", "yes"))
    run = inspect_run(train_run(tmp_path / "run", data))
    assert run.coordinates.shape == (40, 2)
    assert "no meaning" in run.axes[1]
    assert not run.images


def test_runs_on_the_same_data_show_the_same_samples(home):
    one, other = inspect_runs([read_record(home / "lda"), read_record(home / "cce")], points=30)
    np.testing.assert_array_equal(one.places, other.places)
    assert "softmax" in other.scores.predictors


def test_no_run_and_no_finished_run(home, tmp_path):
    with pytest.raises(InputError, match=r"it has no run\.toml"):
        inspect_run(tmp_path)
    shutil.copytree(home / "lda", tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "run" / "metrics.jsonl").write_text(rows[0] + "\n")
    with pytest.raises(InputError, match=r"is not finished.*deeplda train --resume"):
        inspect_run(tmp_path / "run")


def test_other_data_is_refused(tmp_path):
    data = image_set(tmp_path / "images.npz", NAMES)
    folder = train_run(tmp_path / "run", data, epochs=1)
    image_set(data, NAMES, test=21)
    with pytest.raises(InputError, match="has changed since"):
        inspect_run(folder)


def test_a_run_without_its_environment_is_read(home, tmp_path):
    shutil.copytree(home / "lda", tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text("{")
    assert inspect_run(tmp_path / "run").environment == Environment()


def test_values_that_are_not_finite_are_refused(home, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(home / "lda", tmp_path / "run")
    file = tmp_path / "run" / "model" / "weights.safetensors"
    state = load_file(file)
    state |= {name: tensor * float("nan") for name, tensor in state.items() if name.startswith("network.features.0")}
    save_file(state, file)
    with pytest.raises(InputError, match="NaN or infinity"):
        inspect_run(tmp_path / "run")


def test_a_sweep_is_its_finished_trials_best_first(home, tmp_path):
    assert not is_sweep(tmp_path)
    (tmp_path / "sweep.toml").touch()
    assert is_sweep(tmp_path)
    with pytest.raises(InputError, match="no finished trial"):
        finished_trials(tmp_path)
    for name, accuracy in (("a", 0.2), ("b", 0.9), ("c", 0.5), ("d", None)):
        trial = tmp_path / "trials" / name
        shutil.copytree(home / "lda", trial)
        row = {"kind": "summary", "epochs": 1, "best_epoch": 1, "seconds": 1.0, "class_names": ["a", "b"]}
        if accuracy is not None:
            row |= {"validation": scores_with(accuracy), "test": scores_with(accuracy)}
        (trial / "metrics.jsonl").write_text(json.dumps(row))
    assert [record.path.name for record in finished_trials(tmp_path)] == ["b", "c", "a"]


def test_a_model_and_data_in_memory_give_the_same_as_those_on_disk(home, lda, monkeypatch):
    model, data = load(home / "lda"), load_data(home / "images.npz")
    for name in ("load", "read_data_of_run"):
        monkeypatch.delattr(f"deeplda.report.record.{name}")
    found = inspect_run(home / "lda", model=model, data=data)
    for name, value in vars(lda).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(found, name), value)
    assert found.axes == lda.axes
    assert found.sizes == lda.sizes


def test_the_hardest_are_the_most_confident_mistakes(lda):
    wrong = np.arange(len(lda.labels)) % 2
    run = replace(lda, decided=(lda.labels + wrong) % 3)
    places, mistakes = run.hardest(24)
    assert (len(places), mistakes) == (24, wrong.sum())
    assert wrong[places].all()
    assert (np.diff(run.probabilities[places]) <= 0).all()
    assert run.probabilities[places[-1]] >= np.sort(run.probabilities[wrong == 1])[-24]


def test_without_mistakes_the_hardest_are_the_least_confident(lda):
    places, mistakes = replace(lda, decided=lda.labels).hardest(5)
    assert mistakes == 0
    np.testing.assert_array_equal(lda.probabilities[places], np.sort(lda.probabilities)[:5])
