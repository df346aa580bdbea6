"""Descriptions of a run's settings, compute and environment in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeplda.formatting import counted, flops
from deeplda.training.config import DECISION_SETTINGS, HOW_TO_RUN, RunConfig
from deeplda.user_code import code_options, is_code

if TYPE_CHECKING:
    from deeplda.report.record import Environment, RunRecord
    from deeplda.training.metrics import SummaryRow

PREDICTOR_NAMES = {
    "hyperplanes": "hyperplanes",
    "nearest_mean": "nearest mean",
    "classic_lda": "classic LDA",
    "softmax": "softmax",
}


def data_name(config: RunConfig) -> str:
    """Return the name of a known data set, or the stem of a data folder or file."""
    return Path(config.data).stem if Path(config.data).is_absolute() else config.data


def objective_name(config: RunConfig) -> str:
    """Return the objective for a heading, such as "regularised deep LDA, alpha 0.6, smallest statistic"."""
    subclasses = f", {config.subclasses} subclasses per class" if config.subclasses != 1 else ""
    if config.objective == "cce":
        return f"cross-entropy{subclasses}"
    if config.objective == "gce":
        return f"generalised cross-entropy, q {config.gce_q:g}{subclasses}"
    if config.stretches[-1] == 0:
        return f"LDA without training{subclasses}"
    if is_code(config.objective):
        return f"objective {config.objective}{subclasses}"
    name = "deep LDA" if config.alpha == 1 else f"regularised deep LDA, alpha {config.alpha:g}"
    joint = f"cross-entropy + {config.lda_weight:g} x " if config.objective == "joint" else ""
    return f"{joint}{name}, {config.statistic} statistic{subclasses}"


def chosen_settings(config: RunConfig) -> dict[str, str | int | float | list[str]]:
    """Return the settings, other than the data, that differ from the objective's defaults."""
    default = RunConfig(objective=config.objective)
    found = config.model_dump(mode="json", exclude={"data", "objective"})
    changed = {name: value for name, value in found.items() if value != getattr(default, name)}
    return changed if config.objective == "lda" else {"objective": config.objective, **changed}


def differing_settings(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the settings in which the runs differ, among those that affect the result."""
    settings = [record.config.model_dump(mode="json", exclude=HOW_TO_RUN) for record in records]
    return [name for name in settings[0] if any(other[name] != settings[0][name] for other in settings)]


def command(config: RunConfig, run: Path) -> str:
    """Return the command that repeats the run in a new folder."""
    chosen = chosen_settings(config)
    if config.start_from is not None or config.extended_to is not None:
        # No options can express these settings completely.
        decisions = {name: chosen[name] for name in DECISION_SETTINGS if name in chosen}
        words = ["deeplda", "train", "--recipe", str(run / "run.toml"), *_options(decisions)]
        return shlex.join(words) + code_options(dict(config))
    return shlex.join(["deeplda", "train", config.data, *_options(chosen)])


def _options(settings: Mapping[str, object]) -> list[str]:
    """Return settings as words of a command."""
    words: list[str] = []
    for name, value in settings.items():
        # An option for several files is repeated.
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}"] + [str(each)] * (each is not True)
    return words


def kept_epoch(summary: SummaryRow) -> str:
    """Explain why the selected epoch was chosen, such as "of 30, best validation score"."""
    if summary.epochs == 0:
        return "the network was not trained"
    return f"of {summary.epochs}, " + ("best validation score" if summary.validation else "the last one")


def machine(environment: Environment) -> str:
    """Return the hardware of a run, such as "on 2 CPU threads" or "on" and the name of a GPU; empty if unknown."""
    if environment.cuda:
        return f"on {environment.cuda}"
    return "" if environment.threads is None else f"on {counted(environment.threads, 'CPU thread')}"


def effort(summary: SummaryRow, environment: Environment) -> str:
    """Return the compute and hardware of a run, as far as they are known, such as "0.283 PFLOP on 2 CPU threads"."""
    compute = [flops(summary.flops)] if summary.flops else []
    return " ".join([*compute, machine(environment)]).strip()


def environment_table(environment: Environment) -> dict[str, str]:
    """Return the start time, hardware and software versions of a run, as far as they are known."""
    found = {
        "started": environment.started.replace("T", " ").replace("+00:00", " UTC"),
        "machine": environment.machine,
        "cores": environment.cores,
        "threads": environment.threads,
        "GPU": environment.cuda,
        "Python": environment.python,
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")} | environment.versions
