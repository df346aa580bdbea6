"""What the course of training says: unfinished, diverged, learning rate, over- and underfitting."""

from __future__ import annotations

import math
from statistics import NormalDist, mean, median

from deeplda.report.doctor.record import Finding, Record, higher_rate, highest_rate, lower_rate, percent, points

# A trend needs this many epochs.
FEWEST_EPOCHS = 3
# With fewer steps a network has hardly left its start.
_FEWEST_STEPS = 50
# From here on a little more accuracy is no reason to speak up.
_GOOD = 0.98
# Below this a reason is looked for.
_FAIR = 0.9


def unfinished(record: Record) -> Finding | None:
    """No summary: stopped, or still running."""
    if record.summary is not None:
        return None
    done, planned = len(record.epochs), record.config.epochs
    diverged = f" If it says that values are not finite, start anew with {lower_rate(record.config)}."
    return Finding(
        "warning" if done else "problem",
        f"The run is not finished: {done} of {planned} epochs are done.",
        "Its metrics have no summary: it was stopped, it failed, or it is still running.",
        f"Go on with deeplda train --resume --run RUN; should it fail again, that shows why.{'' if done else diverged}",
    )


def without_epochs(record: Record) -> Finding | None:
    """A summary alone: the file was lost on the way."""
    if record.epochs:
        return None
    return Finding(
        "warning",
        "The course of this run is not known.",
        "Its metrics have a summary and no row of an epoch: they were lost before the run was finished.",
        "Nothing, if the scores of deeplda evaluate are what you expect; else train again.",
    )


def loss_not_finite(record: Record) -> Finding | None:
    """NaN or infinity in the loss."""
    broken = [row["epoch"] for row in record.epochs if not math.isfinite(row["loss"])]
    if not broken:
        return None
    return Finding(
        "problem",
        f"The loss is not finite from epoch {broken[0]} on.",
        "The weights have overflowed, and nothing after that was learnt; mostly the learning rate is too large.",
        f"Train again with {lower_rate(record.config)}; if that fails too, look for NaN or huge numbers in the data.",
    )


def few_steps(record: Record) -> Finding | None:
    """Batches that are large for the data: epochs of a step or two."""
    if record.summary is None or record.steps is None or record.steps >= _FEWEST_STEPS:
        return None
    if record.final is None or record.final[1].accuracy > _FAIR:
        return None
    size, epochs = record.config.batch_size, len(record.epochs)
    return Finding(
        "problem",
        f"The network was hardly trained: {record.steps} steps in {epochs} {'epoch' if epochs == 1 else 'epochs'}.",
        f"With batches of {size:,} samples an epoch of this data has {record.steps // epochs}. The shortest of our "
        "recipes, quick on CIFAR-10, takes 96.",
        f"Train with a smaller --batch-size ({size} here), as far as it holds a few samples of each class, and with "
        f"more --epochs ({epochs} here).",
    )


def learning_rate(record: Record) -> Finding | None:
    """Too large: worse than guessing, or back and forth. Too small: nothing moves."""
    if len(record.epochs) < FEWEST_EPOCHS:
        return None
    return _exploded(record) or _nothing_moves(record) or _back_and_forth(record)


def fitting(record: Record) -> Finding | None:
    """Over- or underfitting, as far as validation and the training batches tell: no training accuracy is logged."""
    if len(record.validation) < FEWEST_EPOCHS or len(record.validation) < len(record.epochs):
        return None
    return _separated_but_wrong(record) or _past_its_best(record) or _still_rising(record) or _levelled_off(record)


def _exploded(record: Record) -> Finding | None:
    """Cross-entropy above that of guessing."""
    if record.discriminant or record.groups is None:
        return None
    loss, guess = record.epochs[-1]["loss"], math.log(record.groups)
    if loss <= 1.05 * guess:
        return None
    return Finding(
        "problem",
        f"The learning rate is too large: the loss is {loss:.3g} after {len(record.epochs)} epochs.",
        f"Guessing among {record.groups} classes has a loss of {guess:.2f}, so training made the network worse.",
        f"Train again with {lower_rate(record.config)}.",
    )


def _nothing_moves(record: Record) -> Finding | None:
    """The training batches are separated no better at the end than at the start, and not well."""
    best = max(record.progress)
    poor = best < 1 if record.discriminant else best < -0.5 * math.log(record.groups or 2)
    if not poor or best - min(record.progress) > 0.1 or _rise(record) > 0 or max(record.accuracies, default=0) > _GOOD:
        return None
    first, last = record.epochs[0]["loss"], record.epochs[-1]["loss"]
    high = record.config.learning_rate > highest_rate(record.config)
    return Finding(
        "problem",
        f"Training has not moved: the loss went from {first:.3g} to {last:.3g}.",
        f"In {len(record.epochs)} epochs neither the loss nor validation has got better. Most likely the learning rate "
        f"is {'so large that the network died at once' if high else 'too small'}.",
        f"Train again with {lower_rate(record.config) if high else higher_rate(record.config)}.",
    )


def _back_and_forth(record: Record) -> Finding | None:
    """Separation of the training batches and validation both lose much of what they gained."""
    steps = [b - a for a, b in zip(record.progress, record.progress[1:], strict=False)]
    path = sum(map(abs, steps))
    lost = -sum(step for step in steps if step < 0) / path if path else 0.0
    falls = [
        (a.accuracy - b.accuracy, 3 * math.hypot(a.error, b.error), epoch)
        for epoch, (a, b) in enumerate(zip(record.validation, record.validation[1:], strict=False), 2)
    ]
    worst, chance, epoch = max(falls, default=(0.0, 0.0, 0))
    if lost < 0.3 or worst < max(0.05, chance):
        return None
    return Finding(
        "warning",
        "Training goes back and forth: the learning rate is too large.",
        f"{percent(lost)} of the movement was backwards, and validation fell by {points(worst)} in epoch {epoch}.",
        f"Train again with {lower_rate(record.config)}, or with larger batches.",
    )


def _separated_but_wrong(record: Record) -> Finding | None:
    """Training batches apart, validation samples mixed up."""
    training, words = _training_side(record)
    best = max(record.accuracies)
    if training - best < 0.1:
        return None
    return _overfitting(
        record, f"{words}: the training samples are told apart, but of the validation samples only {percent(best)}."
    )


def _past_its_best(record: Record) -> Finding | None:
    """Validation has fallen from its best while the training batches came further apart."""
    best = max(range(len(record.validation)), key=lambda epoch: record.validation[epoch].accuracy)
    late = record.validation[-3:]
    fallen = record.validation[best].accuracy - mean(scores.accuracy for scores in late)
    if fallen < max(0.03, 3 * record.validation[best].error) or record.progress[-1] <= record.progress[best]:
        return None
    return _overfitting(
        record,
        f"Validation was best in epoch {best + 1} ({percent(record.validation[best].accuracy)}) and has fallen by "
        f"{points(fallen)} since, while the training batches were separated ever better.",
    )


def _overfitting(record: Record, why: str) -> Finding:
    config = record.config
    steps = ["more training samples"]
    if not config.flip and not config.translate:
        steps.append("for images --flip and --translate 2")
    steps += [f"a larger --weight-decay ({config.weight_decay:g} here)", f"a smaller --width ({config.width:g} here)"]
    if config.patience is None:
        steps.append("--patience 5 to stop in time")
    return Finding("warning", "The network overfits.", why, f"What helps: {', '.join(steps)}.")


def _still_rising(record: Record) -> Finding | None:
    rise = _rise(record, len(record.validation) - max(1, len(record.validation) // 3))
    if record.summary is None or rise <= 0.01 or not max(record.accuracies) == record.accuracies[-1] < _GOOD:
        return None
    return Finding(
        "warning",
        f"Training ended too early: validation was still rising, to {percent(record.accuracies[-1])}.",
        f"It rose by {points(rise)} in the last third of {len(record.epochs)} epochs.",
        f"Train with --epochs {2 * len(record.epochs)} or more.",
    )


def _levelled_off(record: Record) -> Finding | None:
    """Neither the training batches nor validation get better, and validation is not good."""
    third = max(2, len(record.epochs) // 3)
    best, gained = max(record.accuracies), max(record.progress[-third:]) - max(record.progress[:-third])
    if len(record.epochs) < 2 * third or best > _FAIR or _rise(record, len(record.epochs) - third) > 0:
        return None
    if gained > 0.1 * (max(record.progress) - min(record.progress)):
        return None
    return Finding(
        "warning",
        f"The network underfits: it has levelled off at {percent(best)}.",
        f"In the last {third} epochs neither validation nor the separation of the training batches got better.",
        f"Try a wider network (--width {2 * record.config.width:g}) or another (--network); if that changes nothing, "
        "the data may not tell more.",
    )


def _rise(record: Record, start: int = 1) -> float:
    """By how much the best validation from epoch `start` on (counted from 0) is above that before; 0 within chance."""
    before, after = record.validation[:start], record.validation[start:]
    if not before or not after:
        return 0.0
    best = max(after, key=lambda scores: scores.accuracy)
    rise = best.accuracy - max(scores.accuracy for scores in before)
    return rise if rise > 2 * best.error else 0.0


def _training_side(record: Record) -> tuple[float, str]:
    """A share of the training samples that is surely told apart at the end, and what that rests on.

    C normally distributed classes with C - 1 equal eigenvalues v are 2 sqrt(C v / 2) within-class deviations apart, so
    at most C - 1 times the tail beyond half of that is mistaken; the smallest v stands for all. With fewer eigenvalues
    nothing follows. For cross-entropy, the mean probability of the true class.
    """
    late = max(1, len(record.epochs) // 3)
    if not record.discriminant:
        loss = median(row["loss"] for row in record.epochs[-late:])
        return math.exp(-loss), f"The loss on the training part is {loss:.2g}"
    smallest = median(found[0] for found in record.eigenvalues[-late:])
    classes = len(record.eigenvalues[-1]) + 1
    if classes != record.groups:
        return 0.0, ""
    mistaken = (classes - 1) * NormalDist().cdf(-math.sqrt(classes * max(smallest, 0.0) / 2))
    return 1 - mistaken, f"The smallest eigenvalue of the training batches is {smallest:.3g}"
