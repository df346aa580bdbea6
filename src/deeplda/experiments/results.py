"""The results of a sweep, read from its finished runs and grouped by setting."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeplda.errors import InputError
from deeplda.experiments.sweeps.definition import Definition
from deeplda.training.config import RunConfig
from deeplda.training.run_folder import summary_row

_NAMED = ("objective", "alpha", "subclasses", "seed")


@dataclass(frozen=True)
class Setting:
    """All runs that differ in nothing but the seed.

    Attributes:
        alpha: None for cross-entropy.
        other: further settings that differ between the trials of the sweep.
        validation: accuracy by seed, of the predictor that decides: it alone chooses.
        test: accuracy by predictor, then by seed.
        runs: the run folders by seed.
    """

    objective: str
    alpha: float | None
    subclasses: int | str
    other: dict[str, Any]
    validation: dict[int, float] = field(default_factory=dict)
    test: dict[str, dict[int, float]] = field(default_factory=dict)
    runs: dict[int, Path] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """In words: "RDLDA alpha=0.2"."""
        if self.alpha is None:
            name = "cross-entropy"
        else:
            name = "DLDA (alpha=1)" if self.alpha == 1 else f"RDLDA alpha={self.alpha:g}"
        parts = [name] if self.subclasses == 1 else [name, f"k={self.subclasses}"]
        parts += [
            f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in self.other.items()
        ]
        return ", ".join(parts)

    @property
    def predictor(self) -> str:
        """The predictor that decides: hyperplanes, or softmax for cross-entropy."""
        return next(iter(self.test))


@dataclass(frozen=True)
class SweepResults:
    """What a sweep found so far; settings in the order of its definition."""

    folder: Path
    definition: Definition
    settings: tuple[Setting, ...]
    done: int
    trials: int


def read_results(folder: Path) -> SweepResults:
    """The finished runs of the sweep in `folder`. Raises InputError where it is no sweep, or none is finished."""
    file = folder / "sweep.toml"
    if not file.exists():
        raise InputError(f"{folder} is no sweep: it has no sweep.toml; run one with deeplda sweep --sweep {folder}")
    definition = Definition.read(file)
    trials, done = definition.trials(), 0
    settings: dict[str, Setting] = {}
    for name, own in trials.items():
        run = folder / "trials" / name
        summary = summary_row(run)
        if summary is None or summary["validation"] is None or summary["test"] is None:
            continue
        done += 1
        config = RunConfig.read(run / "run.toml")
        other = _drawn(config) if definition.search else {key: own[key] for key in own if key not in _NAMED}
        found = _setting(config, other)
        found = settings.setdefault(json.dumps([found.label, found.alpha, other]), found)
        _add(found, config.seed, run, summary)
    if not done:
        raise InputError(f"{folder} has no finished trial yet: go on with deeplda sweep --sweep {folder}")
    return SweepResults(folder, definition, tuple(settings.values()), done, len(trials))


def _setting(config: RunConfig, other: dict[str, Any]) -> Setting:
    if config.objective == "cce":
        return Setting("cce", None, config.subclasses, other)
    return Setting("dlda" if config.alpha == 1 else "rdlda", config.alpha, config.subclasses, other)


def _drawn(config: RunConfig) -> dict[str, Any]:
    """What a search draws besides alpha."""
    return {"lam": config.lam, "learning_rate": config.learning_rate, "statistic": config.statistic}


def _add(setting: Setting, seed: int, run: Path, summary: dict[str, Any]) -> None:
    setting.validation[seed] = summary["validation"]["accuracy"]
    setting.runs[seed] = run
    for name, scores in summary["test"]["predictors"].items():
        setting.test.setdefault(name, {})[seed] = scores["accuracy"]
