"""Diagnosis of a run from its metrics: what is wrong, why we think so, and what to do.

Each check is a function that returns a finding or None. For each check, the table `_CHECKS` at the end lists the checks
whose findings make it redundant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean, median
from typing import Literal

from deeplda.formatting import counted, percent
from deeplda.report.analysis import class_scores
from deeplda.report.remedies import DEFAULT_RATE, highest_rate, lower_rate, more_steps, more_to_learn_from
from deeplda.report.run_history import RunHistory, standard_error
from deeplda.training import conditions
from deeplda.training.config import RunConfig
from deeplda.training.metrics import Row, Scores

_GOOD = 0.98  # Above this accuracy, room for improvement is not worth a warning.
_FAIR = 0.9  # Below this accuracy, we look for a reason.
_FEWEST_SAMPLES = 5  # With fewer test samples, the recall of a class is not judged.
_MANY_SAMPLES = 1_000  # Assumed number of training samples of each class until the run is finished.
_ZERO = 1e-9  # Smaller eigenvalues are 0 up to rounding error.


@dataclass(frozen=True)
class Finding:
    """A finding about a run, in complete sentences: `what` was found, `why` we think so, and what to `do`."""

    severity: Literal["problem", "warning", "good"]
    what: str
    why: str
    do: str


_problem, _warning = partial(Finding, "problem"), partial(Finding, "warning")
Check = Callable[[RunHistory], Finding | None]


def _found(severity: Literal["problem", "warning"], advice: conditions.Advice | None) -> Finding | None:
    """Return advice that `deeplda train` could give before the training as a finding."""
    return None if advice is None else Finding(severity, advice.what, advice.why, advice.do)


def diagnose(rows: Sequence[Row], config: RunConfig) -> list[Finding]:
    """Return the findings about a run, problems first and then warnings; `rows` is the content of its metrics.jsonl.

    A healthy run has a single finding with severity "good".
    """
    run = RunHistory(rows, config)
    diverged = loss_not_finite(run)
    found: dict[Check, Finding] = {}
    checks = _CHECKS if run.epochs and not diverged else {}
    if config.stretches[-1] == 0:
        # The others are about training.
        checks = {small_classes: ()}
    elif run.summary is None and 2 * len(run.epochs) < config.stretches[-1]:
        # Some networks begin to learn only after a while.
        checks = {check: explained for check, explained in checks.items() if check not in _LATE}
    for check, explanations in checks.items():
        if found.keys().isdisjoint(explanations) and (finding := check(run)):
            found[check] = finding
    findings = [finding for finding in (*found.values(), diverged, incomplete(run)) if finding]
    return sorted(findings, key=lambda finding: finding.severity != "problem") or [_healthy(run)]


def _healthy(run: RunHistory) -> Finding:
    if run.config.stretches[-1] == 0:
        seen = ["The network was not trained, and the predictors are fitted"]
    else:
        seen = [f"The loss is finite after {len(run.epochs)} of {run.config.stretches[-1]} epochs"]
    if run.eigenvalues:
        last = run.eigenvalues[-1]
        seen.append(f"the {len(last)} eigenvalues of the last batch range from {last[0]:.3g} to {last[-1]:.3g}")
    if run.accuracies:
        seen.append(f"the best validation accuracy is {percent(max(run.accuracies), 1)}")
    if run.is_short and run.config.stretches[-1]:
        seen.append("the run is too short to judge the learning rate or the fit")
    do = "Nothing needs fixing. Look at the run with deeplda report, or use it with deeplda predict."
    return Finding("good", "Nothing is wrong with this run.", f"{'; '.join(seen)}.", do)


def incomplete(run: RunHistory) -> Finding | None:
    done = len(run.epochs)
    if run.summary and (done or run.config.stretches[-1] == 0):
        return None
    if run.summary:
        do = "Nothing, if deeplda evaluate reports the scores you expect. Otherwise, train again."
        return _warning("The training history of this run is lost.", "The metrics contain a summary but no epochs.", do)
    do = "Resume it with deeplda train --resume --run RUN. If it fails again, the error message tells you why."
    if not done:
        do += f" If the message says that values are not finite, start a new run with {lower_rate(run.config)}."
    return Finding(
        "warning" if done else "problem",
        f"The run is not finished: {done} of {run.config.stretches[-1]} epochs are done.",
        "The metrics contain no summary, so the run was stopped, failed or is still running.",
        do,
    )


def loss_not_finite(run: RunHistory) -> Finding | None:
    broken = [row.epoch for row in run.epochs if not math.isfinite(row.loss)]
    if not broken:
        return None
    return _problem(
        f"The loss is not finite from epoch {broken[0]} on.",
        "The weights overflowed, and nothing was learnt after that. The usual cause is too large a learning rate.",
        f"Train again with {lower_rate(run.config)}. If that fails too, look for NaN or huge values in the data.",
    )


def few_steps(run: RunHistory) -> Finding | None:
    if run.summary is None or run.steps is None or run.final is None or run.final[1].accuracy > _FAIR:
        return None
    return _found("problem", conditions.few_steps(run.steps, len(run.epochs), run.config.batch_size))


def worse_than_chance(run: RunHistory) -> Finding | None:
    if not run.is_entropy or run.groups is None or run.is_short:
        return None
    loss, chance = run.epochs[-1].loss, run.chance_loss
    if loss <= 1.05 * chance:
        return None
    return _problem(
        f"The learning rate is too large: the loss is {loss:.3g} after {len(run.epochs)} epochs.",
        f"Guessing among {run.groups} classes gives a loss of {chance:.2f}, so training made the network worse.",
        f"Train again with {lower_rate(run.config)}.",
    )


def no_progress(run: RunHistory) -> Finding | None:
    """Report training batches that are poorly separated and hardly improved during training."""
    if not run.discriminant and not run.is_entropy:
        return None
    best = max(run.separation)
    poor = best < (1 if run.discriminant else -0.5 * run.chance_loss)
    if run.is_short or not poor or best - min(run.separation) > 0.1:
        return None
    if run.rise() > 0 or max(run.accuracies, default=0) > _FAIR:
        return None
    what = f"Training made no progress: the loss went from {run.epochs[0].loss:.3g} to {run.epochs[-1].loss:.3g}."
    if more := more_steps(run):
        why = f"Neither the loss nor the validation accuracy improved, but {run.steps} steps are few for any network."
        return _problem(what, why, f"Train with {more}. Change the learning rate only if that does not help.")
    rate = run.config.learning_rate
    high = rate > highest_rate(run.config)
    higher = f"--learning-rate {max(rate * 10, DEFAULT_RATE):.3g} ({rate:g} here)"
    return _problem(
        what,
        f"In {len(run.epochs)} epochs, neither the loss nor the validation accuracy improved. Most likely the learning "
        f"rate is {'so large that the network died at once' if high else 'too small'}.",
        f"Train again with {lower_rate(run.config) if high else higher}.",
    )


def unstable(run: RunHistory) -> Finding | None:
    """Report a run in which the separation of the batches falls often and the validation accuracy drops sharply."""
    steps = [after - before for before, after in pairwise(run.separation)]
    path = sum(map(abs, steps))
    lost = -sum(step for step in steps if step < 0) / path if path else 0.0
    falls = [
        (before.accuracy - after.accuracy, _margin(before, after), place)
        for place, (before, after) in enumerate(pairwise(run.validation), 1)
    ]
    worst, margin, place = max(falls, default=(0.0, 0.0, 0))
    if run.is_short or lost < 0.3 or worst < max(0.05, margin):
        return None
    before, after = run.accuracies[place - 1 : place + 1]
    return _warning(
        "Training is unstable: the learning rate is too large.",
        f"{percent(lost, 1)} of the change in class separation was for the worse, and the validation accuracy fell "
        f"from {percent(before, 1)} to {percent(after, 1)} in epoch {run.scored_epochs[place]}.",
        f"Train again with {lower_rate(run.config)}, or with larger batches.",
    )


def guessing(run: RunHistory) -> Finding | None:
    if run.final is None:
        return None
    part, scores = run.final
    chance, balanced = 1 / len(scores.confusion), scores.deciding.balanced_accuracy
    least = chance + 2 * math.sqrt(chance * (1 - chance) / scores.n)
    # A handful of samples proves nothing, because all of them may be guessed correctly.
    if balanced > least or least >= 1:
        return None
    do = (
        "Check that the labels match the samples. Then try learning rates below and above "
        f"{run.config.learning_rate:g}, and more than {counted(len(run.epochs), 'epoch')}."
    )
    if more := more_steps(run):
        do = f"Train with {more}: {run.steps} steps are few. If that does not help, check that the labels are correct."
    return _problem(
        f"The model is no better than guessing: its balanced accuracy on the {part} set is {percent(balanced, 1)}.",
        f"With {len(scores.confusion)} classes, guessing gives about {percent(chance, 1)}.",
        do,
    )


def small_batch(run: RunHistory) -> Finding | None:
    if not run.discriminant or run.classes is None or run.groups is None:
        return None
    known = run.summary.train_counts if run.summary else None
    advice = conditions.small_batch(run.config, known or [_MANY_SAMPLES] * run.classes)
    return _found("problem" if run.config.batch_size < 2 * run.groups else "warning", advice)


def small_classes(run: RunHistory) -> Finding | None:
    if run.summary is None or not run.summary.train_counts or not run.summary.class_names:
        return None
    return _found("warning", conditions.small_classes(run.summary.train_counts, run.summary.class_names))


def dead_outputs(run: RunHistory) -> Finding | None:
    dead = run.epochs[-1].dead_dims
    if not dead:
        return None
    return _problem(
        f"{counted(dead, 'output dimension')} {_is(dead)} dead.",
        "An output with the same value for every sample separates nothing, and it cannot recover: a ReLU that is "
        "always 0 has no gradient.",
        f"Train again with {lower_rate(run.config)} or a different --seed. This does not happen to a network "
        "whose last layer is linear.",
    )


def flat_output(run: RunHistory) -> Finding | None:
    empty = run.eigenvalues_below(_ZERO)
    if not empty:
        return None
    alpha, width, valid = run.config.alpha, run.config.width, len(run.eigenvalues[-1])
    do = f"make the network wider (--width, {width:g} here); a custom network needs at least {valid} units per layer."
    if alpha < 1:
        do = f"Raise --alpha ({alpha:g} here) to 1, because lower values reward copies. If that does not help, {do}"
    return _problem(
        f"{empty} of {valid} eigenvalues {_is(empty)} 0 up to rounding error.",
        f"Whatever its width, the network's output lies in {counted(valid - empty, 'dimension')}: either a hidden "
        f"layer is narrower than {valid}, or some outputs are constant or copies of each other.",
        do[0].upper() + do[1:],
    )


def stuck_eigenvalues(run: RunHistory) -> Finding | None:
    """Report directions that separated the classes no better than chance in the last two epochs."""
    if run.groups is None:
        return None
    config, size = run.config, run.config.batch_size
    noise = (run.groups - 1) / max(1, size - run.groups)
    stuck = run.eigenvalues_below(noise)
    if not stuck:
        return None
    valid, rate, highest = len(run.eigenvalues[-1]), config.learning_rate, highest_rate(config)
    one_sided = config.statistic in ("smallest", "hotelling")
    steps = {
        f"lower the learning rate: {lower_rate(config)}, as our recipes use at most {highest:g}": rate > highest,
        "use --statistic pillai or wilks, which improve all directions at once": one_sided,
        f"raise --alpha ({config.alpha:g} here) towards 1": config.alpha < 1,
        f"train longer (--epochs, {config.stretches[-1]} here)": True,
        f"try a different learning rate ({rate:g} here)": rate <= highest and not more_steps(run),
    }
    return _problem(
        f"{stuck} of {valid} eigenvalues {_is(stuck)} stuck: the smallest is {run.eigenvalues[-1][0]:.2g}.",
        f"It was {run.eigenvalues[0][0]:.2g} after the first epoch; random labels would give about {noise:.2g} in "
        f"batches of {size}. In {stuck} of {valid} directions, the classes are not separated at all.",
        f"Try these in order: {'; '.join(step for step, helps in steps.items() if helps)}.",
    )


def class_not_learnt(run: RunHistory) -> Finding | None:
    """Report the worst class if its recall is less than half the median recall of the others."""
    if run.final is None:
        return None
    part, scores = run.final
    classes = class_scores(scores.confusion)
    recalls = {c: found.recall for c, found in enumerate(classes) if found.recall is not None}
    judged = {c: recall for c, recall in recalls.items() if classes[c].n >= _FEWEST_SAMPLES}
    if len(judged) < 2:
        return None
    worst = min(judged, key=judged.__getitem__)
    recall, others = judged[worst], median(recall for c, recall in judged.items() if c != worst)
    if 2 * recall >= others:
        return None
    confused_with, lost = classes[worst].confused_with, recall <= 1 / len(classes)
    assert confused_with is not None  # a recall this low has mistakes
    name, other = run.class_name(worst), run.class_name(confused_with)
    do = f"Look at samples of {name} and {other}. Are the labels correct, and can you tell the two apart? Add samples."
    counts = run.class_counts
    if run.config.class_weight is None and counts and counts[worst] < 0.6 * mean(counts):
        do = f"The class is rarer than the others. Train with --class-weight balanced, or add samples of {name}."
    return Finding(
        "problem" if lost else "warning",
        f"Class {name} was {'not' if lost else 'hardly'} learnt: only {percent(recall, 1)} of its samples are "
        "recognised.",
        f"For the other classes, the median is {percent(others, 1)}. In the {part} set, {classes[worst].mistakes} of "
        f"the {classes[worst].n} samples of this class are mistaken for {other}.",
        do,
    )


def harder_test_part(run: RunHistory) -> Finding | None:
    if run.summary is None or not isinstance(run.summary.validation, Scores) or not run.validation or run.final is None:
        return None
    test, validation = run.final[1], run.summary.validation.accuracy
    if validation - test.accuracy <= max(0.05, _margin(test, run.validation[-1])):
        return None
    return _warning(
        f"The test set is harder than the validation set: the accuracy is {percent(test.accuracy, 1)}, compared with "
        f"{percent(validation, 1)}.",
        "Chance alone does not explain the difference. Unless you provided a validation set, it was split off the "
        "training set. Either the test samples come from a different source, or the validation set contains copies of "
        "training samples.",
        "Compare samples from both sets, and choose settings on validation samples that resemble the data the model is "
        "meant for.",
    )


def overfits(run: RunHistory) -> Finding | None:
    """Report well-separated training batches if the validation accuracy is much lower, or lower than in earlier epochs.

    No training accuracy is logged, so it is estimated from the training batches.
    """
    if run.is_short or not run.validation:
        return None
    training, evidence = run.training_accuracy()
    best = max(run.validation, key=lambda scores: scores.accuracy)
    epoch, highest = run.scored_epochs[run.validation.index(best)], percent(best.accuracy, 1)
    late = mean(scores.accuracy for scores in run.validation[-3:])
    fell = run.is_validated and best.accuracy - late >= max(0.03, 3 * standard_error(best))
    if training - best.accuracy >= 0.1:
        why = (
            f"{evidence}, so the training samples are well separated, but only {highest} of the validation samples are "
            "classified correctly."
        )
    elif fell and run.separation[-1] > run.separation[epoch - 1]:
        why = (
            f"The validation accuracy was best in epoch {epoch} ({highest}) and averaged {percent(late, 1)} in the "
            "last three scores, while the separation of the training batches improved."
        )
    else:
        return None
    return _warning("The network overfits.", why, more_to_learn_from(run))


def ended_early(run: RunHistory) -> Finding | None:
    start = len(run.epochs) - run.third
    if run.summary is None or not run.is_validated or run.rise(start) <= 0.01:
        return None
    if not max(run.accuracies) == run.accuracies[-1] < _GOOD:
        return None
    before, last = max(run.accuracies[: run.scores_until(start)]), run.accuracies[-1]
    return _warning(
        f"Training ended too early: the validation accuracy was still rising and reached {percent(last, 1)}.",
        f"Before the last third of the {len(run.epochs)} epochs, the highest was {percent(before, 1)}.",
        f"Extend the run with deeplda train --resume --run RUN --epochs {2 * len(run.epochs)}, or train a longer one.",
    )


def underfits(run: RunHistory) -> Finding | None:
    """Report a low validation accuracy if it has levelled off along with the separation of the training batches."""
    third = max(2, run.third)
    if not run.is_validated or len(run.epochs) < 2 * third or run.rise(len(run.epochs) - third) > 0:
        return None
    best, gained = max(run.accuracies), max(run.separation[-third:]) - max(run.separation[:-third])
    if best > _FAIR or gained > 0.1 * (max(run.separation) - min(run.separation)):
        return None
    return _warning(
        f"The network underfits: its validation accuracy has levelled off at {percent(best, 1)}.",
        f"In the last {third} epochs, neither the validation accuracy nor the separation of the training batches "
        "improved.",
        f"Try a wider network (--width {2 * run.config.width:g}) or a different one (--network). If that does not "
        "help, the data may not contain more information.",
    )


def _margin(first: Scores, second: Scores) -> float:
    """Return the largest difference between two accuracies that chance may explain: three standard errors."""
    return 3 * math.hypot(standard_error(first), standard_error(second))


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


_UNTRAINED: tuple[Check, ...] = (few_steps, worse_than_chance, no_progress)
_NOT_LEARNT: tuple[Check, ...] = (*_UNTRAINED, guessing)
# These say little about a run that has only begun.
_LATE: tuple[Check, ...] = (no_progress, guessing, stuck_eigenvalues, class_not_learnt, underfits)
# A poor fit is reported only if nothing else explains it.
_NOT_FITTED: tuple[Check, ...] = (*_NOT_LEARNT, unstable, small_batch)
# The checks for a run with at least one epoch and a finite loss, in this order, each with the checks whose findings
# make it redundant.
_CHECKS: dict[Check, tuple[Check, ...]] = {
    few_steps: (),
    worse_than_chance: (few_steps,),
    no_progress: (few_steps, worse_than_chance),
    unstable: _UNTRAINED,
    small_batch: (),
    small_classes: (),
    dead_outputs: (),
    guessing: _UNTRAINED,
    flat_output: _NOT_LEARNT,
    stuck_eigenvalues: (*_NOT_LEARNT, small_batch, flat_output),
    class_not_learnt: _NOT_LEARNT,
    harder_test_part: (),
    overfits: _NOT_FITTED,
    ended_early: (*_NOT_FITTED, overfits),
    underfits: (*_NOT_FITTED, overfits, ended_early),
}
