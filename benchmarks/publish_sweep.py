"""Copy the record of a finished sweep, without weights and paths, into a folder that can be committed.

    python benchmarks/publish_sweep.py sweeps/table-stl10-long results/table-stl10-long

`deeplda table` and `deeplda report` read the copy, and `deeplda sweep --sweep results/table-stl10-long` with the same
definition skips the trials that it holds. For each trial it has run.toml, metrics.jsonl and environment.json.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from deeplda.training.run_folder import recorded_summary

# Lines of run.toml and sweep.toml that name folders of the machine.
_PATHS = re.compile(r"^data_dir = .*\n", re.MULTILINE)


def publish(sweep: Path, results: Path) -> int:
    """Copy the finished trials of `sweep` to `results`, and return their number."""
    results.mkdir(parents=True, exist_ok=True)
    (results / "sweep.toml").write_text(_PATHS.sub("", (sweep / "sweep.toml").read_text()))
    (results / "trials.csv").write_bytes((sweep / "trials.csv").read_bytes())
    finished = [run for run in sorted((sweep / "trials").iterdir()) if recorded_summary(run) is not None]
    for run in finished:
        copy = results / "trials" / run.name
        copy.mkdir(parents=True, exist_ok=True)
        (copy / "run.toml").write_text(_PATHS.sub("", (run / "run.toml").read_text()))
        (copy / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes())
        environment = json.loads((run / "environment.json").read_text())
        environment.pop("command", None)
        (copy / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")
    return len(finished)


if __name__ == "__main__":
    print(f"copied {publish(Path(sys.argv[1]), Path(sys.argv[2]))} trials to {sys.argv[2]}")
