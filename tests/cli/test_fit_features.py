"""`deeplda fit-features`: from stored embeddings to a run on which all commands work."""

import json
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from command import in_this_process
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from deeplda import load
from deeplda.data import full_pass, load_data, npz
from deeplda.data.mapped_rows import MappedRows
from deeplda.errors import InputError
from deeplda.predictors.feature_moments import FeatureMoments
from deeplda.training import run_folder
from deeplda.training.config import RunConfig

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


class RidgeCovariance:
    """A covariance estimator for scikit-learn: the covariance of a class plus a ridge."""

    def __init__(self, lam):
        self.lam = lam

    def fit(self, X):
        self.covariance_ = np.cov(X.T, bias=True) + self.lam * np.eye(X.shape[1])
        return self


def embeddings():
    """Embeddings of digits by a fixed random layer, with fewer samples of the later classes."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    kept = rng.random(len(labels)) < 1 - labels / 20
    features = np.maximum(images @ rng.normal(size=(64, 40)) / 8, 0).astype(np.float32)
    return features[kept], labels[kept]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with embeddings and the run that was fitted on them."""
    from deeplda.cli import main

    folder = tmp_path_factory.mktemp("features")
    features, labels = embeddings()
    np.savez(folder / "digits.npz", features=features, labels=NAMES[labels])
    main(["fit-features", str(folder / "digits.npz"), "--run", str(folder / "run"), "--quiet"])
    return folder


def test_decisions_are_those_of_lda_in_scikit_learn(fitted):
    model, data = load(fitted / "run"), load_data(fitted / "digits.npz")
    config = RunConfig.of(fitted / "run")
    assert (config.network, config.epochs, config.priors) == ("identity", 0, "empirical")
    assert config.lam != 1e-3  # it was chosen
    mean, deviation = (getattr(model.normalisation, name).double().numpy() for name in ("mean", "deviation"))
    np.testing.assert_allclose(mean, data.train.inputs.mean(0, dtype=np.float64), rtol=1e-5)
    x, test = ((part.inputs - mean) / deviation for part in (data.train, data.test))
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=RidgeCovariance(config.lam))
    scores = lda.fit(x, data.train.labels).decision_function(test)
    ours = model.decision_function(data.test.inputs)
    centred = [found - found.mean(1, keepdims=True) for found in (ours, scores)]
    np.testing.assert_allclose(centred[0], centred[1], atol=1e-3 * np.abs(scores).max())
    np.testing.assert_array_equal(model.predict(data.test.inputs), np.array(data.class_names)[scores.argmax(1)])
    assert model.calibrated_on == len(data.val)


def test_all_commands_work_on_the_run(fitted, tmp_path, capsys):
    run, file = fitted / "run", fitted / "digits.npz"
    summary = run_folder.summary_row(run)
    code, shown, _ = in_this_process(capsys, "evaluate", run, "--json")
    assert (code, json.loads(shown)["accuracy"]) == (0, summary.test.accuracy)
    assert summary.test.accuracy > 0.8
    code, _, said = in_this_process(capsys, "evaluate", run, file, "--json")
    assert (code, "most of its samples were used to train the model" in said) == (0, True)
    code, shown, _ = in_this_process(capsys, "predict", run, file, "--json")
    predictions = json.loads(shown)["predictions"]
    assert code == 0
    assert [row["class"] for row in predictions] == load(run).predict(embeddings()[0]).tolist()
    code, shown, _ = in_this_process(capsys, "similar", run, file, "--in", file, "--count", "1", "--json")
    assert code == 0
    same = [entry["class"] == entry["similar"][0]["class"] for entry in json.loads(shown)["queries"]]
    assert np.mean(same) > 0.7
    code, shown, _ = in_this_process(capsys, "doctor", run, "--json")
    assert [finding["severity"] for finding in json.loads(shown)["findings"]] == ["good"]
    assert in_this_process(capsys, "report", run, "--figures", "--output", tmp_path / "report.html")[0] == 0
    assert "The network was not trained" in (tmp_path / "report.html").read_text()
    assert (run / "report.html").exists()


def test_a_class_is_added(fitted):
    model = load(fitted / "run")
    features, labels = embeddings()
    model.add_class(features[labels == 1] + 30, "shifted")
    assert (model.predict(features[labels == 1] + 30) == "shifted").all()


def test_a_list_column_and_columns_of_numbers_give_the_same_model(tmp_path, capsys):
    features, labels = embeddings()
    tables = {
        "lists": pa.table({"embedding": list(features), "label": NAMES[labels]}),
        "columns": pa.table(
            {f"f{place}": column for place, column in enumerate(features.T)} | {"label": NAMES[labels]}
        ),
    }
    accuracies, predictions = [], []
    for name, table in tables.items():
        file = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(table, file)
        code, shown, _ = in_this_process(
            capsys, "fit-features", file, "--target", "label", "--run", tmp_path / name, "--json", "--quiet"
        )
        assert code == 0
        accuracies.append(json.loads(shown)["test"]["accuracy"])
        code, shown, _ = in_this_process(capsys, "predict", tmp_path / name, file, "--csv")
        assert code == 0
        predictions.append([line.split(",")[1] for line in shown.splitlines()])
    assert accuracies[0] == accuracies[1] > 0.8
    assert predictions[0] == predictions[1]


def test_features_in_a_file_give_the_same_model_and_are_read_once(fitted, tmp_path, capsys, monkeypatch):
    reads = []
    read = MappedRows.__getitem__

    def counted(rows, key):
        found = read(rows, key)
        if not isinstance(found, MappedRows):
            reads.append(rows._places[key])
        return found

    monkeypatch.setattr(MappedRows, "__getitem__", counted)
    # So that the pass takes several blocks.
    monkeypatch.setattr(full_pass, "_BLOCK_VALUES", 40 * 100)
    file, whole, run = fitted / "digits.npz", tmp_path / "whole", tmp_path / "run"
    assert in_this_process(capsys, "fit-features", file, "--run", whole, "--quiet")[0] == 0
    assert not reads
    monkeypatch.setattr(npz, "_MOST_IN_MEMORY", 0)
    assert in_this_process(capsys, "fit-features", file, "--run", run, "--quiet")[0] == 0
    assert max(map(np.size, reads)) <= 500
    times = np.bincount(np.concatenate(reads), minlength=len(embeddings()[0]))
    assert (times[load_data(file).train.inputs._places] == 1).all()
    for name in ("weights.safetensors", "model.json"):
        assert (run / "model" / name).read_bytes() == (whole / "model" / name).read_bytes()
    assert run_folder.summary_row(run).test == run_folder.summary_row(whole).test
    assert in_this_process(capsys, "audit", run, "--json")[0] == 0
    code, shown, _ = in_this_process(capsys, "predict", run, file, "--json")
    assert code == 0
    predictions = [row["class"] for row in json.loads(shown)["predictions"]]
    assert predictions == load(whole).predict(embeddings()[0]).tolist()


def test_a_table_gives_the_same_results_as_arrays(tmp_path, capsys):
    features, labels = embeddings()
    # A table is clipped at 10 deviations.
    deviations = np.abs(features - features.mean(0)).max(0) / np.maximum(features.std(0), 1e-6)
    features, names = features[:, deviations < 8], NAMES[labels]
    np.savez(tmp_path / "a.npz", features=features, labels=names)
    pyarrow.parquet.write_table(pa.table({"embedding": list(features), "label": names}), tmp_path / "a.parquet")
    for kind in ("npz", "parquet"):
        options = ("--lam", "0.01", "--run", tmp_path / kind, "--quiet")
        assert in_this_process(capsys, "fit-features", tmp_path / f"a.{kind}", *options)[0] == 0
    arrays, table = (run_folder.summary_row(tmp_path / kind) for kind in ("npz", "parquet"))
    assert table.test.confusion == arrays.test.confusion
    assert table.test.predictors["hyperplanes"].log_loss == pytest.approx(
        arrays.test.predictors["hyperplanes"].log_loss, rel=1e-3
    )


def test_ctrl_c_stops_before_a_run_is_written(fitted, tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(FeatureMoments, "update", interrupt)
    code, shown, errors = in_this_process(capsys, "fit-features", fitted / "digits.npz", "--run", tmp_path / "run")
    assert (code, shown) == (130, "")
    assert errors.endswith("deeplda: stopped\n")
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_is_finished_later(tmp_path, capsys, monkeypatch):
    features, labels = embeddings()
    np.savez(tmp_path / "digits.npz", x_train=features, y_train=labels)
    arguments = ("fit-features", tmp_path / "digits.npz", "--quiet")

    def fail(*_):
        raise InputError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(run_folder.RunFolder, "save_model", fail)
        assert in_this_process(capsys, *arguments, "--run", tmp_path / "run")[0] == 2
    assert not (tmp_path / "run" / "model").exists()
    code, _, errors = in_this_process(capsys, *arguments, "--run", tmp_path / "run")
    assert code == 2
    assert "already contains a run: pass --resume" in errors
    assert in_this_process(capsys, *arguments, "--run", tmp_path / "run", "--resume")[0] == 0
    assert in_this_process(capsys, *arguments, "--run", tmp_path / "other")[0] == 0
    one, other = (load(tmp_path / name).decision_function(features) for name in ("run", "other"))
    np.testing.assert_array_equal(one, other)


def test_the_ridge_can_be_given_and_classes_balanced(fitted, tmp_path, capsys):
    options = ("--lam", "0.25", "--class-weight", "balanced", "--run", tmp_path / "run", "--quiet")
    assert in_this_process(capsys, "fit-features", fitted / "digits.npz", *options)[0] == 0
    model = load(tmp_path / "run")
    assert model.card.lam == 0.25
    counts = model.statistics.counts
    np.testing.assert_allclose(counts, counts.mean().expand_as(counts))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"features": np.full((20, 3), np.nan), "labels": np.arange(20) % 2}, (), "not finite"),
        ({"features": np.ones((20, 3)), "labels": np.arange(19) % 2}, (), "20 samples and y_train has 19 labels"),
        ({"features": np.ones((20, 3)), "labels": np.zeros(20, int)}, (), "training samples of only one class"),
        ({"features": np.ones((20, 3))}, (), "has no y_train, need x_train and y_train, or features and labels"),
        ({"x_train": np.zeros((20, 8, 8), np.uint8), "y_train": np.arange(20) % 2}, (), "need feature vectors"),
        ({"features": np.ones((20, 3)), "labels": np.arange(20) % 2}, ("--target", "label"), "is not a table: omit it"),
        ({"features": np.ones((20, 3)), "labels": np.arange(20) % 2}, ("--lam", "-1"), "lam is -1"),
        (
            {"features": np.ones((20, 3)), "labels": np.arange(20) % 2},
            ("--group-by", "who"),
            "neither a table nor a folder",
        ),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, capsys, arrays, options, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    code, shown, errors = in_this_process(
        capsys, "fit-features", tmp_path / "wrong.npz", "--run", tmp_path / "run", "--quiet", *options
    )
    assert (code, shown) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_table_without_labels_is_one_sentence(tmp_path, capsys):
    pyarrow.parquet.write_table(pa.table({"embedding": list(embeddings()[0])}), tmp_path / "a.parquet")
    code, _, errors = in_this_process(capsys, "fit-features", tmp_path / "a.parquet", "--run", tmp_path / "run")
    assert code == 2
    assert "column 'embedding'" in errors
    assert "which is the target, has lists, need classes: pass the column with the classes as --target" in errors


def test_samples_of_another_width_are_rejected(fitted, tmp_path, capsys):
    np.savez(tmp_path / "narrow.npz", features=np.ones((3, 7)))
    code, _, errors = in_this_process(capsys, "predict", fitted / "run", tmp_path / "narrow.npz")
    assert code == 2
    assert "features in" in errors
    assert "has samples of shape (7,), but the model needs (40,)" in errors


def test_a_network_without_layers_cannot_be_trained(fitted, tmp_path, capsys):
    arguments = ("train", fitted / "digits.npz", "--network", "identity", "--run", tmp_path / "run", "--quiet")
    code, _, errors = in_this_process(capsys, *arguments)
    assert code == 2
    assert "pass --epochs 0, or use deeplda fit-features" in errors
