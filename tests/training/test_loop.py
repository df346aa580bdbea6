"""The training loop: stopping it after the last epoch."""

import json

import pytest

from deeplda.errors import StoppedError
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

SETTINGS = RunConfig(epochs=1, width=0.1, batch_size=400)


class Stopping(Progress):
    """Progress that asks to stop once an activity begins."""

    def __init__(self, activity):
        self.activity, self.asked = activity, False

    def watch(self, batches, _samples, activity):
        self.asked = self.asked or activity == self.activity
        yield from batches


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_to_end(SETTINGS, folder, Progress())
    return folder


@pytest.mark.parametrize("activity", ["fitting the predictors", "scoring"])
def test_a_run_stops_after_the_last_epoch_too_and_can_be_resumed(whole, tmp_path, activity):
    progress = Stopping(activity)
    with pytest.raises(StoppedError, match=f"stopped after {activity}"):
        run_to_end(SETTINGS, tmp_path / "run", progress, lambda: progress.asked)
    run_to_end(SETTINGS, tmp_path / "run", Progress())
    assert metrics(tmp_path / "run") == metrics(whole)
    for file in ("model/weights.safetensors", "model/model.json"):
        assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes()
