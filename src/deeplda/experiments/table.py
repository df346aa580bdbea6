"""Ours beside the paper's: mean and spread over seeds, what validation chose, and what differs for certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from deeplda.experiments.comparison import Comparison, compare
from deeplda.experiments.published import original_dlda, published_accuracy, published_tables
from deeplda.experiments.results import Setting, SweepResults

# What a setting is compared with, where the sweep has it: DLDA, cross-entropy, the paper's statistic, and itself
# without subclasses.
BASELINES = ("dlda", "cce", "smallest", "unsplit")


class Against(NamedTuple):
    """A comparison with the setting of that label."""

    label: str
    found: Comparison


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; `std` is None for one seed."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, by_seed: Mapping[int, float]) -> Spread:
        values = list(by_seed.values())
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Row:
    """A setting: ours by each predictor, the paper's where it has one (both as shares), and the comparisons."""

    setting: Setting
    validation: Spread
    test: dict[str, Spread]
    paper: dict[str, float]
    chosen: bool
    against: dict[str, Against]

    @property
    def sentences(self) -> list[str]:
        """The comparisons in words, on the test accuracy of the predictor that decides."""
        return [found.sentence(self.setting.label, label) for label, found in self.against.values()]


@dataclass(frozen=True)
class ResultTable:
    """A sweep's rows; `notes` are what a reader must know before believing them."""

    title: str
    scale: str | None
    predictors: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def result_table(results: SweepResults) -> ResultTable:
    """The table of a sweep, with the best LDA objective by mean validation accuracy chosen; test never chooses."""
    chosen = _chosen(results.settings)
    rows = tuple(_row(setting, results, chosen=setting is chosen) for setting in results.settings)
    names = dict.fromkeys(name for row in rows for name in row.test)
    return ResultTable(_title(results), results.definition.scale, tuple(names), rows, _notes(results, rows))


def _chosen(settings: tuple[Setting, ...]) -> Setting:
    """The best of the discriminant objectives by validation, among those with the most seeds; else of all."""
    candidates = [setting for setting in settings if setting.objective != "cce"] or list(settings)
    most = max(len(setting.validation) for setting in candidates)
    full = [setting for setting in candidates if len(setting.validation) == most]
    return max(full, key=lambda setting: fmean(setting.validation.values()))


def _row(setting: Setting, results: SweepResults, *, chosen: bool) -> Row:
    paper = {}
    for name in setting.test:
        if isinstance(setting.subclasses, int):
            number = published_accuracy(results.definition.data, name, setting.alpha, setting.subclasses)
            if number is not None:
                paper[name] = number / 100
    against = {}
    for name, baseline in _baselines(setting, results.settings).items():
        found = compare(setting.test[setting.predictor], baseline.test[baseline.predictor])
        against[name] = Against(baseline.label, found)
    test = {name: Spread.of(by_seed) for name, by_seed in setting.test.items()}
    return Row(setting, Spread.of(setting.validation), test, paper, chosen, against)


def _baselines(setting: Setting, settings: tuple[Setting, ...]) -> dict[str, Setting]:
    """What the sweep has to compare the setting with, by the names of BASELINES.

    Cross-entropy itself has none: the comparison with DLDA stands in DLDA's row.
    """
    if setting.objective == "cce":
        return {}
    same = [other for other in settings if other is not setting and other.subclasses == setting.subclasses]
    candidates = {
        "dlda": [other for other in same if other.alpha == 1 != setting.alpha and other.other == setting.other],
        "cce": [other for other in settings if other.objective == "cce"],
        "smallest": [other for other in same if _by_smallest(other) and other.alpha == setting.alpha],
        "unsplit": [
            other
            for other in settings
            if other.subclasses == 1 != setting.subclasses
            and (other.alpha, other.other) == (setting.alpha, setting.other)
        ],
    }
    if _by_smallest(setting):
        del candidates["smallest"]
    nearest = {name: _nearest(setting, found) for name, found in candidates.items()}
    return {name: found for name, found in nearest.items() if found is not None}


def _by_smallest(setting: Setting) -> bool:
    return setting.other.get("statistic") == "smallest"


def _nearest(setting: Setting, candidates: list[Setting]) -> Setting | None:
    """The one that shares most axes with it and has the same values of all of those; else the only one there is, which
    has its own best."""

    def shared(other: Setting) -> set[str]:
        return setting.other.keys() & other.other.keys() - {"statistic"}

    alike = [other for other in candidates if all(setting.other[n] == other.other[n] for n in shared(other))]
    if alike:
        return max(alike, key=lambda other: len(shared(other)))
    return candidates[0] if len(candidates) == 1 else None


def _title(results: SweepResults) -> str:
    table = results.definition.table
    # The paper's first table shows the network: ours are counted among those of results.
    what = f"the paper's Table {table + 1}, " if table else ""
    scale = {"quick": ", QUICK SCALE", "changed": ", CHANGED SETTINGS"}.get(results.definition.scale or "", "")
    return f"{what}{results.definition.data}: test accuracy in %{scale}"


def _notes(results: SweepResults, rows: tuple[Row, ...]) -> tuple[str, ...]:
    among = "LDA objectives" if any(row.setting.objective != "cce" for row in rows) else "settings"
    notes = [f"* the best of the {among} by validation accuracy, which test accuracy has no part in"]
    if any(row.paper for row in rows):
        notes.append(_about_the_paper(results))
    if results.done < results.trials:
        notes.append(
            f"{results.trials - results.done} of {results.trials} trials have no result here: "
            "they wait, failed, were ended early or ran elsewhere"
        )
    comparisons = sum(found.low is not None for row in rows for _, found in row.against.values())
    if comparisons > 1:
        notes.append(
            f"each of the {comparisons} intervals holds with 95 % by itself: about 1 in 20 misses by chance; "
            "they speak of other seeds on the same test part"
        )
    return tuple(notes)


def _about_the_paper(results: SweepResults) -> str:
    data, table = results.definition.data, results.definition.table
    its_tables = [found for found in published_tables() if found.data == data]
    settings = next((found for found in its_tables if found.number == table), its_tables[0]).settings
    ours = {
        "full": "these runs have its settings",
        "quick": "these runs are at QUICK SCALE: a narrower network and fewer epochs",
        "changed": "these runs have CHANGED SETTINGS",
    }.get(results.definition.scale or "", "these runs have settings of their own")
    note = f"paper: {settings}, one number a cell, spread not given; {ours}"
    first = original_dlda()
    if data == first.data:
        note += f"; the first DLDA paper has {first.accuracy} % with batches of {first.batch_size}"
    return note
