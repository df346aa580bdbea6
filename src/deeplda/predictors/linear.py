"""What the predictors share: each is a linear score for every class."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from deeplda.objective.moments import check_batch
from deeplda.predictors.statistics import FeatureStatistics


class LinearPredictor(nn.Module):
    """Scores h W' + b, one for each class; the decision is the class of the highest score.

    A module whose state is buffers, so that it saves with a model and moves with `.to()`. Scores are float64.

    Buffers, once fitted: classes (C,) the label ids, weight (C, d), bias (C,).
    """

    classes: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._set(torch.empty(0, dtype=torch.long), torch.empty(0, 0).double(), torch.empty(0).double())

    def fit(self, features: Tensor, labels: Tensor) -> Self:
        """Fit on features (n, d) with labels (n,)."""
        check_batch(features, labels)
        statistics = self.statistics(labels)
        statistics.update(features, labels)
        return self.fit_statistics(statistics)

    def statistics(self, labels: Tensor) -> FeatureStatistics:
        """Empty statistics to gather for this predictor, for a set with these labels."""
        return FeatureStatistics(labels)

    def fit_statistics(self, statistics: FeatureStatistics) -> Self:
        """Fit from gathered statistics."""
        device = self.weight.device
        self._set(statistics.classes, *self.solve(statistics))
        return self.to(device)

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        """weight (C, d) and bias (C,) from the statistics."""
        raise NotImplementedError

    def decision_function(self, features: Tensor) -> Tensor:
        """The scores, (n, C) float64."""
        return features.double() @ self.weight.T + self.bias

    def predict(self, features: Tensor) -> Tensor:
        """The label id of the highest score, (n,)."""
        return self.classes[self.decision_function(features).argmax(1)]

    def predict_proba(self, features: Tensor) -> Tensor:
        """Softmax of the scores, (n, C) float64."""
        return self.decision_function(features).softmax(1)

    def forward(self, features: Tensor) -> Tensor:
        return self.decision_function(features)

    def reserve(self, classes: int, dimensions: int) -> Self:
        """Buffers of the right shapes, for a state to be loaded into."""
        weight = torch.zeros(classes, dimensions, dtype=torch.float64)
        self._set(torch.arange(classes), weight, weight.new_zeros(classes))
        return self

    def _set(self, classes: Tensor, weight: Tensor, bias: Tensor) -> None:
        # A copy, as several predictors may be fitted from the same statistics, and each saves its own.
        self.register_buffer("classes", classes.clone())
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
