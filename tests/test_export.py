"""An exported graph computes the same as its model, for any number of samples; otherwise it is not written."""

import io
import json

import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.special
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.export import OUTPUTS, VerificationError, export_model, verify
from deeplda.model import Model, ModelCard
from deeplda.networks import build_network
from deeplda.predictors import Calibration, FeatureStatistics, Hyperplanes


def make_model(network, shape, *, predictors=("hyperplanes",), embedding_dim=4, classes=3, dtype=np.uint8, **card):
    """A model with random weights and all of its parts at work, and samples for it."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    names = tuple(f"größe {c}" for c in range(classes))
    card = ModelCard(
        network=network, width=1 / 16, embedding_dim=embedding_dim, sample_shape=shape, class_names=names,
        predictors=predictors, **card,
    )  # fmt: skip
    model = Model(card, network_at_work(build_network(**card._architecture())))
    groups = len(card.subclass_map)
    labels = np.arange(60) % groups
    inputs = rng.normal(128, 40, (groups, *shape))[labels] + rng.normal(0, 40, (60, *shape))
    inputs = np.clip(inputs, 0, 255).astype(dtype)
    if dtype == np.float64:
        model.double()
    model.normalisation.fit(inputs)
    with torch.no_grad():  # batch normalisation gets statistics that are not those it starts with
        model.train().forward(torch.as_tensor(inputs))
    if predictors == ("softmax",):
        layer = nn.Linear(embedding_dim, groups)
        model.predictor.set_layer(torch.arange(groups), layer.weight, layer.bias)
    else:
        statistics = FeatureStatistics.for_labels(torch.as_tensor(labels))
        statistics.update(torch.as_tensor(model.transform(inputs)), torch.as_tensor(labels))
        model._fit_statistics(statistics)
    scores = model.class_scores(torch.as_tensor(model.transform(inputs))).detach().numpy()
    model.predictor.calibration.fit(scores, np.asarray(card.subclass_map.parents)[labels])
    model.predictor.shift_priors([2.0] + [1.0] * (groups - 1))
    assert model.calibrated_on == 60
    return model._place(torch.device("cpu")), inputs


def network_at_work(network):
    """Without the zeros that an MLP's hidden part starts with."""
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter)
    return network


def check_outputs(model, run, inputs):
    for rows in (inputs[:1], inputs[3:6], inputs):
        found = run(rows)
        np.testing.assert_allclose(found["embedding"], model.transform(rows), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-4)
        calibration = model.predictor.calibration
        beta, share = float(calibration.inverse_temperature), float(calibration.uniform_share)
        sharpened = scipy.special.softmax(beta * found["scores"], axis=1)
        expected = (1 - share) * sharpened + share / sharpened.shape[1]
        np.testing.assert_allclose(expected, found["probabilities"], rtol=1e-6)
        assert np.abs(scipy.special.softmax(found["scores"], axis=1) - found["probabilities"]).max() > 1e-3


IMAGES = (3, 24, 24)


@pytest.mark.usefixtures("onnx_conversion")
@pytest.mark.parametrize(
    "kind",
    [
        {"network": "mlp", "shape": (6,), "predictors": ("softmax",), "dtype": np.float32}
        | {"parents": (0, 1, 1, 2), "subclass_decision": "sum"},
        {"network": "fastnet", "shape": IMAGES, "predictors": ("nearest_mean", "hyperplanes")}
        | {"parents": (0, 1, 1), "classes": 2},
        {"network": "fastnet", "shape": IMAGES, "predictors": ("hyperplanes",), "outputs": "whitened"},
    ],
    ids=lambda kind: kind.get("outputs", kind["network"]),
)
def test_onnx(kind, tmp_path):
    model, inputs = make_model(**kind)
    file = tmp_path / "model.onnx"
    verification = export_model(model.train(), file, inputs)
    assert (verification.samples, verification.clearly_different, verification.passed) == (60, 0, True)
    assert list(tmp_path.iterdir()) == [file]
    assert str(tmp_path.home()).encode() not in file.read_bytes()
    assert __file__.encode() not in file.read_bytes()
    # What the strides of channels_last would leave behind.
    assert "Gather" not in {node.op_type for node in onnx.load(file).graph.node}

    session = onnxruntime.InferenceSession(file)
    check_outputs(model, lambda rows: dict(zip(OUTPUTS, session.run(OUTPUTS, {"inputs": rows}), strict=True)), inputs)
    assert session.get_inputs()[0].shape == ["batch", *kind["shape"]]
    properties = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert properties["class_names"] == list(model.class_names)
    assert properties["sample_shape"] == list(kind["shape"])
    assert properties["predictor"] == kind["predictors"][0]


@pytest.mark.parametrize(
    "kind",
    [
        {"network": "mlp", "shape": (6,), "classes": 2, "predictors": ("classic_lda",), "dtype": np.float64},
        {"network": "dorfernet", "shape": IMAGES, "parents": (0, 1, 1, 2), "subclass_decision": "sum"},
    ],
    ids=lambda kind: kind["network"],
)
def test_torch(kind, tmp_path):
    model, inputs = make_model(**kind)
    file = tmp_path / "model.pt2"
    assert export_model(model.train(), file, inputs, format="torch").passed
    assert __file__.encode() not in file.read_bytes()

    about = {"deeplda.json": ""}
    program = torch.export.load(io.BytesIO(file.read_bytes()), extra_files=about)
    graph = program.module()
    check_outputs(model, lambda rows: {n: t.numpy() for n, t in graph(torch.as_tensor(rows)).items()}, inputs)
    assert json.loads(about["deeplda.json"])["class_names"] == list(model.class_names)


@pytest.mark.usefixtures("onnx_conversion")
def test_a_model_from_parts(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).eval()
    rows, labels = torch.randn(60, 6) + torch.arange(60)[:, None] % 3, torch.arange(60) % 3
    with torch.no_grad():
        predictor = Hyperplanes(alpha=0.8).fit(network((rows - 1) / 2), labels)
        predictor.calibrate(network((rows[::2] - 3) / 2), labels[::2])
    model = Model.from_parts(network, predictor, ["a", "b", "c"], (6,), mean=1, deviation=2)
    assert model.calibrated_on == 30
    file = tmp_path / "own.onnx"
    assert export_model(model, file, rows.numpy()).passed
    session = onnxruntime.InferenceSession(file)
    check_outputs(
        model, lambda part: dict(zip(OUTPUTS, session.run(OUTPUTS, {"inputs": part}), strict=True)), rows.numpy()
    )


class Undecided(nn.Module):
    def forward(self, rows):
        return rows[:, :4] if rows.sum() > 0 else rows[:, 1:5]


def test_a_network_that_cannot_be_traced(tmp_path):
    model, inputs = make_model("mlp", (6,), dtype=np.float32)
    model.network = Undecided()
    with pytest.raises(InputError, match="the network 'mlp' cannot be exported") as caught:
        export_model(model, tmp_path / "model.onnx", inputs)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def unchanged(values):
    return values


@pytest.fixture(scope="module")
def compared():
    """verify() of a model against itself, its embedding and its probabilities changed on the way."""
    model, inputs = make_model("mlp", (6,), dtype=np.float32)
    # Scores so large that rounding decides for a sample between two classes, as the first is made to be.
    model.predictor.weight *= 1e4
    scores = model.class_scores(torch.as_tensor(model.transform(inputs[:1])))[0]
    best, second = scores.topk(2).indices
    model.predictor.bias[second] += scores[best] - scores[second]

    def compare(embedding=unchanged, probabilities=unchanged, unknown=unchanged):
        def run(rows):
            hidden = embedding(model.transform(rows))
            scores, shown = (f(torch.as_tensor(hidden)) for f in (model.class_scores, model.class_probabilities))
            found = {"scores": scores.numpy(), "embedding": hidden, "probabilities": probabilities(shown.numpy())}
            return found | {"unknown_score": unknown(model.unknown_score(rows))}

        return verify(model, run, inputs)

    return compare


def test_verification_of_identical_outputs(compared):
    same = compared()
    assert (same.samples, same.difference, same.different, same.clearly_different) == (60, 0, 0, 0)
    assert same.close
    assert same.passed


def test_rounding_of_the_embedding_may_show(compared):
    rounded = compared(embedding=lambda values: values + np.float32(5e-6) * np.abs(values).max())
    assert not rounded.close
    assert rounded.passed
    assert not compared(embedding=lambda values: values * np.float32(1.001)).passed


@pytest.mark.parametrize(
    "change", [lambda p: p[:, ::-1], lambda p: p + 2e-4, lambda p: np.full_like(p, np.nan)], ids=["other", "off", "nan"]
)
def test_probabilities_that_are_wrong(compared, change):
    assert not compared(probabilities=change).passed


def test_unknown_scores_that_are_wrong(compared):
    assert compared(unknown=lambda values: values + 1e-5).passed
    assert not compared(unknown=lambda values: 1.01 * values).passed
    assert not compared(unknown=lambda values: values * np.nan).passed


def test_decisions_may_differ_at_ties():
    model, inputs = make_model("mlp", (6,), dtype=np.float32, classes=2)
    model.predictor.calibration = Calibration()
    model.predictor.prior_shift.zero_()
    model.predictor.weight.zero_()
    model.predictor.bias.copy_(torch.tensor([0.0, 1e-5]))

    def run(rows):
        half = np.full((len(rows), 2), 0.5)
        found = {"scores": np.zeros_like(half), "probabilities": half, "embedding": model.transform(rows)}
        return found | {"unknown_score": model.unknown_score(rows)}

    tied = verify(model, run, inputs)
    assert (tied.different, tied.clearly_different) == (60, 0)
    model.predictor.bias.copy_(torch.tensor([0.0, 1e-3]))
    assert verify(model, run, inputs).clearly_different == 60


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    model, inputs = make_model("mlp", (6,), dtype=np.float32)
    monkeypatch.setattr("deeplda.export._traced", lambda *_: None)
    monkeypatch.setattr("deeplda.export._as_onnx", lambda *_: b"a graph")
    wrong = {"scores": (3,), "probabilities": (3,), "embedding": (4,), "unknown_score": ()}
    monkeypatch.setattr(
        "deeplda.export._onnx_runner",
        lambda _: lambda rows: {name: np.zeros((len(rows), *shape)) for name, shape in wrong.items()},
    )
    with pytest.raises(VerificationError, match="differs from the model: on 60 samples"):
        export_model(model, tmp_path / "model.onnx", inputs)
    assert not list(tmp_path.iterdir())
