"""What the confusion matrix says: guessing, a class that was not learnt, a test part of another kind."""

from __future__ import annotations

import math
from statistics import median

from deeplda.report.doctor.record import Finding, Record, percent

_FEWEST_SAMPLES = 5


def guessing(record: Record) -> Finding | None:
    """Balanced accuracy that guessing could reach as well."""
    if record.final is None:
        return None
    part, scores = record.final
    chance = 1 / len(scores.confusion)
    least = chance + 2 * math.sqrt(chance * (1 - chance) / scores.n)
    # A few samples tell nothing: to guess all of them right is no miracle.
    if scores.balanced > least or least >= 1:
        return None
    return Finding(
        "problem",
        f"The model is no better than guessing: balanced accuracy {percent(scores.balanced)} on the {part} part.",
        f"With {len(scores.confusion)} classes guessing gives {percent(chance)}, give or take.",
        "Check that the labels belong to their samples; then try a lower and a higher learning rate than "
        f"{record.config.learning_rate:g}, and more epochs than {len(record.epochs)}.",
    )


def class_not_learnt(record: Record) -> Finding | None:
    """The worst class, where it is found less than half as often as the others."""
    if record.final is None:
        return None
    part, scores = record.final
    found = {c: row[c] / sum(row) for c, row in enumerate(scores.confusion) if sum(row) >= _FEWEST_SAMPLES}
    if len(found) < 2:
        return None
    worst = min(found, key=found.__getitem__)
    others = median(share for c, share in found.items() if c != worst)
    if 2 * found[worst] >= others:
        return None
    row = scores.confusion[worst]
    taken = max((c for c in range(len(row)) if c != worst), key=row.__getitem__)
    name, other = record.class_name(worst), record.class_name(taken)
    lost = found[worst] <= 1 / len(row)
    return Finding(
        "problem" if lost else "warning",
        f"Class {name} was {'not' if lost else 'hardly'} learnt: {percent(found[worst])} of its samples are found.",
        f"Of the other classes {percent(others)} are. On the {part} part {row[taken]} of its {sum(row)} samples are "
        f"taken for {other}.",
        _teach(name, other, rare=_rare(record, worst) and record.config.class_weight is None),
    )


def harder_test_part(record: Record) -> Finding | None:
    """A test accuracy far below validation: the parts are of different kinds."""
    if record.summary is None or not record.summary["test"] or not record.summary["validation"] or record.final is None:
        return None
    _, test = record.final
    validation = record.summary["validation"]["accuracy"]
    if validation - test.accuracy <= max(0.05, 3 * math.hypot(test.error, record.validation[-1].error)):
        return None
    return Finding(
        "warning",
        f"The test part is harder than the validation part: {percent(test.accuracy)} against {percent(validation)}.",
        "That is more than chance. Validation samples are drawn from the training part unless you gave your own; those "
        "of the test part seem to come from elsewhere, or copies of training samples are among the validation samples.",
        "Compare samples of both parts, and choose settings on validation samples like those the model is for.",
    )


def _rare(record: Record, place: int) -> bool:
    """Whether a class has few samples."""
    counts = record.class_counts
    return bool(counts) and counts[place] < 0.6 * sum(counts) / len(counts)


def _teach(name: str, other: str, *, rare: bool) -> str:
    if rare:
        return f"It is rarer than the others: train with --class-weight balanced, or add samples of {name}."
    return (
        f"Look at samples of {name} and {other}: are they labelled rightly, and can you tell them apart? Add samples."
    )
