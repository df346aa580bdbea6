"""A complete run, from the name of the data to a scored model in the run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from deeplda.data.dataset import Data
from deeplda.memory import keep_freed_memory
from deeplda.model import Model, uncalibrated_note
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.conditions import poor_conditions
from deeplda.training.config import RunConfig
from deeplda.training.loop import train
from deeplda.training.metrics import SummaryRow
from deeplda.training.parallel import ALONE, World
from deeplda.training.preparation import check_settings, find_data, noise_note, read_data
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun, Run, open_run, summary_row, with_stored_decisions
from deeplda.training.start_from import StartingWeights, seen_note, starting_split, starting_weights
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.trainee import build_trainee, model_card, moments_suffice


class Finished(NamedTuple):
    """A finished run; model and data are None if the run was already finished and was only read."""

    summary: SummaryRow
    model: Model | None = None
    data: Data | None = None


def run_to_end(
    config: RunConfig,
    folder: Path,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    stages: Path | None = None,
    world: World = ALONE,
    new_id: str | None = None,
    complete: Callable[[RunConfig, Data], RunConfig] | None = None,
) -> Finished:
    """Start or resume the run in `folder`, and return it once it is finished.

    Args:
        stop: called after every step; once it returns True, the state is saved and StoppedError is raised.
        stages: a folder in which runs that need the same autoencoders and subclasses share them.
        world: the processes that train together; the first one owns the folder.
        new_id: the id of the run if it is new, by default a random one.
        complete: for a new run, returns its final settings, given the data; all processes call it.

    The code that `config` names is run, so the caller checks with `require_named` that the user named it.

    Raises InputError if the settings or the data cannot be used, or if another process is using the folder.
    """
    summary = world.in_first(lambda: summary_row(folder, config))
    if summary is not None:
        return Finished(summary)
    keep_freed_memory()
    data, start = _read_checked(config, folder, progress, world)
    if start is not None:
        config = config.model_copy(update={"start_hash": start.digest})
    if complete is not None:
        config = complete(config, data)
    if world.first:
        for advice in poor_conditions(config, data):
            progress.note(f"warning: {advice}")
    with ExitStack() as stack:
        stack.callback(progress.close)

        def opened() -> Run:
            # The folder of a sweep's trial exists; if it is missing, it was moved while the data was read.
            create = stages is None
            return stack.enter_context(
                open_run(folder, config, data.fingerprint, new_id=new_id, create=create, split=data.split)
            )

        run = world.together(lambda: opened() if world.first else MemoryRun())
        if world.first and stages is None:
            progress.note(f"the run is in {folder}; Ctrl-C stops it, and it can be resumed")
        trained_on, subclasses = data, None
        if config.subclasses != 1:
            # Splitting the classes is a small part of the work, so the first process does it and shares the result.
            clusters = world.in_first(lambda: find_subclasses(config, data, progress, stop, folder, stages))
            trained_on, subclasses = on_subclasses(data, clusters), clusters.map
        trainee = build_trainee(config, trained_on, subclasses=subclasses, world=world)
        stack.callback(trainee.close)
        trainee.mute()
        if start is not None:
            progress.note(start.load_into(trainee))
            # From here on, the run can be resumed without the weights that it started from.
            run.save("last", Snapshot.of(trainee.trained, trainee.optimizer, Counters()))
        summary = train(config, trained_on, trainee, run, progress, stop, world)
        if world.first and (note := uncalibrated_note(trainee.model)):
            progress.note(note)
        return Finished(summary, trainee.model, data)


def _read_checked(
    config: RunConfig, folder: Path, progress: Progress, world: World
) -> tuple[Data, StartingWeights | None]:
    """Read the data and, in the first process of a run without a checkpoint, the weights to start from.

    Raises InputError, before anything is written, if they cannot be read or do not fit the settings.
    """
    with progress.status(f"reading {config.data}"):
        # Only the first process has the run folder.
        start = world.together(lambda: starting_weights(config, folder) if world.first else None)
        split = world.in_first(lambda: starting_split(config, folder))
    place = find_data(config, progress, split, world)
    with progress.status(f"reading {config.data}"):
        own = with_stored_decisions(config, folder)
        data = world.together(lambda: read_data(own, split, exact=True, place=place, named=config.data))
    if world.first and (note := noise_note(config)):
        progress.note(note)
    if moments_suffice(config) and len(data.sample_shape) == 1:
        # Before the fingerprint is needed, which would take a pass of its own.
        world.together(lambda: data._full_pass.read_moments(progress.watch))
    world.together(lambda: check_settings(config, data, world))
    world.together(lambda: start.require_fit(model_card(config, data)) if start else None)
    if start is not None and (note := seen_note(config, data, split)):
        progress.note(note)
    return data, start
