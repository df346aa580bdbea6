"""A whole run, from the data's name to the scored model in its folder: Algorithm 1, or its last stage alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.text import Text

from deeplda.training.assembly import assemble, check_settings, read_data
from deeplda.training.config import RunConfig
from deeplda.training.kept_memory import keep_freed_memory
from deeplda.training.loop import train
from deeplda.training.memory_run import FollowerRun
from deeplda.training.progress import Progress
from deeplda.training.run_folder import open_run, summary_row
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.world import ALONE, World


def run_to_end(
    config: RunConfig,
    folder: Path,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    stages: Path | None = None,
    world: World = ALONE,
) -> dict[str, Any]:
    """Start the run in `folder`, or take it up where it stopped, and return its summary row.

    A finished run is only read. The processes of a `world` train together; the first has the folder. `stages` is a
    folder in which several runs share autoencoders and subclasses, where they want the same.

    Raises InputError for settings or data that do not suit, or a folder another process has; StoppedError soon after
    `stop` says so, with the state saved.
    """
    summary = world.from_first(summary_row(folder) if world.first else None)
    if summary is not None:
        return summary
    keep_freed_memory()
    with progress.console.status(Text(f"reading {config.data}")):
        data = world.together(lambda: read_data(config))
    world.together(lambda: check_settings(config, data, world))
    with ExitStack() as stack:
        stack.callback(progress.close)
        run = world.together(
            lambda: stack.enter_context(open_run(folder, config, data.fingerprint)) if world.first else FollowerRun()
        )
        clusters = None
        if config.subclasses != 1:
            # One process does: what comes before the training proper is a small part of the work.
            clusters = world.from_first(
                world.together(
                    lambda: find_subclasses(config, data, progress, stop, folder, stages) if world.first else None
                )
            )
            assert clusters is not None
            data = on_subclasses(data, clusters)
        trainee = assemble(config, data, subclasses=clusters.map if clusters else None, world=world)
        stack.callback(trainee.close)
        return train(config, data, trainee, run, progress, stop, world)
