"""The time of a step is measured without leaving a trace, and estimates add up."""

import numpy as np
import pytest
import torch

from deeplda.data import load_data
from deeplda.training import pace
from deeplda.training.config import RunConfig
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
    assert pace.seconds_at_end(1.0, SMALL, data) > len(data.train) / 100 / 3
