"""What is refused before a training, and what ends one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from deeplda.data import load_data
from deeplda.errors import InputError, TrainingError
from deeplda.training.config import RunConfig
from deeplda.training.loop import train
from deeplda.training.parallel import World
from deeplda.training.preparation import check_settings, read_data
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import build_trainee


def test_every_class_needs_training_samples():
    data = load_data("digits")
    without = replace(data, train=data.train.take(np.flatnonzero(data.train.labels != 3)))
    with pytest.raises(InputError, match="digits has no training samples of class 3"):
        check_settings(RunConfig(), without)
    check_settings(RunConfig(), data)


def test_the_split_has_a_seed_of_its_own():
    data = read_data(RunConfig()).fingerprint
    assert read_data(RunConfig(seed=1)).fingerprint == data != read_data(RunConfig(split_seed=1)).fingerprint


@pytest.mark.parametrize("objective", ["cce", "rdlda"])
def test_a_loss_that_is_not_finite_ends_the_training(objective):
    data = load_data("digits")
    classifier = build_trainee(RunConfig(objective=objective, width=0.1), data)
    with torch.no_grad():
        next(classifier.trained.parameters()).fill_(torch.nan)
    before = [parameter.clone() for parameter in classifier.trained.parameters()][1:]
    inputs, labels = torch.from_numpy(data.train.inputs[:100]), torch.from_numpy(data.train.labels[:100])
    with pytest.raises(TrainingError, match="training"):
        classifier.step(inputs, labels, 0.1)
    assert all(map(torch.equal, before, list(classifier.trained.parameters())[1:]))


@pytest.mark.parametrize("objective", ["cce", "rdlda"])
def test_weights_that_diverged_in_the_last_step_of_an_epoch_end_the_training(objective, monkeypatch):
    data = load_data("digits")
    config = RunConfig(objective=objective, width=0.1, epochs=1, batch_size=len(data.train))
    classifier = build_trainee(config, data)

    @torch.no_grad()
    def diverge():
        next(classifier.trained.parameters()).fill_(torch.nan)

    monkeypatch.setattr(classifier.optimizer, "step", diverge)
    with pytest.raises(TrainingError, match="the model is not finite"):
        train(config, data, classifier, MemoryRun(), Progress())


class Two(World):
    """The first of two processes, of which the other has the same."""

    def gather(self, value):
        return [value, value]


def test_two_classes_have_to_be_in_every_batch():
    data = load_data("digits")
    places = [*np.flatnonzero(data.train.labels == 0), *np.flatnonzero(data.train.labels == 1)[:2]]
    rare = replace(data, train=data.train.take(np.array(places)), class_names=("many", "few"))
    n = len(rare.train)
    with pytest.raises(InputError, match=f"only 2 training samples are not of class many.* --batch-size {-(-n // 2)} "):
        check_settings(RunConfig(batch_size=n // 3), rare)
    check_settings(RunConfig(batch_size=-(-n // 2)), rare)
    check_settings(RunConfig(batch_size=n // 3, objective="cce"), rare)


def test_the_smallest_batch_has_two_samples_for_each_process():
    """1,257 images in batches of 4 are 315 batches, some of them of 3."""
    data = load_data("digits")
    with pytest.raises(InputError, match="the smallest batch size is 3"):
        check_settings(RunConfig(batch_size=4), data, Two(size=2))
    check_settings(RunConfig(batch_size=5), data, Two(size=2))


def test_a_batch_that_cannot_fit_in_memory_is_rejected(monkeypatch):
    """ConvNetSmall at full width keeps about 53 KB of activations for each digit."""
    data = load_data("digits")
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 10 * 2**20)
    check_settings(RunConfig(batch_size=150), data)
    with pytest.raises(InputError, match=r"a batch of 300 samples does not fit in memory.* --chunk-size"):
        check_settings(RunConfig(batch_size=300), data)
    check_settings(RunConfig(batch_size=300), data, Two(size=2))
    check_settings(RunConfig(batch_size=300, chunk_size=100), data)
    check_settings(RunConfig(batch_size=300, precision="bfloat16"), data)
