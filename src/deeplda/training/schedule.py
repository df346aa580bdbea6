"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from deeplda.training.config import LoopConfig

_RISING = 0.25
_START = 0.1


def learning_rate(config: LoopConfig, step: int, steps_per_epoch: int) -> float:
    """The learning rate of step `step`, counted from 0 over the whole run.

    "halving": the paper's, halved every `halve_every` epochs. "one-cycle": linear from a tenth of the rate up to it in
    the first quarter of all steps, then linear down to 0 at the end. "linear": down to 0 from the first step on.
    """
    if config.schedule == "halving":
        return config.learning_rate * 0.5 ** (step // steps_per_epoch // config.halve_every)
    total = config.epochs * steps_per_epoch
    if config.schedule == "linear":
        return config.learning_rate * (1 - step / total)
    top = max(1, round(_RISING * total))
    if step < top:
        return config.learning_rate * (_START + (1 - _START) * step / top)
    return config.learning_rate * (total - step) / (total - top + 1)
