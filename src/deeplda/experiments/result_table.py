"""The table of a sweep's results next to the paper's results, as text, Markdown, LaTeX, CSV or JSON.

It shows the mean and spread over seeds, the setting chosen by validation accuracy, and paired comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Literal

from deeplda.errors import one_line
from deeplda.experiments.published import original_dlda, published_accuracy, published_tables
from deeplda.experiments.results import (
    PROBABILITY_SCORES,
    PairedComparison,
    RunGroup,
    SweepResults,
    compare,
    percent_cell,
)
from deeplda.formatting import Spread
from deeplda.printing import as_csv, as_json
from deeplda.training.config import LDA_OBJECTIVES, SubclassSettings

TableFormat = Literal["text", "markdown", "latex", "csv", "json"]
# Characters that have a meaning in LaTeX, and those that its default fonts lack.
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
}  # fmt: skip
_BOLD_NOTE = (
    "bold: the highest mean of its column, if the 95 % interval of the paired difference from every other row, over "
    "seeds, is above zero"
)
# Each group is compared with these groups, if the sweep has them: the same settings with alpha 1 (for the paper's
# statistic, this is DLDA), cross-entropy, the same settings with the paper's statistic, and the same settings without
# subclasses.
BASELINES = ("dlda", "cce", "smallest", "unsplit")


@dataclass(frozen=True)
class BaselineComparison:
    """A comparison with the baseline group that has this label."""

    label: str
    found: PairedComparison


@dataclass(frozen=True)
class TableRow:
    """A group of runs: its results by predictor, the paper's results (both as fractions), and the comparisons.

    `probabilities` are the primary predictor's log loss, Brier score and calibration error on the test set.
    """

    group: RunGroup
    validation: Spread
    test: dict[str, Spread]
    probabilities: dict[str, Spread]
    paper: dict[str, float]
    chosen: bool
    against: dict[str, BaselineComparison]

    @property
    def sentences(self) -> list[str]:
        """The comparisons in words; they use the primary predictor's test accuracy."""
        return [comparison.found.sentence(self.group.label, comparison.label) for comparison in self.against.values()]


@dataclass(frozen=True)
class ResultTable:
    """The rows of a sweep's results table; `notes` explain how to interpret them."""

    title: str
    scale: str | None
    predictors: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """The comparisons of all rows in words."""
        return [sentence for row in self.rows for sentence in row.sentences]


def result_table(results: SweepResults) -> ResultTable:
    """Return a sweep's results table.

    The best LDA objective is chosen by mean validation accuracy, never by test accuracy.
    """
    chosen = _chosen(results.groups)
    rows = tuple(_row(group, results, chosen=group is chosen) for group in results.groups)
    names = dict.fromkeys(name for row in rows for name in row.test)
    return ResultTable(_title(results), results.definition.scale, tuple(names), rows, _notes(results, rows))


def _chosen(groups: tuple[RunGroup, ...]) -> RunGroup:
    """Return the best group by validation accuracy among those with the most seeds.

    Groups without an LDA loss are considered only if there are no others.
    """
    candidates = [group for group in groups if group.objective in LDA_OBJECTIVES] or list(groups)
    return max(candidates, key=lambda group: (len(group.validation), fmean(group.validation.values())))


def _row(group: RunGroup, results: SweepResults, *, chosen: bool) -> TableRow:
    against = {}
    for name, baseline in _baselines(group, results.groups).items():
        found = compare(group.test[group.predictor], baseline.test[baseline.predictor])
        against[name] = BaselineComparison(baseline.label, found)
    test = {name: Spread.of(by_seed.values()) for name, by_seed in group.test.items()}
    probabilities = {name: Spread.of(by_seed.values()) for name, by_seed in group.probabilities.items()}
    paper = _papers(group, results.definition.data)
    return TableRow(group, Spread.of(group.validation.values()), test, probabilities, paper, chosen, against)


def _papers(group: RunGroup, data: str) -> dict[str, float]:
    """Return the paper's accuracies as fractions; it has none for objectives other than its own and cross-entropy."""
    if group.objective not in ("rdlda", "dlda", "cce") or not isinstance(group.subclasses, int):
        return {}
    found = {name: published_accuracy(data, name, group.alpha, group.subclasses) for name in group.test}
    return {name: accuracy / 100 for name, accuracy in found.items() if accuracy is not None}


def _baselines(group: RunGroup, groups: tuple[RunGroup, ...]) -> dict[str, RunGroup]:
    """Return the groups to compare a group with, keyed by the names in BASELINES.

    Cross-entropy has no baselines: the comparisons with it are in the rows of the other groups.
    """

    def like(**change: object) -> list[RunGroup]:
        mine = {"alpha": group.alpha, "statistic": group.statistic, "subclasses": group.subclasses}
        wanted = mine | change
        alike = [other for other in groups if _kind(other) == _kind(group)]
        return [other for other in alike if wanted != mine and wanted.items() <= vars(other).items()]

    if group.objective == "cce":
        return {}
    candidates = {
        "dlda": [other for other in like(alpha=1) if other.other == group.other],
        "cce": [other for other in groups if other.objective == "cce"],
        "smallest": like(statistic="smallest"),
        "unsplit": [other for other in like(subclasses=1) if _unsplit(other) == _unsplit(group)],
    }
    nearest = {name: _nearest(group, found) for name, found in candidates.items()}
    return {name: found for name, found in nearest.items() if found is not None}


def _unsplit(group: RunGroup) -> dict[str, object]:
    """Return the further settings of a group, except those that have a meaning only with subclasses."""
    return {name: value for name, value in group.other.items() if name not in SubclassSettings.model_fields}


def _kind(group: RunGroup) -> str:
    """Return the objective, but the same name for lda, rdlda and dlda, which differ only in alpha and statistic."""
    return "lda" if group.objective in ("rdlda", "dlda") else group.objective


def _nearest(group: RunGroup, candidates: list[RunGroup]) -> RunGroup | None:
    """Return the candidate that shares the most axes with the group and has equal values on all of them.

    If no candidate qualifies but there is only one, return it: it was tuned separately.
    """

    def shared(other: RunGroup) -> set[str]:
        return group.other.keys() & other.other.keys()

    alike = [other for other in candidates if all(group.other[name] == other.other[name] for name in shared(other))]
    if alike:
        return max(alike, key=lambda other: len(shared(other)))
    return candidates[0] if len(candidates) == 1 else None


def _title(results: SweepResults) -> str:
    number = next((table.number for table in published_tables() if table.name == results.definition.table), None)
    what = f"the paper's Table {number}, " if number else ""
    scales = {"quick": ", QUICK SCALE", "long": ", LONG SCALE", "changed": ", CHANGED SETTINGS"}
    scale = scales.get(results.definition.scale or "", "")
    return f"{what}{results.definition.data}: test accuracy in %{scale}"


def _notes(results: SweepResults, rows: tuple[TableRow, ...]) -> tuple[str, ...]:
    among = "LDA objectives" if any(row.group.objective in LDA_OBJECTIVES for row in rows) else "settings"
    notes = [f"* the best of the {among} by validation accuracy; test accuracy plays no part in the choice"]
    if any(row.paper for row in rows):
        notes.append(_note_on_the_paper(results))
    if missing := results.trials - results.done:
        reasons = "they are waiting, have failed, were stopped early or ran elsewhere"
        notes.append(f"{missing} of {results.trials} trials have no result here: {reasons}")
    intervals = sum(against.found.low is not None for row in rows for against in row.against.values())
    if intervals > 1:
        notes.append(
            f"each of the {intervals} intervals has 95 % confidence on its own, so about 1 in 20 misses by chance; "
            "they cover variation between seeds, not between test sets"
        )
    return tuple(notes)


def _note_on_the_paper(results: SweepResults) -> str:
    data, table = results.definition.data, results.definition.table
    on_this_data = [found for found in published_tables() if found.data == data]
    settings = next((found for found in on_this_data if found.name == table), on_this_data[0]).settings
    ours = {
        "full": "these runs use the paper's settings",
        "quick": "these runs are at QUICK SCALE, with a narrower network and fewer epochs",
        "long": "these runs are at LONG SCALE, with the paper's schedule, a narrower network and smaller images",
        "changed": "these runs use CHANGED SETTINGS",
    }.get(results.definition.scale or "", "these runs use different settings")
    note = f"the paper used {settings}; it gives one number per cell and no spread; {ours}"
    original = original_dlda()
    if data == original.data:
        note += f"; the original DLDA paper reports {original.accuracy} % with batches of {original.batch_size}"
    return note


def format_table(table: ResultTable, style: TableFormat) -> str:
    """Return the table as text that ends in a newline."""
    formats = {"text": _as_text, "markdown": _as_markdown, "latex": _as_latex, "csv": _as_csv, "json": _as_json}
    return formats[style](table)


def clear_winner(table: ResultTable, predictor: str) -> TableRow | None:
    """Return the row with the highest mean test accuracy of a predictor, or None if that is not clear.

    It is clear if the 95 % interval of the paired difference from every other row is above zero.
    """
    rows = [row for row in table.rows if predictor in row.test]
    best = max(rows, key=lambda row: row.test[predictor].mean, default=None)
    others = [row for row in rows if row is not best]
    if best is None or not others:
        return None
    ours = best.group.test[predictor]
    verdicts = (compare(ours, other.group.test[predictor]).verdict for other in others)
    return best if all(verdict == "better" for verdict in verdicts) else None


def _as_text(table: ResultTable) -> str:
    """Format the table for a terminal, with padded columns and unwrapped lines."""
    heads, rows = _cells(table)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for first, *rest in [heads, ["-" * width for width in widths], *rows]:
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *numbers]).rstrip())
    texts = [one_line(text) for text in (*table.notes, "", *table.sentences)]
    return "\n".join([one_line(table.title), "", *lines, "", *texts]).rstrip() + "\n"


def _as_markdown(table: ResultTable) -> str:
    heads, rows = _cells(table, bold="**{}**".format)
    rule = ["---", *("---:" for _ in heads[1:])]
    lines = ["| " + " | ".join(row) + " |" for row in [heads, rule, *rows]]
    notes = [one_line(note).replace("*", r"\*") + "\n" for note in (*table.notes, _BOLD_NOTE)]
    sentences = [f"- {one_line(sentence)}" for sentence in table.sentences]
    return "\n".join([f"### {one_line(table.title)}", "", *lines, "", *notes, *sentences]).rstrip() + "\n"


def _as_latex(table: ResultTable) -> str:
    """Format the table as a tabular for the package booktabs, with the title and the notes as comments."""
    heads, rows = _cells(table, escape=_escaped, bold=r"\textbf{{{}}}".format)
    lines = [" & ".join(row) + r" \\" for row in [heads, *rows]]
    comments = [f"% {one_line(text)}" for text in (table.title, *table.notes, _BOLD_NOTE, *table.sentences)]
    start = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    parts = [*comments, start, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _cells(
    table: ResultTable, escape: Callable[[str], str] = str, bold: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Return the headings and cells, with a column of the paper's results after each predictor that has any.

    Their text is printable, because settings and names of predictors come from files that others may have written. It
    is passed through `escape`, and the clear winner of each predictor also through `bold`.
    """
    in_paper = {name for row in table.rows for name in row.paper}
    heads = ["setting", "seeds", "validation"]
    for name in table.predictors:
        heads += [name.replace("_", " "), *(["paper"] if name in in_paper else [])]
    measured = [name for name in PROBABILITY_SCORES if any(name in row.probabilities for row in table.rows)]
    heads += [PROBABILITY_SCORES[name] for name in measured]
    winners = {name: clear_winner(table, name) for name in table.predictors}
    rows = []
    for row in table.rows:
        cells = [row.group.label + (" *" if row.chosen else ""), str(row.validation.n), str(row.validation)]
        emphasised = set[int]()
        for name in table.predictors:
            if winners[name] is row:
                emphasised.add(len(cells))
            cells.append(str(row.test.get(name, "")))
            if name in in_paper:
                cells.append(percent_cell(row.paper.get(name)))
        cells += [row.probabilities[name].plain() if name in row.probabilities else "" for name in measured]
        shown = [escape(one_line(cell)) for cell in cells]
        rows.append([bold(cell) if place in emphasised else cell for place, cell in enumerate(shown)])
    return [escape(one_line(head)) for head in heads], rows


def _settings(group: RunGroup) -> dict[str, object]:
    names = ("objective", "alpha", "statistic", "subclasses")
    return {"setting": group.label, **{name: getattr(group, name) for name in names}}


def _as_csv(table: ResultTable) -> str:
    """Format one line per group and predictor, with accuracies in percent and differences in percentage points."""
    rows = [_csv_row(table, row, name) for row in table.rows for name in row.test]
    return as_csv(rows[0], rows)


def _csv_row(table: ResultTable, row: TableRow, predictor: str) -> dict[str, object]:
    group, found = row.group, row.test[predictor]
    line: dict[str, object] = {
        "scale": table.scale,
        **_settings(group),
        "predictor": predictor,
        "seeds": found.n,
        "test_percent": percent_cell(found.mean, 4),
        "test_std": percent_cell(found.std, 4),
        "paper_percent": percent_cell(row.paper.get(predictor), 4),
        "validation_percent": percent_cell(row.validation.mean, 4),
        "validation_std": percent_cell(row.validation.std, 4),
        "chosen": "yes" if row.chosen else "no",
    }
    for name in PROBABILITY_SCORES:
        measured = row.probabilities.get(name) if predictor == group.predictor else None
        line[f"test_{name}"] = "" if measured is None else f"{measured.mean:.4f}"
    for name in BASELINES:
        against = row.against[name].found if predictor == group.predictor and name in row.against else None
        for key in ("mean", "low", "high"):
            line[f"{name}_{key}"] = percent_cell(getattr(against, key) if against else None, 4)
        line[f"{name}_verdict"] = against.verdict if against else ""
    return line


def _as_json(table: ResultTable) -> str:
    """Format the table as one JSON object, with accuracies and differences as fractions."""
    rows = [_json_row(row) for row in table.rows]
    return as_json({"title": table.title, "scale": table.scale, "notes": table.notes, "rows": rows}, indent=2) + "\n"


def _json_row(row: TableRow) -> dict[str, object]:
    group = row.group
    return {
        **_settings(group),
        "other": group.other,
        "seeds": sorted(group.validation),
        "chosen": row.chosen,
        "validation": asdict(row.validation),
        "test": {name: asdict(found) | {"paper": row.paper.get(name)} for name, found in row.test.items()},
        "probabilities": {name: asdict(found) for name, found in row.probabilities.items()},
        "against": {
            name: asdict(against.found) | {"verdict": against.found.verdict} for name, against in row.against.items()
        },
        "sentences": row.sentences,
    }
