"""S_B between classes and S_W within subclasses: SciPy on literal sums, finite differences, and ranks against one."""

import numpy as np
import pytest
import rank_jobs
import scipy.linalg
import torch
from batches import STATISTICS, constants, gaussian_batch, relative_error, tensors
from oracle import regularised, statistic_of
from ranks import RankPool, values

from deeplda import DeepLDALoss, DLDALoss, RDLDALoss
from deeplda.core import discriminant_eigenvalues
from deeplda.losses import deep_lda_loss

pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")

# Classes with two, one, three and one subclasses, numbered in no particular order.
PARENTS = (3, 0, 3, 7, 7, 1, 7)
# (n, d): fewer dimensions than classes, as many as valid eigenvalues, and more than subclasses.
SHAPES = [(90, 2), (90, 3), (120, 9)]


def subclass_batch(n=90, d=4, *, seed=0):
    return gaussian_batch(n, d, len(PARENTS), seed=seed)


def drawn_weights(n):
    return np.random.default_rng(5).uniform(0.2, 3, n)


def literal_scatters(h, y, weights, scatter, class_weight):
    """Add up S_W around the subclass means and S_B around the class means, sample by sample."""
    owner = np.array(PARENTS)[y]
    w = weights.copy()
    if class_weight == "balanced":
        for c in np.unique(owner):
            w[owner == c] *= weights.sum() / (len(np.unique(owner)) * weights[owner == c].sum())
    mu = np.average(h, axis=0, weights=w)
    s_w, s_b = np.zeros((2, h.shape[1], h.shape[1]))
    for row, label, parent, weight in zip(h, y, owner, w, strict=True):
        of_subclass = np.average(h[y == label], axis=0, weights=w[y == label])
        of_class = np.average(h[owner == parent], axis=0, weights=w[owner == parent])
        s_w += weight * np.outer(row - of_subclass, row - of_subclass)
        s_b += weight * np.outer(of_class - mu, of_class - mu)
    return (s_w, s_b) if scatter == "sum" else (s_w / w.sum(), s_b / w.sum())


def loss_and_gradient(h, y, weights=None, dtype=torch.float64, **options):
    features, labels = tensors(h, y, dtype)
    loss = DeepLDALoss(**options)(features, labels, None if weights is None else torch.tensor(weights))
    loss.backward()
    return loss.item(), features.grad.double().numpy()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("scatter", "class_weight"), [("pooled", None), ("sum", None), ("pooled", "balanced"), ("sum", "balanced")]
)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_value_and_eigenvalues_are_those_of_literal_sums(shape, weighted, scatter, class_weight, alpha):
    h, y = subclass_batch(*shape)
    weights = drawn_weights(len(y)) if weighted else np.ones(len(y))
    s_w, s_b = literal_scatters(h, y, weights, scatter, class_weight)
    m = min(shape[1], len(set(PARENTS)) - 1)
    eigenvalues = scipy.linalg.eigh(s_b, regularised(s_w, alpha, 1e-3), eigvals_only=True)[-m:]
    options = {"alpha": alpha, "scatter": scatter, "class_weight": class_weight, "parents": PARENTS}
    given = torch.tensor(weights) if weighted else None
    found = discriminant_eigenvalues(*constants(h, y), sample_weight=given, **options)
    assert relative_error(found, eigenvalues) < 1e-9
    for statistic in STATISTICS:
        expected, _ = statistic_of(eigenvalues, statistic, 0.5, m)
        value, _ = loss_and_gradient(h, y, weights if weighted else None, statistic=statistic, epsilon=0.5, **options)
        assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"scatter": "sum"}])
def test_gradient_is_that_of_finite_differences(statistic, alpha, weighted, options):
    for shape in SHAPES:
        h, y = subclass_batch(*shape, seed=3)
        weights = drawn_weights(len(y)) if weighted else None
        settings = {"statistic": statistic, "alpha": alpha, "epsilon": 0.0, "parents": PARENTS, **options}
        _, gradient = loss_and_gradient(h, y, weights, **settings)
        direction = np.random.default_rng(1).normal(size=h.shape)
        step = 1e-5
        ahead, behind = (loss_and_gradient(h + sign * step * direction, y, weights, **settings)[0] for sign in (1, -1))
        assert (gradient * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-9)


def test_every_entry_of_the_gradient():
    h, y = subclass_batch(21, 3)
    criterion = DeepLDALoss(alpha=0.6, parents=PARENTS, class_weight="balanced")
    weights = torch.tensor(drawn_weights(21))
    assert torch.autograd.gradcheck(lambda features: criterion(features, torch.tensor(y), weights), tensors(h, y)[0])


def test_one_subclass_per_class_is_the_plain_loss():
    h, y = gaussian_batch(60, 5, 4)
    for options in ({}, {"class_weight": "balanced", "alpha": 0.3}):
        value, gradient = loss_and_gradient(h, y, parents=range(4), **options)
        expected, slope = loss_and_gradient(h, y, **options)
        assert value == pytest.approx(expected, rel=1e-12)
        assert relative_error(gradient, slope) < 1e-10


def test_only_the_names_of_classes_change():
    h, y = subclass_batch()
    renamed = tuple({3: 10, 0: 4, 7: 2, 1: 10**6}[parent] for parent in PARENTS)
    assert loss_and_gradient(h, y, parents=renamed)[0] == pytest.approx(loss_and_gradient(h, y, parents=PARENTS)[0])


def test_the_parts_of_a_class_may_lie_anywhere():
    """Moving two equal parts of a class apart, around the same class mean, changes the paper's loss alone."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    noise = rng.normal(size=(20, 2))
    h = np.concatenate([noise + centre for centre in ((0, 4), (0, -4), (3, 0))])
    further = h + np.repeat([[0, 5.0], [0, -5.0], [0, 0]], 20, axis=0)
    parents = (0, 0, 1)
    assert loss_and_gradient(further, y, parents=parents)[0] == pytest.approx(
        loss_and_gradient(h, y, parents=parents)[0]
    )
    assert loss_and_gradient(further, y)[0] < loss_and_gradient(h, y)[0] - 0.1


def test_float32_and_an_offset():
    h, y = subclass_batch(300, 6)
    exact, slope = loss_and_gradient(h.astype(np.float32).astype(np.float64) + 1000, y, parents=PARENTS)
    value, gradient = loss_and_gradient(h.astype(np.float32).astype(np.float64), y, parents=PARENTS)
    assert value == pytest.approx(exact, rel=1e-9)
    assert relative_error(gradient, slope) < 1e-8
    single, rough = loss_and_gradient(h, y, dtype=torch.float32, parents=PARENTS)
    assert single == pytest.approx(value, rel=1e-5)
    assert relative_error(rough, gradient) < 1e-4


def test_all_losses_have_parents():
    h, y = subclass_batch()
    features, labels = tensors(h, y)
    for criterion, options in ((RDLDALoss, {"alpha": 0.4}), (DLDALoss, {})):
        value = criterion(parents=PARENTS, **options)(features, labels)
        function = deep_lda_loss(features, labels, "smallest", parents=PARENTS, **options)
        plain = criterion(**options)(features, labels)
        assert value.item() == function.item() != plain.item()


def test_diagnostics_have_the_eigenvalues_between_classes():
    h, y = subclass_batch(90, 6)
    criterion = DeepLDALoss(parents=PARENTS)
    criterion(*tensors(h, y))
    expected = discriminant_eigenvalues(*constants(h, y), parents=PARENTS)
    torch.testing.assert_close(criterion.diagnostics.eigenvalues, expected)
    assert len(expected) == 3
    assert "parents=(3, 0, 3, 7, 7, 1, 7)" in repr(criterion)
    assert "parents" not in repr(DeepLDALoss())


@pytest.mark.parametrize(
    ("parents", "error", "message"),
    [
        ((0, 0, 1, 1), ValueError, "a label is 6, but parents has 4 entries, need a class for every label"),
        ((5,) * 7, ValueError, "all 90 samples belong to class 5, need at least two classes"),
        ((0, -2, 1), ValueError, "parents contains -2, need class ids >= 0"),
        ((), TypeError, "need an integer for each subclass"),
        ((0, 1.5), TypeError, "need an integer for each subclass"),
    ],
)
def test_parents_that_do_not_fit(parents, error, message):
    h, y = subclass_batch()
    with pytest.raises(error, match=message):
        DeepLDALoss(parents=parents)(*tensors(h, y))


def test_dorfer_has_no_parents():
    with pytest.raises(ValueError, match="scatter is 'dorfer' but parents were given, need no parents"):
        DeepLDALoss("smallest", scatter="dorfer", parents=PARENTS)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    ranks = RankPool(2, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options", [{"alpha": 0.6}, {"class_weight": "balanced"}, {"statistic": "smallest", "alpha": 0.0}]
)
def test_two_ranks_compute_what_one_process_does(pool, weighted, options):
    h, y = subclass_batch(90, 5)
    weights = drawn_weights(90) if weighted else None
    owner = np.array(PARENTS)[y]
    # Uneven parts; and parts by class, so that each rank has classes that the other does not have.
    for parts in ([np.arange(7), np.arange(7, 90)], [np.flatnonzero(owner > 1), np.flatnonzero(owner <= 1)]):
        given = [
            (h[rows], y[rows], options | {"parents": PARENTS}, None if weights is None else weights[rows])
            for rows in parts
        ]
        results = values(pool.run(rank_jobs.loss, given))
        value, slope = loss_and_gradient(h, y, weights, parents=PARENTS, **options)
        gradient = np.empty_like(h)
        for rows, (at_rank, own, _) in zip(parts, results, strict=True):
            gradient[rows] = own / 2
            assert at_rank == pytest.approx(value, rel=1e-12)
        assert relative_error(gradient, slope) < 1e-10


def test_ranks_with_different_parents_raise_together(pool):
    h, y = subclass_batch()
    given = [(h, y, {"parents": PARENTS}), (h, y, {"parents": PARENTS[::-1]})]
    for error in pool.run(rank_jobs.loss, given):
        assert isinstance(error, ValueError)
        assert "the loss has different options" in str(error)
