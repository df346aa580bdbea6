"""The page of an audit: samples with their given and suggested labels, and keys to decide about each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deeplda.data.corrections import ACCEPTED, DROPPED, REJECTED
from deeplda.formatting import counted
from deeplda.printing import as_csv
from deeplda.report import wording
from deeplda.report.audited_run import COLUMNS, AuditedRun
from deeplda.report.components import file_name, header, section
from deeplda.report.markup import AUDIT_SCRIPTS, Child, Html, document, element
from deeplda.report.plot_data import image_uri, values_text

# The list of labels that may be wrong is longer than the estimated number of mistakes, because some of its first
# samples are right.
_SUSPECTS_PER_MISTAKE, _FEWEST_SUSPECTS, _MOST_SUSPECTS = 1.5, 40, 500
# The most samples in each of the other sections.
_MOST_OTHERS = 60
_SETS = {"train": "training set", "val": "validation set", "test": "test set: correct it in your data"}
_KEYS = (
    (("y",), "accept"),
    (("n",), "reject"),
    (("d",), "drop"),
    (("u",), "undo"),
    (("\u2190", "\u2192", "\u2191", "\u2193"), "move"),
)


def audit_page(run: AuditedRun) -> str:
    """Return the page as HTML. It contains all its images and a script that writes the decisions as CSV."""
    name = wording.data_name(run.record.config)
    open_ = len(run.order) - int(run.confirmed.sum())
    wanted = max(math.ceil(_SUSPECTS_PER_MISTAKE * run.audit.mistakes), _FEWEST_SUSPECTS)
    sections = {
        "suspects": run.order[: min(wanted, _MOST_SUSPECTS, open_)],
        "duplicates": run.duplicates[:_MOST_OTHERS],
        "outliers": run.outliers[:_MOST_OTHERS],
    }
    shown = list(dict.fromkeys(place for places in sections.values() for place in places))
    # The script adds only a decision to each line, so that text is escaped in one place.
    before = [column for column in COLUMNS if column != "decision"]
    lines = as_csv(before, [run.row(place) for place in shown]).splitlines()
    data = {
        "file": run.decisions_file,
        "header": f"{lines[0]},decision",
        "rows": dict(zip(map(str, shown), lines[1:], strict=True)),
    }
    notes = [f"Note: {note}." for note in run.notes]
    return document(
        f"{name}: audit",
        data,
        header(name, run.estimate, [element("p", text, class_="lead") for text in (run.rule, *notes)], kind="audit"),
        _controls(len(shown), run.decisions_file),
        _suspects(run, sections["suspects"]),
        _duplicates(run, sections["duplicates"]),
        _outliers(run, sections["outliers"]),
        _next(run),
        scripts=AUDIT_SCRIPTS,
    )


def _controls(count: int, file: str) -> Html:
    """Return the bar with the keys, the number of decisions and the button that downloads them."""
    keys = [element("span", [element("kbd", key) for key in group], f" {what}") for group, what in _KEYS]
    status = element("output", f"0 of {count:,} decided", id="decided")
    button = element("button", f"Download {file}", type="button", id="download", disabled=True)
    missing = element("noscript", element("p", "Deciding needs JavaScript, which is turned off."))
    return element("div", element("p", keys, class_="keys"), status, button, missing, class_="bar", role="toolbar")


def _suspects(run: AuditedRun, places: Sequence[int]) -> Html:
    lead = (
        "Each sample has its given label and, after the arrow, the suggested one. Accept the suggestion if it is "
        "right, reject it if the given label is right, and drop the sample if neither is. The most likely mistakes "
        f"come first. These are the first {len(places):,} of {counted(len(run.names), 'sample')}, one and a half "
        f"times as many as there are probably mistakes, but from {_FEWEST_SUSPECTS} to {_MOST_SUSPECTS}; audit.csv "
        "has all of them."
    )
    return section("suspects", "Labels that may be wrong", lead, _cards(run, places))


def _duplicates(run: AuditedRun, places: Sequence[int]) -> Child:
    if not places:
        return ()
    lead = (
        "These samples have nearly the same content as another one with a different label, so at least one of "
        "the two labels is wrong. "
        "The one shown fits its label less."
    )
    return section("duplicates", "Near-duplicates with different labels", lead, _cards(run, places))


def _outliers(run: AuditedRun, places: Sequence[int]) -> Child:
    if not places:
        return ()
    lead = (
        "These samples are far from every class, so they may belong to none: broken, empty or unrelated images, for "
        "example: then drop them. There is a suggested label only if it fits better than the given one."
    )
    return section("outliers", "Outliers", lead, _cards(run, places, outliers=True))


def _cards(run: AuditedRun, places: Sequence[int], *, outliers: bool = False) -> Html:
    images = len(run.card.sample_shape) == 3
    kind = "cards" if images else "cards rows"
    if images and max(run.card.sample_shape[1:]) < 64:
        kind += " pixels"
    return element("ul", [_card(run, place, images=images, outlier=outliers) for place in places], class_=kind)


def _card(run: AuditedRun, place: int, *, images: bool, outlier: bool) -> Html:
    """Return the card of a sample. That of an outlier has its distance, and no suggestion if the given label fits."""
    row, sample = run.row(place), np.asarray(run.inputs[[place]])[0]
    if images:
        alt = f"{row['sample']}, labelled {row['given']}"
        shown = element("img", src=image_uri(np.asarray(sample, np.uint8), side=128), alt=alt)
    else:
        shown = element("span", values_text(run.card, sample), class_="values")
    suggests = not (outlier and run.audit.margins[place] > 0)
    suggestion = (" \u2192 ", element("b", str(row["suggested"]))) if suggests else ()
    distance = f", distance {row['distance']:.1f}" if outlier else ""
    lines = [
        element("span", str(row["given"]), suggestion, class_="labels"),
        element("span", f"rank {run.ranks[place]:,}{distance}", class_="hint"),
        element("span", _SETS[run.parts[place]], class_=f"hint {run.parts[place]}"),
        element("span", file_name(row["sample"]), class_="hint"),
    ]
    if place in run.copies:
        other = run.row(run.copies[place])
        lines.append(element("span", f"same as {other['sample']} ({other['given']})", class_="hint"))
    buttons = [
        element("button", word, type="button", data_decision=decision, aria_pressed="false", tabindex=-1)
        for word, decision in (("accept", ACCEPTED), ("reject" if suggests else "keep", REJECTED), ("drop", DROPPED))
        if suggests or decision != ACCEPTED
    ]
    label = f"{row['sample']}: {row['given']}" + (f", suggested {row['suggested']}" if suggests else "")
    body = shown, element("p", lines), element("div", buttons, class_="choice")
    return element("li", body, data_row=place, tabindex=-1, aria_label=label)


def _next(run: AuditedRun) -> Html:
    lead = (
        f"Download {run.decisions_file} to the folder in which you run deeplda, and train again. This command has the "
        "settings of this run. It gives accepted samples the suggested labels and leaves out dropped ones, in the "
        "training and validation sets. The test set is never changed: correct its samples in your data."
    )
    shown = element("pre", element("code", run.command), class_="command", tabindex=0)
    return section("next", "Apply the decisions", lead, shown)
