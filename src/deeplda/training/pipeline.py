"""A whole run, from the name of the data to the scored model in its folder."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from deeplda.memory import keep_freed_memory
from deeplda.training.config import RunConfig
from deeplda.training.loop import train
from deeplda.training.metrics import SummaryRow
from deeplda.training.parallel import ALONE, World
from deeplda.training.preparation import check_settings, read_data
from deeplda.training.progress import Progress
from deeplda.training.run import FollowerRun
from deeplda.training.run_folder import open_run, summary_row
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.trainee import assemble


@contextmanager
def asked_to_stop(
    *numbers: signal.Signals, say: Callable[[str], None] = lambda _words: None
) -> Iterator[Callable[[], bool]]:
    """Whether one of the signals came; `say` gets the words for it. A second one raises KeyboardInterrupt at once."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("finishing the step, then saving; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_to_end(
    config: RunConfig,
    folder: Path,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    stages: Path | None = None,
    world: World = ALONE,
) -> SummaryRow:
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
    with progress.status(f"reading {config.data}"):
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
