"""What a run's metrics say, in words: what is wrong, why we think so and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deeplda.report.doctor import classes as by_class
from deeplda.report.doctor import course, spectrum
from deeplda.report.doctor.record import Finding, Record, count_classes
from deeplda.training.config import RunConfig

__all__ = ["Finding", "count_classes", "diagnose"]


def diagnose(rows: Sequence[Mapping[str, Any]], config: RunConfig, classes: int | None) -> list[Finding]:
    """What is to be said of a run, problems first; of a healthy one a single finding that is "good".

    Args:
        rows: of its metrics.jsonl.
        classes: how many the data has, as `count_classes` tells; None where that is not known yet.
    """
    record = Record(rows, config, classes)
    found = list(filter(None, _look(record)))
    found.sort(key=lambda finding: finding.severity != "problem")
    return found or [_healthy(record)]


def _look(record: Record) -> list[Finding | None]:
    """Each check in turn. What explains another finding takes its place."""
    unfinished, not_finite = course.unfinished(record), course.loss_not_finite(record)
    if not record.epochs or not_finite:
        return [not_finite, unfinished or course.without_epochs(record)]
    batch, narrow = spectrum.batch_too_small(record), spectrum.embedding_too_narrow(record)
    rate = course.few_steps(record) or course.learning_rate(record)
    moved = rate is None or rate.severity != "problem"
    guessing = by_class.guessing(record) if moved else None
    untrained = guessing or not moved
    return [
        rate,
        batch,
        narrow,
        spectrum.dead_dimensions(record),
        None if untrained else spectrum.stuck_eigenvalues(record, trusted=batch is None),
        guessing,
        None if untrained else by_class.class_not_learnt(record),
        by_class.harder_test_part(record),
        None if untrained or rate or batch or narrow else course.fitting(record),
        unfinished,
    ]


def _healthy(record: Record) -> Finding:
    """Nothing is wrong: what that rests on."""
    seen = [f"The loss is finite ({len(record.epochs)} of {record.config.epochs} epochs)"]
    if record.eigenvalues:
        last = record.eigenvalues[-1]
        seen.append(f"the {len(last)} eigenvalues of the last batch are {last[0]:.3g} to {last[-1]:.3g}")
    if record.accuracies:
        seen.append(f"validation reached {100 * max(record.accuracies):.1f} %")
    if len(record.epochs) < course.FEWEST_EPOCHS:
        seen.append("that is too short to judge the learning rate or how well the network fits")
    next_step = "Nothing. See it with deeplda report, use it with deeplda predict."
    return Finding("good", "Nothing is wrong with this run.", f"{'; '.join(seen)}.", next_step)
