"""What is refused before a training, and what ends one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from deeplda.data import load_data
from deeplda.errors import InputError, TrainingError
from deeplda.training.batches import Batch
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.loop import run_epochs, train
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
        classifier.step(Batch(inputs, labels), 0.1)
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


def test_a_run_in_memory_without_scores_keeps_the_weights_of_the_last_epoch():
    data = load_data("digits")
    data = replace(data, val=data.val.take(np.arange(0)))
    config = RunConfig(width=0.1, epochs=2, batch_size=500)

    class WithEverySnapshot(MemoryRun):
        resumable = True

    ended = []
    for run in (MemoryRun(), WithEverySnapshot()):
        classifier = build_trainee(config, data)
        counters = run_epochs(config, data, classifier, run, Progress())
        assert counters.best_epoch == counters.epoch == 2
        ended.append((run.best(), classifier.trained.state_dict()))
    (nothing, weights), (snapshot, expected) = ended
    assert nothing is None
    assert snapshot.counters.epoch == 2
    assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_rates_of_the_head_and_of_biases_follow_the_schedule_and_are_restored():
    data = load_data("digits")
    settings = {"width": 0.1, "learning_rate": 0.1, "head_learning_rate": 0.3, "bias_learning_rate": 0.5}
    inputs, labels = torch.from_numpy(data.train.inputs[:100]), torch.from_numpy(data.train.labels[:100])

    def built():
        return build_trainee(RunConfig(**settings), data)

    classifier = built()
    classifier.step(Batch(inputs, labels), 0.02)
    assert [group["lr"] for group in classifier.optimizer.param_groups] == pytest.approx([0.02, 0.1, 0.06])
    head = classifier.optimizer.param_groups[2]["params"]
    assert [id(p) for p in head] == [id(p) for p in classifier.model.network.output.parameters()]
    snapshot = Snapshot.of(classifier.trained, classifier.optimizer, Counters())
    again = built()
    snapshot.restore(again.trained, again.optimizer)
    for trainee in (classifier, again):
        trainee.step(Batch(inputs, labels), 0.1)
    assert all(map(torch.equal, classifier.trained.parameters(), again.trained.parameters()))


def test_the_layer_to_scores_learns_with_the_output_layer():
    classifier = build_trainee(
        RunConfig(objective="cce", embedding_dim=7, head_learning_rate=0.5, width=0.1), load_data("digits")
    )
    head = {id(p) for group in classifier.optimizer.param_groups if group["lr"] == 0.5 for p in group["params"]}
    assert head == {id(p) for part in (classifier.model.network.output, classifier.head) for p in part.parameters()}


def test_the_rate_of_the_head_needs_a_built_in_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flat_network.py").write_text(
        "from torch import nn\ndef make(shape, d):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, d))\n"
    )
    config = RunConfig(network="flat_network:make", head_learning_rate=0.5)
    with pytest.raises(InputError, match="head_learning_rate needs a built-in network"):
        check_settings(config, load_data("digits"))
    check_settings(
        config.model_copy(update={"head_learning_rate": None, "bias_learning_rate": 0.5}), load_data("digits")
    )


def test_label_noise_is_in_the_training_and_validation_labels_alone():
    clean, noisy = read_data(RunConfig()), read_data(RunConfig(label_noise=0.4))
    for part, share in (("train", 0.4), ("val", 0.4), ("test", 0.0)):
        before, after = getattr(clean, part), getattr(noisy, part)
        assert np.mean(before.labels != after.labels) == pytest.approx(share, abs=0.5 / len(before))
        assert (before.inputs == after.inputs).all()
    assert noisy.fingerprint == read_data(RunConfig(label_noise=0.4)).fingerprint
    others = ({"label_noise": 0.2}, {"noise_kind": "pairs"}, {"split_seed": 1})
    different = {read_data(RunConfig(**{"label_noise": 0.4, **other})).fingerprint for other in others}
    assert len(different | {clean.fingerprint, noisy.fingerprint}) == 5


def test_training_on_all_has_the_same_noise():
    apart, together = (read_data(RunConfig(label_noise=0.4, train_on_all=on_all)) for on_all in (False, True))
    assert together.train.labels.tolist() == [*apart.train.labels, *apart.val.labels]


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


def test_a_network_whose_training_cannot_fit_in_memory_is_rejected(monkeypatch):
    data = load_data("digits")
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 3 * 2**20)
    with pytest.raises(InputError, match="network with its gradient and momentum does not fit in memory"):
        check_settings(RunConfig(width=2), data)
