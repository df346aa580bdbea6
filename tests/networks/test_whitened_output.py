"""Whitened outputs: NumPy's covariance, finite differences, and two ranks against one process."""

import numpy as np
import pytest
import rank_jobs
import torch
from batches import gaussian_batch, relative_error
from ranks import RankPool, values
from torch import nn

from deeplda import DeepLDALoss
from deeplda.core import discriminant_eigenvalues
from deeplda.errors import InputError
from deeplda.loading import load
from deeplda.networks import WhitenedOutput, build_network, describe
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

SHAPES = {"dorfernet": (3, 24, 24), "fastnet": (3, 24, 24), "convnet-small": (1, 8, 8), "mlp": (7,)}


def rows_of(n=60, d=4, seed=0):
    return torch.from_numpy(gaussian_batch(n, d, 3, seed=seed, offset=5.0)[0])


def test_outputs_have_mean_0_and_covariance_1():
    whitened = WhitenedOutput(4).double()(rows_of()).numpy()
    np.testing.assert_allclose(whitened.mean(0), 0, atol=1e-12)
    # The ridge is 1e-5 of the mean variance.
    np.testing.assert_allclose(np.cov(whitened.T, bias=True), np.eye(4), atol=1e-3)


def test_it_is_the_map_by_the_inverse_cholesky_factor():
    rows = rows_of().numpy()
    covariance = np.cov(rows.T, bias=True)
    root = np.linalg.cholesky(covariance + 1e-5 * covariance.trace() / 4 * np.eye(4))
    expected = np.linalg.solve(root, (rows - rows.mean(0)).T).T
    np.testing.assert_allclose(WhitenedOutput(4).double()(torch.from_numpy(rows)).numpy(), expected, rtol=1e-9)


def test_every_entry_of_the_gradient():
    layer, rows = WhitenedOutput(3).double(), rows_of(9, 3).requires_grad_()
    assert torch.autograd.gradcheck(layer, rows)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_gradient_of_a_loss_after_it_is_that_of_finite_differences(alpha):
    h, y = gaussian_batch(40, 3, 3)
    direction, labels, step = np.random.default_rng(1).normal(size=h.shape), torch.from_numpy(y), 1e-5

    def loss_at(h):
        rows = torch.from_numpy(h).requires_grad_()
        loss = DeepLDALoss(alpha=alpha)(WhitenedOutput(3).double()(rows), labels)
        loss.backward()
        return loss.item(), rows.grad.numpy()

    ahead, behind = (loss_at(h + sign * step * direction)[0] for sign in (1, -1))
    assert (loss_at(h)[1] * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_a_copy_is_rewarded_only_without_it(alpha):
    """k copies multiply the eigenvalue by k / (1 + (k - 1) alpha).

    After whitening, a copy has a variance of about the layer's ridge, which is far below that of the loss.
    """
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    one = rng.normal(size=(400, 1)) + y[:, None]
    labels = torch.from_numpy(y)
    single = discriminant_eigenvalues(torch.from_numpy(one), labels, alpha=alpha, lam=0)[0].item()
    for k in (2, 5):
        copies = torch.from_numpy(np.repeat(one, k, axis=1))
        rewarded = discriminant_eigenvalues(copies, labels, alpha=alpha, lam=0)[0].item()
        assert rewarded == pytest.approx(single * k / (1 + (k - 1) * alpha), rel=1e-9)
        whitened = WhitenedOutput(k).double()(copies)
        assert whitened[:, 1:].var(0).max() < 2e-5
        repaired = discriminant_eigenvalues(whitened, labels, alpha=alpha, lam=1e-3)[0].item()
        assert repaired == pytest.approx(single, rel=0.03)


def test_eval_mode_uses_running_statistics_in_a_fixed_map():
    layer, batches = WhitenedOutput(4, momentum=0.4).double(), [rows_of(seed=seed) for seed in range(3)]
    mean, covariance = np.zeros(4), np.eye(4)
    for batch in batches:
        layer(batch)
        mean = 0.6 * mean + 0.4 * batch.numpy().mean(0)
        covariance = 0.6 * covariance + 0.4 * np.cov(batch.numpy().T, bias=True)
    np.testing.assert_allclose(layer.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(layer.covariance, covariance, rtol=1e-12)
    root = np.linalg.cholesky(covariance + 1e-5 * covariance.trace() / 4 * np.eye(4))
    rows = rows_of(seed=9)
    expected = np.linalg.solve(root, (rows.numpy() - mean).T).T
    np.testing.assert_allclose(layer.eval()(rows), expected, rtol=1e-9)
    # One sample alone gets the same result, and nothing is changed by it.
    np.testing.assert_allclose(layer(rows[:1]), expected[:1], rtol=1e-9)
    other = WhitenedOutput(4).double()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.eval()(rows), layer(rows))


def test_precision_is_that_of_the_rows_and_autocast_changes_nothing():
    rows = rows_of().float()
    exact = WhitenedOutput(4).double()(rows.double())
    with torch.autocast("cpu", torch.bfloat16):
        found = WhitenedOutput(4)(rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)
    assert WhitenedOutput(4)(rows.bfloat16()).dtype == torch.float32


def test_constant_outputs_stay_finite():
    rows = rows_of(d=3)
    rows[:, 1] = 7.0
    assert WhitenedOutput(3).double()(rows).isfinite().all()
    assert not WhitenedOutput(3).double()(torch.full((8, 3), 2.0).double()).any()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(5, 3), r"rows has shape \(5, 3\), need \(n, 4\)"),
        (torch.zeros(4), r"rows has shape \(4,\)"),
        (torch.zeros(1, 4), "the batch has 1 sample, need at least two in training mode"),
    ],
)
def test_rows_that_do_not_fit(rows, message):
    with pytest.raises(ValueError, match=message):
        WhitenedOutput(4)(rows)


def test_arguments_that_do_not_fit():
    with pytest.raises(InputError, match="momentum must be greater than 0 and at most 1, got 0"):
        WhitenedOutput(4, momentum=0)
    with pytest.raises(InputError, match="width is 0, need at least 1"):
        WhitenedOutput(0)


@pytest.mark.parametrize("name", SHAPES)
def test_every_built_in_network_can_end_in_it(name):
    torch.manual_seed(0)
    network = build_network(name, SHAPES[name], 3, width=1 / 8, outputs="whitened")
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    outputs = network.train()(torch.randn(64, *SHAPES[name])).detach().double().numpy()
    np.testing.assert_allclose(np.cov(outputs.T, bias=True), np.eye(3), atol=1e-3)
    assert describe(network, SHAPES[name])[-1].layer == "whitening"
    plain = build_network(name, SHAPES[name], 3, width=1 / 8)
    assert not any("whitened" in key for key in plain.state_dict())


def test_names_that_do_not_fit():
    with pytest.raises(InputError, match="outputs is 'white', need 'whitened'"):
        build_network("mlp", (7,), 3, outputs="white")
    with pytest.raises(InputError, match=r"outputs is whitened, but .* has its own layers: omit outputs"):
        build_network("torch.nn:Identity", (7,), 3, outputs="whitened")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "cce"}, "objective cce needs outputs of any scale"),
        ({"chunk_size": 10}, "whitened over the whole batch, but chunk_size is 10"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(InputError, match=message):
        RunConfig.parse({"outputs": "whitened", **settings}, "x")


def test_a_trained_model_has_it_on_its_card(tmp_path):
    config = RunConfig(data="digits", outputs="whitened", objective="rdlda", epochs=2, width=0.1)
    finished = run_to_end(config, tmp_path / "run", Progress())
    model, inputs = load(tmp_path / "run"), finished.data.test.inputs
    assert model.card.outputs == "whitened"
    assert isinstance(model.network.whitened, WhitenedOutput)
    np.testing.assert_array_equal(model.transform(inputs), finished.model.transform(inputs))
    assert finished.summary.test.accuracy > 0.5


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    ranks = RankPool(2, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("first", [0, 11, 45])
def test_two_ranks_compute_what_one_process_does(pool, alpha, first):
    h, y = gaussian_batch(90, 5, 4)
    parts = [slice(0, first), slice(first, 90)]
    results = values(pool.run(rank_jobs.whitened, [(h[part], y[part], alpha) for part in parts]))
    value, gradient, statistics = rank_jobs.whitened(h, y, alpha)
    # DistributedDataParallel averages over the ranks.
    found = np.concatenate([own for _, own, _ in results]) / 2
    assert relative_error(found, gradient) < 1e-9
    for at_rank, _, its_statistics in results:
        assert at_rank == pytest.approx(value, rel=1e-11)
        assert all(relative_error(one, other) < 1e-11 for one, other in zip(its_statistics, statistics, strict=True))


def test_training_with_two_ranks_is_training_with_one(pool):
    batches = [gaussian_batch(60, 6, 4, seed=seed) for seed in range(4)]
    parts = [([(h[:25], y[:25]) for h, y in batches],), ([(h[25:], y[25:]) for h, y in batches],)]
    ranks, alone = values(pool.run(rank_jobs.train_whitened, parts)), rank_jobs.train_whitened(batches)
    assert all(relative_error(found, alone) < 1e-8 for found in ranks)


def test_a_local_layer_does_not_look_at_other_ranks(pool):
    h = gaussian_batch(40, 3, 3)[0]
    found = values(pool.run(rank_jobs.whitened_alone, [(h[:10],), (h[10:],)]))
    for rows, part in zip(found, (h[:10], h[10:]), strict=True):
        np.testing.assert_allclose(rows, WhitenedOutput(3).double()(torch.from_numpy(part)), rtol=1e-12)
