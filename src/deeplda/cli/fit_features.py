"""`deeplda fit-features FEATURES`: a discriminant model of stored embeddings, without training."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import Json, OutputPath, Quiet, WholeNumber, flag
from deeplda.cli.train import train
from deeplda.core.options import ClassWeight
from deeplda.training.config import TrainConfig


def fit_features(
    features: Annotated[
        str,
        Parameter(
            help="An .npz file (features, labels) or a table, with a column of lists or a column for each number."
        ),
    ],
    /,
    *,
    target: Annotated[str | None, Parameter(help="Column of a table with the classes. [default: the last]")] = None,
    group_by: Annotated[
        str | None, Parameter(help="Column of a table: rows with the same value stay in one part of the split.")
    ] = None,
    lam: Annotated[
        float | None, Parameter(help="Ridge added to S_W. [default: the best one on the validation set]")
    ] = None,
    class_weight: Annotated[
        ClassWeight, Parameter(help="balanced: give rare classes the same weight as common ones.")
    ] = None,
    split_seed: Annotated[
        WholeNumber | None, Parameter(help="Seed for splitting off validation and test sets that the file lacks.")
    ] = None,
    run: Annotated[OutputPath | None, Parameter(help="Folder for the run. [default: runs/FEATURES-lda]")] = None,
    resume: Annotated[bool, flag("Finish a run that was interrupted.")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a discriminant model from stored embeddings with labels, without training a network.

    It is a run like any other, so evaluate, predict, similar, doctor, report and export work on it.
    """
    given = {"target": target, "group_by": group_by, "lam": lam, "class_weight": class_weight, "split_seed": split_seed}
    chosen = {name: value for name, value in given.items() if value is not None}
    config = TrainConfig.parse({"network": "identity", "epochs": 0, "priors": "empirical", **chosen}, "the settings")
    train(features, run=run, resume=resume, json_=json_, quiet=quiet, config=config)
