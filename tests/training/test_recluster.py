"""Subclasses that are found again in the learnt space, and losses that separate only the classes."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from deeplda.data import load_data
from deeplda.errors import InputError, StoppedError
from deeplda.loading import load
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.criteria import lda_part
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.trainee import build_trainee


def settings(data, **more):
    quick = {"epochs": 4, "width": 0.25, "learning_rate": 0.1, "cluster_starts": 2, "cluster_on": "inputs"}
    return RunConfig(data=data, **{**quick, "subclasses": 2, "batch_size": 60, **more})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Three classes, each of two groups that lie far apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 120)
    centres = rng.normal(size=(6, 5)) * 4
    inputs = centres[2 * labels + np.tile([0, 1], 180)] + rng.normal(size=(360, 5))
    file = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(file, x_train=inputs.astype(np.float32), y_train=labels)
    return str(file)


def trainee_on(config):
    data = load_data(config.data)
    clusters = find_subclasses(config, data, Progress())
    data = on_subclasses(data, clusters)
    return data, build_trainee(config, data, subclasses=clusters.map), clusters


def weights_of(run):
    return {name: value.clone() for name, value in load(run).state_dict().items()}


def test_the_loss_gets_the_parents_only_to_separate_classes(rows):
    for between, parents in (("classes", (0, 0, 1, 1, 2, 2)), ("all", None)):
        data, trainee, _ = trainee_on(settings(rows, subclass_between=between))
        assert lda_part(trainee.criterion).parents == parents
        trainee.mute()
        trainee.criterion(trainee.trained(torch.from_numpy(data.train.inputs)), torch.from_numpy(data.train.labels))
        # min(d, C - 1) eigenvalues between classes, min(d, S - 1) between subclasses, with d = 3.
        assert len(lda_part(trainee.criterion).diagnostics.eigenvalues) == (2 if between == "classes" else 3)


def test_new_subclasses_are_those_of_k_means_on_the_standardised_embedding(rows):
    data, trainee, _ = trainee_on(settings(rows, recluster=2, subclass_between="classes"))
    assert [trainee.regroup(data, epoch) for epoch in range(5)] == [False, False, True, False, True]
    found = trainee.grouped(data).train.labels
    points = trainee.model.transform(data.train.inputs).astype(np.float64)
    points = (points - points.mean(0)) / points.std(0)
    classes = load_data(rows).train.labels
    for c in range(3):
        own = points[classes == c]
        theirs = KMeans(2, n_init=10, random_state=0).fit_predict(own)
        ours = found[classes == c] - 2 * c
        assert set(ours) == {0, 1}
        assert max(np.mean(ours == theirs), np.mean(ours != theirs)) == 1


def test_the_model_and_the_loss_follow_the_new_subclasses(rows):
    data, trainee, _ = trainee_on(settings(rows, recluster=1, subclass_between="classes"))
    classes = load_data(rows).train.labels
    # One subclass fewer than before: class 1 is not split.
    labels = np.array([0, 2, 3])[classes]
    labels[(classes == 0) & (np.arange(len(classes)) % 2 == 0)] = 1
    labels[(classes == 2) & (np.arange(len(classes)) % 2 == 0)] = 4
    trainee.trained.subclasses.copy_(torch.from_numpy(labels))
    grouped = trainee.grouped(data)
    np.testing.assert_array_equal(grouped.train.labels, labels)
    assert trainee.model.card.parents == lda_part(trainee.criterion).parents == (0, 0, 1, 2, 2)
    trainee.fit_predictors(grouped.train)
    assert trainee.model.predict_proba(data.test.inputs).shape == (len(data.test), 3)


def test_checkpoints_hold_the_subclasses(rows):
    config = settings(rows, recluster=1)
    data, trainee, _ = trainee_on(config)
    before = trainee.trained.subclasses.clone()
    snapshot = Snapshot.of(trainee.trained, trainee.optimizer, Counters())
    trainee.trained.subclasses.copy_((before // 2) * 2)
    snapshot.restore(trainee.trained, trainee.optimizer)
    np.testing.assert_array_equal(trainee.grouped(data).train.labels, before.numpy())


@pytest.mark.parametrize("between", ["all", "classes"])
@pytest.mark.parametrize("stopped_at", [6, 9, 14])
def test_a_resumed_run_ends_with_the_same_bytes(rows, tmp_path, between, stopped_at):
    """An epoch has 5 steps, so runs stop right before new subclasses are found, and in the middle of an epoch."""
    config = settings(rows, recluster=1, subclass_between=between)
    run_to_end(config, tmp_path / "whole", Progress())
    steps = 0

    def stop():
        nonlocal steps
        steps += 1
        return steps >= stopped_at

    with pytest.raises(StoppedError):
        run_to_end(config, tmp_path / "parts", Progress(), stop)
    run_to_end(config, tmp_path / "parts", Progress())
    whole, parts = weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert load(tmp_path / "whole").card == load(tmp_path / "parts").card


def test_reclustering_changes_the_training(rows, tmp_path):
    run_to_end(settings(rows, epochs=3, cluster_starts=1), tmp_path / "once", Progress())
    run_to_end(settings(rows, epochs=3, cluster_starts=1, recluster=1), tmp_path / "often", Progress())
    assert load(tmp_path / "often").card.parents is not None
    once, often = weights_of(tmp_path / "once"), weights_of(tmp_path / "often")
    assert not all(torch.equal(once[name], often[name]) for name in once if name.startswith("network"))


def test_what_cannot_be_combined():
    with pytest.raises(InputError, match="recluster is 3, but objective joint has an output for each subclass"):
        RunConfig.parse({"objective": "joint", "subclasses": 2, "recluster": 3}, "x")
    dorfer = {"subclasses": 2, "subclass_between": "classes", "scatter": "dorfer", "statistic": "smallest"}
    with pytest.raises(InputError, match="scatter is 'dorfer' but parents were given"):
        RunConfig.parse(dorfer, "x")
