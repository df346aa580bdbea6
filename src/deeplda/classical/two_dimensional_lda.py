"""Two-dimensional LDA, which takes images as matrices: one projection for the rows and one for the columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deeplda.classical.class_labels import encode_labels
from deeplda.classical.discriminant_classifier import DiscriminantClassifier, Floats
from deeplda.classical.linear_discriminant import LinearDiscriminant, column_signs
from deeplda.core.moments import CentredBatch, class_moments, gram
from deeplda.core.options import check_choice, check_integer, check_number, check_regularisation
from deeplda.core.scatter import discriminant_vectors, regularised_root
from deeplda.errors import InputError

Sides = Literal["both", "left", "right"]

# Images are multiplied in blocks of this many numbers, in float64.
_BLOCK_ELEMENTS = 2**20


class CentredImages:
    """Images minus the mean of their class, and the class means, for the eigenproblems of the two sides.

    Args:
        images: (n, h, w), floating point.
        labels: (n,), class ids.
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        shape = images.shape[1:]
        batch = CentredBatch.of(images.flatten(1), labels)
        self.scale = batch.scale
        self.rows = batch.rows.view(-1, *shape)
        weights = batch.counts / batch.n
        means = batch.means - batch.means[0]
        self.between = (weights.sqrt()[:, None] * (means - weights @ means)).view(-1, *shape)
        self.largest = batch.means.abs().max().reshape(1, 1)

    def directions(self, other: Tensor, lam: float, count: int, *, left: bool) -> tuple[Tensor, float]:
        """Return the best projection of one side, as `count` columns, given that of the other side, and its criterion.

        On the left side, (h, p), it solves S_B e = v (S_W + lam I) e with S_W = 1/(n q) sum (X - M_c) R R' (X - M_c)'
        and S_B = 1/q sum (n_c/n) (M_c - M) R R' (M_c - M)', where R (w, q) is an orthonormal basis of the space that
        `other` spans. On the right side, images are transposed. The criterion is the sum of the `count` largest v.
        """
        # Only the space matters, so that lam has the unit of a pixel's variance whatever the scale of the directions.
        other = torch.linalg.qr(other)[0] / other.shape[1] ** 0.5
        between = _one_side(self.between, other, left)
        within = torch.zeros_like(gram(between))
        for part in _blocks(self.rows):
            within += gram(_one_side(part, other, left)) / len(self.rows)
        root = regularised_root(within, between, self.largest, 1.0, lam * self.scale**2)
        values, vectors = discriminant_vectors(gram(between), root, count)
        columns = vectors.flip(0).T
        return columns * column_signs(columns), float(values.sum())


def _blocks(images: Tensor) -> Iterator[Tensor]:
    """Yield the images block by block, in float64."""
    for block in torch.split(images, max(1, _BLOCK_ELEMENTS // images[0].numel())):
        yield block.double()


def _one_side(images: Tensor, other: Tensor, left: bool) -> Tensor:
    """Return the columns of X R for all images X (n, h, w), as rows (n q, h); those of X' L (n p, w) if not `left`."""
    product = images @ other if left else images.transpose(1, 2) @ other
    return product.transpose(1, 2).flatten(0, 1)


class TwoDimensionalLDA(DiscriminantClassifier):
    """Two-dimensional linear discriminant analysis, for images as matrices.

    An image X, (h, w), becomes the matrix L' X R, (p, q). The projections L and R separate the classes: each solves a
    generalised eigenproblem of the size of one side of the image, given the other projection. So the scatter matrices
    have h^2 and w^2 elements instead of (h w)^2, and are regular even if there are few images. LDA on the p q elements
    of L' X R classifies the images, as in "2DLDA+LDA" of Ye et al.

    Parameters
    ----------
    sides : {"both", "left", "right"}, default="both"
        "both" alternates between the two eigenproblems (Ye, Janardan and Li, 2004). "right" computes only R, with L = I
        (Li and Yuan, 2005; Xiong, Swamy and Ahmad, 2005), and "left" computes only L, with R = I, which is the same for
        transposed images.
    image_shape : (int, int), default=None
        Height and width, if images are passed as rows (n, h w) instead of (n, h, w). One of them may be -1, as in
        `numpy.reshape`. None takes a row as an image of height 1.
    n_components : int or (int, int), default=None
        The numbers p of rows and q of columns of L' X R, or one number for both. The default for each side is
        n_classes - 1, or its size if that is smaller. A side that is not projected keeps its size, whatever is given.
    lam : float, default=1e-3
        The ridge: S_W + lam I replaces S_W of each side.
    priors : array-like of shape (n_classes,), default=None
        Prior probabilities, in the order of `classes_`; None means the class frequencies.
    max_iter : int, default=50
        Largest number of iterations for both sides. Ye et al. recommend a single one.
    tol : float, default=1e-6
        Stop if the criterion changes by less than this fraction in one iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    left_ : ndarray of shape (h, p)
        The projection L; columns are the directions, strongest first.
    right_ : ndarray of shape (w, q)
        The projection R; columns are the directions, strongest first.
    criterion_ : list of float, of length n_iter_
        The sum of the eigenvalues of the last eigenproblem solved in each iteration.
    converged_ : bool
        Whether the criterion converged. One side alone needs no iterations.
    n_iter_ : int
        Number of iterations.
    priors_ : ndarray of shape (n_classes,)
        The priors, which sum to 1.
    coef_ : ndarray of shape (n_classes, p, q)
        Weights of the linear rule on L' X R.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts of the linear rule.
    n_features_in_ : int
        Number of elements of a row, or of rows of an image.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; defined only if the column names of `X` are all strings.

    Notes
    -----
    No common function is known that both eigenproblems increase, so the alternation need not converge. It nearly always
    does; otherwise there is a ConvergenceWarning, and the last iteration is used.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from deeplda.classical import TwoDimensionalLDA
    >>> digits = load_digits()
    >>> lda = TwoDimensionalLDA(n_components=(5, 4)).fit(digits.images, digits.target)
    >>> lda.transform(digits.images).shape
    (1797, 5, 4)
    """

    def __init__(
        self,
        *,
        sides: Sides = "both",
        image_shape: tuple[int, int] | None = None,
        n_components: int | tuple[int, int] | None = None,
        lam: float = 1e-3,
        priors: ArrayLike | None = None,
        max_iter: int = 50,
        tol: float = 1e-6,
    ) -> None:
        self.sides = sides
        self.image_shape = image_shape
        self.n_components = n_components
        self.lam = lam
        self.priors = priors
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from images X, (n, h, w), or rows (n, h w), with labels y, (n,)."""
        self._check_parameters()
        inputs, targets = validate_data(self, X, y, dtype=[np.float64, np.float32], allow_nd=True)
        classes, ids = encode_labels(targets)
        images, labels = self._as_images(inputs), torch.from_numpy(ids)
        p, q = self._sizes(images.shape[1:], len(classes))
        self._alternate(CentredImages(images, labels), p, q)
        moments = class_moments(self._project(images).flatten(1), labels)
        rule = LinearDiscriminant.of(moments, priors=self.priors)
        shape = len(classes), self.left_.shape[1], self.right_.shape[1]
        self.coef_, self.intercept_ = rule.coef.view(shape).numpy(), rule.intercept.numpy()
        self.priors_, self.classes_ = rule.priors.numpy(), classes
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return L' X R for each image, (n, p, q), or as rows (n, p q) if X has rows."""
        inputs = self._checked(X)
        projected = self._project(self._as_images(inputs))
        return np.asarray(projected if inputs.ndim == 3 else projected.flatten(1))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has completed; `classes_` is set last."""
        return hasattr(self, "classes_")

    @property
    def _n_features_out(self) -> int:
        return int(self.left_.shape[1] * self.right_.shape[1])

    def _check_parameters(self) -> None:
        """Raise InputError or ValueError if a parameter is out of range."""
        check_choice("sides", self.sides, get_args(Sides))
        check_regularisation(1.0, self.lam, "pooled", None)
        check_integer("max_iter", self.max_iter)
        check_number("tol", self.tol)
        if not self.tol >= 0:
            raise InputError(f"tol is {self.tol!r}, need a number >= 0")

    def _as_images(self, inputs: NDArray[Any]) -> Tensor:
        """Return rows as images of `image_shape`, and images as they are, (n, h, w)."""
        tensor = torch.from_numpy(np.require(inputs, None, ["C", "W"]))
        if inputs.ndim == 3:
            return tensor
        shape = np.asarray((1, -1) if self.image_shape is None else self.image_shape)
        if inputs.ndim != 2 or shape.shape != (2,) or shape.dtype.kind not in "iu":
            what = f"X has shape {inputs.shape} and image_shape is {self.image_shape}"
            raise InputError(what, need="images (n, h, w), or rows and image_shape=(h, w)", do="reshape the images")
        try:
            return tensor.reshape(len(tensor), *shape.tolist())
        except RuntimeError:
            what = f"a row has {inputs.shape[1]} elements, but image_shape is {self.image_shape}"
            raise InputError(f"{what}, need a height and width with this product") from None

    def _sizes(self, shape: torch.Size, classes: int) -> tuple[int, int]:
        """Return p and q for images of `shape`."""
        if self.n_components is None:
            return min(shape[0], classes - 1), min(shape[1], classes - 1)
        sizes = np.asarray(self.n_components)
        if sizes.ndim == 0:
            sizes = sizes.repeat(2)
        if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 1).any() or (sizes > shape).any():
            what = f"n_components is {self.n_components!r}"
            raise InputError(f"{what}, need None or integers from 1 to the height and width {tuple(shape)}")
        return int(sizes[0]), int(sizes[1])

    def _alternate(self, images: CentredImages, p: int, q: int) -> None:
        """Set the projections and how they were reached."""
        h, w = images.rows.shape[1:]
        left, right = torch.eye(h, dtype=torch.float64), torch.eye(w, dtype=torch.float64)
        criterion: list[float] = []
        converged = False
        while not converged and len(criterion) < self.max_iter:
            if self.sides != "right":
                left, value = images.directions(right, self.lam, p, left=True)
            if self.sides != "left":
                right, value = images.directions(left, self.lam, q, left=False)
            criterion.append(value)
            # One side does not depend on an iteration.
            converged = self.sides != "both" or (
                len(criterion) > 1 and math.isclose(value, criterion[-2], rel_tol=self.tol)
            )
        if not converged and self.max_iter > 1:
            what = f"2D-LDA did not converge in {self.max_iter} iterations"
            warnings.warn(f"{what}: increase max_iter or tol, or use max_iter=1", ConvergenceWarning, stacklevel=3)
        self.left_, self.right_ = left.numpy(), right.numpy()
        self.criterion_, self.converged_, self.n_iter_ = criterion, converged, len(criterion)

    def _project(self, images: Tensor) -> Tensor:
        left, right = torch.from_numpy(self.left_), torch.from_numpy(self.right_)
        return torch.cat([left.T @ block @ right for block in _blocks(images)])

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], allow_nd=True)
        found, needed = tuple(self._as_images(inputs).shape[1:]), (len(self.left_), len(self.right_))
        if found != needed:
            raise InputError(f"X has images of {found}, need {needed}: pass images of the size used in fit")
        return np.asarray(inputs)

    def _scores(self, X: ArrayLike) -> Floats:
        projected = self._project(self._as_images(self._checked(X))).flatten(1).numpy()
        return np.asarray(projected @ self.coef_.reshape(len(self.coef_), -1).T + self.intercept_)
