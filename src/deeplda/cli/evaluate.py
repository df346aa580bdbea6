"""`deeplda evaluate RUN [DATA]`: score a trained model again, or on other data."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from deeplda.cli.shared_options import DataDir, Device, FinishedRun, Json, OwnNetwork, Tta, flag
from deeplda.errors import InputError
from deeplda.formatting import counted, wilson_interval
from deeplda.io import expanded
from deeplda.printing import say, say_json
from deeplda.training.config import RunConfig
from deeplda.user_code import is_code

if TYPE_CHECKING:
    from deeplda.data.sources import Labelled
    from deeplda.model import Model
    from deeplda.training.metrics import Scores


def evaluate(
    run: FinishedRun,
    data: Annotated[
        str | None,
        Parameter(
            help="Other labelled data to score: a folder of images, a pack, a table, an .npz file, a known data set, "
            "or your own function as module.path:name. For a run on such a function, name it again."
        ),
    ] = None,
    /,
    *,
    split: Annotated[
        Literal["train", "val", "test"] | None, Parameter(help="Split of the run's data to score. [default: test]")
    ] = None,
    data_dir: DataDir = None,
    network: OwnNetwork = None,
    device: Device = "cpu",
    subclasses: Annotated[
        bool, flag("Also show how often each subclass was predicted, and how often its class was correct.")
    ] = False,
    tta: Tta = None,
    json_: Json = False,
) -> None:
    """Score every predictor of a trained model on one split of its data, or on other labelled data."""
    config = RunConfig.of(run)
    is_own = data is None or (is_code(data) and data == config.data)
    if not is_own and split is not None:
        raise InputError(f"--split {split} is a split of the run's own data: omit it, or omit {data}")

    from deeplda.device import pick_device
    from deeplda.loading import load
    from deeplda.model import uncalibrated_note
    from deeplda.training.evaluation import evaluate as score
    from deeplda.training.evaluation import subclass_scores
    from deeplda.training.metrics import AUGMENTED
    from deeplda.training.progress import Progress, TerminalProgress

    model = load(run, network=network, device=str(pick_device(device)))
    if is_own:
        found = _own_part(run, config, model, split or "test", data_dir, named=data)
    else:
        assert data is not None
        found = _other_data(run, config, data, model, data_dir)
    uncalibrated = uncalibrated_note(model)
    for note in (*found.notes, *([uncalibrated] if uncalibrated else [])):
        say(f"note: {note}", file=sys.stderr)
    watch = (Progress() if json_ else TerminalProgress()).watch
    scores = score(model, found.part, watch)
    if scores is None:
        raise InputError(f"the {found.split} set of {config.data} has no samples: choose another --split")
    augmented = score(model, found.part, watch, tta=tta) if tta else None
    named = (AUGMENTED[tta], augmented) if tta and augmented else None
    by_subclass = subclass_scores(model, found.part) if subclasses else None
    if json_:
        result = {"split": found.split, **_with_intervals(scores), "class_names": list(model.class_names)}
        result |= {"calibrated_on": model.calibrated_on}
        result |= {named[0]: _with_intervals(named[1])} if named else {}
        result |= {"subclasses": by_subclass} if by_subclass else {}
        say_json(result)
        return

    from deeplda.cli.terminal import print_scores, print_subclasses

    what = "all samples" if found.split == "all" else f"{found.split} set"
    print_scores(scores, model.class_names, title=f"{data or config.data}, {what}", augmented=named)
    if by_subclass:
        print_subclasses(by_subclass, augmented=named is not None)


def _own_part(
    run: Path, config: RunConfig, model: Model, split: str, data_dir: Path | None, named: str | None
) -> Labelled:
    """Return one split of the data that a run was trained on, as far as it is still there.

    If it is code, the user has to have `named` it.
    """
    from deeplda.data.sources import Labelled
    from deeplda.training.preparation import noise_note, read_data_of_run
    from deeplda.training.run_folder import started_on

    data = read_data_of_run(run, config, data_dir=data_dir, named=named)
    changed = f"{config.data} has changed since {run} was trained"
    if data.table != model.card.table:
        raise InputError(f"{changed}: to score the model on all of its rows, run deeplda evaluate {run} {config.data}")
    if data.class_names != model.class_names or data.sample_shape != model.card.sample_shape:
        raise InputError(f"{changed}: its classes or image size are different")
    notes = list(data.notes)
    if started_on(run) not in (None, data.fingerprint) and not data.changed:
        notes.append(f"{changed}, so this split may include samples that the model was trained on")
    if note := noise_note(config):
        notes.append(note)
    part = {"train": data.train, "val": data.val, "test": data.test}[split]
    return Labelled(part, split, tuple(notes))


def _other_data(run: Path, config: RunConfig, source: str, model: Model, data_dir: Path | None) -> Labelled:
    """Return the samples of other data, with a note about those that the run was trained on."""
    import numpy as np

    from deeplda.data.sources import load_labelled
    from deeplda.data.splitting import TEST
    from deeplda.data.stored_split import StoredSplit
    from deeplda.training.run_folder import split_of

    card = model.card
    found = load_labelled(
        source, class_names=card.class_names, sample_shape=card.sample_shape, table=card.table, data_dir=data_dir
    )
    place = expanded(source).resolve()
    if found.split == "all" and place.is_file() and place == Path(config.data):
        kind, samples = ("file", "samples") if card.table is None else ("table", "rows")
        what = f"{source} is the {kind} of this run, so most of its {samples} were used to train the model"
        return replace(found, notes=(*found.notes, what))
    stored = split_of(run)
    if found.part.digests is None or not isinstance(stored, StoredSplit):
        return found
    trained = stored.assignment.digests[stored.assignment.parts != TEST]
    if seen := int(np.isin(found.part.digests, trained).sum()):
        what = f"{seen:,} of {counted(len(found.part), 'image')} were used to train the model or to select its epoch"
        return replace(found, notes=(*found.notes, what))
    return found


def _with_intervals(scores: Scores) -> dict[str, Any]:
    """Return the scores, and Wilson's 95 % interval of each predictor's accuracy."""
    n, predictors = scores.n, scores.predictors.items()
    intervals = {name: wilson_interval(round(found.accuracy * n), n) for name, found in predictors}
    return {**scores.model_dump(exclude={"weighted_accuracy"}), "accuracy_intervals": intervals}
