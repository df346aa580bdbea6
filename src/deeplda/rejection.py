"""Rejection of unknown inputs: the rule that scores them, the layer that it works on, and its thresholds."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda.core.options import check_choice
from deeplda.errors import InputError
from deeplda.model_card import Layer, UnknownSetting
from deeplda.predictors import FeatureStatistics
from deeplda.predictors.unknown_scores import (
    MOST_NEIGHBOURS,
    NeighbourScore,
    UnknownRule,
    UnknownScore,
    score_quantiles,
    threshold,
    unit_rows,
)


class StoredStatistics(NamedTuple):
    """The statistics of the training set that a model has.

    Attributes:
        layer: the layer by which the model decides.
        deciding: the statistics of that layer; None for a model trained with cross-entropy alone.
        features: the statistics of the last hidden layer; None if the model has none.
    """

    layer: Layer
    deciding: FeatureStatistics | None
    features: FeatureStatistics | None

    def require(self) -> FeatureStatistics:
        """Return the statistics of the layer by which the model decides. Raises InputError if there are none."""
        if self.deciding is None:
            what = "the model has no statistics of its training set, like all models trained with cross-entropy alone"
            raise InputError(f"{what}: train with objective lda")
        return self.deciding

    def of(self, layer: Layer) -> FeatureStatistics:
        """Return the statistics of a layer. Raises InputError if the model has none."""
        if layer == "outputs" and self.layer == "outputs":
            return self.require()
        found = self.features if layer == "features" else None
        if found is None:
            what = {
                "outputs": "once classes were added, the model has only statistics of the last hidden layer",
                "features": "the model has no statistics of the last hidden layer",
            }[layer]
            other: Layer = "features" if layer == "outputs" else "outputs"
            raise InputError(f'{what}: pass layer="{other}", or rule="probability"')
        return found


class Rejection:
    """The data, besides statistics, that a model stores to recognise unknown inputs.

    Attributes:
        quantiles: (1001,), quantiles of the unknown score of known samples; None if there were none.
        neighbours: (m, d), the last hidden layer of some training samples, each of length 1; None if there is none.
    """

    def __init__(self) -> None:
        self.quantiles: Tensor | None = None
        self.neighbours: Tensor | None = None
        # The modules that compute scores, each with what it was made from.
        self._scores: dict[UnknownSetting, tuple[object, nn.Module]] = {}

    def store(self, features: Tensor) -> None:
        """Store the last hidden layer (m, d) of some training samples, instead of those stored before."""
        self.neighbours = unit_rows(features)

    def add(self, features: Tensor) -> None:
        """Store the last hidden layer (n, d) of samples that are added to the training set, up to a limit."""
        if self.neighbours is not None:
            self.neighbours = torch.cat([self.neighbours, unit_rows(features)])[: 2 * MOST_NEIGHBOURS]

    def default(self, statistics: StoredStatistics) -> UnknownSetting:
        """Return the rule and layer that recognise unknown inputs best, given what the model has stored."""
        if self.neighbours is not None:
            return UnknownSetting(rule="neighbours", layer="features")
        rule: UnknownRule = "probability" if statistics.deciding is None else "relative"
        return UnknownSetting(rule=rule, layer=statistics.layer)

    def setting(
        self, stored: UnknownSetting | None, statistics: StoredStatistics, rule: UnknownRule | None, layer: Layer | None
    ) -> UnknownSetting:
        """Return the rule and layer of a score; if one of them is None, that of `stored` or the default applies.

        Raises InputError if the model lacks what they need.
        """
        default = stored or self.default(statistics)
        if rule is not None:
            check_choice("rule", rule, get_args(UnknownRule))
        if layer is not None:
            check_choice("layer", layer, get_args(Layer))
        setting = UnknownSetting(rule=rule or default.rule, layer=layer or default.layer)
        if setting.rule == "neighbours" and (setting.layer == "outputs" or self.neighbours is None):
            what = 'rule "neighbours" needs stored samples of the last hidden layer, which the model does not have'
            if self.neighbours is not None:
                what = 'rule "neighbours" works on the last hidden layer, not on the outputs'
            raise InputError(f"{what}: choose another rule or layer")
        if setting.rule in ("relative", "mahalanobis"):
            statistics.of(setting.layer)
        return setting

    def score(self, setting: UnknownSetting, statistics: StoredStatistics) -> nn.Module:
        """Return the module that scores a layer; it is kept until what it was made from changes."""
        assert setting.rule != "probability"
        source = self.neighbours if setting.rule == "neighbours" else statistics.of(setting.layer)
        kept = self._scores.get(setting)
        if kept is None or kept[0] is not source:
            if isinstance(source, Tensor):
                made: nn.Module = NeighbourScore(source)
            else:
                assert setting.rule != "neighbours"
                assert source is not None
                made = UnknownScore(source, setting.rule)
            kept = self._scores[setting] = source, made
        return kept[1]

    def fit(self, scores: NDArray[np.float64]) -> None:
        """Store the quantiles of the default score, given that score of known samples (n,)."""
        self.quantiles = score_quantiles(scores)

    def threshold(self, reject: float) -> float:
        """Return the score that a share `reject` of the known samples does not exceed.

        Raises InputError if `reject` is not between 0 and 1, or if there are no quantiles.
        """
        if isinstance(reject, bool) or not isinstance(reject, float | int) or not 0 < reject < 1:
            raise InputError(f"reject is {reject!r}, need a number between 0 and 1, such as 0.95")
        if self.quantiles is None:
            what = "the model has no scores of known validation samples, which rejecting unknown inputs needs"
            raise InputError(f"{what}: train again with a validation set, or call fit_rejection with known samples")
        return threshold(self.quantiles, reject)
