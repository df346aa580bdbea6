"""Telling dead workers from living ones."""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from deeplda.experiments.sweeps.ledger import Attempt, LostError
from deeplda.experiments.sweeps.liveness import DeathWatch, Heart, Presence, is_locked, this_machine

HOLDER = """
import sys, time
from pathlib import Path
from deeplda.experiments.sweeps.liveness import Presence
with Presence(Path(sys.argv[1])) as presence:
    print(presence.name, flush=True)
    time.sleep(600)
"""


def running(worker, machine, beat=0):
    return Attempt(0, "t", "running", {}, {}, worker, machine, beat, {}, None, None, None)


def test_a_killed_worker_is_known_at_once_on_its_machine(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    attempt = running(holder.stdout.readline().strip(), this_machine())
    watch = DeathWatch(tmp_path)
    try:
        assert not watch.dead(attempt)
    finally:
        holder.kill()
        holder.communicate()
    assert watch.dead(attempt)


def test_a_worker_that_ends_well_leaves_nothing(tmp_path):
    with Presence(tmp_path) as presence:
        (file,) = (tmp_path / "workers").iterdir()
        assert presence.name in file.name
        assert is_locked(file)
    assert is_locked(file) is None


def test_a_worker_that_ends_in_an_error_is_found_dead(tmp_path):
    presence = Presence(tmp_path)
    with pytest.raises(KeyboardInterrupt), presence:
        raise KeyboardInterrupt
    assert DeathWatch(tmp_path).dead(running(presence.name, presence.machine))


@pytest.mark.parametrize("worker", ["far", None])
def test_elsewhere_the_beat_tells(tmp_path, worker):
    watch = DeathWatch(tmp_path, seconds=0.05)
    attempt = running(worker, "another machine")
    assert not watch.dead(attempt)
    time.sleep(0.1)
    living = replace(attempt, beat=1)
    assert not watch.dead(living)
    time.sleep(0.1)
    assert watch.dead(living)


def test_a_worker_here_with_another_folder_is_judged_by_its_beat(tmp_path):
    watch = DeathWatch(tmp_path, seconds=0.05)
    attempt = running("here-1", this_machine())
    assert not watch.dead(attempt)
    time.sleep(0.1)
    assert watch.dead(attempt)


def test_a_heart_beats_through_failures_until_it_loses():
    beats = []

    def beat(count):
        beats.append(count)
        if count == 2:
            raise OSError("the storage is away")
        if count == 4:
            raise LostError

    with Heart(beat, seconds=0.01) as heart:
        deadline = time.monotonic() + 10
        while not heart.lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert beats == [1, 2, 3, 4]


def test_a_heart_stops_with_its_block():
    beats = []
    with Heart(beats.append, seconds=0.01):
        deadline = time.monotonic() + 10
        while not beats:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    count = len(beats)
    time.sleep(0.05)
    assert len(beats) == count
