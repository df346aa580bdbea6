"""Kernel LDA: exact in its dual form, or with approximate feature maps for many samples.

With K the kernel matrix of the training samples, centred in feature space, and Q an orthonormal basis (n, C - 1) of the
centred class indicators, S_B = Phi' Q Q' Phi / n and S_T = Phi' Phi / n. The directions of S_B w = v (S_W + lam I) w
are w = Phi' alpha with alpha = (K + n lam I)^-1 Q g, where g is an eigenvector of N = n lam Q' (K + n lam I)^-1 Q with
the eigenvalue 1 / (1 + v). So one Cholesky factorisation of an n x n matrix is enough, and the eigenproblem is as small
as the number of classes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deeplda.classical.class_labels import encode_labels
from deeplda.classical.discriminant_classifier import DiscriminantClassifier, Floats
from deeplda.classical.linear_discriminant import LEAST_SHARE, check_priors, column_signs, component_count
from deeplda.classical.streaming_lda import StreamingLDA
from deeplda.core.options import check_choice, check_integer, check_number, check_regularisation
from deeplda.errors import InputError
from deeplda.memory import require_memory
from deeplda.predictors.linear import linear_rule, log_priors

Kernel = str | Callable[[Any, Any], float]
Approximation = Literal["auto", "nystroem", "fourier"]

# With more samples, the n x n matrix takes seconds to factorise and hundreds of megabytes.
_MOST_EXACT = 5_000
# Kernel matrices and feature maps are computed in blocks of this many numbers.
_BLOCK_ELEMENTS = 2**22
# Relative to the largest kernel of a sample with itself. Rounding errors of the coordinates are eps divided by this.
_LEAST_RIDGE = 1e-10


@dataclass(frozen=True, slots=True)
class DualDiscriminant:
    """LDA in feature space: the coordinates k(x, X) alpha - offset, and a linear rule on them.

    Attributes:
        alpha: (n, m), one column for each discriminant direction, strongest first.
        offset: (m,), which gives the training samples the mean 0.
        weight: (C, m), weights of the rule.
        bias: (C,), intercepts of the rule.
        priors: (C,).
        explained: (m,), the share of each direction in the between-class variance.
    """

    alpha: Tensor
    offset: Tensor
    weight: Tensor
    bias: Tensor
    priors: Tensor
    explained: Tensor

    @classmethod
    def of(
        cls, kernel: Tensor, ids: Tensor, lam: float, *, priors: ArrayLike | None, n_components: int | None
    ) -> DualDiscriminant:
        """Solve kernel LDA for the kernel matrix (n, n), which is overwritten, and class ids 0..C-1, (n,).

        Raises InputError if the kernel matrix plus the ridge is not positive definite, or if `priors` or `n_components`
        do not fit.
        """
        n, counts = len(kernel), ids.bincount().double()
        logs = log_priors(check_priors(priors, len(counts)), counts)
        components = component_count(n_components, len(counts), n)
        average = kernel.mean(0)
        kernel += average.mean() - average - average[:, None]
        contrasts = _contrasts(counts)
        basis = contrasts[ids]
        solution, ridge = _ridge_solve(kernel, basis, lam)
        # 1 / (1 + v), ascending, so the strongest direction comes first.
        unexplained, vectors = torch.linalg.eigh(ridge * (basis.T @ solution))
        share = 1 - unexplained
        ratios = share / unexplained
        components = min(components, int((share > LEAST_SHARE * share[0]).sum()))
        # Scaled to w' (S_W + lam I) w = 1.
        vectors = (vectors / (share * unexplained / n).sqrt())[:, :components]
        alpha = solution @ vectors
        # The sum of each column is 0 but for rounding, which kernels far from 0 would amplify.
        alpha -= alpha.mean(0)
        signs = column_signs(alpha)
        # Q' K alpha = (I - N) g, and Q has one row for each class.
        means = contrasts @ (vectors * share[:components] * signs)
        weight, bias = linear_rule(means, logs.exp() @ means)
        alpha = alpha * signs
        return cls(alpha, average @ alpha, weight, bias + logs, logs.exp(), (ratios / ratios.sum())[:components])


def _ridge_solve(kernel: Tensor, basis: Tensor, lam: float) -> tuple[Tensor, float]:
    """Return (K + r I)^-1 Q, (n, C - 1), and r = n lam, for the centred K (n, n), which is overwritten, and Q.

    The ridge is raised to the smallest value with which the coordinates keep seven digits.
    """
    n = len(kernel)
    ridge = max(n * lam, n * _LEAST_RIDGE * float(kernel.diagonal().max()))
    kernel.diagonal().add_(ridge)
    root, failed = torch.linalg.cholesky_ex(kernel)
    if failed:
        what = f"the kernel matrix is not positive definite with lam={lam:g}"
        raise InputError(what, need="a positive definite kernel", do="use a larger lam or another kernel")
    return torch.cholesky_solve(basis, root), ridge


def _contrasts(counts: Tensor) -> Tensor:
    """Return the row of Q for each class, (C, C - 1), given the class sizes.

    The indicators divided by sqrt(n_c) are orthonormal, and the constant vector is the one with coefficients
    sqrt(n_c / n); Q spans the rest.
    """
    constant = (counts / counts.sum()).sqrt()
    complete, _ = torch.linalg.qr(constant[:, None], mode="complete")
    rows: Tensor = complete[:, 1:] / counts.sqrt()[:, None]
    return rows


def _uses_fourier(estimator: KernelLDA) -> bool:
    return estimator.approximation == "fourier"


class KernelLDA(DiscriminantClassifier):
    """Linear discriminant analysis in the feature space of a kernel (Mika et al., 1999), for any number of classes.

    Up to some thousands of samples the solution is exact. Beyond that, the kernel is approximated by explicit features,
    on which LDA is computed from moments as in `StreamingLDA`.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        A kernel of `sklearn.metrics.pairwise.pairwise_kernels`, or a function that maps two samples to a number.
    gamma : float, default=None
        Parameter of the kernels "rbf", "poly", "sigmoid", "laplacian" and "chi2"; None means 1 / n_features, or 1 for
        "chi2".
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant of the kernels "poly" and "sigmoid".
    kernel_params : dict, default=None
        Keyword arguments for a callable kernel.
    lam : float, default=1e-3
        The ridge: S_W + lam I replaces S_W in feature space, where the scatter is divided by the number of samples. For
        "rbf", the total variance of the samples in feature space is at most 1. Choose it on validation data.
    priors : array-like of shape (n_classes,), default=None
        Prior probabilities, in the order of `classes_`; None means the class frequencies.
    n_components : int, default=None
        Number of coordinates that `transform` returns, at most n_classes - 1, which is the default.
    approximation : None, "auto", "nystroem" or "fourier", default="auto"
        None is exact and takes O(n_samples^2) memory. "nystroem" projects the samples onto those of a random subset,
        for any kernel. "fourier" uses random Fourier features for the kernel "rbf", and makes `partial_fit` available.
        "auto" is exact for up to 5,000 samples, and "nystroem" beyond.
    n_basis : int, default=1000
        Number of samples in the subset, or of random features.
    random_state : int, RandomState or None, default=None
        Determines the subset or the random features.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    priors_ : ndarray of shape (n_classes,)
        The priors, which sum to 1.
    X_fit_ : ndarray of shape (n_samples, n_features)
        The training samples. Defined only for an exact solution.
    dual_coef_ : ndarray of shape (n_samples, rank)
        The directions as combinations of the training samples, strongest first; S_W + lam I along each is 1. Defined
        only for an exact solution.
    feature_map_ : Nystroem or RBFSampler
        The approximate feature map. Defined only for an approximation.
    lda_ : StreamingLDA
        The LDA on the approximate features. Defined only for an approximation.
    explained_variance_ratio_ : ndarray of shape (rank,)
        The share of each direction in the variance between the classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; defined only if the column names of `X` are all strings.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from deeplda.classical import KernelLDA
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> KernelLDA(gamma=2.0).fit(X, y).score(X, y) > 0.98
    True
    """

    _dual: DualDiscriminant

    def __init__(
        self,
        *,
        kernel: Kernel = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        lam: float = 1e-3,
        priors: ArrayLike | None = None,
        n_components: int | None = None,
        approximation: Approximation | None = "auto",
        n_basis: int = 1000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.lam = lam
        self.priors = priors
        self.n_components = n_components
        self.approximation = approximation
        self.n_basis = n_basis
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from samples X, (n, n_features), with labels y, (n,). Samples seen before are forgotten."""
        self._check_parameters()
        inputs, targets = validate_data(self, X, y, dtype=np.float64)
        classes, ids = encode_labels(targets)
        self._forget()
        if self.approximation is None or (self.approximation == "auto" and len(inputs) <= _MOST_EXACT):
            n = len(inputs)
            do = 'use approximation="nystroem" or "fourier"'
            require_memory(8 * n * n, f"the kernel matrix of {n:,} samples", copies=3, do=do)
            kernel = torch.from_numpy(np.require(self._kernel(inputs, inputs), np.float64, ["C", "W"]))
            options: dict[str, Any] = {"priors": self.priors, "n_components": self.n_components}
            self._dual = DualDiscriminant.of(kernel, torch.from_numpy(ids), self.lam, **options)
            self.X_fit_, self._labels = inputs, classes
            return self
        self._start(inputs)
        self._learn(inputs, targets, None)
        # Solve now, because other methods must not change a fitted estimator.
        _ = self.lda_.coef_
        return self

    @available_if(_uses_fourier)  # type: ignore[untyped-decorator]  # scikit-learn is not typed
    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from more samples, in addition to those seen before; needs `approximation="fourier"`.

        `classes` is optional, as in `StreamingLDA.partial_fit`.
        """
        self._check_parameters()
        first = not self._is_approximate()
        inputs, targets = validate_data(self, X, y, dtype=np.float64, reset=first)
        if first:
            self._forget()
            # Random Fourier features depend on the number of features, but not on the samples.
            self._start(inputs)
        self._learn(inputs, targets, classes)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the discriminant coordinates, (n, rank), strongest first."""
        inputs = self._inputs(X)
        if not hasattr(self, "_dual"):
            return np.concatenate([self._approximate().transform(part) for part in self._mapped(inputs)])
        rows = max(1, _BLOCK_ELEMENTS // len(self.X_fit_))
        parts = (inputs[start : start + rows] for start in range(0, len(inputs), rows))
        alpha, offset = self._dual.alpha.numpy(), self._dual.offset.numpy()
        return np.concatenate([self._kernel(part, self.X_fit_) @ alpha - offset for part in parts])

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted, (n_classes,)."""
        return self._labels if hasattr(self, "_dual") else self._approximate().classes_

    @property
    def priors_(self) -> Floats:
        """The priors, (n_classes,)."""
        return np.asarray(self._dual.priors) if hasattr(self, "_dual") else self._approximate().priors_

    @property
    def explained_variance_ratio_(self) -> Floats:
        """The share of each direction in the variance between the classes, (rank,)."""
        if hasattr(self, "_dual"):
            return np.asarray(self._dual.explained)
        return self._approximate().explained_variance_ratio_

    @property
    def dual_coef_(self) -> Floats:
        """The directions as combinations of the training samples, (n_samples, rank)."""
        return np.asarray(self._dual.alpha)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether samples have been seen."""
        return hasattr(self, "_dual") or self._is_approximate()

    @property
    def _n_features_out(self) -> int:
        return len(self.explained_variance_ratio_)

    def _check_parameters(self) -> None:
        """Raise InputError or ValueError if a parameter is out of range."""
        names = sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - {"precomputed"})
        if not callable(self.kernel) and not (isinstance(self.kernel, str) and self.kernel in names):
            raise InputError(f"kernel is {self.kernel!r}, need a callable or one of {', '.join(names)}")
        if self.approximation is not None:
            check_choice("approximation", self.approximation, get_args(Approximation), or_else="None")
        if self.approximation == "fourier" and self.kernel != "rbf":
            what = f'approximation is "fourier" but kernel is {self.kernel!r}'
            raise InputError(what, need='kernel "rbf"', do='use approximation="nystroem"')
        for name in ("gamma", "degree", "coef0"):
            if (value := getattr(self, name)) is not None:
                check_number(name, value)
        check_integer("n_basis", self.n_basis)
        check_regularisation(1.0, self.lam, "pooled", None)

    def _kernel(self, rows: Floats, others: Floats) -> Floats:
        """Return the kernel of each pair of samples, (len(rows), len(others))."""
        values: Floats = pairwise_kernels(
            rows, others, metric=self.kernel, filter_params=not callable(self.kernel), **self._kernel_parameters()
        )
        return values

    def _kernel_parameters(self) -> dict[str, Any]:
        if callable(self.kernel):
            return dict(self.kernel_params or {})
        named = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        # Kernels have different defaults for gamma.
        return {name: value for name, value in named.items() if value is not None}

    def _start(self, inputs: Floats) -> None:
        """Create the feature map and an LDA on it that has seen nothing."""
        size = int(self.n_basis)
        if self.approximation == "fourier":
            gamma = 1 / inputs.shape[1] if self.gamma is None else self.gamma
            self.feature_map_ = RBFSampler(gamma=gamma, n_components=size, random_state=self.random_state)
        else:
            known = {"kernel_params": self.kernel_params} if callable(self.kernel) else self._kernel_parameters()
            self.feature_map_ = Nystroem(
                self.kernel, n_components=min(size, len(inputs)), random_state=self.random_state, **known
            )
        self.feature_map_.fit(inputs)
        self.lda_ = StreamingLDA(lam=self.lam, priors=self.priors, n_components=self.n_components)

    def _learn(self, inputs: Floats, y: NDArray[Any], classes: ArrayLike | None) -> None:
        """Add samples to the LDA on the feature map, block by block; if that fails, it has seen none of them."""
        lda, start = copy.copy(self.lda_), 0
        for part in self._mapped(inputs):
            lda.partial_fit(part, y[start : start + len(part)], classes)
            start += len(part)
        self.lda_ = lda

    def _mapped(self, inputs: Floats) -> Iterator[Floats]:
        """Yield the features of the samples block by block, (rows, n_basis) each."""
        rows = max(1, _BLOCK_ELEMENTS // self.feature_map_.n_components)
        for start in range(0, len(inputs), rows):
            yield self.feature_map_.transform(inputs[start : start + rows])

    def _forget(self) -> None:
        """Delete the results of earlier fits, exact or not."""
        for name in {"X_fit_", "_dual", "_labels", "feature_map_", "lda_"} & set(vars(self)):
            delattr(self, name)

    def _is_approximate(self) -> bool:
        """Return whether an approximation has seen samples; the first batch may have failed."""
        return hasattr(self, "lda_") and self.lda_.__sklearn_is_fitted__()

    def _approximate(self) -> StreamingLDA:
        if not self._is_approximate():
            raise NotFittedError("this KernelLDA is not fitted: call fit or partial_fit first")
        lda: StreamingLDA = self.lda_
        return lda

    def _inputs(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        inputs: Floats = validate_data(self, X, reset=False, dtype=np.float64)
        return inputs

    def _scores(self, X: ArrayLike) -> Floats:
        if hasattr(self, "_dual"):
            return np.asarray(self.transform(X) @ self._dual.weight.numpy().T + self._dual.bias.numpy())
        inputs = self._inputs(X)
        return np.concatenate([self._approximate()._scores(part) for part in self._mapped(inputs)])
