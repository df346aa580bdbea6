"""The paper's first predictor: distances to the linear decision hyperplanes."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from deeplda.errors import got
from deeplda.objective.discriminant import (
    ClassWeight,
    Scatter,
    check_regularisation,
    check_word,
    regularised_root,
    right_solve,
)
from deeplda.predictors.linear import LinearPredictor, Priors, Probability
from deeplda.predictors.statistics import FeatureStatistics

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
