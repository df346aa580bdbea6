"""What a search draws: alpha, lam, the learning rate and the statistic, by TPE."""

from __future__ import annotations

from typing import Any

from optuna import Study
from optuna.samplers import TPESampler
from optuna.trial import Trial

from deeplda.core.checks import statistics_for
from deeplda.experiments.sweeps.definition import Definition

_LAM = (1e-5, 1e-1)
_LEARNING_RATE_FACTOR = 10


def draw(study: Study, trial_id: int, number: int, definition: Definition) -> dict[str, Any]:
    """Settings for a trial of the search, in the light of those that are done.

    The generator is seeded by the search's seed and the trial's number, so that no two workers draw the same, and one
    worker alone draws the same again.
    """
    assert definition.search is not None
    base = definition.config({})
    study.sampler = TPESampler(seed=definition.search.seed * 100_003 + number)
    trial = Trial(study, trial_id)
    rate = base.learning_rate
    return {
        "alpha": trial.suggest_float("alpha", 0.0, 1.0),
        "lam": trial.suggest_float("lam", *_LAM, log=True),
        "learning_rate": trial.suggest_float(
            "learning_rate", rate / _LEARNING_RATE_FACTOR, rate * _LEARNING_RATE_FACTOR, log=True
        ),
        "statistic": trial.suggest_categorical("statistic", statistics_for(base.scatter)),
        "seed": definition.search.seed,
    }
