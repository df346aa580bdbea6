"""The criteria: each against its formula in a loop, and two processes against one."""

import math

import numpy as np
import pytest
import rank_jobs
import torch
from ranks import RankPool, values
from torch import nn

from deeplda import DeepLDALoss
from deeplda.errors import InputError
from deeplda.training.config import FitConfig
from deeplda.training.criteria import CrossEntropy, GeneralisedCrossEntropy, build_criterion, lda_part
from deeplda.training.parallel import World

CLASSES = 4
OBJECTIVES = {
    "cce": {"objective": "cce", "label_smoothing": 0.2},
    "gce": {"objective": "gce", "gce_q": 0.4},
    "joint": {"objective": "joint", "statistic": "pillai", "lda_weight": 0.5, "label_smoothing": 0.1},
    "lda": {"objective": "lda"},
}


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return rng.normal(size=(23, CLASSES)) * 2, np.arange(23) % CLASSES


@pytest.fixture
def weights():
    return np.random.default_rng(1).uniform(0.2, 3, 23)


def loss_and_gradient(criterion, outputs, labels, weights=None):
    scores = torch.tensor(outputs, requires_grad=True)
    loss = criterion(scores, torch.from_numpy(labels), *(() if weights is None else (torch.from_numpy(weights),)))
    loss.backward()
    return loss.item(), scores.grad.numpy()


def probability(scores, label):
    return math.exp(scores[label]) / sum(math.exp(score) for score in scores)


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_gce_is_the_papers_formula(batch, weights, q):
    outputs, labels = batch
    losses = [(1 - probability(row, c) ** q) / q for row, c in zip(outputs, labels, strict=True)]
    criterion = GeneralisedCrossEntropy(q)
    assert loss_and_gradient(criterion, *batch)[0] == pytest.approx(np.mean(losses), rel=1e-12)
    expected = np.average(losses, weights=weights)
    assert loss_and_gradient(criterion, *batch, weights)[0] == pytest.approx(expected, rel=1e-12)


def test_the_gradient_of_gce_is_that_of_cross_entropy_weighted_by_the_probability(batch):
    """The gradient of (1 - p^q) / q is p^q times that of -log p, sample by sample."""
    outputs, labels = batch
    _, found = loss_and_gradient(GeneralisedCrossEntropy(0.7), outputs, labels)
    _, entropy = loss_and_gradient(CrossEntropy(), outputs, labels)
    factors = [probability(row, c) ** 0.7 for row, c in zip(outputs, labels, strict=True)]
    np.testing.assert_allclose(found, np.array(factors)[:, None] * entropy, rtol=1e-10)


def test_gce_with_a_tiny_q_is_cross_entropy(batch):
    outputs, labels = batch
    expected, gradient = loss_and_gradient(nn.CrossEntropyLoss(), outputs, labels)
    found, slope = loss_and_gradient(GeneralisedCrossEntropy(1e-9), outputs, labels)
    assert found == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6)


def test_gce_is_finite_for_a_label_that_is_impossible_in_float32():
    scores = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = GeneralisedCrossEntropy(0.5)(scores, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(2)
    assert scores.grad.isfinite().all()


def test_cross_entropy_is_torchs(batch):
    outputs, labels = batch
    expected, gradient = loss_and_gradient(nn.CrossEntropyLoss(label_smoothing=0.2), outputs, labels)
    found, slope = loss_and_gradient(CrossEntropy(0.2), outputs, labels)
    assert found == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(slope, gradient, rtol=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_weight_of_two_is_the_sample_twice_and_of_zero_is_absence(batch, objective):
    outputs, labels = batch
    weights = np.random.default_rng(2).integers(0, 4, 23)
    weights[:CLASSES] = 1
    copies = np.repeat(np.arange(23), weights)
    criterion = build_criterion(FitConfig(**OBJECTIVES[objective])).double()
    expected, slope = loss_and_gradient(criterion, outputs[copies], labels[copies])
    gradient = np.zeros_like(outputs)
    np.add.at(gradient, copies, slope)
    found, at_outputs = loss_and_gradient(criterion, outputs, labels, weights)
    assert found == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(at_outputs, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_joint_is_the_sum_of_cross_entropy_and_lda(batch, weights, weighted):
    outputs, labels = batch
    config = FitConfig(objective="joint", statistic="pillai", alpha=0.5, lam=0.01, lda_weight=0.3, label_smoothing=0.1)
    given = (weights,) if weighted else ()
    entropy, slope = loss_and_gradient(CrossEntropy(0.1), outputs, labels, *given)
    lda = DeepLDALoss("pillai", alpha=0.5, lam=0.01)
    statistic, lda_slope = loss_and_gradient(lda, outputs, labels, *given)
    criterion = build_criterion(config).double()
    found, gradient = loss_and_gradient(criterion, outputs, labels, *given)
    assert found == pytest.approx(entropy + 0.3 * statistic, rel=1e-12)
    np.testing.assert_allclose(gradient, slope + 0.3 * lda_slope, rtol=1e-9, atol=1e-12)
    assert torch.equal(lda_part(criterion).diagnostics.eigenvalues, lda.diagnostics.eigenvalues)


def test_only_lda_and_joint_have_an_lda_part():
    found = {name: lda_part(build_criterion(FitConfig(**own))) for name, own in OBJECTIVES.items()}
    assert {name for name, part in found.items() if isinstance(part, DeepLDALoss)} == {"lda", "joint"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    ranks = RankPool(2, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("weighted", [False, True])
def test_two_processes_compute_what_one_does(pool, batch, weights, objective, weighted):
    """The parts have unequal sizes and different classes; DistributedDataParallel averages the gradients."""
    outputs, labels = batch
    given = weights if weighted else None
    criterion = build_criterion(FitConfig(**OBJECTIVES[objective])).double().eval()
    expected, gradient = loss_and_gradient(criterion, outputs, labels, given)
    jobs = [
        (OBJECTIVES[objective], rank, outputs[own], labels[own], given[own] if weighted else None)
        for rank, own in enumerate([np.arange(6), np.arange(6, 23)])
    ]
    found = values(pool.run(rank_jobs.criterion, jobs))
    assert [value for value, _ in found] == pytest.approx([expected] * 2, rel=1e-12)
    np.testing.assert_allclose(np.concatenate([slope for _, slope in found]) / 2, gradient, rtol=1e-9, atol=1e-12)


def test_a_loss_of_the_user_needs_the_whole_batch():
    config = FitConfig(objective="torch.nn:CrossEntropyLoss")
    outputs, labels = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    assert build_criterion(config)(outputs, labels) == nn.functional.cross_entropy(outputs, labels)
    with pytest.raises(InputError, match="only its part of a batch in each of 2 processes: train in one process"):
        build_criterion(config, World(0, 2))
