"""The time of a step is measured without leaving a trace, and estimates add up."""

import numpy as np
import pytest
import torch

from deeplda.data import load_data
from deeplda.model import Model
from deeplda.training import pace
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import unwatched
from deeplda.training.trainee import Classifier, build_trainee

SMALL = RunConfig(width=0.1, batch_size=100)


def test_measuring_changes_neither_random_numbers_nor_the_training():
    data = load_data("digits")
    weights = [parameter.clone() for parameter in build_trainee(SMALL, data).trained.parameters()]
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    assert pace.seconds_of_step(SMALL, data) > 0
    assert torch.equal(torch.rand(3), expected)
    for before, after in zip(weights, build_trainee(SMALL, data).trained.parameters(), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize(("slow", "steps"), [(False, 11), (True, 1)])
def test_a_slow_network_is_not_timed_for_long(monkeypatch, slow, steps):
    """A clock on which a step takes 0.01 or 100 seconds."""
    taken = []
    clock = iter(np.arange(1000.0) * (100 if slow else 0.01))
    monkeypatch.setattr(pace, "perf_counter", lambda: next(clock))
    step = Classifier.step

    def counted(self, *batch, learning_rate):
        taken.append(learning_rate)
        return step(self, *batch, learning_rate=learning_rate)

    monkeypatch.setattr(Classifier, "step", counted)
    assert pace.seconds_of_step(SMALL, load_data("digits")) == pytest.approx(100 if slow else 0.01)
    assert taken == [0.0] * steps


@pytest.mark.parametrize("evaluate_every", [1, 4])
def test_an_epoch_has_its_steps_and_its_share_of_validation(evaluate_every):
    data, config = load_data("digits"), SMALL.model_copy(update={"evaluate_every": evaluate_every})
    steps = -(-len(data.train) // 100)
    longer = pace.seconds_of_epoch(0.2, config, data) - pace.seconds_of_epoch(0.1, config, data)
    scored = (len(data.train) + len(data.val)) / 100 / 3 / evaluate_every
    assert longer == pytest.approx(0.1 * (steps + scored))


@pytest.mark.parametrize(("tta", "passes"), [(None, 2), ("mirror", 4), ("views", 8)])
def test_the_end_applies_the_network_to_all_samples(monkeypatch, tta, passes):
    """To the training set once, and to the others to calibrate, to score and to show them."""
    data = load_data("digits")
    config = SMALL.model_copy(update={"tta": tta})
    longer = pace.seconds_at_end(0.2, config, data) - pace.seconds_at_end(0.1, config, data)
    expected = len(data.train) + passes * (len(data.val) + len(data.test))
    assert longer == pytest.approx(0.1 * expected / 100 / 3)
    # A pass over n samples is n / 100 / 3 steps. This counts the samples that a run and its report embed.
    seen = []
    batches = Model._batches

    def counted(self, compute, inputs, *given, **options):
        views = {None: 1, "mirror": 2, "views": 6}[options.get("tta")]
        seen.append(views * len(inputs))
        return batches(self, compute, inputs, *given, **options)

    monkeypatch.setattr(Model, "_batches", counted)
    trainee = build_trainee(config, data)
    trainee.finish(data, unwatched)
    trainee.score(data, unwatched)
    assert expected - len(data.test) == sum(seen)
