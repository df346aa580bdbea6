"""The paper's three predictors, and softmax for networks trained with cross-entropy."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from deeplda.core.options import ClassWeight, Scatter, check_choice, check_regularisation
from deeplda.core.scatter import discriminant_vectors, regularised_root
from deeplda.predictors.feature_statistics import FeatureStatistics, Numbers
from deeplda.predictors.linear import LinearPredictor, Priors, Probability, linear_rule

Normalize = Literal["within", "unit"]


class Hyperplanes(LinearPredictor):
    """The paper's predictor: d = h T' - 1/2 diag(M T') with T = M A A'.

    M holds the class means and A the discriminant eigenvectors. With `probability="softmax"`, the scores are computed
    around the mean of the class means, as in `NearestMean`. They differ from d by a number that is the same for all
    classes, so decisions and probabilities are those of d. The paper's sigmoid needs d itself, so with
    `probability="sigmoid"` the scores are exactly d, and an offset of the features changes the probabilities.

    Args:
        normalize: "within" scales the eigenvectors to e' S'_W e = 1, as in LDA; "unit" scales them to length 1, as in
            the original DLDA code.
        alpha, lam, scatter, class_weight: the options of the eigenproblem. Use the same values as in the loss.
        probability, priors: as in `LinearPredictor`.
    """

    def __init__(
        self,
        *,
        normalize: Normalize = "within",
        alpha: float = 1.0,
        lam: float = 1e-3,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        probability: Probability = "softmax",
        priors: Priors = None,
    ) -> None:
        super().__init__(probability=probability, priors=priors)
        check_regularisation(alpha, lam, scatter, class_weight)
        check_choice("normalize", normalize, get_args(Normalize))
        self.normalize, self.alpha, self.lam = normalize, float(alpha), float(lam)
        self.scatter, self.class_weight = scatter, class_weight

    def statistics(self, labels: Numbers, sample_weight: Numbers | None = None) -> FeatureStatistics:
        """Create empty statistics, with this predictor's scatter and class weights, as in the base class."""
        return FeatureStatistics.for_labels(labels, sample_weight, scatter=self.scatter, class_weight=self.class_weight)

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        if (statistics.scatter, statistics.class_weight) != (self.scatter, self.class_weight):
            raise ValueError(
                f"statistics has scatter {statistics.scatter!r} and class_weight {statistics.class_weight!r}, need "
                f"{self.scatter!r} and {self.class_weight!r}: create it with predictor.statistics(labels)"
            )
        means = statistics.means
        directions = discriminant_directions(statistics, self.alpha, self.lam)
        if self.normalize == "unit":
            directions = torch.nn.functional.normalize(directions, dim=1)
        middle = torch.zeros_like(means[0]) if self.probability == "sigmoid" else means.mean(0)
        return linear_rule(means, middle, directions.T)


def discriminant_directions(statistics: FeatureStatistics, alpha: float, lam: float) -> Tensor:
    """Return the m = min(d, C - 1) top eigenvectors of S_B e = v S'_W e as rows (m, d), with v ascending.

    The eigenvectors are scaled to e' S'_W e = 1. Raises ValueError or TypeError if alpha or lam is invalid, and
    ValueError if there is only one class.
    """
    check_regularisation(alpha, lam, statistics.scatter, statistics.class_weight)
    means, between = statistics.means, statistics.between()
    if len(means) < 2:
        raise ValueError("the features have only one class, need at least two: add samples of another class")
    root = regularised_root(statistics.within(), statistics.between_rows(), means, alpha, lam)
    return discriminant_vectors(between, root, min(means.shape[1], len(means) - 1))[1]


class NearestMean(LinearPredictor):
    """The nearest-mean classifier, with scores -|h - mu_c|^2 / 2, up to a constant that is the same for all classes.

    The scores are computed as (h - (mu_c + m) / 2) . (mu_c - m), where m is the mean of the class means, so that an
    offset of the features costs little precision.
    """

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        return linear_rule(statistics.means, statistics.means.mean(0))


class ClassicLDA(LinearPredictor):
    """Classic LDA: Gaussian classes with a shared covariance S = W / n, and the class frequencies as default priors.

    The scores are -1/2 (h - mu_c)' S^-1 (h - mu_c) + log prior_c, up to a constant that is the same for all classes;
    they are computed as in `NearestMean`. S^-1 is a pseudo-inverse, so dead dimensions do no harm. The decisions agree
    with `LinearDiscriminantAnalysis(solver="svd")` in scikit-learn 1.9; older versions divide by n - C.
    """

    def __init__(self, *, probability: Probability = "softmax", priors: Priors = "empirical") -> None:
        super().__init__(probability=probability, priors=priors)

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        return linear_rule(statistics.means, statistics.means.mean(0), statistics.whitening())


class Softmax(LinearPredictor):
    """The scores that the network was trained with: its outputs, or a linear layer on them that `set_layer` sets."""

    _fit_method: ClassVar[str] = "set_layer"

    def set_layer(self, classes: Tensor, weight: Tensor | None, bias: Tensor | None) -> Self:
        """Use a trained layer: weight (C, d), or None if the outputs are the scores; bias (C,) or None."""
        if weight is None:
            weight = torch.eye(len(classes), device=classes.device)
        if bias is None:
            bias = weight.new_zeros(len(classes))
        self._set(classes, weight.detach().double(), bias.detach().double())
        return self

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:  # noqa: ARG002  # the base class has it
        raise RuntimeError("Softmax cannot be fitted: pass the layer that was trained with the network to set_layer")
