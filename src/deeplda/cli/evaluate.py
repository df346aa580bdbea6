"""`deeplda evaluate RUN`: score a trained model again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from deeplda.errors import InputError
from deeplda.training.config import RunConfig


def evaluate(
    run: Annotated[Path, Parameter(help="Folder of a finished run.")],
    /,
    *,
    split: Annotated[Literal["train", "val", "test"], Parameter(help="Which part of the data.")] = "test",
    data_dir: Annotated[Path | None, Parameter(help="Where known data is, if it has moved.")] = None,
    network: Annotated[str | None, Parameter(help="For a network of your own: module.path:callable.")] = None,
    device: Annotated[str, Parameter(help="cpu, cuda, ...")] = "cpu",
    subclasses: Annotated[
        bool, Parameter(negative="", help="Tell of subclasses too: decided how often, right how often.")
    ] = False,
    tta: Annotated[
        Literal["mirror"] | None, Parameter(help="Score also with embeddings of images and mirror images averaged.")
    ] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="One JSON object on stdout.")] = False,
) -> None:
    """Score the model of a run on a part of its data, by every predictor."""
    config = RunConfig.of(run)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})

    from deeplda.device import pick_device
    from deeplda.loading import load
    from deeplda.training.evaluation import evaluate as score
    from deeplda.training.evaluation import subclass_scores
    from deeplda.training.preparation import read_data
    from deeplda.training.progress import Progress, TerminalProgress
    from deeplda.training.run_folder import started_on

    model = load(run, network=network, device=str(pick_device(device)))
    data = read_data(config)
    if data.class_names != model.class_names or data.sample_shape != model.card.sample_shape:
        raise InputError(f"{config.data} has changed since {run} was trained: other classes or another image size")
    if started_on(run) not in (None, data.fingerprint):
        print(
            f"note: {config.data} has changed since {run} was trained: its parts may hold samples that were trained on",
            file=sys.stderr,
        )
    part = {"train": data.train, "val": data.val, "test": data.test}[split]
    watch = (Progress() if json_ else TerminalProgress()).watch
    scores = score(model, part, watch)
    if scores is None:
        raise InputError(f"the {split} part of {config.data} has no samples: choose another --split")
    mirrored = score(model, part, watch, mirror=True) if tta == "mirror" else None
    by_subclass = subclass_scores(model, part) if subclasses else None
    if json_:
        found = {"split": split, **scores.model_dump(), "class_names": list(model.class_names)}
        found |= {"mirrored": mirrored.model_dump()} if mirrored else {}
        found |= {"subclasses": by_subclass} if by_subclass else {}
        print(json.dumps(found))
        return

    from deeplda.cli.tables import print_scores, print_subclasses

    title = f"{config.data}, {split} part"
    print_scores(scores, list(model.class_names), title=title, mirrored=mirrored)
    if by_subclass:
        print_subclasses(by_subclass, mirrored=mirrored is not None)
