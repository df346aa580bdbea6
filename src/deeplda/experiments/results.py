"""The results of a sweep, read from its finished runs, and paired comparisons between them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings, sweep_file
from deeplda.formatting import counted, points
from deeplda.io import read_small
from deeplda.output_folder import OutputFolder
from deeplda.printing import as_csv
from deeplda.training.config import HOW_TO_RUN, LDA_OBJECTIVES, RunConfig
from deeplda.training.metrics import EpochRow, Scores, SummaryRow
from deeplda.training.run_folder import has_model, read_metrics, recorded_summary

# Trial settings that have their own attribute in RunGroup, and the seed, which distinguishes the runs in a group.
_NAMED = ("objective", "alpha", "statistic", "subclasses", "seed")
_CONFIDENCE = 0.95
# This is less than one sample in any test set, so smaller differences are rounding errors.
_NO_SPREAD = 1e-9

# Scores of the probabilities, by their names in `PredictorScores`, and their headings in tables.
PROBABILITY_SCORES = {"log_loss": "log loss", "brier": "Brier", "ece": "ECE"}

# Columns of trials.csv with scores of the primary predictor, by their names in `PredictorScores`.
_SCORE_COLUMNS = {name: f"test {name.replace('_', ' ')}" for name in ("auc", *PROBABILITY_SCORES)}

Verdict = Literal["better", "worse", "no significant difference", "not comparable"]


class TrialResult(BaseModel):
    """The validation accuracy of a finished trial, and its training time."""

    model_config = ConfigDict(strict=True, frozen=True)

    validation: float = Field(ge=0, le=1)
    seconds: float = Field(ge=0, le=1e9)


@dataclass(frozen=True)
class RunGroup:
    """All runs that differ only in their seed.

    Attributes:
        objective: "cce", "gce", "joint" and "module.path:name" as chosen; for the paper's statistic, "rdlda" if alpha
            is below 1 and "dlda" if it is 1; otherwise "lda". This depends only on what was optimised, not on the name
            used to choose it.
        alpha, statistic: None for objectives without an LDA loss.
        other: further settings that differ between the sweep's trials.
        validation: the primary predictor's accuracy by seed; model selection uses only this.
        test: accuracy by predictor, then by seed; "NAME mirrored" and "NAME views" are with test-time
            augmentation.
        probabilities: the primary predictor's scores that measure its probabilities, by their names in
            `PredictorScores`, then by seed; runs of early versions have none.
        runs: run folders by seed.
    """

    objective: str
    alpha: float | None
    statistic: str | None
    subclasses: int | str
    other: TrialSettings
    validation: dict[int, float] = field(default_factory=dict)
    test: dict[str, dict[int, float]] = field(default_factory=dict)
    probabilities: dict[str, dict[int, float]] = field(default_factory=dict)
    runs: dict[int, Path] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """A description such as "RDLDA alpha=0.2"."""
        names = {
            "cce": "cross-entropy",
            "gce": "generalised cross-entropy",
            "joint": f"cross-entropy + LDA {self.statistic}",
            "dlda": "DLDA (alpha=1)",
            "rdlda": "RDLDA",
            "lda": f"LDA {self.statistic}",
        }
        label = names.get(self.objective, self.objective) + (
            "" if self.alpha in (None, 1) else f" alpha={self.alpha:g}"
        )
        axes = {"k": self.subclasses, **self.other} if self.subclasses != 1 else self.other
        values = (f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in axes.items())
        return ", ".join([label, *values])

    @property
    def predictor(self) -> str:
        """The primary predictor, which is used for model selection: hyperplanes, or softmax if the run has it."""
        return next(iter(self.test))


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep so far; the groups are in the order of its definition."""

    definition: SweepDefinition
    groups: tuple[RunGroup, ...]
    done: int
    trials: int


@dataclass(frozen=True)
class _FinishedTrial:
    """A finished trial, read from its run folder or from the sweep's trials.csv.

    Attributes:
        other: its own settings except those that are attributes of RunGroup.
        cells: its results as in trials.csv, by column.
        validation: the primary predictor's accuracy.
        test: accuracy by predictor; the primary predictor comes first.
        probabilities: the primary predictor's scores that measure its probabilities, as in RunGroup.
        seconds: training time.
    """

    run: Path
    config: RunConfig
    other: TrialSettings
    cells: dict[str, str]
    validation: float
    test: dict[str, float]
    probabilities: dict[str, float]
    seconds: float


def read_results(folder: Path) -> SweepResults:
    """Read the finished trials of a sweep: their run folders, or else their rows in trials.csv.

    Raises InputError if it is not a sweep folder or has no finished trial.
    """
    file = sweep_file(folder)
    if not file.exists():
        do = "check the name, or run deeplda sweep first"
        raise InputError(f"{folder} is not a sweep folder, because it has no {file.name}: {do}")
    definition = SweepDefinition.read(file)
    groups: dict[str, RunGroup] = {}
    finished = list(_finished_trials(folder, definition))
    for trial in finished:
        new = _empty_group(trial)
        group = groups.setdefault(json.dumps([new.label, new.alpha, new.statistic, new.other]), new)
        seed = trial.config.seed
        group.validation[seed] = trial.validation
        group.runs[seed] = trial.run
        for name, accuracy in trial.test.items():
            group.test.setdefault(name, {})[seed] = accuracy
        for name, value in trial.probabilities.items():
            group.probabilities.setdefault(name, {})[seed] = value
    if not finished:
        do = f"continue with deeplda sweep --sweep {folder}"
        raise InputError(f"{folder} has no finished trial from its {file.name}: {do}")
    return SweepResults(definition, tuple(groups.values()), len(finished), len(definition.trials()))


def recorded_result(folder: Path, definition: SweepDefinition, name: str) -> TrialResult | None:
    """Return the result of a trial that is recorded in the folder without its model, or None if it is not.

    The record is a run folder whose model was removed, with the same settings, or a row of trials.csv.
    """
    own = definition.trials()[name]
    if definition.search is not None or has_model(folder / "trials" / name):
        return None
    trial = _of_run(folder, definition, name, own) or _of_row(folder, definition, name, own, _rows(folder))
    if trial is None or not _same_results(trial.config, definition.config(own)):
        return None
    return TrialResult(validation=trial.validation, seconds=trial.seconds)


def write_trials(folder: Path, definition: SweepDefinition) -> None:
    """Write trials.csv, with the settings and results of every finished trial and accuracies in percent.

    Balanced accuracy, the area under the ROC curve and the scores of the probabilities are given for the primary
    predictor, and the eigenvalues for the last epoch. Nothing is written if no trial has finished.
    """
    trials = list(_finished_trials(folder, definition))
    if not trials:
        return
    rows = [(_settings_cells(trial), trial.cells) for trial in trials]
    columns = dict.fromkeys(name for part in zip(*rows, strict=True) for cells in part for name in cells)
    with OutputFolder.open(folder) as output:
        output.write("trials.csv", as_csv(columns, [settings | results for settings, results in rows]))


def percent_cell(share: float | None, digits: int = 2) -> str:
    """Return a fraction in percent without the percent sign, for a column that names the unit; "" for None."""
    return "" if share is None else f"{100 * share:.{digits}f}"


def _finished_trials(folder: Path, definition: SweepDefinition) -> Iterator[_FinishedTrial]:
    """Yield the finished trials, from their run folders or, if a run folder is missing, from trials.csv."""
    rows = _rows(folder)
    for name, own in definition.trials().items():
        trial = _of_run(folder, definition, name, own) or _of_row(folder, definition, name, own, rows)
        if trial is not None:
            yield trial


def _of_run(folder: Path, definition: SweepDefinition, name: str, own: TrialSettings) -> _FinishedTrial | None:
    """Read a trial from its run folder, with or without a model; return None if it is missing or not finished."""
    run = folder / "trials" / name
    summary = recorded_summary(run)
    if summary is None or not isinstance(summary.validation, Scores) or not isinstance(summary.test, Scores):
        return None
    config = RunConfig.read(run / "run.toml")
    other = _other(own)
    if definition.search:
        other = {"lam": config.lam, "learning_rate": config.learning_rate}
    found = {name: getattr(summary.test.deciding, name) for name in PROBABILITY_SCORES}
    probabilities = {name: value for name, value in found.items() if value is not None}
    accuracies, seconds = _test_accuracies(summary), summary.seconds
    cells = _result_cells(run, summary)
    return _FinishedTrial(run, config, other, cells, summary.validation.accuracy, accuracies, probabilities, seconds)


def _of_row(
    folder: Path, definition: SweepDefinition, name: str, own: TrialSettings, rows: Mapping[str, Mapping[str, str]]
) -> _FinishedTrial | None:
    """Return a trial of a grid as in trials.csv, whose accuracies have two decimals; None if it has no such row."""
    run, row = folder / "trials" / name, rows.get(name)
    if row is None or definition.search or (run / "run.toml").exists():
        return None
    config, other = definition.config(own), _other(own)
    names = {"trial", "objective", "seed", "alpha", "subclasses", "statistic", *other}
    cells = {column: value for column, value in row.items() if value and column not in names}
    numbers = {column: _number(value) for column, value in cells.items() if column != "eigenvalues"}
    test = {
        column.removeprefix("test "): numbers[column] / 100
        for column in cells
        if column.startswith("test ") and column not in ("test balanced", *_SCORE_COLUMNS.values())
    }
    if "validation" not in numbers or not test:
        return None
    columns = {score: _SCORE_COLUMNS[score] for score in PROBABILITY_SCORES}
    probabilities = {score: numbers[column] for score, column in columns.items() if column in numbers}
    accuracy, seconds = numbers["validation"] / 100, numbers.get("seconds", 0.0)
    shares, others = (accuracy, *test.values()), (seconds, *probabilities.values())
    if not (all(0 <= share <= 1 for share in shares) and all(0 <= value < 1e9 for value in others)):
        what = f"{folder / 'trials.csv'} has a score for {name} that is not a number in its range"
        raise InputError(f"{what}: restore the row, or remove it")
    return _FinishedTrial(run, config, other, cells, accuracy, test, probabilities, seconds)


def _number(text: str) -> float:
    """Return a number, or NaN if the text is something else."""
    try:
        return float(text)
    except ValueError:
        return nan


def _rows(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of trials.csv by trial; empty if there is no such file. Raises InputError if it is not CSV."""
    file = folder / "trials.csv"
    if not file.exists():
        return {}
    try:
        rows = list(csv.DictReader(read_small(file).decode().splitlines(), restval=""))
        return {row["trial"]: row for row in rows if None not in row}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError):
        raise InputError(f"{file} is not a table of trials: remove it, or restore it") from None


def _other(own: TrialSettings) -> TrialSettings:
    return {key: value for key, value in own.items() if key not in _NAMED}


def _same_results(recorded: RunConfig, wanted: RunConfig) -> bool:
    """Return whether two runs have the same settings, except those for where and how to run."""
    ours, theirs = (config.model_dump(mode="json", exclude=HOW_TO_RUN) for config in (recorded, wanted))
    return ours == theirs


def _test_accuracies(summary: SummaryRow) -> dict[str, float]:
    """Return the test accuracy by predictor; the primary predictor comes first."""
    assert isinstance(summary.test, Scores)
    found = {name: scores.accuracy for name, scores in summary.test.predictors.items()}
    if augmented := summary.augmented_test:
        kind, test = augmented
        found |= {f"{name} {kind}": scores.accuracy for name, scores in test.predictors.items()}
    return found


def _empty_group(trial: _FinishedTrial) -> RunGroup:
    config = trial.config
    if config.objective not in LDA_OBJECTIVES:
        return RunGroup(config.objective, None, None, config.subclasses, trial.other)
    objective: str = config.objective
    if objective != "joint":
        papers = "dlda" if config.alpha == 1 else "rdlda"
        objective = papers if config.statistic == "smallest" else "lda"
    return RunGroup(objective, config.alpha, config.statistic, config.subclasses, trial.other)


def _settings_cells(trial: _FinishedTrial) -> TrialSettings:
    config = trial.config
    cells: TrialSettings = {"trial": trial.run.name, "objective": config.objective, "seed": config.seed}
    if config.objective in LDA_OBJECTIVES:
        cells |= {"alpha": config.alpha, "subclasses": config.subclasses, "statistic": config.statistic}
    return cells | trial.other


def _result_cells(run: Path, summary: SummaryRow) -> dict[str, str]:
    assert isinstance(summary.validation, Scores)
    assert isinstance(summary.test, Scores)
    scores = summary.test.deciding
    cells = {
        "validation": percent_cell(summary.validation.accuracy),
        "test balanced": percent_cell(scores.balanced_accuracy),
    }
    for name, column in _SCORE_COLUMNS.items():
        value = getattr(scores, name)
        cells[column] = "" if value is None else f"{value:.4f}"
    cells |= {f"test {name}": percent_cell(accuracy) for name, accuracy in _test_accuracies(summary).items()}
    cells |= {"seconds": f"{summary.seconds:.0f}", "pflop": f"{summary.flops / 1e15:.3g}"}
    spectra = [row.eigenvalues for row in read_metrics(run) if isinstance(row, EpochRow) and row.eigenvalues]
    if spectra:
        cells["eigenvalues"] = " ".join(f"{value:.3g}" for value in spectra[-1])
    return cells


@dataclass(frozen=True)
class PairedComparison:
    """The difference between two groups of runs over their common seeds.

    `low` and `high` are the bounds of the 95 % confidence interval for the mean difference, from Student's t. They are
    None if there are fewer than two seeds, or if the same nonzero difference occurs for every seed (which happens with
    accuracies on few samples), because the spread cannot be estimated then.
    """

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """The outcome of the comparison: "better" or "worse" if the interval excludes zero."""
        if self.low is None or self.high is None:
            return "not comparable"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "no significant difference"

    def sentence(self, ours: str, theirs: str) -> str:
        """Return the comparison in words. Differences are stored as fractions and printed as percentage points."""
        if self.mean is None:
            return f"{ours} and {theirs} have no seed in common and cannot be compared."
        if self.low is None or self.high is None:
            difference = f"{ours} differs from {theirs} by {points(self.mean)}"
            if self.n == 1:
                return f"{difference} on the only common seed, and one seed is not enough to judge."
            return f"{difference} on each of {self.n} seeds, which leaves no spread to judge by."
        interval = f"{points(self.mean)}, 95 % interval {100 * self.low:+.2f} to {100 * self.high:+.2f}"
        over = f"over {counted(self.n, 'seed')} ({interval})"
        if self.verdict == "no significant difference":
            return f"{ours} and {theirs} do not differ significantly {over}."
        return f"{ours} is {self.verdict} than {theirs} {over}."


def compare(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedComparison:
    """Compare two groups of runs, each given as results by seed, over the seeds that they have in common."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    n = len(differences)
    if n == 0:
        return PairedComparison(0, None, None, None)
    mean = fmean(differences)
    if n == 1 or (mean and max(differences) - min(differences) < _NO_SPREAD):
        return PairedComparison(n, mean, None, None)

    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + _CONFIDENCE) / 2)) * stdev(differences) / sqrt(n)
    return PairedComparison(n, mean, mean - half, mean + half)
