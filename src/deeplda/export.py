"""Export a trained model as one graph that runs without deeplda, as ONNX or as an exported PyTorch program.

The graph consists of the normalisation, the network and the first predictor. Like `load().predict`, it takes any number
of samples: uint8 images N x C x H x W, or feature vectors N x features in float32 (float64 if the model computes in
float64). Images for a saved estimator are float32, in the range it was fitted on. The graph returns the `scores` and
calibrated `probabilities` of the classes in float64, like `predict_proba`, the `embedding`, and the `unknown_score`,
whose threshold for `reject=0.95` is in the file's metadata.

An ONNX file contains only data. A .pt2 file can run code, because `torch.export.load` unpickles parts of it, so load it
only from a source that you trust. The export itself reads it back once, from memory, to verify it.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda import __version__
from deeplda.data.table_encoding import TableEncoder
from deeplda.errors import FailedError, InputError
from deeplda.extras import require
from deeplda.loading import load
from deeplda.model import Model
from deeplda.networks.hidden_layer import outputs_and_features
from deeplda.output_folder import OutputFolder, write_file

__all__ = ["Exported", "Verification", "VerificationError", "export_model", "export_run"]

Format = Literal["onnx", "torch"]
# A function that runs an exported graph: samples -> outputs by name.
Runner = Callable[[NDArray[Any]], dict[str, NDArray[Any]]]

OUTPUTS = ("scores", "probabilities", "embedding", "unknown_score")
# The level of rejection whose threshold is stored in the file.
REJECT = 0.95

_FILES: dict[Format, str] = {"onnx": "model.onnx", "torch": "model.pt2"}
# Probabilities may differ by this much, and decisions may differ between classes whose probabilities are this close.
_TOLERANCE = 1e-4
# Largest relative difference between two embeddings that float32 rounding explains.
_ROUNDING = 1e-5
# Unknown scores may differ by this share of their range.
_SCORE_TOLERANCE = 1e-3
_BATCH = 100
_REAL_SAMPLES = 1000
_RANDOM_SAMPLES = 100


@dataclass(frozen=True)
class Exported:
    """An exported file.

    Attributes:
        file: the path of the file.
        verification: the comparison with the model.
        samples: a description of the samples that the file was verified on.
        table: the encoding of the rows that the graph takes, if the model was trained on a table.
    """

    file: Path
    verification: Verification
    samples: str
    table: TableEncoder | None


@dataclass(frozen=True)
class Verification:
    """Comparison of an exported graph with its model.

    Attributes:
        samples: the number of samples compared.
        difference: the largest difference between two probabilities.
        different: the number of decisions that differ.
        clearly_different: the number of these for which the model's two highest probabilities are more than 1e-4 apart.
        embedding_difference: the largest difference between two embedding values, relative to the largest value.
        consistent: whether the predictor computes the same scores and probabilities from the graph's embedding as the
            graph does.
    """

    samples: int
    difference: float
    different: int
    clearly_different: int
    embedding_difference: float
    consistent: bool

    @property
    def close(self) -> bool:
        """Whether probabilities agree within 1e-4, and decisions agree except for ties."""
        return self.difference <= _TOLERANCE and self.clearly_different == 0

    @property
    def passed(self) -> bool:
        """Whether the graph is close to its model, or differs from it only by rounding.

        Well-separated classes have scores in the thousands. For a sample between two such classes, the last digit of a
        float32 embedding changes the probabilities visibly.
        """
        return self.consistent and (self.close or self.embedding_difference <= _ROUNDING)


class VerificationError(FailedError):
    """An exported graph does not compute the same outputs as its model. Exit code 1."""


def export_run(
    folder: Path,
    *,
    format: Format = "onnx",
    output: Path | None = None,
    verify_all: bool = False,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
) -> Exported:
    """Export the model in a run folder or model folder, by default to model.onnx or model.pt2 next to its weights.

    Args:
        verify_all: verify on the complete test set instead of 1,000 of its samples.
        data_dir: the folder with the known data sets, if it has moved since training.
        network: needed if the network is your own code, as in `deeplda.load`.
        named: the data that the user named, which is needed if it is your own code.

    Raises InputError if the model cannot be loaded or its network cannot be exported, and VerificationError if the
    graph differs from the model. In these cases, nothing is written.
    """
    is_run = (folder / "model").is_dir()
    file = output or (folder / "model" if is_run else folder) / _FILES[format]
    if file.is_dir() or not file.parent.is_dir():
        what = f"{file} is a folder" if file.is_dir() else f"{file.parent} does not exist"
        raise InputError(what, need="a file in an existing folder", do="choose another --output")
    model = load(folder, network=network)
    inputs, description = _samples_for(folder, model, verify_all=verify_all, data_dir=data_dir, named=named)
    content, verification = _verified_graph(model, inputs, format)
    if output is None and is_run:
        with OutputFolder.open(folder) as run, run.subfolder("model") as subfolder:
            subfolder.write(file.name, content)
    else:
        write_file(file, content)
    return Exported(file, verification, description, model.card.table)


def export_model(model: Model, file: Path, inputs: NDArray[Any], *, format: Format = "onnx") -> Verification:
    """Export `model` to `file`, after verifying the graph on the samples `inputs` (n, *sample_shape).

    The graph accepts samples with the dtype of `inputs`. Raises the same errors as `export_run`.
    """
    content, verification = _verified_graph(model, inputs, format)
    write_file(file, content)
    return verification


def _verified_graph(model: Model, inputs: NDArray[Any], format: Format) -> tuple[bytes, Verification]:
    """Return the contents of the file to write, and its comparison with the model."""
    if format == "onnx":
        require("export", "export to ONNX")
    with _silence():
        try:
            program = _traced(model, inputs)
            content = _as_onnx(program, model) if format == "onnx" else _as_pt2(program, model)
            run = _onnx_runner(content) if format == "onnx" else _pt2_runner(content)
        # Tracing runs the user's network on symbols; if that fails, torch and onnxruntime raise all kinds of errors.
        except Exception as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"the network {model.card.network!r} cannot be exported ({reason})",
                need="one that torch.export can trace for any batch size",
                do="avoid control flow that depends on tensor values; for ONNX, torch 2.7 or earlier is too old",
            ) from error
        verification = verify(model, run, inputs)
    if not verification.passed:
        raise VerificationError(
            f"the exported graph differs from the model: on {verification.samples:,} samples, probabilities differ by "
            f"up to {verification.difference:.1e} and {verification.clearly_different:,} clear decisions differ; "
            "nothing was written"
        )
    return content, verification


def verify(model: Model, run: Runner, inputs: NDArray[Any]) -> Verification:
    """Compare the outputs of `run` on `inputs` with the model's: the first sample alone, the others in batches."""
    pieces = np.split(inputs, range(1, len(inputs), min(_BATCH, model.batch_size)))
    found = _joined([run(piece) for piece in pieces])
    # The model gets the same pieces, because the rounding of a product can depend on the number of samples.
    expected = _joined([_outputs_for(model, model.transform(piece)) | _unknown(model, piece) for piece in pieces])
    decided = _outputs_for(model, found["embedding"]) | {"unknown_score": expected["unknown_score"]}
    different = found["probabilities"].argmax(1) != expected["probabilities"].argmax(1)
    second, best = np.sort(expected["probabilities"], 1)[:, -2:].T
    largest = np.abs(expected["embedding"]).max()
    return Verification(
        samples=len(inputs),
        difference=float(np.abs(found["probabilities"] - expected["probabilities"]).max()),
        different=int(different.sum()),
        clearly_different=int((different & (best - second > _TOLERANCE)).sum()),
        embedding_difference=float(np.abs(found["embedding"] - expected["embedding"]).max() / (largest or 1)),
        consistent=all(np.allclose(found[name], decided[name], rtol=1e-6, atol=1e-6) for name in OUTPUTS[:-1])
        and _agree(found["unknown_score"], expected["unknown_score"]),
    )


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}


def _outputs_for(model: Model, embedding: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the outputs that the model computes from an embedding."""
    found = torch.as_tensor(embedding)
    scores, probabilities = model.class_scores(found), model.class_probabilities(found)
    return {"scores": scores.numpy(), "probabilities": probabilities.numpy(), "embedding": embedding}


def _unknown(model: Model, inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"unknown_score": model.unknown_score(inputs)}


def _agree(found: NDArray[np.float64], expected: NDArray[np.float64]) -> bool:
    """Return whether two arrays of unknown scores differ by at most a thousandth of the range of all scores."""
    spread = float(np.ptp(expected)) if len(expected) > 1 else 0.0
    return bool(np.abs(found - expected).max() <= _SCORE_TOLERANCE * max(spread, 1.0))


class _InferenceGraph(nn.Module):
    """Samples -> the four outputs, on the CPU in eval mode, from a copy of the model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        # With channels_last, strides would become part of the graph, and flatten a gather of single values.
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # missing in torch's stubs
        for name in model.card.predictors[1:]:
            del self.model.predictors[name]
        setting = self.model._unknown_setting(None, None)
        self.setting = setting
        self.unknown = None if setting.rule == "probability" else self.model._distance_score(setting)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        embedding, layer = self._layers(self.model.normalisation(inputs))
        scores = self.model._unchecked_scores(embedding)
        probabilities = self.model.predictor.calibration(scores)
        unknown = 1 - probabilities.amax(1) if self.unknown is None else self.unknown(layer)
        found = (scores, probabilities, embedding, unknown)
        return dict(zip(OUTPUTS, found, strict=True))

    def _layers(self, normalised: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embedding and the layer of the unknown score."""
        if "features" not in (self.setting.layer, self.model.card.layer):
            embedding: Tensor = self.model.network(normalised)
            return embedding, embedding
        outputs, features = outputs_and_features(self.model.network, normalised)
        assert features is not None
        return features if self.model.card.layer == "features" else outputs, features


def _traced(model: Model, inputs: NDArray[Any]) -> torch.export.ExportedProgram:
    """Trace the graph of a model for any number of samples with the dtype of `inputs`."""
    # Two samples, because one would fix the batch size at 1; zeros, because the example is stored in the file.
    example = torch.as_tensor(np.zeros_like(inputs, shape=(2, *model.card.sample_shape)))
    # Without a maximum, torch 2.6 takes the largest integer, which its own graphs exclude.
    batch = torch.export.Dim("batch", max=2**62)
    program = torch.export.export(_InferenceGraph(model), (example,), dynamic_shapes=({0: batch},), strict=False)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # it contains paths of this machine
    return program


def _properties(model: Model) -> dict[str, object]:
    return {
        "format": 1,
        "deeplda_version": __version__,
        "class_names": model.class_names,
        "sample_shape": model.card.sample_shape,
        "predictor": model.card.deciding,
        "calibrated_on": model.calibrated_on,
        "unknown": None if model.card.unknown is None else _unknown_properties(model),
    } | ({} if model.card.table is None else {"table": model.card.table.model_dump(mode="json")})


def _unknown_properties(model: Model) -> dict[str, object]:
    """Return how the unknown score is computed, and the threshold above which a sample is rejected."""
    assert model.card.unknown is not None
    threshold = {"reject": REJECT, "threshold": model.unknown_threshold(REJECT)}
    return model.card.unknown.model_dump() | threshold


def _as_onnx(program: torch.export.ExportedProgram, model: Model) -> bytes:
    import onnx

    converted = torch.onnx.export(
        program,
        input_names=["inputs"],
        output_names=list(OUTPUTS),
        dynamic_shapes=({0: "batch"},),
        dynamo=True,
        verbose=False,
    )
    assert converted is not None
    proto = converted.model_proto
    graph = proto.graph
    for messages in (graph.input, graph.output, graph.node, graph.value_info, graph.initializer):
        for message in messages:
            del message.metadata_props[:]  # torch's notes on the conversion
    properties = {name: json.dumps(value) for name, value in _properties(model).items()}
    onnx.helper.set_model_props(proto, properties)
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _as_pt2(program: torch.export.ExportedProgram, model: Model) -> bytes:
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"deeplda.json": json.dumps(_properties(model))})
    return content.getvalue()


def _onnx_runner(content: bytes) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"inputs": inputs}), strict=True))

    return run


def _pt2_runner(content: bytes) -> Runner:
    graph = torch.export.load(io.BytesIO(content)).module()

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {name: output.numpy() for name, output in graph(torch.as_tensor(inputs)).items()}

    return run


def _samples_for(
    folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None, named: str | None
) -> tuple[NDArray[Any], str]:
    """Return samples to verify on, and a description of them: from the run's data, or random if it cannot be read."""
    try:
        return _real_samples(folder, model, verify_all=verify_all, data_dir=data_dir, named=named)
    except InputError as error:
        if verify_all:
            raise
        kind = "images" if len(model.card.sample_shape) == 3 else "feature vectors"
        samples = _random_samples(model, estimator=(folder / "classifier.json").exists())
        return samples, f"random {kind}, because {error}"


def _real_samples(
    folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None, named: str | None
) -> tuple[NDArray[Any], str]:
    if not (folder / "run.toml").exists():
        raise InputError(f"{folder} is not a run folder and names no data")
    # Imported here because reading data needs packages that exporting your own model does not.
    from deeplda.training.config import RunConfig
    from deeplda.training.preparation import read_data_of_run

    config = RunConfig.read(folder / "run.toml")
    data = read_data_of_run(folder, config, data_dir=data_dir, named=named)
    if data.sample_shape != model.card.sample_shape or data.table != model.card.table:
        raise InputError(f"{config.data} has changed since {folder} was trained: its samples have a different shape")
    name, part = ("test", data.test) if len(data.test) else ("validation", data.val)
    if not len(part):
        raise InputError(f"{config.data} has neither test nor validation samples")
    count = len(part) if verify_all else min(len(part), _REAL_SAMPLES)
    # Evenly spread, because the samples may be sorted by class.
    places = np.linspace(0, len(part) - 1, count).astype(int)
    return part.inputs[places], f"{count:,} of {len(part):,} {name} samples from {config.data}"


def _random_samples(model: Model, *, estimator: bool) -> NDArray[Any]:
    rng = np.random.default_rng(0)
    # At least two, because the graph must accept more than one sample at a time.
    shape = (max(2, min(_RANDOM_SAMPLES, model.batch_size)), *model.card.sample_shape)
    if len(shape) == 4 and not estimator:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    mean, deviation = model.normalisation.mean.numpy(), model.normalisation.deviation.numpy()
    return (mean + deviation * rng.standard_normal(shape)).astype(mean.dtype)


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the messages that the exporters print for developers: warnings, log lines and graphs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
