"""A trained model as one graph, for programs without deeplda: ONNX, or an exported program of PyTorch.

The graph is normalisation, network and deciding predictor. It takes samples as `load().predict` does, any number of
them: uint8 images N x C x H x W, or rows N x features in float32 (float64 where the model computes in float64; images
of a saved estimator in float32, in the range it was fitted on). It gives `scores` and `probabilities` of the classes,
float64 as in `predict_proba`, and the `embedding`.

An ONNX file is data. A .pt2 is not only that: `torch.export.load` unpickles parts of it, so it can run code, and is
to be loaded from a source that you trust alone. Here it is read back once, from memory, to verify it.
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
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda import __version__
from deeplda.errors import InputError, got
from deeplda.io import write_bytes
from deeplda.loading import load
from deeplda.model import Model
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data

__all__ = ["Exported", "Verification", "VerificationError", "export_model", "export_run"]

OUTPUTS = ("scores", "probabilities", "embedding")
TOLERANCE = 1e-4
_ROUNDING = 1e-5
_BATCH = 100

# Runs an exported graph: samples -> the outputs by name.
Runner = Callable[[NDArray[Any]], dict[str, NDArray[Any]]]


class VerificationError(RuntimeError):
    """An exported graph does not compute what its model does."""


@dataclass(frozen=True)
class Verification:
    """A graph set against its model.

    Attributes:
        samples: how many were compared.
        difference: the largest between two probabilities.
        different: decisions that differ.
        clearly_different: those of them where the model's two best probabilities are farther apart than 1e-4.
        embedding_difference: the largest between two values of the embedding, relative to its largest value.
        consistent: the graph's scores and probabilities are what the predictor makes of the graph's embedding.
    """

    samples: int
    difference: float
    different: int
    clearly_different: int
    embedding_difference: float
    consistent: bool

    @property
    def close(self) -> bool:
        """Probabilities agree to 1e-4, and so do decisions but for ties."""
        return self.difference <= TOLERANCE and self.clearly_different == 0

    @property
    def passed(self) -> bool:
        """Close, or apart by no more than rounding: scores of thousands, which well separated classes have, carry
        the last digit of a float32 embedding into the probabilities of samples between two classes."""
        return self.consistent and (self.close or self.embedding_difference <= _ROUNDING)


def verify(model: Model, run: Runner, inputs: NDArray[Any]) -> Verification:
    """Compare what `run` gives for `inputs` with the model: the first sample alone, the others in batches."""
    pieces = np.split(inputs, range(1, len(inputs), _BATCH))
    found = _joined([run(piece) for piece in pieces])
    # Piece by piece too: a product of one row may round otherwise than that of many.
    expected = _joined([_decided(model, model.transform(piece)) for piece in pieces])
    decided = _decided(model, found["embedding"])
    different = found["probabilities"].argmax(1) != expected["probabilities"].argmax(1)
    second, best = np.sort(expected["probabilities"], 1)[:, -2:].T
    largest = np.abs(expected["embedding"]).max()
    return Verification(
        samples=len(inputs),
        difference=float(np.abs(found["probabilities"] - expected["probabilities"]).max()),
        different=int(different.sum()),
        clearly_different=int((different & (best - second > TOLERANCE)).sum()),
        embedding_difference=float(np.abs(found["embedding"] - expected["embedding"]).max() / (largest or 1)),
        consistent=all(np.allclose(found[name], decided[name], rtol=1e-6, atol=1e-6) for name in OUTPUTS),
    )


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}


def _decided(model: Model, embedding: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The outputs that belong to an embedding."""
    scores = model.class_scores(torch.as_tensor(embedding))
    return {"scores": scores.numpy(), "probabilities": scores.softmax(1).numpy(), "embedding": embedding}


class InferenceGraph(nn.Module):
    """Samples -> scores, probabilities and embedding, on the CPU in eval mode; the model itself stays as it is."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        # Traced in channels_last, the strides become part of the graph: a flatten turns into a gather of single values.
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # missing in torch's stubs
        for name in model.card.predictors[1:]:
            del self.model.predictors[name]

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        embedding = self.model.network(self.model.normalisation(inputs))
        scores = self.model.class_scores(embedding)
        return {"scores": scores, "probabilities": scores.softmax(1), "embedding": embedding}


def traced(model: Model, inputs: NDArray[Any]) -> torch.export.ExportedProgram:
    """The graph of a model for samples of the dtype of `inputs`, any number of them."""
    # Two zeros: one sample would fix the batch size at 1, and the example is kept in the file.
    example = torch.as_tensor(np.zeros_like(inputs, shape=(2, *model.card.sample_shape)))
    batch = torch.export.Dim("batch")
    program = torch.export.export(InferenceGraph(model), (example,), dynamic_shapes=({0: batch},), strict=False)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # it holds paths of this machine
    return program


def require_onnx() -> None:
    """Raise InputError where the extra for ONNX is not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError:
            raise InputError(
                got(f"{name} cannot be imported", need="it for ONNX", do="pip install 'deeplda[export]'")
            ) from None


def _properties(model: Model) -> dict[str, Any]:
    return {
        "format": 1,
        "deeplda_version": __version__,
        "class_names": model.class_names,
        "sample_shape": model.card.sample_shape,
        "predictor": model.card.predictors[0],
    }


def as_onnx(program: torch.export.ExportedProgram, model: Model) -> bytes:
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
            del message.metadata_props[:]  # how torch got there
    properties = {name: json.dumps(value) for name, value in _properties(model).items()}
    onnx.helper.set_model_props(proto, properties)
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def as_pt2(program: torch.export.ExportedProgram, model: Model) -> bytes:
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"deeplda.json": json.dumps(_properties(model))})
    return content.getvalue()


def onnx_runner(content: bytes) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"inputs": inputs}), strict=True))

    return run


def pt2_runner(content: bytes) -> Runner:
    graph = torch.export.load(io.BytesIO(content)).module()

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {name: output.numpy() for name, output in graph(torch.as_tensor(inputs)).items()}

    return run


_REAL = 1000
_RANDOM = 100


def samples_of(folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None) -> tuple[NDArray[Any], str]:
    """What to verify on, and that in words: samples of the run's data, or random ones where it cannot be had."""
    try:
        return _real_samples(folder, model, verify_all=verify_all, data_dir=data_dir)
    except InputError as error:
        if verify_all:
            raise
        kind = "images" if len(model.card.sample_shape) == 3 else "rows"
        return _random_samples(model, estimator=(folder / "classifier.json").exists()), f"random {kind}, as {error}"


def _real_samples(folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None) -> tuple[NDArray[Any], str]:
    if not (folder / "run.toml").exists():
        raise InputError(f"{folder} is no run with data of its own")
    config = RunConfig.read(folder / "run.toml")
    data = read_data(config if data_dir is None else config.model_copy(update={"data_dir": data_dir}))
    if data.sample_shape != model.card.sample_shape:
        raise InputError(f"{config.data} has changed since {folder} was trained: samples are of another shape")
    name, part = ("test", data.test) if len(data.test) else ("validation", data.val)
    if not len(part):
        raise InputError(f"{config.data} has neither test nor validation samples")
    count = len(part) if verify_all else min(len(part), _REAL)
    # Spread over the part, as its samples may stand class by class.
    places = np.linspace(0, len(part) - 1, count).astype(int)
    return part.inputs[places], f"{count:,} of {len(part):,} {name} samples of {config.data}"


def _random_samples(model: Model, *, estimator: bool) -> NDArray[Any]:
    rng, shape = np.random.default_rng(0), (_RANDOM, *model.card.sample_shape)
    if len(shape) == 4 and not estimator:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    mean, deviation = model.normalisation.mean.numpy(), model.normalisation.deviation.numpy()
    return (mean + deviation * rng.standard_normal(shape)).astype(mean.dtype)


Format = Literal["onnx", "torch"]
_FILES: dict[Format, str] = {"onnx": "model.onnx", "torch": "model.pt2"}


@dataclass(frozen=True)
class Exported:
    """An exported file, and what it was verified on, in words."""

    file: Path
    verification: Verification
    samples: str


def export_run(
    folder: Path,
    *,
    format: Format = "onnx",
    output: Path | None = None,
    verify_all: bool = False,
    data_dir: Path | None = None,
    network: str | None = None,
) -> Exported:
    """Export the model of a run or model folder, by default to model.onnx or model.pt2 beside its weights.

    Args:
        verify_all: compare on the whole test part instead of 1,000 samples of it.
        data_dir: where known data is, if it has moved.
        network: for a network of your own, as in `deeplda.load`.

    Raises InputError where the model cannot be had or its network cannot be exported, VerificationError where the
    graph differs from the model; then nothing is written.
    """
    if format == "onnx":
        require_onnx()
    file = output or (folder / "model" if (folder / "model").is_dir() else folder) / _FILES[format]
    if file.is_dir() or not file.resolve().parent.is_dir():
        what = f"{file} is a folder" if file.is_dir() else f"{file.parent} does not exist"
        raise InputError(got(what, need="a file in a folder that is there", do="choose another --output"))
    model = load(folder, network=network)
    inputs, words = samples_of(folder, model, verify_all=verify_all, data_dir=data_dir)
    return Exported(file, export_model(model, file, inputs, format=format), words)


def export_model(model: Model, file: Path, inputs: NDArray[Any], *, format: Format = "onnx") -> Verification:
    """Write `model` to `file` as a graph that takes samples of the dtype of `inputs`, verified on these before.

    Raises as `export_run`.
    """
    with _silence():
        try:
            program = traced(model, inputs)
            content = as_onnx(program, model) if format == "onnx" else as_pt2(program, model)
            run = onnx_runner(content) if format == "onnx" else pt2_runner(content)
        # Tracing runs the user's network on symbols; torch and onnxruntime raise anything for what they cannot do.
        except Exception as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                got(
                    f"the network {model.card.network!r} cannot be exported ({reason})",
                    need="one that torch.export can trace for any batch size",
                    do="avoid decisions that depend on the values of tensors",
                )
            ) from error
        verification = verify(model, run, inputs)
    if not verification.passed:
        raise VerificationError(
            f"the exported graph is not the model: on {verification.samples:,} samples probabilities differ by up to "
            f"{verification.difference:.1e} and {verification.clearly_different:,} clear decisions; nothing was written"
        )
    write_bytes(file, content)
    return verification


@contextmanager
def _silence() -> Iterator[None]:
    """Keep from the user what exporters say to their developers: warnings, log lines, and graphs they print."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
