"""StreamingLDA, compared with scikit-learn's LDA and covariances, and with itself in other batches."""

import copy

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from batches import gaussian_batch
from oracle import scatters
from sklearn.covariance import ledoit_wolf, oas
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError

from deeplda.classical import StreamingLDA
from deeplda.classical.linear_discriminant import LinearDiscriminant
from deeplda.errors import InputError
from deeplda.memory import TooLargeError
from deeplda.predictors import ClassicLDA
from svd_lda import svd_lda

TABLES = [load_iris, load_wine, load_digits]
ESTIMATES = {"oas": oas, "ledoit-wolf": ledoit_wolf}
RESULTS = ("means_", "priors_", "xbar_", "covariance_", "coef_", "intercept_", "scalings_", "explained_variance_ratio_")


def assert_same(one, other, *, rtol=1e-9, atol=1e-9):
    assert one.classes_.tolist() == other.classes_.tolist()
    for name in RESULTS:
        ours, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol * np.abs(theirs).max(), err_msg=name)


def centred(X, y):
    return X - np.array([X[y == label].mean(0) for label in np.unique(y)])[np.searchsorted(np.unique(y), y)]


@pytest.mark.parametrize("load", TABLES)
@pytest.mark.parametrize("with_priors", [False, True])
def test_it_is_scikit_learns_lda(load, with_priors):
    X, y = load(return_X_y=True)
    priors = np.arange(1, y.max() + 2) / np.arange(1, y.max() + 2).sum() if with_priors else None
    ours = StreamingLDA(priors=priors).fit(X, y)
    theirs = svd_lda(X, y, store_covariance=True, priors=priors)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), rtol=1e-8, atol=1e-8)
    names = ("means_", "priors_", "xbar_", "coef_", "intercept_", "explained_variance_ratio_")
    for name in names if with_priors else (*names, "covariance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("solver", ["eigen", "lsqr"])
@pytest.mark.parametrize("shrinkage", [None, 0.0, 0.1, 0.7])
def test_it_agrees_with_the_other_solvers(load, solver, shrinkage):
    X, y = load(return_X_y=True)
    ours = StreamingLDA(shrinkage=shrinkage).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage).fit(X, y)
    np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.covariance_, theirs.covariance_, rtol=1e-10, atol=1e-10)


def test_two_classes_have_one_row_of_weights():
    X, y = load_wine(return_X_y=True)
    X, y = X[y < 2], y[y < 2]
    ours, theirs = StreamingLDA().fit(X, y), svd_lda(X, y)
    assert ours.coef_.shape == (1, 13)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8)
    np.testing.assert_allclose(X @ ours.coef_[0] + ours.intercept_, ours.decision_function(X), rtol=1e-9)


@pytest.mark.parametrize(("shrinkage", "lam"), [(None, 0.0), (0.4, 0.0), (0.2, 3.0)])
def test_directions_solve_the_generalised_eigenproblem(shrinkage, lam):
    h, y = gaussian_batch(80, 6, 4)
    lda = StreamingLDA(shrinkage=shrinkage, lam=lam).fit(h, y)
    s_w, s_b = scatters(h, y, "pooled", None)
    share = shrinkage or 0.0
    regularised = (1 - share) * s_w + (share * np.trace(s_w) / 6 + lam) * np.eye(6)
    np.testing.assert_allclose(lda.covariance_, regularised, rtol=1e-12, atol=1e-12)
    values, vectors = scipy.linalg.eigh(s_b, regularised)
    np.testing.assert_allclose(np.abs(lda.scalings_), np.abs(vectors[:, :-4:-1]), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(lda.explained_variance_ratio_, values[:-4:-1] / values.sum(), rtol=1e-9)
    precision = np.linalg.inv(regularised)
    mahalanobis = [np.einsum("ij,jk,ik->i", h - m, precision, h - m) for m in lda.means_]
    scores = np.log(lda.priors_) - np.array(mahalanobis).T / 2
    differences = lda.decision_function(h) - scores
    np.testing.assert_allclose(differences, np.broadcast_to(differences[:, :1], differences.shape), atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATES)
@pytest.mark.parametrize("load", TABLES)
def test_shrinkage_is_scikit_learns_for_centred_samples(load, name):
    X, y = load(return_X_y=True)
    lda = StreamingLDA(shrinkage=name).fit(X, y)
    covariance, shrinkage = ESTIMATES[name](centred(X, y), assume_centered=True)
    assert lda.shrinkage_ == pytest.approx(shrinkage, rel=1e-10)
    np.testing.assert_allclose(lda.covariance_, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATES)
def test_shrinkage_does_not_feel_the_unit_of_the_features(name):
    """Squares of covariances once overflowed."""
    X, y = gaussian_batch(40, 5, 3)
    limit = 1e140 if name == "oas" else 1e70
    for scale in (1 / limit, limit):
        found = StreamingLDA(shrinkage=name).fit(X * scale, y)
        assert found.shrinkage_ == pytest.approx(StreamingLDA(shrinkage=name).fit(X, y).shrinkage_, rel=1e-9)


@pytest.mark.parametrize("name", ESTIMATES)
def test_shrinkage_of_one_feature_is_zero(name):
    X, y = load_iris(return_X_y=True)
    assert StreamingLDA(shrinkage=name).fit(X[:, :1], y).shrinkage_ == 0


@pytest.mark.parametrize("shrinkage", [None, 0.1, "oas", "ledoit-wolf"])
def test_any_batches_in_any_order_give_the_same_answer(shrinkage):
    """Fifty random orders for each kind of shrinkage, two hundred in all."""
    X, y = load_wine(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(y))
    whole = StreamingLDA(shrinkage=shrinkage).fit(X, y, weights)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        cuts = np.sort(rng.choice(np.arange(1, len(y)), rng.integers(1, 12), replace=False))
        lda = StreamingLDA(shrinkage=shrinkage)
        for part in np.split(rng.permutation(len(y)), cuts):
            lda.partial_fit(X[part], y[part], sample_weight=weights[part])
        assert lda.shrinkage_ == pytest.approx(whole.shrinkage_, rel=1e-9)
        assert_same(lda, whole, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shrinkage", [None, "oas", "ledoit-wolf"])
def test_a_weight_is_a_number_of_repetitions(shrinkage):
    X, y = load_wine(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = StreamingLDA(shrinkage=shrinkage).fit(X, y, sample_weight=weights)
    repeated = StreamingLDA(shrinkage=shrinkage).fit(X.repeat(weights, axis=0), y.repeat(weights))
    assert weighted.shrinkage_ == pytest.approx(repeated.shrinkage_, rel=1e-10)
    assert weighted.class_count_.tolist() == np.bincount(y, weights).tolist()
    assert_same(weighted, repeated)
    theirs = svd_lda(X.repeat(weights, axis=0), y.repeat(weights))
    if shrinkage is None:
        np.testing.assert_allclose(weighted.predict_proba(X), theirs.predict_proba(X), atol=1e-9)


def test_a_class_without_weight_is_absent():
    X, y = load_iris(return_X_y=True)
    lda = StreamingLDA().fit(X, y, sample_weight=(y < 2).astype(float))
    assert lda.classes_.tolist() == [0, 1]
    assert_same(lda, StreamingLDA().fit(X[y < 2], y[y < 2]))


def test_weights_have_to_be_usable():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        StreamingLDA().fit(X, y, sample_weight=-np.ones(150))
    with pytest.raises(ValueError, match="Sample weights must contain at least one non-zero number"):
        StreamingLDA().partial_fit(X, y, sample_weight=np.zeros(150))


@pytest.mark.parametrize("shrinkage", [None, "ledoit-wolf"])
def test_merged_parts_are_the_whole(shrinkage):
    X, y = load_wine(return_X_y=True)
    names = np.array(["red", "amber", "white"])[y]
    first, second = StreamingLDA(shrinkage=shrinkage), StreamingLDA(shrinkage=shrinkage)
    # The parts have different classes, in different orders of appearance.
    first.partial_fit(X[:90], names[:90])
    second.partial_fit(X[90:][::-1], names[90:][::-1])
    before = copy.deepcopy(second)
    assert_same(first.merge(second), StreamingLDA(shrinkage=shrinkage).fit(X, names))
    assert before.means_.tolist() == second.means_.tolist()


def test_merging_other_features_is_an_error():
    X, y = load_wine(return_X_y=True)
    frame, _ = load_wine(return_X_y=True, as_frame=True)
    lda = StreamingLDA().fit(X, y)
    with pytest.raises(InputError, match="the other has 5 features"):
        lda.merge(StreamingLDA().fit(X[:, :5], y))
    with pytest.raises(InputError, match="same 13 features"):
        lda.merge(StreamingLDA().fit(frame, y))
    with pytest.raises(NotFittedError):
        lda.merge(StreamingLDA())


def test_ledoit_wolf_needs_its_sums_in_all_parts():
    X, y = load_wine(return_X_y=True)
    lda = StreamingLDA().partial_fit(X, y).set_params(shrinkage="ledoit-wolf").partial_fit(X, y)
    with pytest.raises(InputError, match="sums that were not kept"):
        lda.predict(X)
    merged = StreamingLDA(shrinkage="ledoit-wolf").fit(X, y).merge(StreamingLDA().fit(X, y))
    with pytest.raises(InputError, match="sums that were not kept"):
        merged.predict(X)


def test_sparse_rows_are_rows():
    X, y = load_digits(return_X_y=True)
    dense, sparse = StreamingLDA().fit(X, y), StreamingLDA().fit(scipy.sparse.csr_array(X), y)
    assert_same(sparse, dense, rtol=0, atol=0)
    np.testing.assert_allclose(sparse.transform(scipy.sparse.csr_array(X)), dense.transform(X), atol=1e-10)
    np.testing.assert_allclose(sparse.predict_proba(scipy.sparse.csc_array(X)), dense.predict_proba(X), atol=1e-12)


def test_sparse_rows_are_made_dense_block_by_block(monkeypatch):
    blocks = []
    dense = scipy.sparse.csr_array.toarray
    monkeypatch.setattr(
        scipy.sparse.csr_array, "toarray", lambda self, *a, **k: (blocks.append(self.shape), dense(self, *a, **k))[1]
    )
    rows = scipy.sparse.random_array((5000, 1000), density=0.01, random_state=np.random.default_rng(0), format="csr")
    StreamingLDA(shrinkage=0.1).partial_fit(rows, np.arange(5000) % 3)
    assert sum(n for n, _ in blocks) == 5000
    assert max(n for n, _ in blocks) * 1000 <= 2**20


def test_announced_classes_without_samples_have_probability_zero():
    X, y = load_wine(return_X_y=True)
    some = y != 1
    lda = StreamingLDA().partial_fit(X[some], y[some], classes=[0, 1, 2])
    assert lda.classes_.tolist() == [0, 1, 2]
    assert not lda.predict_proba(X)[:, 1].any()
    assert np.isnan(lda.means_[1]).all()
    assert lda.priors_[1] == 0
    two = StreamingLDA().fit(X[some], y[some])
    np.testing.assert_allclose(lda.predict_proba(X)[:, ::2], two.predict_proba(X), atol=1e-12)
    assert_same(lda.partial_fit(X[~some], y[~some]), StreamingLDA().fit(X, y))
    with pytest.raises(InputError, match="not in classes"):
        lda.partial_fit(X, y + 1)
    with pytest.raises(InputError, match="need the classes of the first call"):
        lda.partial_fit(X, y, classes=[0, 1])


def test_priors_of_announced_classes_are_those_of_the_classes_seen():
    X, y = load_wine(return_X_y=True)
    some = y != 1
    lda = StreamingLDA(priors=[0.2, 0.5, 0.3]).partial_fit(X[some], y[some], classes=[0, 1, 2])
    np.testing.assert_allclose(lda.priors_, [0.4, 0, 0.6])


def test_one_class_is_enough_to_begin_but_not_to_predict():
    X, y = load_iris(return_X_y=True)
    lda = StreamingLDA().partial_fit(X[:50], y[:50])
    with pytest.raises(InputError, match="only one class"):
        lda.predict(X)
    assert_same(lda.partial_fit(X[50:], y[50:]), StreamingLDA().fit(X, y))


def test_a_failing_batch_changes_nothing():
    X, y = load_iris(return_X_y=True)
    lda = StreamingLDA().partial_fit(X[:100], y[:100])
    before = copy.deepcopy(lda)
    broken = X.copy()
    broken[3, 1] = np.nan
    for inputs, labels in ((broken, y), (X[:, :2], y), (X, y.astype(str))):
        with pytest.raises(ValueError, match=r"NaN|features|one type"):
            lda.partial_fit(inputs, labels)
    assert_same(lda, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shrinkage": 1.5}, "shrinkage is 1.5, need None, a number from 0 to 1"),
        ({"shrinkage": "auto"}, "'oas' or 'ledoit-wolf'"),
        ({"lam": -1.0}, "lam is -1.0"),
        ({"n_components": 3}, "n_components is 3, need None or 1 to min"),
        ({"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
        ({"priors": [0.5, 0.5]}, "need 3 positive finite numbers"),
        ({"priors": "equal"}, "priors is 'equal', need None or 3 positive numbers"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        StreamingLDA(**parameters).fit(X, y)


def test_fewer_components_are_the_first_ones():
    X, y = load_wine(return_X_y=True)
    one, two = StreamingLDA(n_components=1).fit(X, y), StreamingLDA().fit(X, y)
    np.testing.assert_allclose(one.transform(X), two.transform(X)[:, :1])
    assert one.explained_variance_ratio_ == pytest.approx(two.explained_variance_ratio_[:1])
    np.testing.assert_allclose(one.coef_, two.coef_)


def test_more_features_than_samples():
    h, y = gaussian_batch(30, 100, 3)
    h[:, 7] = 5.0
    ours, theirs = StreamingLDA().fit(h, y), svd_lda(h, y)
    np.testing.assert_allclose(ours.decision_function(h), theirs.decision_function(h), rtol=1e-6, atol=1e-6)
    assert ours.scalings_.shape == (100, 2)


def test_samples_that_equal_their_class_means_are_an_error():
    with pytest.raises(InputError, match="all samples equal the mean of their class"):
        StreamingLDA().fit(np.eye(3), [0, 1, 2])


def test_thousands_of_classes():
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 2000
    X = rng.normal(size=(2000, 8))[y] * 3 + rng.normal(size=(6000, 8)) * 0.1
    ours, theirs = StreamingLDA().fit(X, y), svd_lda(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_it_is_as_accurate_as_the_eigen_solver(condition):
    """Nearly collinear features, whose small difference separates the classes: median errors of eleven tables."""
    solvers = StreamingLDA(), LinearDiscriminantAnalysis(solver="eigen")
    errors = []
    for seed in range(11):
        rng = np.random.default_rng(seed)
        y = np.arange(200) % 2
        X = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
        X[:, 3] = X[:, :3].sum(1) + (rng.normal(size=200) + 6 * y) / condition
        exact = svd_lda(X, y, tol=1e-12).decision_function(X)
        found = [lda.fit(X, y).decision_function(X) for lda in solvers]
        errors.append([np.abs(scores - exact).max() / np.abs(exact).max() for scores in found])
        assert ((found[0] > 0) == y).mean() > 0.98
    ours, theirs = np.median(errors, axis=0)
    assert ours < 4 * theirs


def test_features_of_any_scale_and_offset():
    X, y = load_wine(return_X_y=True)
    scale = 10.0 ** np.arange(-60, 70, 10)
    plain, moved = StreamingLDA().fit(X, y), StreamingLDA().fit(X * scale, y)
    np.testing.assert_allclose(moved.predict_proba(X * scale), plain.predict_proba(X), atol=1e-8)
    far = StreamingLDA().fit(X + 1e6, y)
    np.testing.assert_allclose(far.predict_proba(X + 1e6), plain.predict_proba(X), atol=1e-4)


def test_moments_that_do_not_fit_in_memory_are_refused():
    wide = scipy.sparse.csr_array((4, 3_000_000))
    with pytest.raises(TooLargeError, match="moments of 3,000,000 features"):
        StreamingLDA().fit(wide, [0, 1, 0, 1])


def test_the_rule_is_that_of_the_predictor():
    """`ClassicLDA`, which networks are evaluated with, is the same classifier."""
    h, y = gaussian_batch(80, 6, 4)
    proba = ClassicLDA().fit(h, y).predict_proba(h)
    np.testing.assert_allclose(StreamingLDA().fit(h, y).predict_proba(h), proba, atol=1e-12)


def test_batches_are_solved_only_when_needed(monkeypatch):
    X, y = load_iris(return_X_y=True)
    solved = []
    solve = LinearDiscriminant.of
    monkeypatch.setattr(LinearDiscriminant, "of", lambda *given, **named: solved.append(1) or solve(*given, **named))
    lda = StreamingLDA()
    for start in range(0, 150, 10):
        lda.partial_fit(X[start : start + 10], y[start : start + 10])
    assert not solved
    for _ in range(3):
        lda.predict(X)
    assert len(solved) == 1
