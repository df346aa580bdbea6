"""Settings and figures of a run in words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeplda.model import ModelCard
from deeplda.report.contents import RunRecord
from deeplda.training.config import RunConfig

PREDICTORS = {
    "hyperplanes": "hyperplanes",
    "nearest_mean": "nearest mean",
    "classic_lda": "classic LDA",
    "softmax": "softmax",
}
# Where a run was computed, and how often it was saved, says nothing about what it is.
_CIRCUMSTANCES = frozenset({"data", "data_dir", "device", "checkpoint_seconds"})
_UNITS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))


def data_name(config: RunConfig) -> str:
    """The known name, or the name of the folder or file."""
    return Path(config.data).stem if Path(config.data).is_absolute() else config.data


def objective(config: RunConfig) -> str:
    """For a heading: "regularised deep LDA, alpha 0.6"."""
    subclasses = f", {config.subclasses} subclasses a class" if config.subclasses != 1 else ""
    if config.objective == "cce":
        return f"cross-entropy{subclasses}"
    name = "deep LDA" if config.alpha == 1 else f"regularised deep LDA, alpha {config.alpha:g}"
    return f"{name}, {config.statistic} statistic{subclasses}"


def chosen_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that differ from the defaults, the data aside."""
    default = RunConfig()
    found = {name: value for name, value in config.model_dump(mode="json").items() if value != getattr(default, name)}
    found.pop("data", None)
    if config.objective == "dlda":
        found.pop("alpha", None)
    return found


def differing_settings(records: Sequence[RunRecord]) -> list[str]:
    """The settings in which runs differ."""
    settings = [record.config.model_dump(mode="json") for record in records]
    names = [name for name in settings[0] if any(other[name] != settings[0][name] for other in settings)]
    return [name for name in names if name not in _CIRCUMSTANCES - {"data"}]


def command(config: RunConfig) -> str:
    """The command that runs it again, into a new folder."""
    words = ["deeplda", "train", config.data]
    for name, value in chosen_settings(config).items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return shlex.join(words)


def percent(share: float) -> str:
    return f"{100 * share:.2f}\u00a0%"


def score_cells(found: dict[str, Any]) -> list[str]:
    """A predictor's accuracy, balanced accuracy and area under the ROC curve, for a table."""
    shares = [f"{100 * found[key]:.2f} %" for key in ("accuracy", "balanced_accuracy")]
    return [*shares, "-" if found.get("auc") is None else f"{found['auc']:.4f}"]


def kept_epoch(summary: dict[str, Any]) -> str:
    """Why an epoch's model was kept."""
    return f"of {summary['epochs']}, " + ("the best by validation" if summary["validation"] else "the last")


def axes(card: ModelCard) -> str:
    """What the coordinates of the embedding are."""
    if "softmax" in card.predictors:
        return (
            "Cross-entropy has no discriminant directions of its own: the axes are those of classic LDA, fitted to the "
            "outputs for training samples."
        )
    return "The axes are the directions that separate the training classes best."


def machine(environment: dict[str, Any]) -> str:
    """What a run was computed on: the GPU's name, or how many threads."""
    if environment.get("cuda"):
        return f"on {environment['cuda']}"
    threads = environment.get("threads")
    return "" if threads is None else f"on {threads} CPU thread{'s' * (threads != 1)}"


def effort(summary: dict[str, Any], environment: dict[str, Any]) -> str:
    """What the time of a run went into: "0.283 PFLOP on 2 CPU threads", as far as that is known."""
    counted = [compute(summary["flops"])] if "flops" in summary else []
    return " ".join([*counted, machine(environment)]).strip()


def compute(flops: int) -> str:
    """Floating-point operations in their largest unit: "0.283 PFLOP" from a tenth of one on, else TFLOP or GFLOP."""
    unit, size = next(((unit, size) for unit, size in _UNITS if flops >= size / 10), _UNITS[-1])
    return f"{flops / size:.3g} {unit}"


def surroundings(environment: dict[str, Any]) -> dict[str, str]:
    """When, where and with which versions a run was computed, as far as that is known."""
    names = {"machine": "machine", "cores": "cores", "threads": "threads", "cuda": "GPU", "python": "Python"}
    found = {"started": str(environment.get("started", "")).replace("T", " ").replace("+00:00", " UTC")}
    found |= {shown: str(environment[name]) for name, shown in names.items() if environment.get(name) is not None}
    versions = environment.get("versions")
    return found | ({str(n): str(version) for n, version in versions.items()} if isinstance(versions, dict) else {})


def duration(seconds: float) -> str:
    """In the two largest units: "48 s", "3 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share, `right` of `n` (Wilson's)."""
    z = 1.959963984540054
    share = right / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)
