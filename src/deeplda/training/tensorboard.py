"""The epochs of a training as TensorBoard's scalars, beside what the terminal shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deeplda.data import Data
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig, RunConfig
from deeplda.training.progress import Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardProgress(Progress):
    """Also writes each epoch to event files in `folder`."""

    def __init__(self, folder: Path, style: Literal["auto", "quiet"] = "auto") -> None:
        super().__init__(style)
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        super().start(config, data, counters, notes)
        from torch.utils.tensorboard import SummaryWriter

        # An autoencoder, trained first for subclasses, is shown as a run of its own. What an earlier process wrote
        # beyond the checkpoint is taken back.
        place = self._folder if isinstance(config, RunConfig) else self._folder / "autoencoder"
        self._writer = SummaryWriter(place, purge_step=counters.epoch + 1)

    def epoch(self, row: dict[str, Any], counters: Counters) -> None:
        super().epoch(row, counters)
        assert self._writer is not None
        for name, value in _scalars(row).items():
            self._writer.add_scalar(name, value, row["epoch"])
        self._writer.flush()

    def close(self) -> None:
        super().close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _scalars(row: dict[str, Any]) -> dict[str, float]:
    """What an epoch has of loss, learning rate, eigenvalues and validation."""
    found = {"loss": row["loss"], "learning rate": row["learning_rate"]}
    if eigenvalues := row.get("eigenvalues"):
        found |= {"eigenvalues/smallest": eigenvalues[0], "eigenvalues/largest": eigenvalues[-1]}
    validation = row["validation"] or {}
    found |= {f"validation/{name}": validation[name] for name in ("accuracy", "error") if name in validation}
    return found
