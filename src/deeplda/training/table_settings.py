"""The settings for tables of your own, and for all feature vectors: a function of the number of training samples.

`benchmarks/table_defaults.py` has the tables by which they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from deeplda.training.config import RunConfig

# The peak learning rate, and the number of epochs unless there are very many samples.
LEARNING_RATE, EPOCHS = 0.1, 100
# Up to this many samples, weights decay by DECAY; with more, there are more steps, and each decays less.
DECAY, _DECAYING_SAMPLES = 0.01, 1_000
# From this number of samples on, layers are wider and fewer of their values are dropped.
_MANY = 5_000
# With so many samples that EPOCHS take more than this many steps, there are fewer epochs, but not fewer than these.
_MOST_STEPS, _FEWEST_EPOCHS = 20_000, 5
# The validation set is scored after this many samples; after every epoch, it would take a third of the time.
SAMPLES_PER_SCORE = 2_000


def layer_settings(samples: int) -> dict[str, object]:
    """Return the hidden layers of an MLP, and the fraction of their values that is dropped."""
    if samples < _MANY:
        return {"hidden_layer_sizes": "128,128", "dropout": 0.2}
    return {"hidden_layer_sizes": "256,256", "dropout": 0.1}


def weight_decay(samples: int) -> float:
    return DECAY * min(1.0, _DECAYING_SAMPLES / samples)


def with_table_settings(config: RunConfig, samples: int, given: Collection[str]) -> RunConfig:
    """Return the settings of a run on a table, where those that are not `given` suit the number of training samples."""
    steps = math.ceil(samples / config.batch_size)
    found: dict[str, object] = {
        "epochs": min(EPOCHS, max(math.ceil(_MOST_STEPS / steps), _FEWEST_EPOCHS)),
        "evaluate_every": math.ceil(SAMPLES_PER_SCORE / samples),
    }
    if config.optimizer == "sgd":
        found |= {"learning_rate": LEARNING_RATE, "weight_decay": weight_decay(samples)}
    if config.network in (None, "mlp"):
        found |= layer_settings(samples)
    return config.model_copy(update={name: value for name, value in found.items() if name not in given})
