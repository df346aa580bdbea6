"""Settings that have no effect, because of the value of another one."""

from __future__ import annotations

from collections.abc import Collection

from deeplda.training.config import TrainConfig
from deeplda.user_code import is_code

# Settings that only the LDA objectives use.
_LDA_SETTINGS = ("alpha", "lam", "epsilon", "statistic", "scatter", "subclass_between", "recluster", "priors")
_AUTOENCODER_SETTINGS = ("autoencoder_epochs", "autoencoder_optimizer", "autoencoder_learning_rate")
# Stands for any "module.path:name" among the values of a setting.
_CODE = "module.path:name"
# (setting, values, others): if the setting has one of the values, the others have no effect.
_WITHOUT_EFFECT: tuple[tuple[str, tuple[object, ...], tuple[str, ...]], ...] = (
    ("objective", ("lda", "rdlda", "dlda", "gce", _CODE), ("label_smoothing",)),
    ("objective", ("lda", "rdlda", "dlda", "cce", "gce", _CODE), ("lda_weight",)),
    ("objective", ("lda", "rdlda", "dlda", "cce", "joint", _CODE), ("gce_q",)),
    ("statistic", ("wilks", "pillai", "hotelling", _CODE), ("epsilon",)),
    ("objective", ("cce", "gce"), _LDA_SETTINGS),
    # The other LDA settings also define the predictors on an embedding.
    ("objective", (_CODE,), ("statistic", "epsilon")),
    ("optimizer", ("sgd",), ("filter_learning_rate",)),
    ("schedule", ("one-cycle", "linear"), ("halve_every",)),
    ("flip", (False,), ("flip_order",)),
    ("label_noise", (0.0,), ("noise_kind",)),
    ("subclasses", (1,), ("cluster_on", "cluster_starts", "smallest_cluster", "subclass_decision")),
    ("subclasses", (1,), ("subclass_between", "recluster")),
    ("cluster_on", ("inputs",), _AUTOENCODER_SETTINGS),
    ("subclasses", (1,), _AUTOENCODER_SETTINGS),
)


def without_effect(config: TrainConfig, given: Collection[str]) -> dict[str, str]:
    """Return the given settings that have no effect, each with the setting responsible: {"lam": "objective"}."""
    found = [(names, other) for other, values, names in _WITHOUT_EFFECT if _kind(getattr(config, other)) in values]
    return {name: other for names, other in found for name in names if name in given}


def unused_settings(objective: object) -> set[str]:
    """Return the settings that have no effect with an objective."""
    found = (names for other, values, names in _WITHOUT_EFFECT if other == "objective" and _kind(objective) in values)
    return set().union(*found)


def _kind(value: object) -> object:
    return _CODE if is_code(value) else value
