"""The results of a sweep, read from its finished runs, and paired comparisons between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings, sweep_file
from deeplda.formatting import counted, points
from deeplda.output_folder import OutputFolder
from deeplda.printing import as_csv
from deeplda.training.config import LDA_OBJECTIVES, RunConfig
from deeplda.training.metrics import EpochRow, Scores, SummaryRow
from deeplda.training.run_folder import read_metrics, summary_row

# Trial settings that have their own attribute in RunGroup, and the seed, which distinguishes the runs in a group.
_NAMED = ("objective", "alpha", "statistic", "subclasses", "seed")
_CONFIDENCE = 0.95
# This is less than one sample in any test set, so smaller differences are rounding errors.
_NO_SPREAD = 1e-9

# Scores of the probabilities, by their names in `PredictorScores`, and their headings in tables.
PROBABILITY_SCORES = {"log_loss": "log loss", "brier": "Brier", "ece": "ECE"}

Verdict = Literal["better", "worse", "no significant difference", "not comparable"]


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
    """A finished trial; `other` contains its own settings except those that are attributes of RunGroup."""

    run: Path
    config: RunConfig
    other: TrialSettings
    summary: SummaryRow
    validation: Scores
    test: Scores

    def test_accuracies(self) -> dict[str, float]:
        """Return the accuracy by predictor; the primary predictor comes first."""
        found = {name: scores.accuracy for name, scores in self.test.predictors.items()}
        if augmented := self.summary.augmented_test:
            kind, test = augmented
            found |= {f"{name} {kind}": scores.accuracy for name, scores in test.predictors.items()}
        return found


def read_results(folder: Path) -> SweepResults:
    """Read the finished runs of a sweep. Raises InputError if it is not a sweep folder or has no finished run."""
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
        group.validation[seed] = trial.validation.accuracy
        group.runs[seed] = trial.run
        for name, accuracy in trial.test_accuracies().items():
            group.test.setdefault(name, {})[seed] = accuracy
        deciding = next(iter(trial.test.predictors.values()))
        for name in PROBABILITY_SCORES:
            if (value := getattr(deciding, name)) is not None:
                group.probabilities.setdefault(name, {})[seed] = value
    if not finished:
        do = f"continue with deeplda sweep --sweep {folder}"
        raise InputError(f"{folder} has no finished trial from its {file.name}: {do}")
    return SweepResults(definition, tuple(groups.values()), len(finished), len(definition.trials()))


def write_trials(folder: Path, definition: SweepDefinition) -> None:
    """Write trials.csv, with the settings and results of every finished trial and accuracies in percent.

    Balanced accuracy, the area under the ROC curve and the scores of the probabilities are given for the primary
    predictor, and the eigenvalues for the last epoch. Nothing is written if no trial has finished.
    """
    trials = list(_finished_trials(folder, definition))
    if not trials:
        return
    rows = [(_settings_cells(trial), _result_cells(trial)) for trial in trials]
    columns = dict.fromkeys(name for part in zip(*rows, strict=True) for cells in part for name in cells)
    with OutputFolder.open(folder) as output:
        output.write("trials.csv", as_csv(columns, [settings | results for settings, results in rows]))


def percent_cell(share: float | None, digits: int = 2) -> str:
    """Return a fraction in percent without the percent sign, for a column that names the unit; "" for None."""
    return "" if share is None else f"{100 * share:.{digits}f}"


def _finished_trials(folder: Path, definition: SweepDefinition) -> Iterator[_FinishedTrial]:
    for name, own in definition.trials().items():
        run = folder / "trials" / name
        summary = summary_row(run)
        if summary is None or not isinstance(summary.validation, Scores) or not isinstance(summary.test, Scores):
            continue
        config = RunConfig.read(run / "run.toml")
        other: TrialSettings = {key: value for key, value in own.items() if key not in _NAMED}
        if definition.search:
            other = {"lam": config.lam, "learning_rate": config.learning_rate}
        yield _FinishedTrial(run, config, other, summary, summary.validation, summary.test)


def _empty_group(trial: _FinishedTrial) -> RunGroup:
    config = trial.config
    if config.objective not in LDA_OBJECTIVES:
        return RunGroup(config.objective, None, None, config.subclasses, trial.other)
    objective = config.objective
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


def _result_cells(trial: _FinishedTrial) -> dict[str, str]:
    decides = next(iter(trial.test.predictors.values()))
    cells = {
        "validation": percent_cell(trial.validation.accuracy),
        "test balanced": percent_cell(decides.balanced_accuracy),
        "test auc": "" if decides.auc is None else f"{decides.auc:.4f}",
        "test log loss": "" if decides.log_loss is None else f"{decides.log_loss:.4f}",
        "test brier": "" if decides.brier is None else f"{decides.brier:.4f}",
        "test ece": "" if decides.ece is None else f"{decides.ece:.4f}",
    }
    cells |= {f"test {name}": percent_cell(accuracy) for name, accuracy in trial.test_accuracies().items()}
    cells |= {"seconds": f"{trial.summary.seconds:.0f}", "pflop": f"{trial.summary.flops / 1e15:.3g}"}
    spectra = [row.eigenvalues for row in read_metrics(trial.run) if isinstance(row, EpochRow) and row.eigenvalues]
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
