"""Calibration, compared with scikit-learn's scores, a general optimiser and literal loops."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics
import torch
from batches import gaussian_batch

from deeplda.predictors import Calibration, ClassicLDA, Hyperplanes, NearestMean
from deeplda.predictors.calibration import (
    brier_score,
    calibration_error,
    log_loss,
    reliability_bins,
    share_quantiles,
)


def overconfident(seed=0, n=300, classes=4, factor=8.0, noise=0.1):
    """Scores whose softmax is `factor` times too sharp, and labels of which a fraction `noise` is random."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    labels = np.array([rng.choice(classes, p=row) for row in scipy.special.softmax(logits, axis=1)])
    labels = np.where(rng.random(n) < noise, rng.integers(classes, size=n), labels)
    return factor * logits, labels


def objective(scores, labels, beta, share):
    """The loss that `Calibration.fit` minimises, sample by sample as its docstring has it."""
    n, classes = scores.shape
    total, margins = 0.0, []
    for row, label in zip(scores, labels, strict=True):
        p = (1 - share) * scipy.special.softmax(beta * row) + share / classes
        rival = max((c for c in range(classes) if c != label), key=lambda c: row[c])
        total -= (n + 1) / (n + 2) * np.log(p[label]) + 1 / (n + 2) * np.log(p[rival])
        margins.append(abs(row[label] - row[rival]))
    prior = 10 / np.median(margins)
    return total + np.log(beta / prior + prior / beta)


@pytest.mark.parametrize(("factor", "noise"), [(8.0, 0.1), (1.0, 0.0), (0.2, 0.3), (500.0, 0.05)])
def test_the_fit_is_the_minimum(factor, noise):
    scores, labels = overconfident(n=40, factor=factor, noise=noise)
    calibration = Calibration().fit(scores, labels)
    found = objective(scores, labels, float(calibration.inverse_temperature), float(calibration.uniform_share))

    def loss(x):
        return objective(scores, labels, np.exp(x[0]), scipy.special.expit(x[1]))

    starts = [(np.log(b / factor), u) for b in (0.3, 3) for u in (-6, -2)]
    reference = min(scipy.optimize.minimize(loss, start, method="Nelder-Mead").fun for start in starts)
    assert found <= reference + 1e-6
    assert int(calibration.samples) == 40


@pytest.mark.parametrize("factor", [1e-9, 2.0**-20, 1e-3, 3.0, 1e9])
@pytest.mark.parametrize("n", [5, 60, 400])
def test_the_unit_of_the_scores_does_not_matter(n, factor):
    """A prior at beta = 1 once made it impossible to sharpen scores of size 1e-9."""
    for scores, labels in (overconfident(n=n), (np.eye(3)[np.arange(n) % 3], np.arange(n) % 3)):
        before, after = Calibration().fit(scores, labels), Calibration().fit(factor * scores, labels)
        assert float(after.inverse_temperature) * factor == pytest.approx(float(before.inverse_temperature), rel=1e-6)
        np.testing.assert_allclose(
            after.log_probabilities(factor * scores), before.log_probabilities(scores), rtol=1e-6
        )


def test_an_offset_that_all_scores_share_costs_no_digits():
    scores, labels = overconfident()
    # Multiples of 2^-20 below 1, to which 2^30 can be added without rounding.
    scores = np.round(scores / np.abs(scores).max() * 2**20) / 2**20
    plain, shifted = Calibration().fit(scores, labels), Calibration().fit(scores + 2.0**30, labels)
    assert float(shifted.inverse_temperature) == pytest.approx(float(plain.inverse_temperature), rel=1e-12)
    probabilities = plain(torch.from_numpy(scores))
    torch.testing.assert_close(plain(torch.from_numpy(scores + 2.0**30)), probabilities, rtol=1e-12, atol=0)
    logarithms = plain.log_probabilities(scores + 2.0**30)
    np.testing.assert_allclose(logarithms, probabilities.log(), rtol=1e-12)


def test_a_far_majority_does_not_blur_the_others():
    """Most samples have margins of 1e6, and the prior's unit follows them. The others are calibrated at beta = 1."""
    rng = np.random.default_rng(0)
    logits, near = rng.normal(size=4000) * 2, rng.random(4000) < 0.4
    scores = np.where(near[:, None], np.stack([logits, 0 * logits, logits - 1e6], 1), [-1e6, -1e6, 0.0])
    labels = np.where(near, rng.random(4000) > scipy.special.expit(logits), 2)
    assert float(Calibration().fit(scores, labels).inverse_temperature) == pytest.approx(1, rel=0.2)


def test_samples_with_equal_scores_say_nothing_about_the_temperature():
    equal, labels = np.ones((150, 4)), np.arange(150) % 4
    assert float(Calibration().fit(equal, labels).inverse_temperature) == pytest.approx(1)
    scores, truth = overconfident(n=100)
    alone = Calibration().fit(scores, truth)
    both = Calibration().fit(np.concatenate([scores, equal]), np.concatenate([truth, labels]))
    assert float(both.inverse_temperature) == pytest.approx(float(alone.inverse_temperature), rel=0.1)


def test_a_weight_of_two_is_the_sample_twice():
    scores, labels = overconfident(n=60)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    copies = np.repeat(np.arange(60), weights)
    weighted, repeated = Calibration().fit(scores, labels, weights), Calibration().fit(scores[copies], labels[copies])
    for name in ("inverse_temperature", "uniform_share"):
        assert float(getattr(weighted, name)) == pytest.approx(float(getattr(repeated, name)), rel=1e-6)
    plain = Calibration().fit(scores, labels)
    assert float(plain.inverse_temperature) != pytest.approx(float(weighted.inverse_temperature), rel=1e-3)


def test_it_recovers_the_temperature_and_the_noise():
    scores, labels = overconfident(n=20_000, factor=8.0, noise=0.2)
    calibration = Calibration().fit(scores, labels)
    assert float(calibration.inverse_temperature) == pytest.approx(1 / 8, rel=0.1)
    assert float(calibration.uniform_share) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("n", "noise"), [(30, 0.0), (30, 0.3), (200, 0.1)])
def test_the_quantiles_of_the_share_are_those_of_its_posterior(n, noise):
    """The likelihood on a fine and wide grid of u and beta, sample by sample."""
    scores, labels = overconfident(n=n, noise=noise)
    margins = []
    for row, label in zip(scores, labels, strict=True):
        margins.append(abs(row[label] - max(score for c, score in enumerate(row) if c != label)))
    prior = 10 / np.median(margins)
    shares = np.linspace(0.001, 0.989, 150)
    mass = np.zeros(150)
    for beta in prior * np.exp(np.linspace(-5, 3, 60)):
        likelihood = np.ones(150)
        for row, label in zip(scores, labels, strict=True):
            likelihood *= 2.5 * ((1 - shares) * scipy.special.softmax(beta * row)[label] + shares / 4)
        mass += likelihood / (beta / prior + prior / beta)
    below = np.cumsum(mass) / mass.sum()
    found = share_quantiles(scores, labels, (0.025, 0.5, 0.975))
    expected = [shares[np.searchsorted(below, level)] for level in (0.025, 0.5, 0.975)]
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_confidence_becomes_accuracy():
    (scores, labels), (fresh, truth) = overconfident(0, 2000), overconfident(1, 5000)
    right = fresh.argmax(1) == truth
    raw, calibrated = Calibration(), Calibration().fit(scores, labels)
    errors = [calibration_error(np.exp(c.log_probabilities(fresh)).max(1), right) for c in (raw, calibrated)]
    assert errors[0] > 0.2
    assert errors[1] < 0.03


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("n", [1, 3, 40])
def test_perfectly_separated_samples_leave_a_doubt(n, scale):
    labels = np.arange(n) % 3
    scores = scale * np.eye(3)[labels]
    calibration = Calibration().fit(scores, labels)
    confidence = np.exp(calibration.log_probabilities(scores)).max(1)
    assert 0 < float(calibration.inverse_temperature) < np.inf
    assert (confidence <= 1 - 0.5 / (n + 2)).all()
    assert (scores.argmax(1) == np.exp(calibration.log_probabilities(scores)).argmax(1)).all()


@pytest.mark.parametrize("labels", [np.zeros(50, int), np.arange(50) % 2])
def test_useless_scores_still_order_the_classes(labels):
    scores = np.random.default_rng(0).normal(size=(50, 2)) * 1e4
    calibration = Calibration().fit(scores, labels)
    probabilities = calibration(torch.tensor(scores)).numpy()
    assert np.isfinite(probabilities).all()
    assert (probabilities.argmax(1) == scores.argmax(1)).all()
    assert float(calibration.uniform_share) <= 0.99
    # Scores that are always wrong deserve no confidence.
    wrong = Calibration().fit(np.array([[5.0, 0.0]] * 30), np.ones(30, int))
    assert wrong(torch.tensor([[5.0, 0.0]]))[0, 0] < 0.51


def test_without_samples_nothing_changes():
    calibration = Calibration().fit(np.empty((0, 3)), np.empty(0, int))
    scores = torch.randn(5, 3).double()
    assert torch.equal(calibration(scores), scores.softmax(1))
    assert int(calibration.samples) == 0


def test_logarithms_agree_with_probabilities():
    scores, labels = overconfident()
    for calibration in (Calibration(), Calibration().fit(scores, labels)):
        found = calibration(torch.tensor(scores)).numpy()
        np.testing.assert_allclose(np.exp(calibration.log_probabilities(scores)), found, rtol=1e-12, atol=1e-300)


def test_scores_are_scikit_learns():
    scores, labels = overconfident(factor=1.0)
    p = scipy.special.softmax(scores, axis=1)
    assert log_loss(np.log(p), labels) == pytest.approx(sklearn.metrics.log_loss(labels, p, labels=range(4)))
    literal = np.mean([sum((row[c] - (c == y)) ** 2 for c in range(4)) for row, y in zip(p, labels, strict=True)])
    assert brier_score(p, labels) == pytest.approx(literal)
    two, truth = overconfident(classes=2, factor=1.0)
    p = scipy.special.softmax(two, axis=1)
    # scikit-learn's score for two classes counts only one of them.
    assert brier_score(p, truth) == pytest.approx(2 * sklearn.metrics.brier_score_loss(truth, p[:, 1]))


def test_the_calibration_error_is_its_definition():
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.random(200), [0.0, 1.0, 1 / 15, 14 / 15]])
    right = rng.random(204) < 0.6
    error, bins = 0.0, 0
    for k in range(15):
        inside = [i for i, c in enumerate(confidence) if k <= int(c * 15) < k + 1 or (k == 14 and c == 1)]
        if inside:
            bins += 1
            error += len(inside) / 204 * abs(np.mean(right[inside]) - np.mean(confidence[inside]))
    assert calibration_error(confidence, right) == pytest.approx(error)
    found = reliability_bins(confidence, right)
    assert len(found) == bins
    assert sum(one.count for one in found) == 204


PREDICTORS = [Hyperplanes, NearestMean, ClassicLDA]


@pytest.mark.parametrize("make", PREDICTORS)
def test_a_predictor_is_calibrated_without_new_decisions(make):
    (h, y), (held_out, truth), (fresh, _) = (gaussian_batch(200, 5, 3, seed=seed) for seed in range(3))
    # Features that shrank on the training set alone make the predictor too confident.
    predictor = make().fit(0.1 * h + 0.9 * np.stack([h[y == c].mean(0) for c in y]), y + 5)
    before = predictor.decision_function(fresh)
    assert predictor.calibrate(held_out, truth + 5) is predictor
    assert torch.equal(predictor.decision_function(fresh), before)
    reference = Calibration().fit(predictor.decision_function(held_out).numpy(), truth)
    torch.testing.assert_close(predictor.predict_proba(fresh), reference(before))
    if make is not NearestMean:  # the others know how compact the classes are
        assert float(predictor.calibration.inverse_temperature) < 0.5
    assert torch.equal(predictor.classes[predictor.predict_proba(fresh).argmax(1)], predictor.predict(fresh))
    copy = make()
    copy.load_state_dict(predictor.state_dict())
    assert torch.equal(copy.predict_proba(fresh), predictor.predict_proba(fresh))
    predictor.fit(h, y + 5)
    assert int(predictor.calibration.samples) == 0


def test_shifted_priors_multiply_the_odds_and_survive_a_new_class():
    (h, y), (held_out, truth), (fresh, _) = (gaussian_batch(200, 5, 3, seed=seed) for seed in range(3))
    predictor = Hyperplanes().fit(h, y * 2).calibrate(held_out, truth * 2)
    plain, raw = predictor.decision_function(fresh), predictor.predict_proba(fresh)
    predictor.shift_priors([1, 1, 4])
    beta = predictor.calibration.inverse_temperature
    difference = (predictor.decision_function(fresh) - plain) * beta
    np.testing.assert_allclose(difference, np.tile([0, 0, np.log(4)], (200, 1)), atol=1e-9)
    assert (predictor.predict_proba(fresh)[:, 2] > raw[:, 2]).all()
    # A second calibration does not see the shift.
    predictor.calibrate(held_out, truth * 2)
    assert torch.equal(predictor.calibration.inverse_temperature, beta)
    predictor.add_class(held_out[:10] + 40, 1)
    np.testing.assert_allclose(predictor.prior_shift, [0, 0, 0, np.log(4)])
    assert torch.equal(predictor.calibration.inverse_temperature, beta)
    with pytest.raises(ValueError, match=r"factors is \[1, 0\], need 4 positive"):
        predictor.shift_priors([1, 0])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ("1", [0], r"scores has shape \(\) and dtype <U1, need finite numbers \(n, C\)"),
        ([1.0, 2.0], [0, 1], r"scores has shape \(2,\)"),
        ([[1.0, np.nan]], [0], "need finite numbers"),
        ([[1.0, 2.0]], None, r"labels has shape \(\) and dtype object, need 1 integers"),
        ([[1.0, 2.0]], [0.0], "labels has shape .* and dtype float64, need 1 integers"),
        ([[1.0, 2.0]], [0, 1], r"labels has shape \(2,\)"),
        ([[1.0, 2.0]], [2], "labels has values of 2 to 2, need positions among the 2 columns"),
        ([[1.0, 2.0]], [-1], "labels has values of -1 to -1"),
    ],
)
def test_scores_and_labels_that_do_not_fit(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        Calibration().fit(scores, labels)


def test_what_cannot_be_calibrated():
    h, y = gaussian_batch(60, 5, 3)
    with pytest.raises(ValueError, match="labels contains 7"):
        Hyperplanes().fit(h, y).calibrate(h, np.full(60, 7))
    with pytest.raises(ValueError, match='need "softmax" to calibrate'):
        Hyperplanes(probability="sigmoid").fit(h, y).calibrate(h, y)
