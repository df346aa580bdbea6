"""The queue from which a sweep's workers take trials, so that each trial is done exactly once.

A trial is identified by its name and may need several attempts: if a worker is stopped or dies, its attempt ends, and
a new attempt at the same trial is enqueued, which resumes from the checkpoint in the run folder. Attempts are Optuna
trials. The queue relies on two operations that are atomic in every storage: only one worker can claim a waiting
attempt, and an attempt can end only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Literal, Self

from optuna import Study
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deeplda.errors import InputError
from deeplda.experiments.results import TrialResult
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings

Status = Literal["waiting", "running", "done", "pruned", "failed", "abandoned"]
_STATUS: dict[TrialState, Status] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
}
# If a trial has several attempts, the one whose status comes first here counts.
_PRECEDENCE: tuple[Status, ...] = ("done", "pruned", "running", "waiting", "failed")
# After this many deaths in a row without a finished epoch, the trial itself is probably the cause.
_MOST_DEATHS = 3
# The longest name of a worker; a lock file has its name.
_LONGEST_WORKER = 200
# Attribute of studies created since deeplda 0.2; before that, rdlda without a statistic meant Wilks' statistic.
_SEMANTICS = "objectives of deeplda 0.2"

_Share = Annotated[float, Field(ge=0, le=1)]


class LostTrialError(Exception):
    """Another worker has ended this worker's attempt because it considered this worker dead."""


class Attempt(BaseModel):
    """One attempt at a trial, which is validated because anyone with access to the storage can write to it.

    Attributes:
        status: "abandoned" if the attempt was stopped, its worker died, or it was a duplicate.
        settings: the trial's own settings, without the settings that all trials share.
        drawn: the parameters that a search drew.
        worker: the worker's name, which is also the name of its lock file; `beat` counts its heartbeats.
        accuracy: validation accuracy by epoch.
        error: the reason why a failed attempt ended.
        ended: the reason why an abandoned attempt ended.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    number: int
    status: Status
    name: str = ""
    settings: TrialSettings = {}
    drawn: TrialSettings = {}
    worker: str | None = Field(None, pattern=r"^[^/\x00]+$", max_length=_LONGEST_WORKER)
    machine: str | None = None
    beat: int = 0
    accuracy: dict[int, _Share] = {}
    result: TrialResult | None = None
    error: str | None = None
    ended: str | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do."""
        return self.status in ("done", "pruned", "failed")

    @classmethod
    def of(cls, trial: FrozenTrial) -> Attempt:
        """Convert an Optuna trial. Raises InputError if its contents are not what a worker would write."""
        noted = trial.user_attrs
        status = _STATUS.get(trial.state) or ("abandoned" if noted.get("error") is None else "failed")
        known = {"number": trial.number, "status": status, "drawn": trial.params, "accuracy": trial.intermediate_values}
        try:
            return cls.model_validate({**noted, **known})
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise InputError(f"the storage has an invalid entry for trial {trial.number}: {what}") from None

    @model_validator(mode="after")
    def _done_with_a_result(self) -> Self:
        if self.status == "done" and self.result is None:
            raise ValueError("it is done but has no result")
        return self


class TrialQueue:
    """The attempts of one study, which workers claim, update and end."""

    def __init__(self, study: Study, storage: BaseStorage) -> None:
        self.study, self._storage = study, storage
        self._study_id = storage.get_study_id_from_name(study.study_name)

    def require_same(self, definition: SweepDefinition) -> None:
        """Raise InputError if the study was started with different shared settings, or if their meaning has changed."""
        known = self.study.user_attrs.get("settings")
        shared = definition.settings
        if known is None:
            self.study.set_user_attr(_SEMANTICS, True)
            self.study.set_user_attr("settings", shared)
        elif not isinstance(known, dict):
            raise InputError(f"the storage has an invalid entry for the sweep {self.study.study_name}: settings")
        elif known != shared:
            other = ", ".join(sorted(name for name in known | shared if known.get(name) != shared.get(name)))
            raise InputError(
                f"the storage already has a sweep named {self.study.study_name} that differs in {other}: choose "
                "another --sweep folder, or pass the same settings, including paths, if it is the same sweep"
            )
        elif _SEMANTICS not in self.study.user_attrs and not definition.states_objectives():
            raise InputError(
                "the sweep was started with deeplda 0.1, whose default objective was rdlda with statistic wilks and "
                "alpha 1: set objective, alpha and statistic in its sweep.toml, remove its journal.jsonl and start "
                "again; finished trials are kept"
            )

    def attempts(self) -> list[Attempt]:
        """Return all attempts, oldest first."""
        return [Attempt.of(trial) for trial in self.study.get_trials(deepcopy=False)]

    def current_attempts(self) -> dict[str, Attempt]:
        """Return the attempt that counts for each trial; trials with only abandoned attempts are omitted."""
        live = [attempt for attempt in self.attempts() if attempt.name and attempt.status != "abandoned"]
        found: dict[str, Attempt] = {}
        for attempt in sorted(live, key=lambda attempt: _PRECEDENCE.index(attempt.status)):
            found.setdefault(attempt.name, attempt)
        return found

    def enqueue(self, trials: Mapping[str, TrialSettings], *, retry: bool = False) -> None:
        """Enqueue the trials that have no current attempt and, with `retry`, the trials that failed."""
        current = self.current_attempts()
        drawn = {attempt.name: attempt.drawn for attempt in self.attempts() if attempt.drawn}
        for name, settings in trials.items():
            attempt = current.get(name)
            if attempt is None or (retry and attempt.status == "failed"):
                self._enqueue(name, settings, drawn.get(name, {}))

    def claim(self, worker: str, machine: str, skip: Callable[[str], bool]) -> Attempt | None:
        """Claim the first waiting trial for which `skip` returns false; return None if there is none."""
        for attempt in self.attempts():
            if attempt.status != "waiting" or skip(attempt.name) or not self._set(attempt, TrialState.RUNNING):
                continue
            if self._is_duplicate(attempt):
                self._abandon(attempt, "duplicate")
                continue
            # A worker that stalls here for too long is considered dead and loses the attempt.
            with suppress(LostTrialError):
                self.annotate(attempt, "worker", worker)
                self.annotate(attempt, "machine", machine)
                return attempt
        return None

    def _is_duplicate(self, mine: Attempt) -> bool:
        """Return whether the trial is done or has an older active attempt; two workers may have enqueued it at once."""
        others = [other for other in self.attempts() if other.name == mine.name and other.number != mine.number]
        blocking = {other.status for other in others if other.number < mine.number} - {"failed", "abandoned"}
        return bool(blocking) or any(other.status in ("done", "pruned") for other in others)

    def annotate(self, attempt: Attempt, key: str, value: object) -> None:
        """Store a value with a running attempt. Raises LostTrialError if the attempt has ended."""
        try:
            self._storage.set_trial_user_attr(self.trial_id(attempt), key, value)
        except UpdateFinishedTrialError:
            raise LostTrialError(attempt.name) from None

    def report(self, attempt: Attempt, epoch: int, accuracy: float) -> bool:
        """Store an epoch's validation accuracy, and return whether to prune the trial.

        Raises LostTrialError if the attempt has ended.
        """
        trial_id = self.trial_id(attempt)
        try:
            self._storage.set_trial_intermediate_value(trial_id, epoch, accuracy)
        except UpdateFinishedTrialError:
            raise LostTrialError(attempt.name) from None
        return self.study.pruner.prune(self.study, self._storage.get_trial(trial_id))

    def finish(self, attempt: Attempt, result: TrialResult) -> None:
        """Mark the trial as done. Raises LostTrialError if the attempt has ended."""
        self.annotate(attempt, "result", result.model_dump())
        self._end(attempt, TrialState.COMPLETE, result.validation)

    def prune(self, attempt: Attempt) -> None:
        """Mark the trial as pruned, with its last epoch's accuracy. Raises LostTrialError if the attempt has ended."""
        by_epoch = self._storage.get_trial(self.trial_id(attempt)).intermediate_values
        self._end(attempt, TrialState.PRUNED, by_epoch[max(by_epoch)])

    def fail(self, attempt: Attempt, sentence: str) -> None:
        """Mark the trial as failed. Raises LostTrialError if the attempt has ended."""
        self.annotate(attempt, "error", sentence)
        self._end(attempt, TrialState.FAIL)

    def requeue(self, attempt: Attempt, reason: Literal["stopped", "died"] = "stopped") -> None:
        """Put the trial back into the queue because its worker was stopped or has died."""
        if self._abandon(attempt, reason):
            now = Attempt.of(self._storage.get_trial(self.trial_id(attempt)))
            self._enqueue(now.name, now.settings, now.drawn)

    def requeue_dead(self, attempt: Attempt) -> None:
        """Put a dead worker's trial back into the queue, or mark it as failed if its workers keep dying."""
        earlier = [other for other in self.attempts() if other.name == attempt.name and other.ended == "died"]
        recent = [*earlier, attempt][-_MOST_DEATHS:]
        if len(recent) == _MOST_DEATHS and not any(other.accuracy for other in recent):
            with suppress(LostTrialError):
                self.fail(attempt, f"its worker died {_MOST_DEATHS} times before finishing an epoch")
        else:
            self.requeue(attempt, "died")

    def trial_id(self, attempt: Attempt) -> int:
        """Return Optuna's id for the attempt."""
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, attempt.number)

    def _enqueue(self, name: str, settings: TrialSettings, drawn: TrialSettings) -> None:
        self.study.enqueue_trial(drawn, user_attrs={"name": name, "settings": settings})

    def _abandon(self, attempt: Attempt, reason: str) -> bool:
        """End an attempt without a result; return whether this worker ended it."""
        try:
            self.annotate(attempt, "ended", reason)
        except LostTrialError:
            return False
        return self._set(attempt, TrialState.FAIL)

    def _end(self, attempt: Attempt, state: TrialState, *values: float) -> None:
        if not self._set(attempt, state, *values):
            raise LostTrialError(attempt.name)

    def _set(self, attempt: Attempt, state: TrialState, *values: float) -> bool:
        try:
            return self._storage.set_trial_state_values(self.trial_id(attempt), state, values or None)
        except UpdateFinishedTrialError:
            return False
