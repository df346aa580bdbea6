"""The settings that `deeplda train` chooses for images and tables of your own, and the lines it prints about them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deeplda.cli.run_choice import RunChoice
from deeplda.errors import InputError
from deeplda.formatting import counted, duration
from deeplda.training.config import RunConfig, with_absolute_paths

if TYPE_CHECKING:
    from deeplda.data.dataset import Data
    from deeplda.training.parallel import World
    from deeplda.training.progress import Progress

# The time for a run on images of your own, from the command to the report.
DEFAULT_MINUTES = 3.0


@dataclass(frozen=True)
class Automatic:
    """The automatic choice of settings for a command.

    Attributes:
        given: the settings that the user gave.
        recipe: the recipe that the user gave.
        minutes: the budget that the user gave.
        processes: the number of processes that the user gave.
        started: when the command was started, on the monotonic clock.

    Raises InputError if the budget is not positive, or if the given settings do not depend on it.
    """

    given: Mapping[str, object]
    recipe: str | None
    minutes: float | None
    processes: int
    started: float

    def __post_init__(self) -> None:
        if self.minutes is None:
            return
        if not 0 < self.minutes < math.inf:
            raise InputError(f"--minutes is {self.minutes:g}, need a number above 0")
        if (other := self._other_choice) is not None:
            raise InputError(f"--minutes determines the number of epochs, but so does {other}: omit one of them")

    @property
    def _other_choice(self) -> str | None:
        """The option that determines the number of epochs instead, or None."""
        options = {
            "recipe": self.recipe,
            "start-from": self.given.get("start_from"),
            "epochs": self.given.get("epochs"),
        }
        return next((f"--{name} {value}" for name, value in options.items() if value is not None), None)

    def applied(self, choice: RunChoice) -> RunChoice:
        """Return the choice with settings that suit the data, if it is a new run on data of the user's own."""
        if not choice.is_new or self._other_choice is not None:
            return choice
        from deeplda.data.sources import find_source
        from deeplda.experiments.automatic_recipe import automatic_settings

        found = automatic_settings(self.given)
        if found is None:
            if self.minutes is not None:
                what = f"--minutes applies to a folder or an .npz file of images, not to {choice.settings.data}"
                raise InputError(f"{what}: pass --epochs instead")
            # An .npz file with images would have settings.
            has_rows = find_source(choice.settings.data).kind in ("table", "npz")
            return choice._replace(settings_are_open=has_rows)
        return choice._replace(
            settings=RunConfig.parse(with_absolute_paths(found), "the settings"), settings_are_open=True
        )

    def completion(self, folder: Path, progress: Progress, world: World) -> Callable[[RunConfig, Data], RunConfig]:
        """Return a function that completes settings, once the data has been read, and prints them as a command."""

        def complete(config: RunConfig, data: Data) -> RunConfig:
            choose = self._for_images if data.images else self._for_rows
            return choose(config, data, folder, progress, world)

        return complete

    def _for_images(self, config: RunConfig, data: Data, folder: Path, progress: Progress, world: World) -> RunConfig:
        """Return the settings with the number of epochs that fits the budget."""
        from deeplda.experiments.automatic_recipe import fitted_epochs

        minutes = DEFAULT_MINUTES if self.minutes is None else self.minutes
        with progress.status("measuring the pace of this machine"):
            fit = fitted_epochs(config, data, 60 * minutes, time.monotonic() - self.started, world)
        config = config.model_copy(update={"epochs": fit.epochs})
        if world.first:
            what = f"{counted(len(data.train), 'training image')} of {len(data.class_names)} classes"
            self._announce(f"{what}, about {duration(fit.seconds)} in all", config, folder, progress)
            if not fit.in_budget:
                progress.note(
                    f"warning: this takes longer than {minutes:g} minute{'s' * (minutes != 1)}, because the network "
                    f"has to see these images {counted(fit.epochs, 'time')} to learn from them. To shorten the run, "
                    "pass a smaller --image-size or --width, which costs some accuracy, or repeat the command above "
                    "with fewer --epochs, which costs more. On a faster or less busy machine, it takes less time."
                )
        return config

    def _for_rows(self, config: RunConfig, data: Data, folder: Path, progress: Progress, world: World) -> RunConfig:
        """Return the settings that suit the number of rows."""
        from deeplda.training.table_settings import with_table_settings

        config = with_table_settings(config, len(data.train), self.given)
        if world.first:
            what = f"{counted(len(data.train), 'training row')} of {len(data.class_names)} classes"
            self._announce(what, config, folder, progress)
        return config

    def _announce(self, what: str, config: RunConfig, folder: Path, progress: Progress) -> None:
        progress.note(f"settings for {what}; to repeat this run: {self._command(config, folder)}")

    def _command(self, config: RunConfig, folder: Path) -> str:
        from deeplda.report.wording import command

        repeated = command(config.model_copy(update={"data": self.given["data"]}), folder)
        return repeated if self.processes == 1 else f"{repeated} --processes {self.processes}"
