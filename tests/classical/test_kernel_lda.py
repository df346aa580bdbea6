"""KernelLDA, compared with LDA on explicit features of the same kernel."""

import numpy as np
import pytest
import scipy.linalg
from batches import gaussian_batch
from oracle import scatters
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import pairwise_kernels

from deeplda.classical import KernelLDA, StreamingLDA
from deeplda.errors import InputError
from deeplda.memory import TooLargeError


def polynomial_features(X):
    """Return the explicit features of (x . z + 1)^2: constant, linear, squares and products."""
    n, d = X.shape
    pairs = [np.sqrt(2) * X[:, a] * X[:, b] for a in range(d) for b in range(a)]
    return np.column_stack([np.ones(n), np.sqrt(2) * X, X**2, *pairs])


def primal(X, y, lam, priors=None):
    """Solve LDA with a ridge on explicit polynomial features; return its coordinates, eigenvalues and scores."""
    features = polynomial_features(X)
    s_w, s_b = scatters(features, y, "pooled", None)
    regularised = s_w + lam * np.eye(len(s_w))
    values, vectors = scipy.linalg.eigh(s_b, regularised)
    classes = np.unique(y)
    priors = np.array([(y == c).mean() for c in classes]) if priors is None else np.asarray(priors)
    means = np.array([features[y == c].mean(0) for c in classes])
    precision = np.linalg.inv(regularised)
    distances = [np.einsum("ij,jk,ik->i", features - m, precision, features - m) for m in means]
    top = slice(None, -len(classes), -1)
    coordinates = (features - features.mean(0)) @ vectors[:, top]
    return coordinates, values[top], np.log(priors) - np.array(distances).T / 2


@pytest.mark.parametrize("lam", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("priors", [None, [0.1, 0.2, 0.3, 0.4]])
def test_the_dual_solution_is_the_primal_one(lam, priors):
    X, y = gaussian_batch(120, 3, 4)
    lda = KernelLDA(kernel="poly", degree=2, gamma=1.0, coef0=1.0, lam=lam, priors=priors).fit(X, y)
    coordinates, values, scores = primal(X, y, lam, priors)
    np.testing.assert_allclose(np.abs(lda.transform(X)), np.abs(coordinates), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(lda.explained_variance_ratio_, values / values.sum(), rtol=1e-8)
    proba = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(lda.predict_proba(X), proba / proba.sum(1, keepdims=True), atol=1e-8)


def test_new_samples_have_the_primal_scores():
    X, y = gaussian_batch(120, 3, 4)
    lda = KernelLDA(kernel="poly", degree=2, gamma=1.0, lam=0.01).fit(X[:80], y[:80])
    rest = StreamingLDA(lam=0.01).fit(polynomial_features(X[:80]), y[:80])
    np.testing.assert_allclose(lda.predict_proba(X[80:]), rest.predict_proba(polynomial_features(X[80:])), atol=1e-8)


@pytest.mark.parametrize("lam", [0.0, 1e-6, 1e-2])
def test_the_linear_kernel_is_plain_lda(lam):
    X, y = gaussian_batch(100, 5, 3)
    kernel = KernelLDA(kernel="linear", lam=lam).fit(X, y)
    plain = StreamingLDA(lam=lam).fit(X, y)
    np.testing.assert_allclose(np.abs(kernel.transform(X)), np.abs(plain.transform(X)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kernel.predict_proba(X), plain.predict_proba(X), atol=1e-6)


def test_coordinates_have_unit_regularised_variance():
    """w'(S_W + lam I) w = 1, with |w|^2 = alpha' K alpha."""
    X, y = gaussian_batch(100, 3, 4)
    lda = KernelLDA(gamma=0.3, lam=1e-2).fit(X, y)
    within, _ = scatters(lda.transform(X), y, "pooled", None)
    norms = lda.dual_coef_.T @ pairwise_kernels(X, metric="rbf", gamma=0.3) @ lda.dual_coef_
    np.testing.assert_allclose(within + 1e-2 * norms, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(lda.transform(X).mean(0), 0, atol=1e-8)


def test_what_no_line_separates():
    for X, y in (make_moons(200, noise=0.1, random_state=0), make_circles(200, factor=0.5, random_state=0)):
        assert StreamingLDA().fit(X, y).score(X, y) < 0.9
        assert KernelLDA(gamma=2.0).fit(X, y).score(X, y) > 0.98


def test_a_callable_is_a_kernel():
    X, y = gaussian_batch(60, 3, 3)
    own = KernelLDA(kernel=lambda a, b, power=1: (a @ b + 1) ** power, kernel_params={"power": 2}).fit(X, y)
    named = KernelLDA(kernel="poly", degree=2, gamma=1.0).fit(X, y)
    np.testing.assert_allclose(own.transform(X), named.transform(X), rtol=1e-8, atol=1e-8)
    own.set_params(approximation="nystroem", n_basis=60, random_state=0).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X), named.predict_proba(X), atol=1e-6)


def test_nystroem_with_all_samples_is_exact():
    X, y = gaussian_batch(80, 3, 4)
    exact = KernelLDA(gamma=0.5, lam=1e-2, approximation=None).fit(X, y)
    all_ = KernelLDA(gamma=0.5, lam=1e-2, approximation="nystroem", n_basis=80, random_state=0).fit(X, y)
    np.testing.assert_allclose(all_.predict_proba(X), exact.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(np.abs(all_.transform(X)), np.abs(exact.transform(X)), rtol=1e-4, atol=1e-5)


def test_random_features_approach_the_kernel():
    X, y = gaussian_batch(80, 2, 3)
    exact = KernelLDA(gamma=0.2, lam=1e-2).fit(X, y).predict_proba(X)
    distances = []
    for size in (20, 2000):
        lda = KernelLDA(gamma=0.2, lam=1e-2, approximation="fourier", n_basis=size, random_state=0).fit(X, y)
        distances.append(np.abs(lda.predict_proba(X) - exact).max())
    assert distances[1] < 0.1 < distances[0]


def test_batches_of_random_features_are_the_whole():
    X, y = gaussian_batch(90, 3, 4)
    names = np.array(["d", "b", "a", "c"])[y]
    options = {"approximation": "fourier", "n_basis": 50, "random_state": 0}
    whole, parts = KernelLDA(**options).fit(X, names), KernelLDA(**options)
    for part in np.array_split(np.random.default_rng(0).permutation(90), 7):
        parts.partial_fit(X[part], names[part])
    assert parts.classes_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), rtol=1e-6, atol=1e-8)


def test_fit_forgets():
    X, y = gaussian_batch(60, 3, 3)
    lda = KernelLDA(approximation="fourier", n_basis=30, random_state=0).fit(X, y)
    lda.set_params(approximation=None).fit(X, y)
    fresh = KernelLDA(approximation=None).fit(X, y)
    assert not hasattr(lda, "lda_")
    assert lda.predict_proba(X).tolist() == fresh.predict_proba(X).tolist()


def test_batches_do_not_continue_an_exact_solution():
    X, y = gaussian_batch(60, 3, 3)
    lda = KernelLDA(approximation=None, n_basis=30, random_state=0).fit(X[:, :2], y)
    lda.set_params(approximation="fourier").partial_fit(X, y)
    fresh = KernelLDA(approximation="fourier", n_basis=30, random_state=0).partial_fit(X, y)
    assert lda.predict_proba(X).tolist() == fresh.predict_proba(X).tolist()


def test_a_failing_first_batch_leaves_nothing():
    X, y = gaussian_batch(60, 3, 3)
    lda = KernelLDA(approximation="fourier", n_basis=30, random_state=0)
    with pytest.raises(InputError, match="not in classes"):
        lda.partial_fit(X[:, :2], y, classes=[0, 1])
    with pytest.raises(NotFittedError):
        lda.predict(X[:, :2])
    assert lda.partial_fit(X, y).score(X, y) > 0.5


def test_many_samples_are_approximated(monkeypatch):
    monkeypatch.setattr("deeplda.classical.kernel_lda._MOST_EXACT", 50)
    X, y = gaussian_batch(60, 3, 3)
    assert hasattr(KernelLDA(n_basis=20).fit(X, y), "lda_")
    assert hasattr(KernelLDA(n_basis=20).fit(X[:50], y[:50]), "X_fit_")


def test_blocks_do_not_change_the_answer(monkeypatch):
    X, y = load_digits(return_X_y=True)
    lda = KernelLDA(gamma=1e-3).fit(X[:300], y[:300])
    nystroem = KernelLDA(gamma=1e-3, approximation="nystroem", n_basis=50, random_state=0).fit(X[:300], y[:300])
    before = [model.predict_proba(X[:200]) for model in (lda, nystroem)]
    monkeypatch.setattr("deeplda.classical.kernel_lda._BLOCK_ELEMENTS", 1000)
    nystroem.fit(X[:300], y[:300])
    for model, expected in zip((lda, nystroem), before, strict=True):
        np.testing.assert_allclose(model.predict_proba(X[:200]), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gauss"}, "kernel is 'gauss', need a callable or one of .*rbf"),
        ({"kernel": "precomputed"}, "kernel is 'precomputed'"),
        ({"approximation": "exact"}, "approximation is 'exact'"),
        ({"approximation": "fourier", "kernel": "poly"}, 'need kernel "rbf"'),
        ({"n_basis": 0}, "n_basis must be an integer of at least 1, got 0"),
        ({"lam": float("nan")}, "lam is nan"),
        ({"lam": "1"}, "lam must be a number, got '1'"),
        ({"gamma": "1"}, "gamma must be a number, got '1'"),
        ({"kernel": "poly", "degree": [3]}, r"degree must be a number, got \[3\]"),
        ({"kernel": np.array(["rbf", "poly"])}, "kernel is array"),
        ({"n_components": 3}, "n_components is 3"),
        ({"priors": [1, 1]}, "need 3 positive finite numbers"),
        ({"kernel": lambda a, b: -np.abs(a @ b)}, "not positive definite"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y = gaussian_batch(40, 3, 3)
    with pytest.raises((ValueError, TypeError), match=message):
        KernelLDA(**parameters).fit(X, y)


def test_a_kernel_matrix_that_does_not_fit_in_memory_is_refused(monkeypatch):
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 1000)
    X, y = gaussian_batch(40, 3, 3)
    with pytest.raises(TooLargeError, match=r"kernel matrix of 40 samples .*nystroem"):
        KernelLDA(approximation=None).fit(X, y)


def test_one_class_is_an_error():
    with pytest.raises(InputError, match="greater than one"):
        KernelLDA().fit(np.eye(3), [1, 1, 1])
