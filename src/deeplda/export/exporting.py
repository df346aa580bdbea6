"""From a run or a model to a file that was verified before it is written."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from deeplda.atomic import write_bytes
from deeplda.errors import InputError, got
from deeplda.export.formats import as_onnx, as_pt2, onnx_runner, pt2_runner, require_onnx, traced
from deeplda.export.samples import samples_of
from deeplda.export.verification import Verification, VerificationError, verify
from deeplda.model import Model, load

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
