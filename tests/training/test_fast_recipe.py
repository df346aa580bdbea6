"""The fast recipe on small images: whitened from the training part, scored with mirror images, its cost counted."""

import numpy as np
import pytest
import torch
from trained_runs import image_set, row_set

from deeplda import load
from deeplda.errors import InputError
from deeplda.experiments.recipes import read_recipe
from deeplda.experiments.sweep_worker import TrialProgress
from deeplda.networks import FastNet
from deeplda.training.checkpoint import Counters
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate
from deeplda.training.pipeline import run_to_end
from deeplda.training.preparation import read_data
from deeplda.training.progress import Progress
from deeplda.training.run_folder import read_metrics
from deeplda.training.trainee import build_trainee

SMALL = {"width": 0.125, "batch_size": 60, "epochs": 2}


def settings(data, **more):
    return RunConfig(**(read_recipe("fast-cifar10") | SMALL | {"data": str(data), "device": "cpu"} | more))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return image_set(tmp_path_factory.mktemp("data") / "images.npz", ["red", "green", "blue"], side=24)


@pytest.fixture(scope="module")
def run(tmp_path_factory, images):
    folder = tmp_path_factory.mktemp("runs") / "fast"
    return folder, run_to_end(settings(images), folder, Progress()).summary


def test_it_learns(run):
    assert run[1].test.accuracy > 0.9


def test_the_network_starts_whitened_by_the_training_part(images):
    config = settings(images)
    classifier = build_trainee(config, read_data(config))
    network = classifier.model.network
    assert isinstance(network, FastNet)
    inputs = torch.from_numpy(read_data(config).train.inputs)
    responses = network.whitening(classifier.model.normalisation.prepare(inputs)).detach()[:, :12]
    assert np.cov(responses.transpose(0, 1).flatten(1).numpy()) == pytest.approx(np.eye(12), abs=0.02)


def test_whitening_stays_as_it_was(run, images):
    before = build_trainee(settings(images), read_data(settings(images))).model.network.whitening.convolution.weight
    assert torch.equal(load(run[0]).network.whitening.convolution.weight, before)


def test_mirrored_scores_are_those_of_the_mean_embedding(run, images):
    model, test = load(run[0]), read_data(settings(images)).test
    mean = (model.transform(test.inputs) + model.transform(test.inputs[:, :, :, ::-1].copy())) / 2
    decided = model.class_scores(torch.from_numpy(mean)).argmax(1).numpy()
    found = evaluate(model, test, tta="mirror")
    assert found.accuracy == pytest.approx(np.mean(decided == test.labels))
    assert run[1].mirrored["test"] == found
    assert run[1].mirrored["validation"].n == run[1].validation.n


@pytest.fixture(scope="module")
def plain(tmp_path_factory, images):
    """Cross-entropy with a plain head, as in airbench, and scored on six views."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    head = {"head": "plain", "logit_scale": 1 / 9, "head_learning_rate": 1.5, "bias_learning_rate": 2.0}
    config = settings(images, objective="cce", epochs=6, tta="views", weight_decay=1e-3, **head)
    return folder, run_to_end(config, folder, Progress()).summary


def test_a_plain_head_learns_and_is_rebuilt(plain, images):
    folder, summary = plain
    assert summary.test.accuracy > 0.9
    model = load(folder)
    assert (model.card.head, model.card.logit_scale) == ("plain", 1 / 9)
    assert model.network.output[-1].scale == 1 / 9
    assert RunConfig.of(folder).logit_scale == 1 / 9
    assert evaluate(model, read_data(settings(images)).test) == summary.test


def test_views_are_scored_under_their_own_name(plain, images):
    folder, summary = plain
    assert summary.mirrored == {}
    assert summary.views["test"] == evaluate(load(folder), read_data(settings(images)).test, tta="views")
    assert summary.views["validation"].n == summary.validation.n
    assert summary.augmented_test == ("views", summary.views["test"])


def test_a_scale_for_a_normalised_head_is_rejected_before_the_training(images, tmp_path):
    with pytest.raises(InputError, match="the head is normalised"):
        run_to_end(settings(images, logit_scale=0.5), tmp_path / "run", Progress())
    assert not (tmp_path / "run").exists()


def test_rows_have_no_mirror_image(tmp_path):
    data = row_set(tmp_path / "rows.npz", ["a", "b"])
    with pytest.raises(InputError, match="images"):
        run_to_end(RunConfig(data=str(data), epochs=1, tta="mirror"), tmp_path / "run", Progress())
    run_to_end(RunConfig(data=str(data), epochs=1), tmp_path / "run", Progress())
    with pytest.raises(InputError, match="images"):
        evaluate(load(tmp_path / "run"), read_data(RunConfig(data=str(data))).test, tta="mirror")


@pytest.mark.parametrize("augmentation", [{"flip": True}, {"translate": 2}])
def test_rows_can_be_neither_mirrored_nor_moved(augmentation, tmp_path):
    config = RunConfig(data=str(row_set(tmp_path / "rows.npz", ["a", "b"])), epochs=1, **augmentation)
    with pytest.raises(InputError, match=f"{next(iter(augmentation))} needs images, but the samples have shape"):
        run_to_end(config, tmp_path / "run", Progress())


def test_cost_by_hand(run, images):
    """Three convolutional passes a layer, but for the gradient at the image and at the fixed whitening filters."""
    layers = [(24, 8, 23), (8, 8, 11), (8, 32, 11), (32, 32, 5), (32, 32, 5), (32, 32, 2)]
    once = 2 * 32 * 3 + sum(2 * 9 * inputs * outputs * side**2 for inputs, outputs, side in layers)
    whitening = 2 * 4 * 3 * 24 * 23**2
    # The whitening's bias is trained, its filters and the image are not: its backward pass costs no products.
    assert run[1].flops == 2 * len(read_data(settings(images)).train) * (3 * once + whitening)


class Notes(Progress):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_the_last_training_has_all_images_and_no_validation(run, tmp_path, images):
    parts, folder = read_data(settings(images)), tmp_path / "all"
    config = settings(images, train_on_all=True)
    assert len(read_data(config).train) == len(parts.train) + len(parts.val)
    notes = Notes()
    found, model, _ = run_to_end(config, folder, notes)
    assert model.calibrated_on == 0
    assert any("probabilities are far too confident" in note for note in notes.said)
    assert found.validation is None
    assert (found.best_epoch, found.epochs) == (2, 2)
    assert found.test.n == run[1].test.n
    assert found.flops * len(parts.train) == run[1].flops * (len(parts.train) + len(parts.val))
    assert [row.validation for row in read_metrics(folder)] == [None] * 3
    with pytest.raises(InputError, match="validation set"):
        TrialProgress(print).start(config, read_data(config), Counters(), [])
