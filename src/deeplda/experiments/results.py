"""The results of a sweep, read from its finished runs: one row a trial, or grouped by setting."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from deeplda.errors import InputError
from deeplda.experiments.sweeps.definition import Definition, sweep_file
from deeplda.io import write_text
from deeplda.training.config import RunConfig
from deeplda.training.run_folder import read_metrics, summary_row

_NAMED = ("objective", "alpha", "subclasses", "seed")


@dataclass(frozen=True)
class Setting:
    """All runs that differ in nothing but the seed.

    Attributes:
        alpha: None for cross-entropy.
        other: further settings that differ between the trials of the sweep.
        validation: accuracy by seed, of the predictor that decides: it alone chooses.
        test: accuracy by predictor, then by seed; "NAME mirrored" where images and mirror images were averaged.
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
    file = sweep_file(folder)
    if not file.exists():
        raise InputError(f"{folder} is no sweep: it has no {file.name}: check the name; deeplda sweep makes one")
    definition = Definition.read(file)
    settings: dict[str, Setting] = {}
    finished = list(_finished(folder, definition))
    for trial in finished:
        found = _setting(trial.config, trial.other)
        found = settings.setdefault(json.dumps([found.label, found.alpha, trial.other]), found)
        _add(found, trial)
    if not finished:
        raise InputError(f"{folder} has no finished trial yet: go on with deeplda sweep --sweep {folder}")
    return SweepResults(folder, definition, tuple(settings.values()), len(finished), len(definition.trials()))


def write_trials(folder: Path, definition: Definition) -> None:
    """Write trials.csv: of every finished trial what it was set to and what came out, accuracies in percent.

    Balanced accuracy and area under the ROC curve are the deciding predictor's, `eigenvalues` those of the last epoch.
    Where no trial is finished, nothing is written.
    """
    trials = list(_finished(folder, definition))
    if not trials:
        return
    rows = [(_settings(trial), _outcome(trial)) for trial in trials]
    columns = dict.fromkeys(name for part in zip(*rows, strict=True) for cells in part for name in cells)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(settings | outcome for settings, outcome in rows)
    write_text(folder / "trials.csv", stream.getvalue())


class _Trial(NamedTuple):
    """A finished trial; `other` is what it was set to besides objective, alpha, subclasses and seed."""

    run: Path
    config: RunConfig
    other: dict[str, Any]
    summary: dict[str, Any]


def _finished(folder: Path, definition: Definition) -> Iterator[_Trial]:
    for name, own in definition.trials().items():
        run = folder / "trials" / name
        summary = summary_row(run)
        # Of an autoencoder there would be no accuracies.
        if summary is None or not summary["validation"] or not summary["test"] or "class_names" not in summary:
            continue
        config = RunConfig.read(run / "run.toml")
        other = _drawn(config) if definition.search else {key: own[key] for key in own if key not in _NAMED}
        yield _Trial(run, config, other, summary)


def _settings(trial: _Trial) -> dict[str, Any]:
    config = trial.config
    named = {"trial": trial.run.name, "objective": config.objective, "seed": config.seed}
    if config.objective != "cce":
        named |= {"alpha": config.alpha, "subclasses": config.subclasses}
    return named | trial.other


def _outcome(trial: _Trial) -> dict[str, Any]:
    summary = trial.summary
    found = {"validation": _percent(summary["validation"]["accuracy"])}
    deciding = next(iter(summary["test"]["predictors"].values()))
    found |= {"test balanced": _percent(deciding["balanced_accuracy"]), "test auc": _four_digits(deciding.get("auc"))}
    found |= {f"test {name}": _percent(accuracy) for name, accuracy in _test_accuracies(summary).items()}
    found |= {"seconds": f"{summary['seconds']:.0f}", "pflop": f"{summary.get('flops', 0) / 1e15:.3g}"}
    eigenvalues = [row["eigenvalues"] for row in read_metrics(trial.run) if row.get("eigenvalues")]
    if eigenvalues:
        found["eigenvalues"] = " ".join(f"{value:.3g}" for value in eigenvalues[-1])
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _four_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _setting(config: RunConfig, other: dict[str, Any]) -> Setting:
    if config.objective == "cce":
        return Setting("cce", None, config.subclasses, other)
    return Setting("dlda" if config.alpha == 1 else "rdlda", config.alpha, config.subclasses, other)


def _drawn(config: RunConfig) -> dict[str, Any]:
    """What a search draws besides alpha."""
    return {"lam": config.lam, "learning_rate": config.learning_rate, "statistic": config.statistic}


def _add(setting: Setting, trial: _Trial) -> None:
    seed = trial.config.seed
    setting.validation[seed] = trial.summary["validation"]["accuracy"]
    setting.runs[seed] = trial.run
    for name, accuracy in _test_accuracies(trial.summary).items():
        setting.test.setdefault(name, {})[seed] = accuracy


def _test_accuracies(summary: dict[str, Any]) -> dict[str, float]:
    """By predictor, the one that decides first."""
    mirrored = summary.get("mirrored", {}).get("test") or {"predictors": {}}
    scores = summary["test"]["predictors"] | {f"{name} mirrored": its for name, its in mirrored["predictors"].items()}
    return {name: its["accuracy"] for name, its in scores.items()}
