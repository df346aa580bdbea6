"""Checkpoints: tensors in safetensors and counters in JSON, without pickle; both are verified when read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor, nn

from deeplda.errors import InputError
from deeplda.io import open_regular, read_small, read_tensors
from deeplda.memory import require_memory
from deeplda.output_folder import OutputFolder
from deeplda.training.margin_sums import MarginSums

CHECKPOINT_FILES = frozenset({"state.safetensors", "checkpoint.json"})

_DIGEST_BYTES = 16
_SGD_STATE = {"momentum_buffer"}
_ADAM_STATE = {"step", "exp_avg", "exp_avg_sq"}


_Count = Annotated[int, Field(ge=0, lt=2**31)]


class Counters(BaseModel):
    """The progress of a run.

    Together with the seed, it determines all random numbers, because each step seeds its own.
    """

    model_config = ConfigDict(extra="forbid")

    epoch: _Count = Field(0, description="Number of completed epochs.")
    step: _Count = Field(0, description="Number of completed steps in the current epoch.")
    loss_sum: FiniteFloat = Field(0.0, description="Sum of the losses over those steps.")
    seconds: float = Field(0.0, ge=0, le=1e12, description="Time spent so far, including evaluation.")
    best_epoch: _Count = Field(0, description="The last epoch with the best validation score.")
    risen_epoch: _Count = Field(
        0, description="The last epoch that set a new best validation score (ties do not count)."
    )
    best_score: FiniteFloat | None = Field(
        None, description="The best validation score so far; None if there is none yet."
    )

    @model_validator(mode="after")
    def _best_is_past(self) -> Self:
        if max(self.best_epoch, self.risen_epoch) > self.epoch:
            raise ValueError("the best epoch comes after the last")
        return self


class _CheckpointFile(BaseModel):
    """The contents of checkpoint.json."""

    model_config = ConfigDict(extra="forbid")

    run: str
    digest: str
    counters: Counters


@dataclass
class Snapshot:
    """The state of a run: its tensors by name, and its counters."""

    tensors: dict[str, Tensor]
    counters: Counters

    @classmethod
    def of(
        cls,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        counters: Counters,
        margins: MarginSums | None = None,
    ) -> Snapshot:
        """Return the current state. Tensors are copied, so training can continue."""
        tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
        if margins is not None:
            tensors |= {f"margins.{name}": value for name, value in margins.state().items()}
        for number, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{number}.{name}"] = value
        copies = {name: value.detach().cpu().clone() for name, value in tensors.items()}
        return cls(copies, counters.model_copy())

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Load the state. Raises InputError if it belongs to a different network or optimiser."""
        weights, expected = self._under("network."), network.state_dict()
        for name in sorted(expected.keys() | weights.keys()):
            if name not in expected or name not in weights or not _alike(expected[name], weights[name]):
                raise _mismatch(f"network.{name}")
        network.load_state_dict(weights)
        if optimizer is not None:
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": self._optimizer_state(optimizer), "param_groups": groups})

    def restore_margins(self, margins: MarginSums) -> None:
        """Load the margins; a checkpoint of an earlier version has none. Raises InputError if they do not fit."""
        found, expected = self._under("margins."), margins.state()
        if found and (
            found.keys() != expected.keys() or not all(_alike(expected[name], found[name]) for name in found)
        ):
            raise _mismatch("margins")
        if found:
            margins.load(found)

    def _optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
        """Return the optimiser state of each parameter that has one, by parameter number."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        wanted = _ADAM_STATE if isinstance(optimizer, torch.optim.Adam) else _SGD_STATE
        found, state = self._under("optimizer."), dict[int, dict[str, Tensor]]()
        for number, parameter in enumerate(parameters):
            # Copy the tensors: the optimiser holds on to them, and they may be views of the file.
            own = {key: found.pop(f"{number}.{key}").clone() for key in wanted if f"{number}.{key}" in found}
            like = {key: torch.zeros(()) if key == "step" else parameter for key in own}
            if own and (own.keys() != wanted or not all(_alike(like[key], own[key]) for key in own)):
                raise _mismatch(f"optimizer.{number}")
            state |= {number: own} if own else {}
        if found:
            raise _mismatch(f"optimizer.{min(found)}")
        return state

    def _under(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


def _alike(expected: Tensor, found: Tensor) -> bool:
    return expected.shape == found.shape and expected.dtype == found.dtype


def _mismatch(name: str) -> InputError:
    return InputError(f"{name} in the checkpoint does not match this run: choose another --run folder")


def write_checkpoint(snapshot: Snapshot, checkpoints: OutputFolder, name: str, run: str, *, keep: str) -> None:
    """Write a checkpoint to the folder `name` in `checkpoints`, and move the previous one, if any, to `keep`."""
    tensors = save({key: value.contiguous() for key, value in snapshot.tensors.items()})
    digest = hashlib.blake2b(tensors, digest_size=_DIGEST_BYTES).hexdigest()
    file = _CheckpointFile(run=run, digest=digest, counters=snapshot.counters)
    with checkpoints.new_folder(name, ours=CHECKPOINT_FILES, keep=keep) as folder:
        folder.write("state.safetensors", tensors)
        folder.write("checkpoint.json", file.model_dump_json(indent=2) + "\n")


def read_checkpoint(folder: Path, run: str) -> Snapshot:
    """Read a checkpoint of the run `run`. Raises InputError if it is damaged or belongs to a different run."""
    try:
        file = _CheckpointFile.model_validate_json(read_small(folder / "checkpoint.json"))
        if file.run != run:
            raise InputError(f"{folder} is a checkpoint of a different run or of different data")
        tensors = folder / "state.safetensors"
        # Otherwise, the checksum of a sparse file of terabytes would take hours.
        require_memory(tensors.stat().st_size, str(tensors), copies=1, do="choose another --run folder")
        if _checksum(tensors) != file.digest:
            raise InputError(f"{folder} is damaged: the checksum of its tensors does not match")
        return Snapshot(read_tensors(tensors), file.counters)
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{folder} is not a complete checkpoint ({reason})") from None


def _checksum(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
