"""The margins that a training keeps: they find planted mistakes, survive a stop, and are shared by processes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from deeplda.errors import InputError, StoppedError
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.margin_sums import MarginSums
from deeplda.training.parallel import World
from deeplda.training.pipeline import run_to_end
from deeplda.training.preparation import read_data
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MARGINS_FILE, read_margins

SETTINGS = {"epochs": 4, "width": 0.25, "learning_rate": 0.1, "label_noise": 0.1, "checkpoint_seconds": 1e-6}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_to_end(RunConfig(**SETTINGS), folder, Progress())
    return folder


def test_means_of_what_was_added():
    sums = MarginSums(4)
    sums.add(torch.tensor([2, 0]), torch.tensor([0.5, -1.0]))
    sums.add(torch.tensor([0, 1]), torch.tensor([0.5, torch.nan]))
    np.testing.assert_array_equal(sums.means(), np.array([-0.25, np.nan, 0.5, np.nan], dtype=np.float32))
    again = MarginSums(4)
    again.load(sums.state())
    np.testing.assert_array_equal(again.means(), sums.means())


def test_the_first_process_has_the_sum_over_all():
    mine, theirs = MarginSums(3), MarginSums(3)
    mine.add(torch.tensor([0]), torch.tensor([1.0]))
    theirs.add(torch.tensor([2]), torch.tensor([3.0]))

    @dataclass(frozen=True)
    class Both(World):
        size: int = 2

        def total(self, numbers):
            other = theirs if self.first else mine
            name = "sums" if numbers.dtype == np.float32 else "counts"
            return numbers + other.state()[name].numpy()

    before = {name: tensor.clone() for name, tensor in mine.state().items()}
    mine.gather(Both(rank=0))
    np.testing.assert_array_equal(mine.means(), [1, np.nan, 3])
    mine.load(before)
    theirs.gather(Both(rank=1))
    assert np.isnan(theirs.means()).all()


def test_planted_mistakes_have_the_lowest_margins(run):
    given, right = (read_data(RunConfig(label_noise=noise)).train.labels for noise in (0.1, 0.0))
    margins = read_margins(run, len(given))
    assert average_precision_score(given != right, -margins) > 0.9


def test_a_stopped_run_keeps_the_same_margins_to_the_byte(run, tmp_path):
    steps = 0

    def stop():
        nonlocal steps
        steps += 1
        return steps in (3, 17)

    config = RunConfig(**SETTINGS)
    for _ in range(2):
        with pytest.raises(StoppedError):
            run_to_end(config, tmp_path / "run", Progress(), stop)
    run_to_end(config, tmp_path / "run", Progress(), stop)
    assert (tmp_path / "run" / MARGINS_FILE).read_bytes() == (run / MARGINS_FILE).read_bytes()


def test_margins_of_other_samples_are_rejected(run, tmp_path):
    with pytest.raises(InputError, match="does not have a margin for each of 7 training samples"):
        read_margins(run, 7)
    assert read_margins(tmp_path, 7) is None


def test_a_checkpoint_without_margins_leaves_them_and_others_must_fit():
    network, sums = torch.nn.Linear(2, 2), MarginSums(3)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    sums.add(torch.tensor([1]), torch.tensor([2.0]))
    Snapshot.of(network, optimizer, Counters()).restore_margins(sums)
    assert sums.means()[1] == 2
    taken = Snapshot.of(network, optimizer, Counters(), sums)
    with pytest.raises(InputError, match="margins in the checkpoint does not match this run"):
        taken.restore_margins(MarginSums(4))
    damaged = replace(taken, tensors={"margins.sums": torch.zeros(3)})
    with pytest.raises(InputError, match="margins in the checkpoint"):
        damaged.restore_margins(MarginSums(3))
