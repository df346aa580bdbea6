"""A saved classifier is the classifier, and its folder holds nothing that could run."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from sklearn.datasets import load_iris
from torch import nn

from deeplda import load
from deeplda.errors import InputError
from deeplda.estimator_files import labels_as_json
from deeplda.estimators import DeepLDAClassifier

ROWS, LABELS = load_iris(return_X_y=True)
FAST = {"max_epochs": 3, "random_state": 0}
KINDS = {
    "int": np.array([3, -1, 7]),
    "uint8": np.array([3, 1, 7], dtype=np.uint8),
    "float": np.array([0.0, 1.0, 2.0]),
    "str": np.array(["a", "ü", "long name"]),
    "object": np.array(["a", "b", "c"], dtype=object),
}


@pytest.fixture(scope="module")
def classifier():
    return DeepLDAClassifier(**FAST).fit(ROWS, LABELS)


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier") / "saved"
    classifier.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A saved classifier that a test may damage."""
    return shutil.copytree(saved, tmp_path / "saved")


def same(one, other):
    """Whether two classifiers are alike in all that can be asked of them."""
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        np.testing.assert_array_equal(getattr(one, method)(ROWS), getattr(other, method)(ROWS))
    assert one.classes_.dtype == other.classes_.dtype
    assert one.classes_.tolist() == other.classes_.tolist()
    for name in ("n_iter_", "loss_curve_", "n_features_in_"):
        assert getattr(one, name) == getattr(other, name)
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_labels_survive(tmp_path, kind):
    classifier = DeepLDAClassifier(**FAST).fit(ROWS, KINDS[kind][LABELS])
    classifier.save(tmp_path / "saved")
    same(DeepLDAClassifier.load(tmp_path / "saved"), classifier)


def test_booleans_survive(tmp_path):
    classifier = DeepLDAClassifier(**FAST).fit(ROWS, LABELS == 1)
    classifier.save(tmp_path / "saved")
    same(DeepLDAClassifier.load(tmp_path / "saved"), classifier)


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "cce", "embedding_dim": 5},
        {"predictor": "classic_lda", "class_weight": "balanced", "scatter": "sum"},
        {"class_weight": {0: 2.0, 2: 0.5}, "alpha": np.float64(0.3), "network": "mlp"},
        {"early_stopping": True, "statistic": "wilks", "epsilon": float("inf")},
    ],
)
def test_parameters_survive(tmp_path, parameters):
    classifier = DeepLDAClassifier(**{**FAST, **parameters}).fit(ROWS, LABELS)
    classifier.save(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved")
    assert loaded.get_params() == classifier.get_params()
    same(loaded, classifier)
    if classifier.early_stopping:
        assert loaded.validation_scores_ == classifier.validation_scores_


def test_images(tmp_path):
    images = ROWS.reshape(-1, 1, 2, 2).repeat(2, 2).repeat(2, 3)
    classifier = DeepLDAClassifier(**FAST).fit(images, LABELS)
    classifier.save(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict_proba(images), classifier.predict_proba(images))


def test_names_of_features_survive(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcd"))
    classifier = DeepLDAClassifier(**FAST).fit(frame, LABELS)
    classifier.save(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict_proba(frame), classifier.predict_proba(frame))
    assert loaded.feature_names_in_.tolist() == list("abcd")


def build(sample_shape, embedding_dim):
    return nn.Linear(*sample_shape, embedding_dim)


@pytest.mark.parametrize("network", [build, nn.Linear(4, 3)], ids=["callable", "module"])
def test_own_networks_are_named_again(tmp_path, network):
    classifier = DeepLDAClassifier(network=network, **FAST).fit(ROWS, LABELS)
    classifier.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="without your permission: pass network="):
        DeepLDAClassifier.load(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved", network=network)
    same(loaded, classifier)
    assert loaded.network is network


def test_a_link_is_not_followed(classifier, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    before = (folder / "classifier.json").stat()
    with pytest.raises(InputError, match="is a link"):
        classifier.save(tmp_path / "link")
    assert (folder / "classifier.json").stat() == before
    same(DeepLDAClassifier.load(tmp_path / "link"), classifier)


def test_the_model_inside_is_one_of_deeplda(tmp_path):
    classifier = DeepLDAClassifier(class_weight={1: 3}, **FAST).fit(ROWS, LABELS)
    classifier.save(tmp_path / "saved")
    model = load(tmp_path / "saved")
    np.testing.assert_allclose(model.predict_proba(ROWS), classifier.predict_proba(ROWS), rtol=1e-9)


def test_no_pickle(saved):
    names = sorted(file.name for file in saved.iterdir())
    assert names == ["classifier.json", "coordinates.safetensors", "model.json", "weights.safetensors"]


def test_only_a_classifier_is_replaced(classifier, folder, tmp_path):
    classifier.save(folder)
    same(DeepLDAClassifier.load(folder), classifier)
    (tmp_path / "letters").mkdir()
    with pytest.raises(ValueError, match="letters already exists"):
        classifier.save(tmp_path / "letters")
    (folder / "model.onnx").write_text("of the classifier before")
    classifier.save(folder)
    assert not (folder / "model.onnx").exists()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"contains 'notes\.txt'"):
        classifier.save(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_the_folder_of_the_user(classifier, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    classifier.save("~/saved")
    assert (tmp_path / "saved" / "classifier.json").is_file()
    same(DeepLDAClassifier.load("~/saved"), classifier)


def test_strange_labels_are_refused():
    with pytest.raises(ValueError, match="labels are of type bytes"):
        labels_as_json(np.array([b"a", b"b"]))


def root(eigenvalues):
    return torch.sqrt(1 + eigenvalues).mean()


def test_only_the_name_of_a_statistic_is_stored(tmp_path):
    classifier = DeepLDAClassifier(statistic=root, **FAST).fit(ROWS, LABELS)
    classifier.save(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved")
    same(loaded, classifier)
    assert loaded.statistic == f"{__name__}:root"
    with pytest.raises(InputError, match=r"statistic is the name '.*:root': pass the function itself"):
        loaded.fit(ROWS, LABELS)
    same(loaded.set_params(statistic=root).fit(ROWS, LABELS), classifier)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": [[1]]}, "is not a classifier"),
        ({"dtype": "<U500000000"}, "class labels"),
        ({"dtype": "|V8"}, "class labels"),
        ({"dtype": "i4,i4"}, "class labels"),
        ({"dtype": "(1000000000,)i8"}, "class labels"),
        ({"dtype": "<i8", "classes": [1, "a", 2]}, "class labels"),
        ({"dtype": "|i1", "classes": [1, 2, 10**30]}, "class labels"),
        ({"classes": [0, 1]}, "declares 2 classes"),
        ({"n_features": 10**9}, "declares 1000000000 features"),
        ({"feature_names": ["a"]}, "declares 1 feature names"),
        ({"parameters": {"surprise": 1}}, "declares an unknown parameter"),
        ({"parameters": {"network": "trap:make"}}, "the code 'trap:make', which is not run without your permission"),
        ({"estimator": "os.system"}, "contains a os.system"),
    ],
    ids=str,
)
def test_a_record_that_lies_is_refused(folder, change, message):
    record = json.loads((folder / "classifier.json").read_text())
    (folder / "classifier.json").write_text(json.dumps(record | change))
    with pytest.raises(InputError, match=message):
        DeepLDAClassifier.load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("classifier.json", None, "is not a classifier"),
        ("classifier.json", b"{", "is not a classifier"),
        ("coordinates.safetensors", b"nothing", "cannot be read"),
        ("coordinates.safetensors", save({}), "do not have the width"),
        ("coordinates.safetensors", save({"xbar": np.zeros(3), "scalings": np.zeros((7, 2))}), "do not have the width"),
        ("coordinates.safetensors", save({"xbar": np.zeros(7), "scalings": np.zeros((7, 2))}), "do not have the width"),
        ("coordinates.safetensors", save({"xbar": np.zeros(3, int), "scalings": np.zeros((3, 2))}), "not float64"),
    ],
)
def test_a_damaged_file_is_refused(folder, name, content, message):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        DeepLDAClassifier.load(folder)
