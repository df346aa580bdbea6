"""The paper's three predictors on an embedding, and softmax for cross-entropy networks."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from deeplda.core.checks import ClassWeight, Scatter, check_regularisation, check_word
from deeplda.core.scatter import regularised_root, right_solve
from deeplda.errors import got
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor, Priors, Probability

Normalize = Literal["within", "unit"]


class Hyperplanes(LinearPredictor):
    """d = h T' - 1/2 diag(M T') with T = M A A', M the class means and A the c - 1 discriminant eigenvectors.

    Args:
        normalize: "within": e' S'_W e = 1, true LDA; "unit": eigenvectors of length 1, as the original code has them.
        alpha, lam, scatter, class_weight: of the eigenproblem, as in `RDLDALoss`.
        probability, priors: as in `LinearPredictor`.
    """

    def __init__(
        self,
        normalize: Normalize = "within",
        alpha: float = 1.0,
        lam: float = 1e-3,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        *,
        probability: Probability = "softmax",
        priors: Priors = None,
    ) -> None:
        super().__init__(probability=probability, priors=priors)
        check_regularisation(alpha, lam, scatter, class_weight)
        check_word("normalize", normalize, get_args(Normalize))
        self.normalize, self.alpha, self.lam = normalize, alpha, lam
        self.scatter, self.class_weight = scatter, class_weight

    def statistics(self, labels: Tensor) -> FeatureStatistics:
        return FeatureStatistics.for_labels(labels, scatter=self.scatter, class_weight=self.class_weight)

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        """As `LinearPredictor.solve`. Raises ValueError for statistics of another scatter or class weight."""
        if (statistics.scatter, statistics.class_weight) != (self.scatter, self.class_weight):
            raise ValueError(
                got(
                    f"statistics with scatter {statistics.scatter!r} and class_weight {statistics.class_weight!r}",
                    need=f"{self.scatter!r} and {self.class_weight!r}, as the predictor has them",
                    do="gather them in predictor.statistics(labels)",
                )
            )
        means = statistics.means
        directions = discriminant_directions(statistics, self.alpha, self.lam)
        if self.normalize == "unit":
            directions = torch.nn.functional.normalize(directions, dim=1)
        normals = (means @ directions.T) @ directions
        return normals, -(means * normals).sum(1) / 2


def discriminant_directions(statistics: FeatureStatistics, alpha: float, lam: float) -> Tensor:
    """The m = min(d, C - 1) top eigenvectors of S_B e = v S'_W e, e' S'_W e = 1, as rows (m, d), v ascending.

    Raises ValueError for one class alone.
    """
    means, between = statistics.means, statistics.between()
    if len(means) < 2:
        raise ValueError(got("features of one class", need="at least two classes", do="add samples of another"))
    root = regularised_root(statistics.within(), statistics.between_rows(), means, alpha, lam)
    matrix = right_solve(right_solve(between, root).T, root)
    vectors = torch.linalg.eigh((matrix + matrix.T) / 2).eigenvectors[:, -min(means.shape[1], len(means) - 1) :]
    return right_solve(vectors.T, root, transpose=False)


class NearestMean(LinearPredictor):
    """Scores -|h - mu_c|^2 / 2, up to what is the same for all classes.

    They are (h - (mu_c + m) / 2) . (mu_c - m), with m the mean of the means, so that an offset of the features costs
    few digits.
    """

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, middle = statistics.means, statistics.means.mean(0)
        normals = means - middle
        return normals, -((means + middle) * normals).sum(1) / 2


class ClassicLDA(LinearPredictor):
    """Gaussian classes with a shared covariance S = W / n, and empirical priors unless others are given.

    Scores -1/2 (h - mu_c)' S^-1 (h - mu_c) + log prior_c, up to what is the same for all classes, worked out as those
    of `NearestMean`; S^-1 is a pseudo-inverse, so that dead dimensions do no harm. Decides as
    `LinearDiscriminantAnalysis(solver="svd")` of scikit-learn 1.9; older ones divide by n - C.
    """

    default_priors = "empirical"

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, middle, whitening = statistics.means, statistics.means.mean(0), statistics.whitening()
        normals = (means - middle) @ whitening @ whitening.T
        return normals, -((means + middle) * normals).sum(1) / 2


class Softmax(LinearPredictor):
    """The network's own scores: its outputs, or a linear layer on them where there are more or fewer than classes."""

    def set_layer(self, classes: Tensor, weight: Tensor | None, bias: Tensor | None) -> Softmax:
        """Take over the trained layer, weight (C, d) or None where the outputs are the scores, bias (C,) or None."""
        if weight is None:
            weight = torch.eye(len(classes), device=classes.device)
        if bias is None:
            bias = weight.new_zeros(len(classes))
        self._set(classes, weight.detach().double(), bias.detach().double())
        return self

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:  # noqa: ARG002  # its parent has it
        """Raises RuntimeError: its layer is trained with the network, not fitted."""
        raise RuntimeError("softmax is not fitted: its layer is trained with the network, and set by set_layer")
