"""The page of an audit: samples with their given and suggested labels, on which keys accept or reject a suggestion."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from deeplda.data.corrections import ACCEPTED, REJECTED
from deeplda.printing import as_csv
from deeplda.report import wording
from deeplda.report.audited_run import COLUMNS, AuditedRun
from deeplda.report.components import file_name, header, section
from deeplda.report.markup import AUDIT_SCRIPTS, Child, Html, document, element
from deeplda.report.plot_data import image_uri, values_text

# The most samples on the page in each section, and how many there are at least if few labels look wrong.
_MOST_SUSPECTS, _FEWEST_SUSPECTS, _MOST_OTHERS = 500, 24, 60
_KEYS = (
    (("y",), "accept"),
    (("n",), "reject"),
    (("u",), "undo"),
    (("\u2190", "\u2192", "\u2191", "\u2193"), "move"),
)


def audit_page(run: AuditedRun) -> str:
    """Return the page as HTML. It contains all its images and a script that writes the decisions as CSV."""
    audit, name = run.audit, wording.data_name(run.record.config)
    count = max(len(audit.suspects), min(_FEWEST_SUSPECTS, len(run.names)))
    sections = {
        "suspects": audit.order[: min(count, _MOST_SUSPECTS)].tolist(),
        "duplicates": [min(pair, key=lambda place: audit.margins[place]) for pair in audit.duplicates][:_MOST_OTHERS],
        "outliers": audit.outliers[:_MOST_OTHERS].tolist(),
    }
    shown = list(dict.fromkeys(place for places in sections.values() for place in places))
    # The script adds only a decision to each line, so that text is escaped in one place.
    before = [column for column in COLUMNS if column != "decision"]
    lines = as_csv(before, [run.row(place) for place in shown]).splitlines()
    data = {"header": f"{lines[0]},decision", "rows": dict(zip(map(str, shown), lines[1:], strict=True))}
    subtitle = run.estimate[0].upper() + run.estimate[1:]
    notes = [f"Note: {note}." for note in run.notes]
    return document(
        f"{name}: audit",
        data,
        header(name, subtitle, [element("p", text, class_="lead") for text in (run.rule, *notes)], kind="audit"),
        _controls(len(shown)),
        _suspects(run, sections["suspects"]),
        _duplicates(run, sections["duplicates"]),
        _outliers(run, sections["outliers"]),
        _next(run),
        scripts=AUDIT_SCRIPTS,
    )


def _controls(count: int) -> Html:
    """Return the bar with the keys, the number of decisions and the button that downloads them."""
    keys = [element("span", [element("kbd", key) for key in group], f" {what}") for group, what in _KEYS]
    status = element("output", f"0 of {count:,} decided", id="decided")
    button = element("button", "Download decisions.csv", type="button", id="download", disabled=True)
    missing = element("noscript", element("p", "Deciding needs JavaScript, which is turned off."))
    return element("div", element("p", keys, class_="keys"), status, button, missing, class_="bar", role="toolbar")


def _suspects(run: AuditedRun, places: Sequence[int]) -> Html:
    found = len(run.audit.suspects)
    lead = (
        "Each sample has its given label and, after the arrow, the suggested one. Accept the suggestion if it is "
        "right, and reject it if the given label is. If both are wrong, accept it only to leave the sample out with "
        "--drop. The most likely mistakes come first: the lower the margin, the less the given label fits."
    )
    if found > len(places):
        lead += f" These are the first {len(places):,} of about {found:,}; audit.csv has all of them."
    elif found < len(places):
        lead += f" Probably {found:,} of these labels are wrong; they are followed by the next most likely ones."
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
        "example. Accept one to leave it out with --drop; --relabel would give it the suggested label."
    )
    return section("outliers", "Outliers", lead, _cards(run, places))


def _cards(run: AuditedRun, places: Sequence[int]) -> Html:
    images = len(run.card.sample_shape) == 3
    kind = "cards" if images else "cards rows"
    if images and max(run.card.sample_shape[1:]) < 64:
        kind += " pixels"
    return element("ul", [_card(run, place, images=images) for place in places], class_=kind)


def _card(run: AuditedRun, place: int, *, images: bool) -> Html:
    row, sample = run.row(place), np.asarray(run.inputs[[place]])[0]
    if images:
        alt = f"{row['sample']}, labelled {row['given']}"
        shown = element("img", src=image_uri(np.asarray(sample, np.uint8), side=128), alt=alt)
    else:
        shown = element("span", values_text(run.card, sample), class_="values")
    lines = [
        element("span", str(row["given"]), " \u2192 ", element("b", str(row["suggested"])), class_="labels"),
        element("span", f"margin {row['margin']:.2f}, {row['part']}", class_="hint"),
        element("span", file_name(row["sample"]), class_="hint"),
    ]
    if place in run.copies:
        other = run.row(run.copies[place])
        lines.append(element("span", f"same as {other['sample']} ({other['given']})", class_="hint"))
    buttons = [
        element("button", word, type="button", data_decision=decision, aria_pressed="false", tabindex=-1)
        for word, decision in (("accept", ACCEPTED), ("reject", REJECTED))
    ]
    label = f"{row['sample']}: {row['given']}, suggested {row['suggested']}"
    body = shown, element("p", lines), element("div", buttons, class_="choice")
    return element("li", body, data_row=place, tabindex=-1, aria_label=label)


def _next(run: AuditedRun) -> Html:
    lead = (
        "Download the decisions, and pass the file to a new training run. It applies the accepted rows to the "
        "training and validation sets; the test set is never changed. Leave the samples out, or "
        "give them the suggested labels:"
    )
    data = shlex.quote(run.record.config.data)
    commands = [f"deeplda train {data} {option} decisions.csv" for option in ("--drop", "--relabel")]
    shown = element("pre", element("code", "\n".join(commands)), class_="command", tabindex=0)
    return section("next", "Apply the decisions", lead, shown)
