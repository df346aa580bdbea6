"""The criteria: each against its formula in a loop, and two processes against one."""

import math

import numpy as np
import pytest
import rank_jobs
import torch
from ranks import RankPool, values
from torch import nn

from deeplda import DeepLDALoss
from deeplda.data.dataset import Part
from deeplda.training.config import FitConfig
from deeplda.training.criteria import CrossEntropy, GeneralisedCrossEntropy, build_criterion, lda_part

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


def loss_and_gradient(criterion, outputs, labels):
    scores = torch.tensor(outputs, requires_grad=True)
    loss = criterion(scores, torch.from_numpy(labels))
    loss.backward()
    return loss.item(), scores.grad.numpy()


def probability(scores, label):
    return math.exp(scores[label]) / sum(math.exp(score) for score in scores)


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_gce_is_the_papers_formula(batch, q):
    outputs, labels = batch
    weights = [1.0, 2.0, 0.5, 3.0]
    total = sum(weights[c] * (1 - probability(row, c) ** q) / q for row, c in zip(outputs, labels, strict=True))
    expected = total / sum(weights[c] for c in labels)
    criterion = GeneralisedCrossEntropy(torch.tensor(weights, dtype=torch.double), q)
    assert criterion(torch.from_numpy(outputs), torch.from_numpy(labels)).item() == pytest.approx(expected, rel=1e-12)


def test_the_gradient_of_gce_is_that_of_cross_entropy_weighted_by_the_probability(batch):
    """The gradient of (1 - p^q) / q is p^q times that of -log p, sample by sample."""
    outputs, labels = batch
    ones = torch.ones(CLASSES, dtype=torch.double)
    _, found = loss_and_gradient(GeneralisedCrossEntropy(ones, 0.7), outputs, labels)
    _, entropy = loss_and_gradient(CrossEntropy(ones), outputs, labels)
    factors = [probability(row, c) ** 0.7 for row, c in zip(outputs, labels, strict=True)]
    np.testing.assert_allclose(found, np.array(factors)[:, None] * entropy, rtol=1e-10)


def test_gce_with_a_tiny_q_is_cross_entropy(batch):
    outputs, labels = batch
    expected, gradient = loss_and_gradient(nn.CrossEntropyLoss(), outputs, labels)
    criterion = GeneralisedCrossEntropy(torch.ones(CLASSES, dtype=torch.double), 1e-9)
    found, slope = loss_and_gradient(criterion, outputs, labels)
    assert found == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6)


def test_gce_is_finite_for_a_label_that_is_impossible_in_float32():
    scores = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = GeneralisedCrossEntropy(torch.ones(2), 0.5)(scores, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(2)
    assert scores.grad.isfinite().all()


def test_cross_entropy_is_torchs_to_the_last_bit(batch):
    outputs, labels = torch.from_numpy(batch[0]).float(), torch.from_numpy(batch[1])
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0])
    theirs = nn.CrossEntropyLoss(weights, label_smoothing=0.2)(outputs, labels)
    assert torch.equal(CrossEntropy(weights, 0.2)(outputs, labels), theirs)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_joint_is_the_sum_of_cross_entropy_and_lda(batch, class_weight):
    outputs, labels = batch
    labels = np.where(labels == 3, 0, labels)
    labels[:3] = 3
    config = FitConfig(
        objective="joint", statistic="pillai", alpha=0.5, lam=0.01, lda_weight=0.3, label_smoothing=0.1,
        class_weight=class_weight,
    )  # fmt: skip
    counts = np.bincount(labels)
    weights = torch.from_numpy(len(labels) / (CLASSES * counts)) if class_weight else torch.ones(CLASSES).double()
    entropy, slope = loss_and_gradient(nn.CrossEntropyLoss(weights, label_smoothing=0.1), outputs, labels)
    lda = DeepLDALoss("pillai", alpha=0.5, lam=0.01, class_weight=class_weight)
    statistic, lda_slope = loss_and_gradient(lda, outputs, labels)
    criterion = build_criterion(config, Part(outputs, labels), CLASSES).double()
    found, gradient = loss_and_gradient(criterion, outputs, labels)
    # The weights of classes are stored in float32.
    assert found == pytest.approx(entropy + 0.3 * statistic, rel=1e-6)
    np.testing.assert_allclose(gradient, slope + 0.3 * lda_slope, rtol=1e-5, atol=1e-9)
    assert torch.equal(lda_part(criterion).diagnostics.eigenvalues, lda.diagnostics.eigenvalues)


def test_only_lda_and_joint_have_an_lda_part(batch):
    part = Part(*batch)
    found = {name: lda_part(build_criterion(FitConfig(**own), part, CLASSES)) for name, own in OBJECTIVES.items()}
    assert {name for name, part in found.items() if isinstance(part, DeepLDALoss)} == {"lda", "joint"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    ranks = RankPool(2, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_two_processes_compute_what_one_does(pool, batch, objective, class_weight):
    """The parts have unequal sizes and different classes; DistributedDataParallel averages the gradients."""
    outputs, labels = batch
    settings = OBJECTIVES[objective] | {"class_weight": class_weight}
    part = Part(outputs, np.concatenate([labels, [0, 0, 1]]))
    criterion = build_criterion(FitConfig(**settings), part, CLASSES).double().eval()
    expected, gradient = loss_and_gradient(criterion, outputs, labels)
    places = [np.arange(6), np.arange(6, 23)]
    jobs = [(settings, part, CLASSES, rank, outputs[own], labels[own]) for rank, own in enumerate(places)]
    found = values(pool.run(rank_jobs.criterion, jobs))
    assert [value for value, _ in found] == pytest.approx([expected] * 2, rel=1e-6)
    np.testing.assert_allclose(np.concatenate([slope for _, slope in found]) / 2, gradient, rtol=1e-5, atol=1e-9)
