"""What the predictors share: each is a linear score for every class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from deeplda.core.checks import check_batch, check_word
from deeplda.errors import got
from deeplda.predictors.feature_statistics import FeatureStatistics

Probability = Literal["softmax", "sigmoid"]
Priors = Literal["empirical"] | Sequence[float] | None


class LinearPredictor(nn.Module):
    """Scores h W' + b, one for each class; the decision is the class of the highest score.

    A module whose state is buffers, so that it saves with a model and moves with `.to()`. Scores are float64.

    Args:
        probability: "softmax" of the scores, or "sigmoid", the paper's: the sigmoid of each score, normalised.
        priors: None for equal ones, "empirical" for the shares of the classes, or a number for each class; their
            logarithm is added to the scores.

    Buffers, once fitted: classes (C,) the label ids, weight (C, d), bias (C,).
    """

    default_priors: ClassVar[Priors] = None

    classes: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, *, probability: Probability = "softmax", priors: Priors = None) -> None:
        super().__init__()
        check_word("probability", probability, get_args(Probability))
        self.probability = probability
        self.priors = self.default_priors if priors is None else priors
        self._statistics: FeatureStatistics | None = None
        self._set(torch.empty(0, dtype=torch.long), torch.empty(0, 0).double(), torch.empty(0).double())

    def fit(self, features: Tensor, labels: Tensor) -> Self:
        """Fit on features (n, d) with labels (n,)."""
        check_batch(features, labels)
        statistics = self.statistics(labels)
        statistics.update(features, labels)
        return self.fit_statistics(statistics)

    def statistics(self, labels: Tensor) -> FeatureStatistics:
        """Empty statistics to gather for this predictor, for a set with these labels."""
        return FeatureStatistics.for_labels(labels)

    def fit_statistics(self, statistics: FeatureStatistics) -> Self:
        """Fit from gathered statistics."""
        device = self.weight.device
        weight, bias = self.solve(statistics)
        bias = bias + self._log_priors(statistics)
        self._statistics = statistics
        self._set(statistics.classes, weight, bias)
        return self.to(device)

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        """weight (C, d) and bias (C,) for equal priors, from the statistics."""
        raise NotImplementedError

    def decision_function(self, features: Tensor) -> Tensor:
        """The scores, (n, C) float64. Raises ValueError before a fit, and for features of another width."""
        self._check(features)
        return features.double() @ self.weight.double().T + self.bias.double()

    def predict(self, features: Tensor) -> Tensor:
        """The label id of the highest score, (n,)."""
        return self.classes[self.decision_function(features).argmax(1)]

    def predict_proba(self, features: Tensor) -> Tensor:
        """The probability of each class, (n, C) float64; worked out from logarithms, so that nothing overflows."""
        scores = self.decision_function(features)
        return (nn.functional.logsigmoid(scores) if self.probability == "sigmoid" else scores).softmax(1)

    def mahalanobis(self, features: Tensor) -> Tensor:
        """Distance of each row to the nearest class mean, in units of the pooled covariance, (n,) float64.

        Large where a sample is like none of the classes: a score for what is out of distribution.
        """
        statistics = self._fitted_statistics()
        self._check(features)
        whitening = statistics.whitening().to(features.device)
        means = statistics.means.to(features.device)
        # Centred, and not by way of products: an offset of the features costs no precision.
        rows, centres = ((values - means.mean(0)) @ whitening for values in (features.double(), means))
        return torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").amin(1)

    def add_class(self, features: Tensor, label: int) -> Self:
        """Learn a new class from a few examples, features (k, d), without training: its mean and scatter join in."""
        return self.fit_statistics(self._fitted_statistics().with_class(features.detach().cpu(), label))

    def forward(self, features: Tensor) -> Tensor:
        return self.decision_function(features)

    def reserve(self, classes: int, dimensions: int) -> Self:
        """Buffers of the right shapes, for a state to be loaded into."""
        weight = torch.zeros(classes, dimensions, dtype=torch.float64)
        self._set(torch.arange(classes), weight, weight.new_zeros(classes))
        return self

    @property
    def fitted_on(self) -> FeatureStatistics | None:
        """The statistics it was fitted from, where they are known."""
        return self._statistics

    def recall(self, statistics: FeatureStatistics) -> None:
        """Know the statistics that the loaded state was fitted from."""
        self._statistics = statistics

    def _log_priors(self, statistics: FeatureStatistics) -> Tensor:
        if self.priors is None:
            return torch.zeros(len(statistics.classes), dtype=torch.float64)
        if isinstance(self.priors, str):
            check_word("priors", self.priors, ("empirical",), or_none=True)
            return (statistics.counts / statistics.counts.sum()).log()
        priors = torch.as_tensor(self.priors, dtype=torch.float64)
        if priors.shape != statistics.classes.shape or not (priors > 0).all():
            raise ValueError(
                got(
                    f"priors {list(self.priors)}",
                    need=f"{len(statistics.classes)} positive numbers, one for each class",
                    do="give them in the order of the label ids",
                )
            )
        return (priors / priors.sum()).log()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        """As torch does, after making room: a fitted state goes into a predictor that is not fitted yet."""
        weight = state_dict.get(f"{prefix}weight")
        if len(self.classes) == 0 and weight is not None and weight.ndim == 2:
            device = self.weight.device
            self.reserve(*weight.shape).to(device)
        before = [buffer.clone() for buffer in self.buffers()]
        super()._load_from_state_dict(state_dict, prefix, *others)
        if not all(map(torch.equal, before, self.buffers())):
            # They are of what was fitted before; `recall` brings those that belong to the state.
            self._statistics = None

    def _check(self, features: Tensor) -> None:
        if len(self.classes) == 0:
            raise ValueError(got("a predictor that is not fitted", need="a fitted one", do="call fit first"))
        width = self.weight.shape[1]
        if features.ndim != 2 or features.shape[1] != width:
            raise ValueError(
                got(
                    f"features of shape {tuple(features.shape)}",
                    need=f"(n, {width})",
                    do="pass embeddings like those it was fitted on",
                )
            )

    def _fitted_statistics(self) -> FeatureStatistics:
        if self._statistics is None:
            raise RuntimeError("this predictor has no statistics: fit it, or use it through a loaded model")
        return self._statistics

    def _set(self, classes: Tensor, weight: Tensor, bias: Tensor) -> None:
        # A copy, as several predictors may be fitted from the same statistics, and each saves its own.
        self.register_buffer("classes", classes.clone())
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
