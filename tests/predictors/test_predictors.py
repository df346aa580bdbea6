"""The predictors, compared with scikit-learn and the paper's formulas."""

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial
import torch
from batches import gaussian_batch
from oracle import regularised, scatters
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestCentroid

from deeplda.predictors import (
    ClassicLDA,
    FeatureStatistics,
    Hyperplanes,
    NearestMean,
    Softmax,
    discriminant_directions,
)
from svd_lda import svd_lda

PREDICTORS = {
    "hyperplanes": Hyperplanes,
    "unit": lambda: Hyperplanes(normalize="unit"),
    "nearest mean": NearestMean,
    "classic LDA": ClassicLDA,
    "balanced": lambda: Hyperplanes(class_weight="balanced", alpha=0.5),
    "dorfer": lambda: Hyperplanes(scatter="dorfer"),
}


def problem(seed=0, n=200, d=6, classes=4):
    h, y = gaussian_batch(n, d, classes, seed=seed)
    fresh, _ = gaussian_batch(300, d, classes, seed=seed + 1000)
    return torch.tensor(h), torch.tensor(y) * 3 + 2, torch.tensor(fresh)


@pytest.mark.parametrize("seed", range(20))
def test_hyperplanes_decide_as_lda_with_equal_priors(seed):
    h, y, fresh = problem(seed)
    lda = svd_lda(h, y, priors=np.full(4, 0.25))
    predictor = Hyperplanes(normalize="within", alpha=1.0, lam=0.0).fit(h, y)
    assert predictor.predict(fresh).tolist() == lda.predict(fresh).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_classic_lda_is_scikit_learns(seed):
    h, y, fresh = problem(seed)
    lda = svd_lda(h, y)
    predictor = ClassicLDA().fit(h, y)
    assert predictor.predict(fresh).tolist() == lda.predict(fresh).tolist()
    np.testing.assert_allclose(predictor.predict_proba(fresh), lda.predict_proba(fresh), atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_nearest_mean_is_the_nearest_centroid(seed):
    h, y, fresh = problem(seed)
    assert NearestMean().fit(h, y).predict(fresh).tolist() == NearestCentroid().fit(h, y).predict(fresh).tolist()


@pytest.mark.parametrize("normalize", ["within", "unit"])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_hyperplanes_are_the_papers_formula(normalize, alpha):
    h, y = gaussian_batch(100, 5, 4)
    s_w, s_b = scatters(h, y, "pooled", None)
    _, vectors = scipy.linalg.eigh(s_b, regularised(s_w, alpha, 1e-3))
    a = vectors[:, -3:]
    if normalize == "unit":
        a = a / np.linalg.norm(a, axis=0)
    means = np.stack([h[y == c].mean(0) for c in range(4)])
    t = means @ a @ a.T
    distances = h @ t.T - np.diag(means @ t.T) / 2
    exact, centred = (
        Hyperplanes(normalize=normalize, alpha=alpha, probability=probability).fit(h, y).decision_function(h)
        for probability in ("sigmoid", "softmax")
    )
    np.testing.assert_allclose(exact, distances, rtol=1e-9, atol=1e-9)
    relative = distances - distances.mean(1, keepdims=True)
    np.testing.assert_allclose(centred - centred.mean(1, keepdim=True), relative, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
@pytest.mark.parametrize("pieces", [7, 100])
def test_fitting_in_pieces_is_fitting_at_once(make, pieces):
    h, y, _ = problem()
    predictor = make()
    statistics = predictor.statistics(y)
    for part in torch.arange(len(y)).tensor_split(pieces):
        statistics.update(h[part], y[part])
    in_pieces = make().fit_statistics(statistics)
    at_once = predictor.fit(h, y)
    torch.testing.assert_close(in_pieces.weight, at_once.weight, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(in_pieces.bias, at_once.bias, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("constant", [0.0, 0.1])  # the sum of tenths is rounded, and so is their mean
@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
def test_dead_dimensions_do_no_harm(make, constant):
    h, y, fresh = problem()
    with_dead, fresh_with_dead = (
        torch.cat([x, torch.full((len(x), 2), constant, dtype=x.dtype)], dim=1) for x in (h, fresh)
    )
    alive, dead = make().fit(h, y), make().fit(with_dead, y)
    assert torch.isfinite(dead.weight).all()
    assert torch.equal(dead.predict(fresh_with_dead), alive.predict(fresh))


def test_a_long_sum_of_a_constant_is_rounded_further():
    h, y, fresh = problem(n=20_000)
    alive = ClassicLDA().fit(h, y)
    dead = ClassicLDA().fit(torch.cat([h, torch.full((len(h), 1), 0.1, dtype=h.dtype)], dim=1), y)
    moved = torch.cat([fresh, torch.full((len(fresh), 1), 0.1 + 1e-9, dtype=h.dtype)], dim=1)
    torch.testing.assert_close(dead.mahalanobis(moved), alive.mahalanobis(fresh), rtol=1e-9, atol=0)


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
def test_probabilities(make):
    h, y, fresh = problem()
    predictor = make().fit(h, y)
    probabilities = predictor.predict_proba(fresh * 1e6)
    assert torch.isfinite(probabilities).all()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(fresh)).double())
    assert torch.equal(predictor.classes[probabilities.argmax(1)], predictor.predict(fresh * 1e6))


def test_what_cannot_be_predicted():
    h, y, fresh = problem()
    for use in (Hyperplanes().predict, NearestMean().mahalanobis, lambda x: ClassicLDA().add_class(x, 5)):
        with pytest.raises(NotFittedError, match="call fit first"):
            use(fresh)
    with pytest.raises(NotFittedError, match="call set_layer first"):
        Softmax().predict(fresh)
    predictor = Hyperplanes().fit(h, y)
    for wrong in (fresh[:, :5], fresh[0]):
        with pytest.raises(ValueError, match=r"need \(n, 6\)"):
            predictor.predict_proba(wrong)


def test_state_is_buffers():
    h, y, fresh = problem()
    fitted = ClassicLDA().fit(h, y)
    empty = ClassicLDA()._reserve(4, 6)
    empty.load_state_dict(fitted.state_dict())
    assert torch.equal(empty.predict(fresh), fitted.predict(fresh))
    assert not list(fitted.parameters())


def test_a_fitted_state_goes_into_a_fresh_predictor():
    h, y, fresh = problem()
    fitted, network = Hyperplanes().fit(h, y), torch.nn.Sequential(torch.nn.Linear(6, 6), Hyperplanes())
    loaded = Hyperplanes()
    loaded.load_state_dict(fitted.state_dict())
    assert torch.equal(loaded.predict_proba(fresh), fitted.predict_proba(fresh))
    network.load_state_dict({**network.state_dict(), **{f"1.{k}": v for k, v in fitted.state_dict().items()}})
    assert torch.equal(network[1].predict(fresh), fitted.predict(fresh))
    other = Hyperplanes().fit(h[:, :3], y)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(fitted.state_dict())


def test_a_loaded_state_forgets_what_was_fitted_before():
    h, y, _ = problem()
    predictor = NearestMean().fit(h, y)
    predictor.load_state_dict(predictor.state_dict())
    predictor.mahalanobis(h)
    predictor.load_state_dict(NearestMean().fit(h + 1, y).state_dict())
    with pytest.raises(RuntimeError, match="has no statistics"):
        predictor.mahalanobis(h)


def test_distances_need_the_width_of_the_fit():
    h, y, _ = problem()
    with pytest.raises(ValueError, match=r"shape \(200, 1\), need \(n, 6\)"):
        NearestMean().fit(h, y).mahalanobis(h[:, :1])


def test_softmax_is_not_fitted():
    h, y, _ = problem()
    with pytest.raises(RuntimeError, match="set_layer"):
        Softmax().fit(h, y)


def test_softmax_of_outputs_and_of_a_layer():
    features = torch.randn(5, 3)
    plain = Softmax().set_layer(torch.arange(3), None, None)
    assert torch.equal(plain.predict(features), features.argmax(1))
    layer = torch.nn.Linear(3, 4)
    layered = Softmax().set_layer(torch.arange(4), layer.weight, layer.bias)
    torch.testing.assert_close(layered.predict_proba(features).float(), layer(features).softmax(1))
    square = torch.nn.Linear(3, 3, bias=False)
    without_bias = Softmax().set_layer(torch.arange(3), square.weight, None)
    torch.testing.assert_close(without_bias.predict_proba(features).float(), square(features).softmax(1))


@pytest.mark.parametrize("options", [{"class_weight": "balanced"}, {"scatter": "sum"}])
def test_hyperplanes_refuse_statistics_of_another_reading(options):
    h, y, _ = problem()
    statistics = FeatureStatistics.for_labels(y)
    statistics.update(h, y)
    with pytest.raises(ValueError, match=r"predictor\.statistics"):
        Hyperplanes(**options).fit_statistics(statistics)


def test_the_papers_sigmoid():
    h, y, fresh = problem()
    predictor = Hyperplanes(probability="sigmoid").fit(h, y)
    d = predictor.decision_function(fresh / 10)
    literal = 1 / (1 + torch.exp(-d))
    found = predictor.predict_proba(fresh / 10)
    torch.testing.assert_close(found, literal / literal.sum(1, keepdim=True))
    assert torch.equal(predictor.predict(fresh * 1e6), Hyperplanes().fit(h, y).predict(fresh * 1e6))
    extreme = predictor.predict_proba(fresh * 1e6)
    assert torch.isfinite(extreme).all()
    torch.testing.assert_close(extreme.sum(1), torch.ones(len(fresh)).double())


@pytest.mark.parametrize("priors", [(0.7, 0.1, 0.1, 0.1), "empirical"])
def test_priors_are_those_of_lda(priors):
    h, y, fresh = problem(d=2)
    given = None if priors == "empirical" else np.array(priors)
    lda = svd_lda(h, y, priors=given)
    for predictor in (Hyperplanes(lam=0.0, priors=priors), ClassicLDA(priors=priors)):
        np.testing.assert_allclose(predictor.fit(h, y).predict_proba(fresh), lda.predict_proba(fresh), atol=1e-9)


@pytest.mark.parametrize("make", [Hyperplanes, NearestMean, ClassicLDA])
def test_no_priors_are_equal_priors(make):
    h, y, fresh = problem()
    equal = make(priors=[1, 1, 1, 1]).fit(h, y).predict_proba(fresh)
    torch.testing.assert_close(make(priors=None).fit(h, y).predict_proba(fresh), equal)
    empirical = make(priors="empirical").fit(h, y).predict_proba(fresh)
    assert not torch.allclose(empirical, equal)
    default = empirical if make is ClassicLDA else equal
    torch.testing.assert_close(make().fit(h, y).predict_proba(fresh), default)


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ">f8"])
def test_arrays_give_the_same_tensors_as_tensors(make, dtype):
    h, y, fresh = problem()
    rows = h.numpy().astype(dtype)[::-1]
    rows.flags.writeable = False
    labels, others = y.numpy().astype(np.int32)[::-1], fresh.numpy().astype(dtype)
    by_array = make().fit(rows, labels)
    by_tensor = make().fit(torch.tensor(rows.astype(float)), torch.tensor(labels.astype(int)))
    torch.testing.assert_close(
        by_array.predict_proba(others), by_tensor.predict_proba(torch.tensor(others.astype(float)))
    )
    assert torch.equal(by_array.predict(others), by_tensor.predict(torch.tensor(others.astype(float))))
    torch.testing.assert_close(by_array.mahalanobis(others), by_tensor.mahalanobis(torch.tensor(others.astype(float))))
    statistics = by_array.statistics(labels)
    statistics.update(rows, labels)
    torch.testing.assert_close(make().fit_statistics(statistics).weight, by_tensor.weight)
    added = by_array.add_class(others[:5], 99)
    assert added.classes.tolist() == [*by_tensor.classes.tolist(), 99]


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ([[1.0], [2.0]], torch.tensor([0, 1]), "features is of type list, need a tensor or an array"),
        (np.array([["a"], ["b"]]), np.array([0, 1]), "dtype <U1, need a tensor or an array of numbers"),
        (np.ones((2, 1)), np.array(["cat", "dog"]), "labels is of type ndarray of dtype <U3"),
        (np.ones((2, 1)), np.array([0.0, 1.0]), "need integer class ids"),
    ],
)
def test_other_types_are_refused(features, labels, message):
    with pytest.raises(TypeError, match=message):
        NearestMean().fit(features, labels)


def test_options_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        Hyperplanes("unit")


@pytest.mark.parametrize(
    "priors", [(0.5, 0.5), (0.5, 0.5, 0.5, -1), (np.inf, 1, 1, 1), (np.nan, 1, 1, 1), (0, 1, 1, 1), "equal"]
)
def test_wrong_priors(priors):
    h, y, _ = problem()
    with pytest.raises(ValueError, match="priors"):
        NearestMean(priors=priors).fit(h, y)


@pytest.mark.parametrize("value", [0.5, True, {}, 1j, object(), np.array(0.5), [[1.0, 2.0]], ["a", "b"], [1, None]])
def test_priors_and_factors_are_one_number_per_class(value):
    """A single number once raised an error that it is not iterable."""
    h, y, fresh = problem()
    for make in (Hyperplanes, NearestMean, ClassicLDA):
        with pytest.raises(ValueError, match=r"priors is .*, need positive finite numbers, one per class"):
            make(priors=value)
    with pytest.raises(ValueError, match=r"factors is .*, need 4 positive finite numbers, one per class"):
        NearestMean().fit(h, y).shift_priors(value)
    with pytest.raises(TypeError, match="prior must be a number"):
        NearestMean(priors=(0.4, 0.3, 0.2, 0.1)).fit(h, y).add_class(fresh, 7, prior="0.1")


@pytest.mark.parametrize("label", ["7", None, 7.5, True, [7], -1])
def test_a_new_class_needs_a_class_id(label):
    h, y, fresh = problem()
    with pytest.raises(ValueError, match=r"label must be an integer of at least 0, got"):
        NearestMean().fit(h, y).add_class(fresh, label)


@pytest.mark.parametrize(("alpha", "lam"), [("1", 0.0), (None, 0.0), (-1.0, 0.0), (1.0, "0")])
def test_directions_check_their_options(alpha, lam):
    h, y, _ = problem()
    statistics = Hyperplanes().fit(h, y)._statistics
    with pytest.raises((TypeError, ValueError), match=r"alpha is -1.0|(alpha|lam) must be a number, got"):
        discriminant_directions(statistics, alpha, lam)


def test_large_priors_do_not_overflow():
    h, y, fresh = problem()
    large, equal = (NearestMean(priors=[prior] * 4).fit(h, y).predict_proba(fresh) for prior in (1e308, 1.0))
    torch.testing.assert_close(large, equal)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["decision_function", "predict", "predict_proba", "mahalanobis"])
def test_features_that_are_not_finite_are_rejected(method, value):
    h, y, fresh = problem()
    predictor = Hyperplanes().fit(h, y)
    fresh[7, 2] = value
    nan, inf = (1, 0) if np.isnan(value) else (0, 1)
    with pytest.raises(ValueError, match=f"features has {nan} NaN and {inf} infinite values among 1800, need finite"):
        getattr(predictor, method)(fresh)


def test_scores_that_overflow_are_rejected():
    h, y, _ = problem()
    with pytest.raises(ValueError, match="scores are not finite"):
        NearestMean().fit(h, y).predict(np.full((1, 6), 1e308) * np.sign(np.arange(6) - 2.5))


def test_mahalanobis_is_the_distance_to_the_nearest_class():
    h, y, fresh = problem()
    found = ClassicLDA().fit(h, y).mahalanobis(fresh)
    centred = np.concatenate([h[y == c] - h[y == c].mean(0) for c in y.unique()])
    inverse = np.linalg.inv(centred.T @ centred / len(h))
    for row, distance in zip(fresh.numpy(), found, strict=True):
        means = [h[y == c].mean(0).numpy() for c in y.unique()]
        assert min(scipy.spatial.distance.mahalanobis(row, m, inverse) for m in means) == pytest.approx(distance)
    assert NearestMean().fit(h, y).mahalanobis(fresh + 100).min() > found.max()


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
def test_decisions_do_not_feel_an_offset(make):
    h, y, fresh = problem()
    near, far = (make().fit(1e-3 * h + offset, y) for offset in (0.0, 1e6))
    assert torch.equal(far.predict(1e-3 * fresh + 1e6), near.predict(1e-3 * fresh))


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_probabilities_hardly_feel_an_offset(make, offset):
    h, y, fresh = problem(n=400)
    near, far = make().fit(h, y), make().fit(h + offset, y)
    found = far.predict_proba(fresh + offset)
    torch.testing.assert_close(found, near.predict_proba(fresh), rtol=0, atol=1e-14 * offset)
    assert torch.equal(far.predict(fresh + offset), near.predict(fresh))


def test_mahalanobis_does_not_feel_an_offset_or_how_many_rows_come_along():
    h, y, fresh = problem()
    near, far = (ClassicLDA().fit(1e-3 * h + offset, y) for offset in (0.0, 1e6))
    found = far.mahalanobis(1e-3 * fresh + 1e6)
    torch.testing.assert_close(found, near.mahalanobis(1e-3 * fresh), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[:5], far.mahalanobis(1e-3 * fresh[:5] + 1e6), rtol=1e-9, atol=0)


def with_columns(x, *columns):
    return torch.cat([x, torch.stack([torch.as_tensor(c, dtype=x.dtype).expand(len(x)) for c in columns], 1)], 1)


@pytest.mark.parametrize("constants", [(0.0,), (0.1, -3.0), (1e6, 0.0)])
def test_a_dimension_without_variance_counts_if_a_sample_differs_there(constants):
    h, y, fresh = problem()
    alive, dead = ClassicLDA().fit(h, y), ClassicLDA().fit(with_columns(h, *constants), y)
    before = alive.mahalanobis(fresh)
    torch.testing.assert_close(dead.mahalanobis(with_columns(fresh, *constants)), before, rtol=1e-9, atol=0)
    for column, constant in enumerate(constants):
        for factor in (1e2, 1e4, 1e6):
            moved = with_columns(fresh, *constants)
            moved[:, 6 + column] += factor * max(1.0, abs(constant))
            assert (dead.mahalanobis(moved) > 1e3 * factor).all()


def test_a_direction_without_variance_counts_if_a_sample_differs_there():
    """The last dimension is a combination of the others, in every training sample."""
    h, y, fresh = problem()
    alive, dependent = ClassicLDA().fit(h, y), ClassicLDA().fit(with_columns(h, h[:, 0] - 2 * h[:, 1]), y)
    same = with_columns(fresh, fresh[:, 0] - 2 * fresh[:, 1])
    torch.testing.assert_close(dependent.mahalanobis(same), alive.mahalanobis(fresh), rtol=1e-6, atol=0)
    moved = same.clone()
    moved[:, 6] += 1
    assert (dependent.mahalanobis(moved) > 1e3).all()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_distances_from_classes_of_one_sample(scale):
    """There is no variance within the classes at all, so only the class means themselves are near."""
    means = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale
    predictor = NearestMean().fit(means, torch.arange(5))
    assert (predictor.mahalanobis(means) == 0).all()
    assert (predictor.mahalanobis(means + scale) > 1e3).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_predictors_in_other_precisions(dtype):
    h, y, fresh = problem()
    rounded = NearestMean().fit(h, y).to(dtype)
    assert rounded.decision_function(fresh.to(dtype)).dtype == torch.float64
    exact = NearestMean().fit(h, y).predict(fresh)
    assert (rounded.predict(fresh.to(dtype)) == exact).double().mean() > 0.95


@pytest.mark.parametrize("options", [{}, {"scatter": "dorfer"}])
@pytest.mark.parametrize("n", [1, 20])
def test_hyperplanes_of_one_class(options, n):
    with pytest.raises(ValueError, match="only one class, need at least two"):
        Hyperplanes(**options).fit(torch.randn(n, 3), torch.zeros(n, dtype=torch.long))


@pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS.keys())
@pytest.mark.parametrize("label", [2, 5, 11])
def test_an_added_class_is_a_class_that_was_there_from_the_start(make, label):
    h, y, fresh = problem()
    known = y != label
    added = make().fit(h[known], y[known]).add_class(h[~known], label)
    whole = make().fit(h, y)
    assert added.classes.tolist() == whole.classes.tolist()
    torch.testing.assert_close(added.weight, whole.weight, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(added.bias, whole.bias, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(added.mahalanobis(fresh), whole.mahalanobis(fresh))


def test_a_class_of_one_example_can_be_added():
    h, y, _ = problem()
    predictor = Hyperplanes().fit(h, y).add_class(h.mean(0, keepdim=True) + 50, 99)
    assert predictor.predict(h.mean(0, keepdim=True) + 50).tolist() == [99]


def test_classes_that_cannot_be_added():
    h, y, fresh = problem()
    with pytest.raises(ValueError, match="class 5 already exists"):
        NearestMean().fit(h, y).add_class(fresh, 5)
    loaded = NearestMean()
    loaded.load_state_dict(NearestMean().fit(h, y).state_dict())
    with pytest.raises(RuntimeError, match="has no statistics"):
        loaded.add_class(fresh, 7)


@pytest.mark.parametrize("prior", [None, 0.0, 1.0, -0.1, np.nan])
def test_a_class_that_cannot_be_added_leaves_the_predictor_as_it_was(prior):
    h, y, fresh = problem()
    predictor = NearestMean(priors=(0.4, 0.3, 0.2, 0.1)).fit(h, y)
    before = predictor.decision_function(fresh)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"prior of the new class is .*, need a number between 0 and 1"):
            predictor.add_class(fresh, 7, prior=prior)
    assert predictor.priors == (0.4, 0.3, 0.2, 0.1)
    assert torch.equal(predictor.decision_function(fresh), before)


@pytest.mark.parametrize("label", [2, 5, 11])
def test_a_class_is_added_to_given_priors_with_its_own(label):
    h, y, fresh = problem()
    known, place = y != label, (label - 2) // 3
    added = ClassicLDA(priors=(4, 1, 3)).fit(h[known], y[known]).add_class(h[~known], label, prior=0.2)
    whole = ClassicLDA(priors=np.insert([0.4, 0.1, 0.3], place, 0.2)).fit(h, y)
    torch.testing.assert_close(added.predict_proba(fresh), whole.predict_proba(fresh))
    torch.testing.assert_close(added.fit(h, y).predict_proba(fresh), whole.predict_proba(fresh))


@pytest.mark.parametrize("priors", [None, "empirical"])
def test_a_prior_is_not_needed_without_given_priors(priors):
    h, y, fresh = problem()
    with pytest.raises(ValueError, match="omit prior"):
        NearestMean(priors=priors).fit(h, y).add_class(fresh, 7, prior=0.2)
