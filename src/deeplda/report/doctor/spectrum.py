"""What the eigenvalues, the batch and the embedding of an LDA objective say."""

from __future__ import annotations

import math

from deeplda.report.doctor.record import Finding, Record, highest_rate, lower_rate

_FEWEST_PER_CLASS = 5
# An eigenvalue below this is 0 but for rounding.
_ZERO = 1e-9


def batch_too_small(record: Record) -> Finding | None:
    """Fewer than five samples of a class, or subclass, in a batch say little of how it spreads."""
    if not record.discriminant or record.groups is None:
        return None
    size, share = record.config.batch_size, record.config.batch_size / record.groups
    if share >= _FEWEST_PER_CLASS:
        return _rare_class(record)
    kind = "classes" if record.groups == record.classes else "subclasses"
    return Finding(
        "problem" if share < 2 else "warning",
        f"The batch is too small for {record.groups} {kind}.",
        f"{size} samples are {share:.3g} for each. The scatter within a class cannot be told from so few, and the "
        "eigenvalues of such a batch are large whatever the network does.",
        f"Train with --batch-size {_FEWEST_PER_CLASS * record.groups} or more; the paper's batches hold 15 to 100 "
        "samples a class. If memory is short, use smaller images (--image-size) or a narrower network (--width).",
    )


def embedding_too_narrow(record: Record) -> Finding | None:
    """Fewer dimensions than C - 1 cannot hold all discriminant directions of the classes."""
    width, classes = record.config.embedding_dim, record.classes
    if not record.discriminant or classes is None or not isinstance(width, int) or width >= classes - 1:
        return None
    return Finding(
        "warning",
        f"The embedding has {width} {'dimension' if width == 1 else 'dimensions'} for {classes} classes.",
        f"{classes} classes differ in up to {classes - 1} directions; with {width} the loss can be very good while "
        "classes lie on top of each other.",
        f"Leave --embedding-dim out, or set it to {classes - 1} or more.",
    )


def dead_dimensions(record: Record) -> Finding | None:
    """Outputs that were the same for every sample of the last batch."""
    dead = record.epochs[-1].get("dead_dims", 0)
    if not dead:
        return None
    return Finding(
        "problem",
        "1 output dimension is dead." if dead == 1 else f"{dead} output dimensions are dead.",
        "The same value for every sample separates nothing, and nothing changes it: behind a ReLU that is always 0 "
        "there is no gradient.",
        f"Start again with {lower_rate(record.config)} or another --seed. A network whose last layer is linear cannot "
        "die like this.",
    )


def stuck_eigenvalues(record: Record, *, trusted: bool) -> Finding | None:
    """Directions that still separate no more than chance would, in the last two epochs.

    `trusted`: whether batches are large enough for small eigenvalues to mean something. Eigenvalues of 0 always do.
    """
    if len(record.eigenvalues) < 2 or record.groups is None:
        return None
    before, last = record.eigenvalues[-2:]
    empty = min(sum(v < _ZERO for v in before), sum(v < _ZERO for v in last))
    if empty:
        return _flat_output(record, empty, len(last))
    noise = (record.groups - 1) / max(1, record.config.batch_size - record.groups)
    stuck = min(sum(v < noise for v in before), sum(v < noise for v in last))
    if not stuck or not trusted:
        return None
    start, size = record.eigenvalues[0][0], record.config.batch_size
    return Finding(
        "problem",
        f"{stuck} of {len(last)} eigenvalues {_is(stuck)} stuck: the smallest is {last[0]:.2g}.",
        f"It was {start:.2g} after the first epoch; random labels would give about {noise:.2g} in batches of {size}. "
        f"In {stuck} of {len(last)} directions the classes are not separated at all.",
        _loosen(record),
    )


def _flat_output(record: Record, empty: int, valid: int) -> Finding:
    alpha = record.config.alpha
    wider = f"ake the network wider (--width, {record.config.width:g} here), or give your own network at least {valid} "
    wider += "units in every layer."
    copies = (
        f"Raise --alpha ({alpha:g} here) to 1: below it outputs become copies of each other. If that does not help, "
    )
    return Finding(
        "problem",
        f"{empty} of {valid} eigenvalues {_is(empty)} 0 but for rounding.",
        f"The network's output lies in {valid - empty} dimensions, however wide it is: a hidden layer is narrower than "
        f"{valid}, or outputs are constant or copies of each other.",
        f"{copies}m{wider}" if alpha < 1 else f"M{wider}",
    )


def _loosen(record: Record) -> str:
    """What frees a stuck eigenvalue, likeliest first."""
    config, steps = record.config, []
    if config.learning_rate > highest_rate(config):
        steps.append(f"lower the learning rate: {lower_rate(config)}, our recipes use at most {highest_rate(config):g}")
    if config.statistic in ("smallest", "hotelling"):
        steps.append("use --statistic pillai or wilks, which push all directions at once")
    if config.alpha < 1:
        steps.append(f"raise --alpha ({config.alpha:g} here) towards 1")
    steps.append(f"train longer (--epochs, {config.epochs} here)")
    if config.learning_rate <= highest_rate(config):
        steps.append(f"try another learning rate ({config.learning_rate:g} here)")
    return f"One after the other: {'; '.join(steps)}."


def _rare_class(record: Record) -> Finding | None:
    """A class so rare that most batches hold one sample of it or none."""
    counts = record.class_counts
    if not counts:
        return None
    rarest = min(range(len(counts)), key=counts.__getitem__)
    share = max(counts[rarest], 0.5) / sum(counts)
    if share * record.config.batch_size >= 2:
        return None
    return Finding(
        "warning",
        f"Batches hold about {share * record.config.batch_size:.1f} samples of class {record.class_name(rarest)}.",
        f"It is {100 * share:.1f} % of the data, and a class with one sample in a batch has no spread there.",
        f"Train with --batch-size {math.ceil(_FEWEST_PER_CLASS / share)} or more, and --class-weight balanced.",
    )


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
