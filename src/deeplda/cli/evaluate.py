"""`deeplda evaluate RUN`: score a trained model again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from deeplda.cli.shared_options import DataDir, Device, FinishedRun, Json, OwnNetwork, Tta, flag
from deeplda.errors import InputError
from deeplda.formatting import wilson_interval
from deeplda.printing import say, say_json
from deeplda.training.config import RunConfig

if TYPE_CHECKING:
    from deeplda.training.metrics import Scores


def evaluate(
    run: FinishedRun,
    /,
    *,
    split: Annotated[Literal["train", "val", "test"], Parameter(help="Split of the data to score.")] = "test",
    data_dir: DataDir = None,
    network: OwnNetwork = None,
    device: Device = "cpu",
    subclasses: Annotated[
        bool, flag("Also show how often each subclass was predicted, and how often its class was right.")
    ] = False,
    tta: Tta = None,
    json_: Json = False,
) -> None:
    """Score every predictor of a trained model on one split of its data."""
    config = RunConfig.of(run)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})

    from deeplda.device import pick_device
    from deeplda.loading import load
    from deeplda.model import uncalibrated_note
    from deeplda.training.evaluation import evaluate as score
    from deeplda.training.evaluation import subclass_scores
    from deeplda.training.metrics import AUGMENTED
    from deeplda.training.preparation import noise_note, read_data
    from deeplda.training.progress import Progress, TerminalProgress
    from deeplda.training.run_folder import started_on

    model = load(run, network=network, device=str(pick_device(device)))
    data = read_data(config)
    changed = f"{config.data} has changed since {run} was trained"
    if data.class_names != model.class_names or data.sample_shape != model.card.sample_shape:
        raise InputError(f"{changed}: its classes or image size are different")
    if started_on(run) not in (None, data.fingerprint):
        say(f"note: {changed}, so this split may include samples that the model was trained on", file=sys.stderr)
    if note := noise_note(config):
        say(f"note: {note}", file=sys.stderr)
    if note := uncalibrated_note(model):
        say(f"note: {note}", file=sys.stderr)
    part = {"train": data.train, "val": data.val, "test": data.test}[split]
    watch = (Progress() if json_ else TerminalProgress()).watch
    scores = score(model, part, watch)
    if scores is None:
        raise InputError(f"the {split} set of {config.data} has no samples: choose another --split")
    augmented = score(model, part, watch, tta=tta) if tta else None
    named = (AUGMENTED[tta], augmented) if tta and augmented else None
    by_subclass = subclass_scores(model, part) if subclasses else None
    if json_:
        found = {"split": split, **_with_intervals(scores), "class_names": list(model.class_names)}
        found |= {"calibrated_on": model.calibrated_on}
        found |= {named[0]: _with_intervals(named[1])} if named else {}
        found |= {"subclasses": by_subclass} if by_subclass else {}
        say_json(found)
        return

    from deeplda.cli.terminal import print_scores, print_subclasses

    print_scores(scores, model.class_names, title=f"{config.data}, {split} set", augmented=named)
    if by_subclass:
        print_subclasses(by_subclass, augmented=named is not None)


def _with_intervals(scores: Scores) -> dict[str, Any]:
    """Return the scores, and Wilson's 95 % interval of each predictor's accuracy."""
    n, predictors = scores.n, scores.predictors.items()
    intervals = {name: wilson_interval(round(found.accuracy * n), n) for name, found in predictors}
    return {**scores.model_dump(), "accuracy_intervals": intervals}
