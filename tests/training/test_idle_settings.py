"""Settings that have no effect are found, each with the setting responsible."""

import pytest

from deeplda.training.config import RunConfig
from deeplda.training.idle_settings import without_effect


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"label_smoothing": 0.2}, {"label_smoothing": "objective"}),
        ({"label_smoothing": 0.2, "objective": "cce"}, {}),
        ({"label_smoothing": 0.2, "alpha": 0.5, "lda_weight": 2, "objective": "joint"}, {}),
        ({"gce_q": 0.5, "objective": "gce"}, {}),
        (
            {"gce_q": 0.5, "lda_weight": 2.0, "label_smoothing": 0.2, "alpha": 0.5, "objective": "gce"},
            {"lda_weight": "objective", "label_smoothing": "objective", "alpha": "objective"},
        ),
        ({"gce_q": 0.5, "lda_weight": 2.0}, {"gce_q": "objective", "lda_weight": "objective"}),
        ({"statistic": "smallest", "objective": "cce", "class_weight": "balanced"}, {"statistic": "objective"}),
        ({"epsilon": 0.5, "lam": 0.1}, {"epsilon": "statistic"}),
        ({"epsilon": 0.5, "statistic": "smallest"}, {}),
        ({"epsilon": 0.5, "lam": 0.1, "objective": "cce"}, {"epsilon": "objective", "lam": "objective"}),
        ({"subclasses": 2, "cluster_on": "inputs", "autoencoder_epochs": 2}, {"autoencoder_epochs": "cluster_on"}),
        (
            {"filter_learning_rate": 0.1, "halve_every": 3},
            {"filter_learning_rate": "optimizer", "halve_every": "schedule"},
        ),
        ({"filter_learning_rate": 0.1, "optimizer": "muon", "halve_every": 3, "schedule": "halving"}, {}),
        ({"flip_order": "alternating"}, {"flip_order": "flip"}),
        ({"noise_kind": "pairs"}, {"noise_kind": "label_noise"}),
        ({"noise_kind": "pairs", "label_noise": 0.1}, {}),
        ({"flip_order": "alternating", "flip": True}, {}),
        (
            {"cluster_starts": 3, "autoencoder_epochs": 2},
            {"cluster_starts": "subclasses", "autoencoder_epochs": "subclasses"},
        ),
        ({"cluster_starts": 3, "autoencoder_epochs": 2, "subclasses": "auto"}, {}),
    ],
)
def test_settings_without_effect_are_found(settings, idle):
    assert without_effect(RunConfig(**settings), settings) == idle
    assert without_effect(RunConfig(**settings), []) == {}
