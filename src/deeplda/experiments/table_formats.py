"""A table of results as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Literal

from deeplda.experiments.comparison import Comparison
from deeplda.experiments.table import BASELINES, ResultTable, Row, Spread

Format = Literal["text", "markdown", "csv", "json"]


def format_table(table: ResultTable, style: Format) -> str:
    """The whole table, ending in a newline."""
    return {"text": as_text, "markdown": as_markdown, "csv": as_csv, "json": as_json}[style](table)


def as_text(table: ResultTable) -> str:
    """For a terminal; columns are padded, lines are not broken."""
    heads, rows = _cells(table)
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    lines = [_padded(row, widths) for row in [heads, ["-" * width for width in widths], *rows]]
    return "\n".join([table.title, "", *lines, "", *table.notes, "", *_sentences(table)]).rstrip() + "\n"


def _padded(row: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def as_markdown(table: ResultTable) -> str:
    """A heading, the table, the notes, the comparisons."""
    heads, rows = _cells(table)
    rule = ["---", *("---:" for _ in heads[1:])]
    lines = ["| " + " | ".join(row) + " |" for row in [heads, rule, *rows]]
    notes = [note.replace("*", r"\*") + "\n" for note in table.notes]
    sentences = [f"- {sentence}" for sentence in _sentences(table)]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes, *sentences]).rstrip() + "\n"


def _cells(table: ResultTable) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; a column of the paper's follows each predictor that it has a number of."""
    with_paper = {name for row in table.rows for name in row.paper}
    heads = ["setting", "seeds", "validation"]
    for name in table.predictors:
        heads += [name.replace("_", " "), *(["paper"] if name in with_paper else [])]
    rows = []
    for row in table.rows:
        cells = [row.setting.label + (" *" if row.chosen else ""), str(row.validation.n), _spread(row.validation)]
        for name in table.predictors:
            cells.append(_spread(row.test.get(name)))
            if name in with_paper:
                cells.append(f"{100 * row.paper[name]:.2f}" if name in row.paper else "")
        rows.append(cells)
    return heads, rows


def _spread(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.2f}" + ("" if found.std is None else f" ± {100 * found.std:.2f}")


def _sentences(table: ResultTable) -> list[str]:
    return [sentence for row in table.rows for sentence in row.sentences]


def as_csv(table: ResultTable) -> str:
    """A line for each setting and predictor; accuracies in percent, differences in points."""
    stream = io.StringIO()
    rows = [_csv_row(table, row, name) for row in table.rows for name in row.test]
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _csv_row(table: ResultTable, row: Row, predictor: str) -> dict[str, Any]:
    found, decides = row.test[predictor], predictor == row.setting.predictor
    line: dict[str, Any] = {
        "scale": table.scale or "",
        "setting": row.setting.label,
        "objective": row.setting.objective,
        "alpha": "" if row.setting.alpha is None else row.setting.alpha,
        "subclasses": row.setting.subclasses,
        "predictor": predictor,
        "seeds": found.n,
        "test_percent": _percent(found.mean),
        "test_std": _percent(found.std),
        "paper_percent": _percent(row.paper.get(predictor)),
        "validation_percent": _percent(row.validation.mean),
        "validation_std": _percent(row.validation.std),
        "chosen": "yes" if row.chosen else "no",
    }
    for name in BASELINES:
        against = row.against[name].found if decides and name in row.against else None
        for key in ("mean", "low", "high"):
            line[f"{name}_{key}"] = _percent(getattr(against, key) if against else None)
        line[f"{name}_verdict"] = against.verdict if against else ""
    return line


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.4f}"


def as_json(table: ResultTable) -> str:
    """One object; accuracies and differences are shares."""
    found = {"title": table.title, "scale": table.scale, "notes": list(table.notes)}
    return json.dumps(found | {"rows": [_json_row(row) for row in table.rows]}, indent=2) + "\n"


def _json_row(row: Row) -> dict[str, Any]:
    setting = row.setting
    return {
        "setting": setting.label,
        "objective": setting.objective,
        "alpha": setting.alpha,
        "subclasses": setting.subclasses,
        "other": setting.other,
        "seeds": sorted(setting.validation),
        "chosen": row.chosen,
        "validation": _json_spread(row.validation),
        "test": {name: _json_spread(found) | {"paper": row.paper.get(name)} for name, found in row.test.items()},
        "against": {name: _json_comparison(found) for name, (_, found) in row.against.items()},
        "sentences": row.sentences,
    }


def _json_spread(found: Spread) -> dict[str, Any]:
    return {"mean": found.mean, "std": found.std, "n": found.n}


def _json_comparison(found: Comparison) -> dict[str, Any]:
    return {"n": found.n, "mean": found.mean, "low": found.low, "high": found.high, "verdict": found.verdict}
