"""LDA from moments: in batches, with sample weights, and merged from parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deeplda.classical.class_labels import checked_weights, encode_labels, extend_labels
from deeplda.classical.discriminant_classifier import DiscriminantClassifier, Floats
from deeplda.classical.linear_discriminant import LinearDiscriminant
from deeplda.classical.shrinkage import Shrinkage, check_shrinkage, ledoit_wolf_shrinkage
from deeplda.core.moments import ClassMoments, class_moments
from deeplda.core.norm_moments import NormMoments
from deeplda.core.oas import oas_shrinkage
from deeplda.core.options import check_regularisation
from deeplda.errors import InputError
from deeplda.memory import require_memory
from deeplda.predictors.feature_statistics import FeatureStatistics

_DTYPES = [np.float64, np.float32]
# Rows are processed in blocks of this many numbers; larger blocks are not faster, and take more memory.
_BLOCK_ELEMENTS = 2**20
# Moments of fewer bytes fit, and the question would take longer than the answer to a small batch.
_SMALL_MOMENTS = 2**26
_EPS = float(np.finfo(np.float64).eps)


class StreamingLDA(DiscriminantClassifier):
    """Linear discriminant analysis that keeps exact moments instead of samples.

    It agrees with scikit-learn's `LinearDiscriminantAnalysis`, and also learns in batches, with sample weights, from
    sparse rows, and from parts that were fitted elsewhere. Batches may have any size and order: the result is that of
    `fit` on all samples, up to rounding.

    The moments take O(n_features^2 + n_classes n_features) memory, however many samples there are.

    Parameters
    ----------
    shrinkage : None, float, "oas" or "ledoit-wolf", default=None
        Replace the pooled covariance S by (1 - shrinkage) S + shrinkage tr(S) / d I. The two names estimate the
        shrinkage from the samples, centred at their class means, as `sklearn.covariance` does. "ledoit-wolf" needs the
        scatter of each class, so it takes O(n_classes n_features^2) memory, and has to be set before the first samples.
    lam : float, default=0.0
        The ridge of the paper's LDA: lam I is added to the covariance, after shrinkage.
    priors : array-like of shape (n_classes,), default=None
        Prior probabilities, in the order of `classes_`; they are divided by their sum. None means the class
        frequencies. They weight the class means, but not the samples: the covariance does not depend on them.
    n_components : int, default=None
        Number of coordinates that `transform` returns, at most min(n_classes - 1, n_features), which is the default.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted: those announced to `partial_fit`, or else those seen so far.
    class_count_ : ndarray of shape (n_classes,)
        The sum of the sample weights of each class.
    means_ : ndarray of shape (n_classes, n_features)
        The class means; NaN for an announced class without samples.
    priors_ : ndarray of shape (n_classes,)
        The priors, which sum to 1; 0 for an announced class without samples.
    xbar_ : ndarray of shape (n_features,)
        The mean of the class means, weighted by the priors.
    covariance_ : ndarray of shape (n_features, n_features)
        The pooled covariance within the classes, shrunk and with the ridge.
    shrinkage_ : float
        The shrinkage used.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights of the linear rule.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
        Intercepts of the linear rule; -inf for an announced class without samples.
    scalings_ : ndarray of shape (n_features, rank)
        The discriminant directions, strongest first; `covariance_` along each is 1. The rank is `n_components`,
        or less if the class means span fewer dimensions.
    explained_variance_ratio_ : ndarray of shape (rank,)
        The share of each direction in the variance between the classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; defined only if the column names of `X` are all strings.

    Notes
    -----
    After `partial_fit` and `merge`, attributes are computed when they are first needed, so that batches are cheap.

    Directions in which the samples do not vary are ignored, so there may be more features than samples. Moments square
    the condition number of the samples: after each feature is scaled to variance 1 within the classes, directions with
    a standard deviation below about 1e-7 cannot be told from rounding and are dropped. scikit-learn's solver "eigen"
    has the same limit. The solver "svd" with a small `tol` resolves directions beyond it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from deeplda.classical import StreamingLDA
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = StreamingLDA()
    >>> for start in range(0, 150, 30):
    ...     lda = lda.partial_fit(X[start : start + 30], y[start : start + 30])
    >>> round(lda.score(X, y), 2)
    0.98
    """

    _labels: NDArray[Any]
    _moments: ClassMoments
    _norms: NormMoments | None
    _announced: bool
    _solved: tuple[LinearDiscriminant, float] | None

    def __init__(
        self,
        *,
        shrinkage: float | Shrinkage | None = None,
        lam: float = 0.0,
        priors: ArrayLike | None = None,
        n_components: int | None = None,
    ) -> None:
        self.shrinkage = shrinkage
        self.lam = lam
        self.priors = priors
        self.n_components = n_components

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from samples X, dense or sparse, (n, n_features), with labels y, (n,), and weights >= 0, (n,).

        A weight of 2 counts as the sample twice, and 0 as no sample. Samples seen before are forgotten.
        """
        self._check_parameters()
        inputs, targets = validate_data(self, X, y, accept_sparse="csr", dtype=_DTYPES)
        weights = None if sample_weight is None else checked_weights(sample_weight, inputs)
        present = targets if weights is None else targets[weights > 0]
        labels, _ = encode_labels(present)
        self._replace(labels, announced=False, moments=None, norms=None)
        self._learn(inputs, targets, weights)
        self._solution()
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more samples, as in `fit`, in addition to those seen before.

        `classes` in the first call announces all labels, as other scikit-learn estimators require. It is optional here:
        without it, new classes may appear in any batch.
        """
        self._check_parameters()
        first = not self._has_moments()
        inputs, targets = validate_data(self, X, y, accept_sparse="csr", dtype=_DTYPES, reset=first)
        weights = None if sample_weight is None else checked_weights(sample_weight, inputs)
        if first:
            announced = np.empty(0) if classes is None else np.unique(np.asarray(classes))
            self._replace(announced, announced=classes is not None, moments=None, norms=None)
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            what = f"classes is {np.asarray(classes).tolist()}"
            raise InputError(f"{what}, need the classes of the first call, {self.classes_.tolist()}, or None")
        self._learn(inputs, targets, weights)
        return self

    def merge(self, other: StreamingLDA) -> Self:
        """Add the samples that `other` has seen, as if they had been passed to `partial_fit`.

        Raises ValueError if the features differ, or if sums that `shrinkage` needs are missing.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        ours, theirs = (list(getattr(lda, "feature_names_in_", ())) for lda in (self, other))
        if self.n_features_in_ != other.n_features_in_ or ours != theirs:
            what = f"the other has {other.n_features_in_} features"
            raise InputError(f"{what}, need the same {self.n_features_in_} features: fit both on the same columns")
        labels, ids = extend_labels(self._labels, other._labels, fixed=self._announced)
        places = torch.from_numpy(ids)
        moments = self._moments.merge(other._moments.relabelled(places[other._moments.classes]))
        norms = None
        if self._norms is not None and other._norms is not None:
            norms = self._norms.merge(other._norms.relabelled(places[other._norms.classes]))
        self._replace(labels, announced=self._announced, moments=moments, norms=norms)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the discriminant coordinates (x - xbar_) scalings_, (n, rank), strongest first."""
        inputs, solution = self._inputs(X), self._solution()[0]
        scalings = solution.scalings.numpy()
        return np.asarray(inputs @ scalings - solution.xbar.numpy() @ scalings)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted, (n_classes,)."""
        self._require_samples("classes_")
        return np.sort(self._labels)

    @property
    def class_count_(self) -> Floats:
        """The sum of the sample weights of each class, (n_classes,)."""
        return self._by_class(self._ordered_moments().counts, 0.0)

    @property
    def means_(self) -> Floats:
        """The class means, (n_classes, n_features)."""
        return self._by_class(self._ordered_moments().means, np.nan)

    @property
    def priors_(self) -> Floats:
        """The priors, (n_classes,)."""
        return self._by_class(self._solution()[0].priors, 0.0)

    @property
    def xbar_(self) -> Floats:
        """The mean of the class means, weighted by the priors, (n_features,)."""
        return np.asarray(self._solution()[0].xbar.numpy())

    @property
    def shrinkage_(self) -> float:
        """The shrinkage used."""
        return self._solution()[1]

    @property
    def covariance_(self) -> Floats:
        """The covariance within the classes, shrunk and with the ridge, (n_features, n_features)."""
        covariance = FeatureStatistics.of(self._moments).shrunk(self.shrinkage_)
        covariance.diagonal().add_(self.lam)
        return np.asarray(covariance.numpy())

    @property
    def coef_(self) -> Floats:
        """Weights of the linear rule, (n_classes, n_features), or (1, n_features) for two classes."""
        return _binary_difference(self._by_class(self._solution()[0].coef, 0.0))

    @property
    def intercept_(self) -> Floats:
        """Intercepts of the linear rule, (n_classes,), or (1,) for two classes."""
        return _binary_difference(self._by_class(self._solution()[0].intercept, -np.inf))

    @property
    def scalings_(self) -> Floats:
        """The discriminant directions, (n_features, rank)."""
        return np.asarray(self._solution()[0].scalings.numpy())

    @property
    def explained_variance_ratio_(self) -> Floats:
        """The share of each direction in the variance between the classes, (rank,)."""
        return np.asarray(self._solution()[0].explained.numpy())

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether samples have been seen."""
        return self._has_moments()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.scalings_.shape[1])

    def _check_parameters(self) -> None:
        check_shrinkage(self.shrinkage)
        check_regularisation(1.0, self.lam, "pooled", None)

    def _has_moments(self) -> bool:
        return getattr(self, "_moments", None) is not None

    def _require_samples(self, name: str) -> None:
        if not self._has_moments():
            raise NotFittedError(f"this StreamingLDA has no {name} yet: call fit or partial_fit first")

    def _replace(
        self, labels: NDArray[Any], *, announced: bool, moments: ClassMoments | None, norms: NormMoments | None
    ) -> None:
        self._labels, self._announced, self._norms, self._solved = labels, announced, norms, None
        if moments is not None:
            self._moments = moments
        elif self._has_moments():
            del self._moments

    def _learn(self, inputs: Any, y: NDArray[Any], weights: Floats | None) -> None:
        """Add samples to the moments; if that fails, everything stays as it was."""
        present = slice(None) if weights is None else weights > 0
        labels, ids = self._labels, np.zeros(len(y), dtype=np.int64)
        labels, ids[present] = extend_labels(self._labels, y[present], fixed=self._announced)
        classes, d = len(labels), inputs.shape[1]
        moments, norms = getattr(self, "_moments", None), self._norms
        by_class = self.shrinkage == "ledoit-wolf" and (moments is None or norms is not None)
        size = 8 * (d * d + classes * d + by_class * classes * d * d)
        if size > _SMALL_MOMENTS:
            require_memory(size, f"the moments of {d:,} features", do='use fewer features, or shrinkage "oas"')
        for batch in _blocks(inputs, ids, weights, max(_BLOCK_ELEMENTS // d, classes, 1)):
            found = class_moments(*batch)
            moments = found if moments is None else moments.merge(found)
            if by_class:
                norm = NormMoments.of(*batch)
                norms = norm if norms is None else norms.merge(norm)
        self._replace(labels, announced=self._announced, moments=moments, norms=norms if by_class else None)

    def _ordered_moments(self) -> ClassMoments:
        """Return the moments with class ids that are positions in `classes_`."""
        self._require_samples("moments")
        places = torch.from_numpy(np.argsort(np.argsort(self._labels, kind="stable")))
        return self._moments.relabelled(places[self._moments.classes])

    def _solution(self) -> tuple[LinearDiscriminant, float]:
        self._require_samples("linear rule")
        if self._solved is None:
            moments = self._ordered_moments()
            shrinkage = self._estimated_shrinkage()
            priors = self.priors
            if priors is not None and len(moments.classes) < len(self._labels):
                priors = np.asarray(priors)[moments.classes.numpy()]
            # Below this, variance is rounding: of the product, and of the eigenvalues.
            least = 16 * len(moments.within) * _EPS
            solution = LinearDiscriminant.of(
                moments,
                priors=priors,
                n_components=self.n_components,
                shrinkage=shrinkage,
                lam=self.lam,
                least_variance=least,
            )
            self._solved = solution, shrinkage
        return self._solved

    def _estimated_shrinkage(self) -> float:
        if self.shrinkage is None or not isinstance(self.shrinkage, str):
            return float(self.shrinkage or 0.0)
        covariance = FeatureStatistics.of(self._moments).pooled()
        n = float(self._moments.counts.sum())
        if self.shrinkage == "oas":
            return oas_shrinkage(covariance, n)
        if self._norms is None:
            what = 'shrinkage "ledoit-wolf" needs sums that were not kept'
            raise InputError(f"{what}: set it before the first samples, in all parts that are merged")
        return ledoit_wolf_shrinkage(covariance, n, float(self._norms.fourths.sum()))

    def _by_class(self, values: Tensor, missing: float) -> Floats:
        """Return values of the classes seen, (C, ...), as an array for `classes_`, with `missing` for the others."""
        seen = self._ordered_moments().classes.numpy()
        result = np.full((len(self._labels), *values.shape[1:]), missing)
        result[seen] = values.numpy()
        return result

    def _inputs(self, X: ArrayLike) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=_DTYPES)

    def _scores(self, X: ArrayLike) -> Floats:
        inputs, solution = self._inputs(X), self._solution()[0]
        coef, intercept = self._by_class(solution.coef, 0.0), self._by_class(solution.intercept, -np.inf)
        return np.asarray(inputs @ coef.T + intercept)


def _blocks(
    inputs: Any, ids: NDArray[np.int64], weights: Floats | None, rows: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield blocks of at most `rows` dense float64 rows with their class ids and weights, without weights of 0."""
    for start in range(0, len(ids), rows):
        block = inputs[start : start + rows]
        dense = block.toarray() if scipy.sparse.issparse(block) else block
        features = torch.from_numpy(np.require(dense, np.float64, ["C", "W"]))
        labels = torch.from_numpy(ids[start : start + rows])
        if weights is None:
            yield features, labels, None
            continue
        factors = torch.from_numpy(weights[start : start + rows])
        kept = factors > 0
        if kept.any():
            yield features[kept], labels[kept], factors[kept]


def _binary_difference(values: Floats) -> Floats:
    """Return the second row minus the first as one row if there are two, which is scikit-learn's convention."""
    return values[1:] - values[:1] if len(values) == 2 else values
