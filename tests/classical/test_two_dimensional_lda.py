"""TwoDimensionalLDA, compared with brute force on Kronecker products of the vectorised images."""

import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from oracle import scatters
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from deeplda.classical import StreamingLDA, TwoDimensionalLDA
from deeplda.classical.two_dimensional_lda import CentredImages
from deeplda.errors import InputError


@pytest.fixture(scope="module")
def images():
    """Random images of three classes, 5 x 4, with correlated rows and columns."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 5, 4)) + 0.8 * rng.normal(size=(3, 5, 4))[y]
    return rng.normal(size=(5, 5)) @ X @ rng.normal(size=(4, 4)), y


def brute_force(X, y, other, lam, *, left):
    """Solve one side from the scatter matrices of the vectorised images, contracted with a Kronecker product.

    With R orthonormal (w, q), vec(X R) = (I kron R') vec(X), row by row, so the scatter of X R has a block h x h for
    each pair of columns, and S_W is the mean of those on the diagonal.
    """
    if not left:
        X = X.transpose(0, 2, 1)
    n, h, _ = X.shape
    basis = np.linalg.qr(other)[0]
    q = basis.shape[1]
    product = np.kron(np.eye(h), basis.T)
    found = []
    for scatter in scatters(X.reshape(n, -1), y, "pooled", None):
        blocks = (product @ scatter @ product.T).reshape(h, q, h, q)
        found.append(sum(blocks[:, j, :, j] for j in range(q)) / q)
    s_w, s_b = found
    values, vectors = scipy.linalg.eigh(s_b, s_w + lam * np.eye(h))
    return values[::-1], vectors[:, ::-1]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_one_side_given_the_other_is_the_brute_force_solution(images, left, lam):
    X, y = images
    rng = np.random.default_rng(1)
    other = rng.normal(size=(4, 2)) if left else rng.normal(size=(5, 3))
    values, vectors = brute_force(X, y, other, lam, left=left)
    problem = CentredImages(torch.tensor(X), torch.tensor(y))
    found, criterion = problem.directions(torch.tensor(other), lam, 3, left=left)
    assert criterion == pytest.approx(values[:3].sum(), rel=1e-10)
    np.testing.assert_allclose(found.abs(), np.abs(vectors[:, :3]), rtol=1e-8, atol=1e-10)


def test_images_of_extreme_magnitude_have_the_same_directions(images):
    X, y = images
    for scale in (1e-9, 1e9):
        lda = TwoDimensionalLDA(lam=1e-3 * scale**2).fit(X * scale, y)
        plain = TwoDimensionalLDA(lam=1e-3).fit(X, y)
        assert lda.criterion_ == pytest.approx(plain.criterion_, rel=1e-6)
        np.testing.assert_allclose(lda.predict_proba(X * scale), plain.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("n_components", [None, (1, 1), (2, 2), (3, 2), (5, 4)])
def test_the_two_sides_solve_each_others_problems(images, n_components):
    """A solution is a fixed point: each side is optimal given the other."""
    X, y = images
    lda = TwoDimensionalLDA(n_components=n_components, lam=0.01, tol=1e-13, max_iter=2000).fit(X, y)
    assert lda.converged_
    for side, other, left in ((lda.left_, lda.right_, True), (lda.right_, lda.left_, False)):
        _, vectors = brute_force(X, y, other, 0.01, left=left)
        # The same space, whatever the basis.
        angles = scipy.linalg.subspace_angles(side, vectors[:, : side.shape[1]])
        assert angles.max() < 1e-4


def test_one_side_is_one_eigenproblem(images):
    X, y = images
    right = TwoDimensionalLDA(sides="right", n_components=(5, 2), lam=0.0).fit(X, y)
    values, vectors = brute_force(X, y, np.eye(5), 0.0, left=False)
    np.testing.assert_allclose(np.abs(right.right_), np.abs(vectors[:, :2]), rtol=1e-8)
    assert right.left_.tolist() == np.eye(5).tolist()
    assert right.transform(X).shape == (90, 5, 2)
    assert (right.n_iter_, right.converged_) == (1, True)
    assert right.criterion_ == pytest.approx([values[:2].sum()])
    transposed = TwoDimensionalLDA(sides="left", n_components=(2, 5), lam=0.0).fit(X.transpose(0, 2, 1), y)
    np.testing.assert_allclose(transposed.left_, right.right_, rtol=1e-10)
    np.testing.assert_allclose(transposed.predict_proba(X.transpose(0, 2, 1)), right.predict_proba(X), atol=1e-10)


def test_images_of_one_row_are_lda():
    X, y = load_digits(return_X_y=True)
    rows, plain = TwoDimensionalLDA(lam=0.0).fit(X, y), StreamingLDA().fit(X, y)
    np.testing.assert_allclose(rows.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    ours, theirs = rows.transform(X), plain.transform(X)
    # Up to the mean and one factor, because the single row is scaled too.
    ours, theirs = ((values - values.mean(0)) / values[:, 0].std() for values in (ours, theirs))
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-5, atol=1e-6)


def test_all_components_lose_nothing():
    """If L and R are invertible, LDA on L' X R is LDA on X."""
    digits = load_digits()
    lda = TwoDimensionalLDA(n_components=8).fit(digits.images, digits.target)
    plain = StreamingLDA().fit(digits.data, digits.target)
    np.testing.assert_allclose(lda.predict_proba(digits.images), plain.predict_proba(digits.data), atol=1e-6)


def test_the_rule_is_lda_on_the_projected_images(images):
    X, y = images
    lda = TwoDimensionalLDA(n_components=(2, 2), priors=[1, 2, 3]).fit(X, y)
    projected = np.einsum("hp,nhw,wq->npq", lda.left_, X, lda.right_)
    np.testing.assert_allclose(lda.transform(X), projected, rtol=1e-10, atol=1e-10)
    plain = StreamingLDA(priors=[1, 2, 3]).fit(projected.reshape(90, 4), y)
    np.testing.assert_allclose(lda.predict_proba(X), plain.predict_proba(projected.reshape(90, 4)), atol=1e-9)
    scores = np.einsum("npq,cpq->nc", projected, lda.coef_) + lda.intercept_
    np.testing.assert_allclose(lda.decision_function(X), scores, atol=1e-9)


def test_rows_with_a_shape_are_images():
    digits = load_digits()
    as_images = TwoDimensionalLDA(n_components=(3, 2)).fit(digits.images, digits.target)
    as_rows = TwoDimensionalLDA(n_components=(3, 2), image_shape=(8, -1)).fit(digits.data, digits.target)
    assert as_images.transform(digits.images).shape == (1797, 3, 2)
    assert as_rows.transform(digits.data).shape == (1797, 6)
    np.testing.assert_allclose(as_rows.transform(digits.data), as_images.transform(digits.images).reshape(1797, 6))
    assert (as_rows.predict(digits.data) == as_images.predict(digits.images)).all()
    assert len(as_rows.get_feature_names_out()) == 6


def test_it_warns_unless_it_converges(images):
    X, y = images
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        lda = TwoDimensionalLDA(n_components=(1, 1), max_iter=2, tol=0.0).fit(X, y)
    assert not lda.converged_
    assert lda.n_iter_ == len(lda.criterion_) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A single iteration is the algorithm of Ye et al., not a failure.
        assert not TwoDimensionalLDA(max_iter=1).fit(X, y).converged_


def test_float32_images_are_as_good():
    digits = load_digits()
    lda, single = (TwoDimensionalLDA().fit(digits.images.astype(kind), digits.target) for kind in ("f8", "f4"))
    np.testing.assert_allclose(single.predict_proba(digits.images), lda.predict_proba(digits.images), atol=1e-3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sides": "top"}, "sides is 'top'"),
        ({"n_components": (6, 2)}, r"n_components is \(6, 2\), need None or integers from 1 to .* \(5, 4\)"),
        ({"n_components": (2, 0)}, "n_components"),
        ({"n_components": (1.5, 2)}, "n_components"),
        ({"n_components": (2, 2, 2)}, "n_components"),
        ({"lam": -1.0}, "lam is -1.0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"tol": None}, "tol must be a number, got None"),
        ({"priors": [1.0, -1.0, 1.0]}, "need 3 positive finite numbers"),
    ],
)
def test_bad_parameters_are_named(images, parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TwoDimensionalLDA(**parameters).fit(*images)


def test_images_have_to_fit(images):
    X, y = images
    with pytest.raises(InputError, match="need images"):
        TwoDimensionalLDA().fit(X[:, :, :, None], y)
    with pytest.raises(InputError, match=r"a row has 20 elements, but image_shape is \(3, 7\)"):
        TwoDimensionalLDA(image_shape=(3, 7)).fit(X.reshape(90, -1), y)
    for wrong in (20, "20", (4.0, 5.0), (4, 5, 1)):
        with pytest.raises(InputError, match=r"image_shape is .*, need images"):
            TwoDimensionalLDA(image_shape=wrong).fit(X.reshape(90, -1), y)
    with pytest.raises(InputError, match=r"X has images of \(5, 3\), need \(5, 4\)"):
        TwoDimensionalLDA().fit(X, y).predict(X[:, :, :3])
