"""Configurations of a comparison: runs that differ only in their seed, and their scores over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeplda.formatting import Spread
from deeplda.report import wording
from deeplda.report.record import RunRecord
from deeplda.training.idle_settings import without_effect


@dataclass(frozen=True, eq=False)
class Configuration:
    """Runs with the same settings except for the seed.

    Attributes:
        name: the settings in which the configurations differ, such as "objective lda, alpha 0.5"; the run folder if
            that does not tell them apart.
        values: the same without the names of the settings, such as "lda, 0.5", for narrow columns.
        runs: at least one run, the best validation score first.
    """

    name: str
    values: str
    runs: tuple[RunRecord, ...]

    @property
    def validation(self) -> Spread | None:
        """Validation accuracy over the seeds; None if a run has no validation set."""
        found = [score for run in self.runs if (score := run.validation_score) is not None]
        return Spread.of(found) if len(found) == len(self.runs) else None

    @property
    def test(self) -> Spread:
        """Test accuracy over the seeds."""
        return Spread.of([run.scores.accuracy for run in self.runs])

    @property
    def seconds(self) -> float:
        """Mean training time."""
        return Spread.of([run.summary.seconds for run in self.runs]).mean


def configurations(records: Sequence[RunRecord]) -> list[Configuration]:
    """Group runs that differ only in their seed, the best mean validation score first.

    If all runs differ only in their seed, each of them is a configuration of its own.
    """
    settings = configuration_settings(records)
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for place, record in enumerate(records):
        own = tuple(getattr(record.config, name) if setting_text(record, name) else None for name in settings)
        groups.setdefault(own if settings else (place,), []).append(record)
    runs = [tuple(sorted(group, key=_validation_or_none_last)) for group in groups.values()]
    names = _names([group[0] for group in runs], settings or wording.differing_settings(records))
    found = [Configuration(*both, group) for both, group in zip(names, runs, strict=True)]
    return sorted(found, key=lambda group: -group.validation.mean if group.validation else 1.0)


def configuration_settings(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the settings, other than the seed, in which the runs differ."""
    return [name for name in wording.differing_settings(records) if name != "seed"]


def setting_text(record: RunRecord, name: str) -> str:
    """Return the value of a setting as a string, which is empty if the setting has no effect on this run."""
    value = getattr(record.config, name)
    if without_effect(record.config, [name]):
        return ""
    if name == "data":
        return wording.data_name(record.config)
    return "default" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _names(records: Sequence[RunRecord], settings: Sequence[str]) -> list[tuple[str, str]]:
    """Return a name for each run and its values alone, or its folder twice if the names are empty or not unique."""
    found = []
    for record in records:
        texts = {name.replace("_", " "): text for name in settings if (text := setting_text(record, name))}
        found.append((", ".join(f"{name} {text}" for name, text in texts.items()), ", ".join(texts.values())))
    unique = len({name for name, _ in found if name}) == len(found)
    return found if unique else [(str(record.path), record.path.name) for record in records]


def _validation_or_none_last(run: RunRecord) -> float:
    return 1.0 if run.validation_score is None else -run.validation_score
