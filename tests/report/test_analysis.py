"""The analysis against literal loops, scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import gaussian_kde
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from deeplda.report import analysis


def blobs(n=120, d=5, classes=4, seed=0):
    """Classes of unequal size around random means."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.choice(classes, n - classes, p=np.arange(1, classes + 1) / 10)])
    return rng.normal(size=(n, d)) + rng.normal(0, 2, (classes, d))[labels], labels


def test_fisher_ratio_is_the_ratio_of_the_scatters():
    x, y = blobs()
    for j, found in enumerate(analysis.fisher_ratios(x, y)):
        between = sum((y == c).sum() * (x[y == c, j].mean() - x[:, j].mean()) ** 2 for c in range(4))
        within = sum(((x[y == c, j] - x[y == c, j].mean()) ** 2).sum() for c in range(4))
        assert found == pytest.approx(between / within)


def test_accuracy_of_a_dimension_is_that_of_scikit_learns_lda():
    x, y = blobs()
    new, new_y = blobs(300, seed=1)
    found = analysis.single_dimension_accuracy(x, y, new, new_y)
    for j in range(5):
        lda = LinearDiscriminantAnalysis(priors=np.full(4, 0.25)).fit(x[:, [j]], y)
        assert found[j] == accuracy_score(new_y, lda.predict(new[:, [j]]))


def test_one_against_rest_is_fishers_criterion_of_two_classes():
    x, y = blobs()
    found = analysis.one_against_rest(x, y)
    assert found.shape == (5, 4)
    for j in range(5):
        for c in range(4):
            one, rest = x[y == c, j], x[y != c, j]
            assert found[j, c] == pytest.approx((one.mean() - rest.mean()) ** 2 / (one.var() + rest.var()))


def test_a_dimension_that_lifts_one_class_separates_that_class():
    rng = np.random.default_rng(0)
    labels = np.repeat([3, 5, 9], 50)
    lifted = np.array([9, 3, 5])
    embedding = rng.normal(size=(150, 3)) + 8 * (labels[:, None] == lifted)
    assert analysis.separated_class(embedding, labels).tolist() == lifted.tolist()


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 1e-300])
def test_a_dead_dimension_separates_nothing(value):
    x, y = blobs(n=1000)
    x[:, 2] = value
    assert analysis.fisher_ratios(x, y)[2] == 0
    assert analysis.single_dimension_accuracy(x, y, x, y)[2] == pytest.approx(1 / 4)
    assert (analysis.one_against_rest(x, y)[2] == 0).all()
    assert analysis.separated_class(x, y)[2] == -1


def test_classes_without_spread_are_infinitely_far_apart():
    labels = np.repeat([0, 1, 2], 7)
    embedding = np.array([0.1, 0.3, 0.7])[labels][:, None]
    assert analysis.fisher_ratios(embedding, labels) == [np.inf]
    assert analysis.single_dimension_accuracy(embedding, labels, embedding, labels) == [1]


def test_equally_near_means_share_the_credit():
    """Two classes at the same place, as ReLU outputs of 0 are, and one apart."""
    labels = np.repeat([0, 1, 2], 10)
    embedding = np.where(labels == 2, 5.0, 0.0)[:, None]
    assert analysis.single_dimension_accuracy(embedding, labels, embedding, labels) == pytest.approx(
        (0.5 + 0.5 + 1) / 3
    )


@given(st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4), st.floats(1e-2, 1e2))
def test_shift_scale_order_and_names_change_nothing(seed, shift, scale):
    x, y = blobs(60, seed=seed)
    order = np.random.default_rng(seed).permutation(60)
    moved, renamed = (scale * x + shift)[order], (7 * y + 3)[order]
    assert analysis.fisher_ratios(moved, renamed) == pytest.approx(analysis.fisher_ratios(x, y), rel=1e-6)
    assert analysis.one_against_rest(moved, renamed) == pytest.approx(analysis.one_against_rest(x, y), rel=1e-6)


def test_float32_with_a_large_offset_keeps_its_digits():
    x, y = blobs()
    x32 = x.astype(np.float32) + np.float32(1e4)
    exact = x32.astype(np.float64) - 1e4
    assert analysis.fisher_ratios(x32, y) == pytest.approx(analysis.fisher_ratios(exact, y), rel=1e-9)


@pytest.mark.parametrize(
    ("embedding", "labels", "message"),
    [
        (np.zeros(5), np.zeros(5, int), r"embedding has shape \(5,\)"),
        (np.zeros((5, 2)), np.zeros((5, 1), int), r"labels has shape \(5, 1\), need \(n, d\) and \(n,\)"),
        (np.zeros((5, 2)), np.zeros(5, int), "1 class, need at least 2"),
        (np.full((2, 2), np.nan), np.arange(2), "embedding contains NaN"),
    ],
)
def test_wrong_arguments_are_rejected(embedding, labels, message):
    with pytest.raises(ValueError, match=message):
        analysis.fisher_ratios(embedding, labels)


def test_parts_of_different_width_are_rejected():
    x, y = blobs()
    with pytest.raises(ValueError, match="5 and 4 dimensions"):
        analysis.single_dimension_accuracy(x, y, x[:, :4], y)


@pytest.mark.parametrize("n", [30, 3_000])
def test_densities_agree_with_scipy(n):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    values = rng.normal(0, 1, n) * np.where(labels, 0.5, 1.0) + 3 * labels
    ends = -5.0, 8.0
    curves = analysis.class_densities(values, labels, 3, ends)
    step = (ends[1] - ends[0]) / 128
    places = ends[0] + (np.arange(128) + 0.5) * step
    for c in (0, 1):
        own = values[labels == c]
        spread = min(own.std(), np.subtract(*np.quantile(own, [0.75, 0.25])) / 1.34)
        expected = gaussian_kde(own, bw_method=0.9 * spread * len(own) ** -0.2 / own.std(ddof=1))(places)
        np.testing.assert_allclose(curves[c], expected, atol=0.03 * expected.max())
        assert curves[c].sum() * step == pytest.approx(1, abs=0.01)
    assert not curves[2].any()


def test_a_dead_dimension_has_a_density():
    curves = analysis.class_densities(np.zeros(10), np.arange(10) % 2, 2, (-1e-6, 1e-6))
    assert np.isfinite(curves).all()
    assert curves.max() > 0


def test_a_finer_density_is_closer_to_the_sum_of_gaussians():
    values = np.random.default_rng(0).gamma(2, size=400)
    ends, n = (-3.0, 14.0), 500
    (found,) = analysis.class_densities(values, np.zeros(400, np.int64), 1, ends, n)
    places = ends[0] + (np.arange(n) + 0.5) * (ends[1] - ends[0]) / n
    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34)
    exact = gaussian_kde(values, bw_method=0.9 * spread * 400**-0.2 / values.std(ddof=1))(places)
    assert trapezoid(found, places) == pytest.approx(1, abs=1e-3)
    assert found == pytest.approx(exact, abs=0.002 * exact.max())


def test_class_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    labels, decided = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (labels, decided), 1)
    found = analysis.class_scores(counts)
    precision, recall, _, n = precision_recall_fscore_support(labels, decided)
    assert [scores.n for scores in found] == n.tolist()
    assert [scores.recall for scores in found] == pytest.approx(recall)
    assert [scores.precision for scores in found] == pytest.approx(precision)
    assert analysis.row_shares(counts).diagonal() == pytest.approx(recall)


def test_a_class_that_was_never_predicted_has_no_precision_and_one_without_samples_no_recall():
    first, second, third = analysis.class_scores([[3, 0, 0], [2, 0, 1], [0, 0, 0]])
    assert (first.recall, first.precision, first.confused_with) == (1, 3 / 5, None)
    assert (second.precision, second.confused_with, second.mistakes) == (None, 0, 2)
    assert (third.n, third.recall, third.precision) == (0, None, 0)
    assert not analysis.row_shares([[0, 0], [1, 1]])[0].any()
