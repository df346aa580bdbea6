"""Loggers for MLflow and Weights & Biases. Neither needs a server or an account here.

    deeplda train --logger experiment_trackers:MLflowLogger
    deeplda train --logger experiment_trackers:WandbLogger

Run the commands in the folder of this file, or copy it to yours. Install mlflow or wandb first: a package is imported
only if its logger is used. Then look at the runs with `mlflow ui --backend-store-uri mlruns`, or upload them with
`wandb sync`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class MLflowLogger:
    """Writes parameters and metrics to mlruns/ in the current directory."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
        mlflow.set_experiment("deeplda")
        mlflow.start_run(run_name=folder.name)
        mlflow.log_params(dict(settings))

    def on_epoch(self, row: Any) -> None:
        self._mlflow.log_metrics(row.scalars, step=row.epoch)

    def close(self) -> None:
        self._mlflow.end_run()


class WandbLogger:
    """Writes an offline run to wandb/ in the run folder."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        import wandb

        self._run = wandb.init(project="deeplda", name=folder.name, config=dict(settings), dir=folder, mode="offline")

    def on_epoch(self, row: Any) -> None:
        self._run.log(row.scalars, step=row.epoch)

    def close(self) -> None:
        self._run.finish()
