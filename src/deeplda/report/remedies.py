"""What to change in a run, as options of `deeplda train`; the findings of `deeplda doctor` end in this advice."""

from __future__ import annotations

import math

from deeplda.data.table_formats import table_format
from deeplda.report.run_history import RunHistory
from deeplda.training.config import RunConfig

DEFAULT_RATE: float = RunConfig.model_fields["learning_rate"].default
_ENOUGH_STEPS = 500  # With fewer, a failure at a usual learning rate is more likely due to the number of steps.


def more_to_learn_from(run: RunHistory) -> str:
    """Return what helps a network that knows its training samples but not others. The best epoch is kept anyway."""
    config = run.config
    rows = table_format(config.data) is not None or config.network in ("mlp", "identity")
    augmented = config.flip or config.translate > 0
    images = augmented or config.image_size is not None
    given, kind = ("", "images") if images else ("for images, ", "samples")
    counts = run.summary.train_counts if run.summary else None
    each = f" (a class has {min(counts):,} to {max(counts):,} here)" if counts else ""
    pretrained = "the features of a network that was trained on many other images, see docs/pretrained-features.md"
    steps = {
        f"more training {kind}{each}": True,
        f"{given}--flip and --translate 2": not rows and not augmented,
        f"{given}{pretrained}": not rows,
        "a larger --dropout": rows,
        # Muon orthogonalises the steps of the filters, which are most of the network, and does not decay them.
        f"a larger --weight-decay ({config.weight_decay:g} here)": config.optimizer != "muon",
        f"a smaller --width ({config.width:g} here)": not rows and config.optimizer != "muon",
    }
    return f"These can help: {'; '.join(step for step, helps in steps.items() if helps)}."


def more_steps(run: RunHistory) -> str | None:
    """Return how to take more steps if the run took few of them at a usual learning rate, otherwise None."""
    rate, steps = run.config.learning_rate, run.steps
    usual = DEFAULT_RATE / 10 <= rate <= highest_rate(run.config)
    if steps is None or steps >= _ENOUGH_STEPS or not usual:
        return None
    epochs = math.ceil(_ENOUGH_STEPS / steps) * len(run.epochs)
    return f"--epochs {epochs} ({len(run.epochs)} here) or a smaller --batch-size ({run.config.batch_size} here)"


def highest_rate(config: RunConfig) -> float:
    """Return the highest learning rate in our recipes for this optimiser (for muon, not the one for the filters)."""
    return 5.0 if config.optimizer == "muon" else 1.0


def lower_rate(config: RunConfig) -> str:
    """Return the command-line option that divides the learning rate by ten, capped at the default.

    If filters (for muon), the output layer or biases have a rate of their own, return the options that divide all rates
    by ten.
    """
    names = ["head_learning_rate", "bias_learning_rate"]
    names = ["learning_rate", *(["filter_learning_rate"] if config.optimizer == "muon" else []), *names]
    rates = {name: rate for name in names if (rate := getattr(config, name)) is not None}
    if len(rates) == 1:
        return f"--learning-rate {min(config.learning_rate / 10, DEFAULT_RATE):.3g} ({config.learning_rate:g} here)"
    options = " ".join(f"--{name.replace('_', '-')} {rate / 10:.3g}" for name, rate in rates.items())
    return f"{options} ({' and '.join(f'{rate:g}' for rate in rates.values())} here)"
