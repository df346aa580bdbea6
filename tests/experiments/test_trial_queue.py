"""The queue: every trial is done exactly once, whatever happens to the workers."""

import threading

import pytest

from deeplda.errors import InputError
from deeplda.experiments.results import TrialResult
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_storage import open_study
from deeplda.experiments.trial_queue import LostTrialError, TrialQueue

TRIALS = {"one": {"alpha": 0.0}, "two": {"alpha": 1.0}}


@pytest.fixture
def storage_url():
    """None for the journal in the folder; tests/services overrides it with a database."""
    return


@pytest.fixture
def open_queue(tmp_path, storage_url):
    """Open the same storage as another process would."""
    return lambda prune=False: TrialQueue(*open_study("s", tmp_path, storage_url, prune=prune))


@pytest.fixture
def queue(open_queue):
    queue = open_queue()
    queue.enqueue(TRIALS)
    return queue


def claim(queue, worker="w", skip=lambda _: False):
    return queue.claim(worker, "machine", skip)


def statuses(queue):
    return [(attempt.name, attempt.status) for attempt in queue.attempts()]


def test_trials_are_enqueued_once(queue, open_queue):
    for again in (queue, open_queue()):
        again.enqueue(TRIALS)
        assert statuses(again) == [("one", "waiting"), ("two", "waiting")]


def test_a_trial_is_taken_by_one_worker(queue, open_queue):
    other = open_queue()
    assert [claim(queue).name, claim(other).name, claim(queue), claim(other)] == ["one", "two", None, None]


def test_many_workers_at_once_take_each_trial_once(queue, open_queue):
    queue.enqueue({f"t{number}": {} for number in range(8)})
    taken, ready = [], threading.Barrier(4)

    def worker(mine):
        ready.wait()
        while (attempt := claim(mine)) is not None:
            taken.append(attempt.name)

    threads = [threading.Thread(target=worker, args=(open_queue(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted([*TRIALS, *(f"t{number}" for number in range(8))])


def test_some_trials_can_be_skipped(queue):
    assert claim(queue, skip=lambda name: name == "one").name == "two"


def test_a_done_trial_is_never_run_again(queue):
    attempt = claim(queue)
    queue.finish(attempt, TrialResult(validation=0.5, seconds=1.0))
    queue.enqueue(TRIALS, retry=True)
    assert statuses(queue) == [("one", "done"), ("two", "waiting")]
    assert queue.current_attempts()["one"].result == TrialResult(validation=0.5, seconds=1.0)


def test_a_requeued_trial_keeps_its_settings(queue):
    attempt = claim(queue)
    queue.requeue(attempt)
    assert statuses(queue) == [("one", "abandoned"), ("two", "waiting"), ("one", "waiting")]
    assert queue.current_attempts()["one"].settings == {"alpha": 0.0}
    assert not queue.current_attempts()["one"].settled


def test_the_trial_of_a_dead_worker_is_resumed_once(queue, open_queue):
    attempt, other = claim(queue), open_queue()
    other.requeue_dead(attempt)
    queue.requeue_dead(attempt)
    assert statuses(queue).count(("one", "waiting")) == 1
    assert claim(other, skip=lambda name: name == "two").name == "one"


def test_a_worker_taken_for_dead_by_mistake_loses_its_trial(queue, open_queue):
    attempt = claim(queue)
    open_queue().requeue_dead(attempt)
    for act in (
        lambda: queue.annotate(attempt, "beat", 1),
        lambda: queue.report(attempt, 1, 0.5),
        lambda: queue.finish(attempt, TrialResult(validation=0.5, seconds=1.0)),
        lambda: queue.fail(attempt, "no"),
    ):
        with pytest.raises(LostTrialError):
            act()
    queue.requeue(attempt)
    assert statuses(queue).count(("one", "waiting")) == 1


def test_a_trial_that_kills_its_workers_fails_in_the_end(queue):
    for _ in range(3):
        queue.requeue_dead(claim(queue, skip=lambda name: name == "two"))
    standing = queue.current_attempts()["one"]
    assert standing.status == "failed"
    assert standing.error == "its worker died 3 times before finishing an epoch"


def test_a_trial_that_makes_progress_between_deaths_does_not_fail(queue):
    for epoch in range(1, 6):
        attempt = claim(queue, skip=lambda name: name == "two")
        queue.report(attempt, epoch, 0.5)
        queue.requeue_dead(attempt)
    assert queue.current_attempts()["one"].status == "waiting"
    for _ in range(3):
        queue.requeue_dead(claim(queue, skip=lambda name: name == "two"))
    assert queue.current_attempts()["one"].status == "failed"


def test_failed_trials_are_retried_on_request(queue):
    queue.fail(claim(queue), "no such data")
    queue.enqueue(TRIALS)
    assert queue.current_attempts()["one"].error == "no such data"
    queue.enqueue(TRIALS, retry=True)
    assert queue.current_attempts()["one"].status == "waiting"


def test_a_trial_that_was_enqueued_twice_is_run_once(queue):
    """Two machines that start at the same moment may both enqueue it."""
    queue.study.enqueue_trial({}, user_attrs={"name": "one", "settings": {}})
    taken = [claim(queue), claim(queue), claim(queue)]
    assert [attempt and attempt.name for attempt in taken] == ["one", "two", None]
    assert statuses(queue) == [("one", "running"), ("two", "running"), ("one", "abandoned")]


def test_a_second_attempt_at_a_done_trial_is_dropped(queue):
    queue.finish(claim(queue), TrialResult(validation=0.5, seconds=1.0))
    queue.study.enqueue_trial({}, user_attrs={"name": "one", "settings": {}})
    assert [claim(queue).name, claim(queue)] == ["two", None]


def test_trials_below_the_median_are_pruned(open_queue):
    queue = open_queue(prune=True)
    queue.enqueue({f"t{number}": {} for number in range(6)})
    for number in range(5):
        attempt = claim(queue)
        assert not queue.report(attempt, 1, 0.5 + number / 100)
        queue.finish(attempt, TrialResult(validation=0.5, seconds=1.0))
    last = claim(queue)
    assert queue.report(last, 1, 0.4)
    queue.prune(last)
    assert queue.current_attempts()["t5"].status == "pruned"


def test_other_settings_in_the_same_storage_are_rejected(queue, open_queue):
    queue.require_same(SweepDefinition(settings={"epochs": 1}, grid={"seed": [0]}))
    open_queue().require_same(SweepDefinition(settings={"epochs": 1}, grid={"seed": [0, 1]}))
    with pytest.raises(InputError, match="sweep named s that differs in epochs"):
        open_queue().require_same(SweepDefinition(settings={"epochs": 2}, grid={"seed": [0]}))


OF_0_1 = {"objective": "rdlda", "alpha": 1.0, "statistic": "wilks"}


@pytest.mark.parametrize("missing", OF_0_1)
def test_a_sweep_of_0_1_that_relies_on_its_defaults_is_rejected(queue, open_queue, missing):
    """They had another meaning: the trials that are left would be trained with another objective."""
    settings = {name: value for name, value in OF_0_1.items() if name != missing}
    queue.study.set_user_attr("settings", settings)
    with pytest.raises(InputError, match=r"started with deeplda 0\.1"):
        open_queue().require_same(SweepDefinition(settings=settings, grid={"seed": [0]}))


@pytest.mark.parametrize(
    "rest",
    [
        {"settings": OF_0_1, "grid": {"seed": [0]}},
        {"settings": {}, "grid": [{name: [value] for name, value in OF_0_1.items()}, {"objective": ["cce"]}]},
        {"settings": {"statistic": "wilks"}, "grid": {"objective": ["dlda"]}},
        {"settings": {}, "search": {"trials": 1}},
    ],
)
def test_a_sweep_of_0_1_that_states_its_objectives_is_resumed(queue, open_queue, rest):
    queue.study.set_user_attr("settings", rest["settings"])
    open_queue().require_same(SweepDefinition(**rest))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 5),
        ("settings", []),
        ("worker", "../../x"),
        ("worker", "a/b"),
        ("worker", "w" * 300),
        ("beat", "often"),
        ("result", {}),
        ("result", {"validation": "good", "seconds": 1.0}),
        ("result", {"validation": 0.5, "seconds": 1e300}),
    ],
)
def test_entries_that_no_worker_writes_are_rejected(queue, key, value):
    queue.annotate(claim(queue), key, value)
    with pytest.raises(InputError, match=f"invalid entry for trial 0: {key}"):
        queue.attempts()


@pytest.mark.parametrize("value", [[], 5, "epochs", [{"epochs": 1}]])
def test_settings_of_a_study_that_no_worker_writes_are_rejected(queue, value):
    queue.study.set_user_attr("settings", value)
    with pytest.raises(InputError, match="invalid entry for the sweep"):
        queue.require_same(SweepDefinition(settings={"epochs": 1}, grid={"seed": [0]}))
