"""What was tried, by whom and how it ended: the one place where workers of a sweep agree.

A trial is known by its name and may be tried more than once: when a worker is stopped or dies, its attempt ends and
the trial waits again as a new attempt, which takes up the run folder's checkpoint. Attempts are Optuna's trials.
Two steps are atomic in every storage and all else rests on them: a waiting attempt is taken by one worker only, and
an attempt ends once only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from optuna import Study
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deeplda.errors import InputError

Status = Literal["waiting", "running", "done", "pruned", "failed", "void"]
_STATUS: dict[TrialState, Status] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
}
_SETTLED: tuple[Status, ...] = ("done", "pruned", "failed")
# Which attempt counts for a trial, first to last.
_RANK: tuple[Status, ...] = ("done", "pruned", "running", "waiting", "failed")
# A trial whose workers die this often in turn, without an epoch done, is not tried again by itself.
_MOST_DEATHS = 3


class LostError(Exception):
    """The attempt was ended by another worker, which thought this one dead."""


class _Result(BaseModel):
    model_config = ConfigDict(strict=True)

    validation: float = Field(ge=0, le=1)
    seconds: float = Field(ge=0, le=1e9)


class _Notes(BaseModel):
    """What is written down about an attempt. Anyone who can write to the storage can write there."""

    model_config = ConfigDict(strict=True)

    name: str = ""
    settings: dict[str, Any] = {}
    # The name of a file.
    worker: str | None = Field(None, pattern=r"^[^/\x00]+$")
    machine: str | None = None
    beat: int = 0
    result: _Result | None = None
    error: str | None = None
    ended: str | None = None
    accuracy: dict[int, Annotated[float, Field(ge=0, le=1)]] = {}


@dataclass(frozen=True)
class Attempt:
    """One try at a trial.

    Attributes:
        settings: the trial's own, apart from those all trials share.
        worker: who took it, and `machine` where; `beat` counts that worker's signs of life.
        accuracy: on validation, by epoch.
        drawn: what a search drew for it.
        result: of a done one: its validation accuracy and its seconds.
        error: of a failed one, the sentence. A void one was stopped, died, or was one too many.
    """

    number: int
    name: str
    status: Status
    settings: dict[str, Any]
    drawn: dict[str, Any]
    worker: str | None
    machine: str | None
    beat: int
    accuracy: dict[int, float]
    result: dict[str, Any] | None
    error: str | None
    ended: str | None

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status in _SETTLED

    @classmethod
    def of(cls, trial: FrozenTrial) -> Attempt:
        """From Optuna's trial. Raises InputError where its notes are not as we write them."""
        try:
            notes = _Notes.model_validate(trial.user_attrs | {"accuracy": trial.intermediate_values})
        except ValidationError as error:
            raise InputError(f"the storage says of trial {trial.number} what no worker does: {_first(error)}") from None
        status = _STATUS.get(trial.state) or ("failed" if notes.error is not None else "void")
        if status == "done" and notes.result is None:
            raise InputError(f"the storage says of trial {trial.number} that it is done, without a result")
        return cls(
            number=trial.number,
            name=notes.name,
            status=status,
            settings=notes.settings,
            drawn=trial.params,
            worker=notes.worker,
            machine=notes.machine,
            beat=notes.beat,
            accuracy=notes.accuracy,
            result=notes.result.model_dump() if notes.result else None,
            error=notes.error,
            ended=notes.ended,
        )


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"


class Ledger:
    """Reads and writes the attempts of one study."""

    def __init__(self, study: Study, storage: BaseStorage) -> None:
        self.study, self._storage = study, storage
        self._study_id = storage.get_study_id_from_name(study.study_name)

    def agree(self, shared: dict[str, Any]) -> None:
        """Hold that all workers have the same shared settings. Raises InputError where others have other ones."""
        known = self.study.user_attrs.get("settings")
        if known is None:
            self.study.set_user_attr("settings", shared)
        elif known != shared:
            other = ", ".join(sorted(name for name in known | shared if known.get(name) != shared.get(name)))
            raise InputError(
                f"the storage holds a sweep named {self.study.study_name} with another {other}: where it is another "
                "sweep, choose another --sweep folder; where it is this one, give it the same, paths too"
            )

    def attempts(self) -> list[Attempt]:
        """All, oldest first."""
        return [Attempt.of(trial) for trial in self.study.get_trials(deepcopy=False)]

    def standings(self) -> dict[str, Attempt]:
        """The attempt that counts, by trial; none for a trial that has only void ones."""
        found: dict[str, Attempt] = {}
        for attempt in self.attempts():
            if attempt.status == "void" or not attempt.name:
                continue
            before = found.get(attempt.name)
            if before is None or _RANK.index(attempt.status) < _RANK.index(before.status):
                found[attempt.name] = attempt
        return found

    def enqueue(self, trials: Mapping[str, dict[str, Any]], *, retry: bool = False) -> None:
        """Have each of the trials wait that is not there yet; with `retry` also those that failed."""
        standings = self.standings()
        drawn = {attempt.name: attempt.drawn for attempt in self.attempts() if attempt.drawn}
        for name, settings in trials.items():
            standing = standings.get(name)
            if standing is None or (retry and standing.status == "failed"):
                self._enqueue(name, settings, drawn.get(name, {}))

    def claim(self, worker: str, machine: str, passed_over: Callable[[str], bool]) -> Attempt | None:
        """Take the first waiting trial that is not `passed_over`; None where there is none."""
        for attempt in self.attempts():
            if attempt.status != "waiting" or passed_over(attempt.name):
                continue
            try:
                taken = self._storage.set_trial_state_values(self.trial_id(attempt), TrialState.RUNNING)
            except UpdateFinishedTrialError:
                taken = False
            if not taken:
                continue
            if self._one_too_many(attempt):
                self._end(attempt, "one too many")
                continue
            self.note(attempt, "worker", worker)
            self.note(attempt, "machine", machine)
            return attempt
        return None

    def _one_too_many(self, mine: Attempt) -> bool:
        """Whether the trial is done, or an older attempt goes for it: two workers may have had it wait at once."""
        others = [other for other in self.attempts() if other.name == mine.name and other.number != mine.number]
        return any(
            other.status in ("done", "pruned")
            or (other.status in ("running", "waiting") and other.number < mine.number)
            for other in others
        )

    def note(self, attempt: Attempt, key: str, value: Any) -> None:
        """Write something down about a running attempt. Raises LostError where it has been ended."""
        try:
            self._storage.set_trial_user_attr(self.trial_id(attempt), key, value)
        except UpdateFinishedTrialError:
            raise LostError(attempt.name) from None

    def report(self, attempt: Attempt, epoch: int, accuracy: float) -> bool:
        """An epoch is validated; whether the trial should be pruned. Raises LostError."""
        trial_id = self.trial_id(attempt)
        try:
            self._storage.set_trial_intermediate_value(trial_id, epoch, accuracy)
        except UpdateFinishedTrialError:
            raise LostError(attempt.name) from None
        return self.study.pruner.prune(self.study, self._storage.get_trial(trial_id))

    def finish(self, attempt: Attempt, result: dict[str, Any]) -> None:
        """The trial is done; `result` has its validation accuracy. Raises LostError."""
        self.note(attempt, "result", result)
        if not self._set(attempt, TrialState.COMPLETE, [result["validation"]]):
            raise LostError(attempt.name)

    def prune(self, attempt: Attempt) -> None:
        """The trial is ended early and counts with what it has. Raises LostError."""
        last = self._storage.get_trial(self.trial_id(attempt)).intermediate_values
        if not self._set(attempt, TrialState.PRUNED, [last[max(last)]]):
            raise LostError(attempt.name)

    def fail(self, attempt: Attempt, sentence: str) -> None:
        """The trial cannot be run. Raises LostError."""
        self.note(attempt, "error", sentence)
        if not self._set(attempt, TrialState.FAIL):
            raise LostError(attempt.name)

    def give_back(self, attempt: Attempt) -> None:
        """This worker stops: the trial waits again."""
        if self._end(attempt, "stopped"):
            self._enqueue_again(attempt)

    def bury(self, attempt: Attempt) -> None:
        """Its worker is dead: the trial waits again, or has failed where that happens again and again."""
        earlier = [other for other in self.attempts() if other.name == attempt.name and other.ended == "died"]
        recent = [*earlier, attempt][-_MOST_DEATHS:]
        if len(recent) == _MOST_DEATHS and not any(other.accuracy for other in recent):
            with suppress(LostError):
                self.fail(attempt, f"its worker died {_MOST_DEATHS} times before an epoch was done")
        elif self._end(attempt, "died"):
            self._enqueue_again(attempt)

    def _enqueue_again(self, attempt: Attempt) -> None:
        now = Attempt.of(self._storage.get_trial(self.trial_id(attempt)))
        self._enqueue(now.name, now.settings, now.drawn)

    def _enqueue(self, name: str, settings: dict[str, Any], drawn: dict[str, Any]) -> None:
        self.study.enqueue_trial(drawn, user_attrs={"name": name, "settings": settings})

    def _end(self, attempt: Attempt, why: str) -> bool:
        """End an attempt without a result; whether it was this worker that did."""
        try:
            self.note(attempt, "ended", why)
        except LostError:
            return False
        return self._set(attempt, TrialState.FAIL)

    def _set(self, attempt: Attempt, state: TrialState, values: Iterable[float] | None = None) -> bool:
        try:
            return self._storage.set_trial_state_values(
                self.trial_id(attempt), state, None if values is None else list(values)
            )
        except UpdateFinishedTrialError:
            return False

    def trial_id(self, attempt: Attempt) -> int:
        """Optuna's id of the attempt."""
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, attempt.number)
