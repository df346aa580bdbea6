"""Read the data before training, and check that it fits the settings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from deeplda.data import load_data
from deeplda.data.corrections import corrected
from deeplda.data.dataset import Data
from deeplda.data.folder_options import FolderOptions, FolderSplit, Grown
from deeplda.data.label_noise import with_label_noise
from deeplda.data.sources import find_source
from deeplda.device import pick_device
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.memory import require_memory
from deeplda.model_card import ModelCard
from deeplda.networks import NETWORKS, check_network
from deeplda.networks.inspection import sample_memory
from deeplda.networks.registry import outline_network
from deeplda.sampling import sufficient_batch_size
from deeplda.training.config import LDA_OBJECTIVES, RunConfig
from deeplda.training.criteria import build_criterion, try_own_code
from deeplda.training.parallel import ALONE, World
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.run_folder import split_of, with_stored_decisions
from deeplda.training.trainee import model_card
from deeplda.user_code import is_code, require_named
from deeplda.views import no_views

# Training holds the weights, their gradient, the momentum and, in a step, the update.
_WEIGHT_COPIES = 4


def find_data(config: RunConfig, progress: Progress, split: FolderSplit, world: World = ALONE) -> str | Path:
    """Return where to read the data for a run: a pack in the cache if it is a folder that is too large for memory.

    The first process decides and packs. Raises InputError if that fails.
    """
    # A run that starts from another one has its images, and their size unless another one is given.
    before = split.before.shape[1:] if isinstance(split, Grown) else (None, None)
    image_size = config.image_size or (before[0] if before[0] == before[1] else None)

    def find() -> str | Path:
        place = find_source(config.data)
        if place.kind != "folder":
            return config.data
        # Packing needs Pillow, which other data does not.
        from deeplda.data.packing import packed_if_large

        options = FolderOptions(image_size, config.skip_unreadable, config.strict)
        return packed_if_large(
            place.path,
            options=options,
            data_dir=config.data_dir,
            processes=world.size,
            note=progress.note,
            watch=progress.watch,
        )

    return world.in_first(find)


def read_data(
    config: RunConfig,
    split: FolderSplit = "content",
    *,
    exact: bool = False,
    place: str | Path | None = None,
    named: str | None = None,
) -> Data:
    """Read the data for a run, with its label noise, corrections and class weights. Raises InputError if that fails.

    Args:
        split: for a folder of images, `run_folder.split_of` a run that was started before. Its images keep their parts,
            and whatever was added to the folder since is not in the training and validation sets.
        exact: raise InputError if the folder no longer has the images of the run, and ignore any others.
        place: what `find_data` has returned; it is called if this is None.
        named: the data that the user named. If the data is code, it is run only if the user named it.
    """
    require_named("this run", {"data": config.data}, {"data": named})
    data = load_data(
        find_data(config, TerminalProgress(), split) if place is None else place,
        data_dir=config.data_dir,
        image_size=config.image_size,
        split_seed=config.split_seed,
        skip_unreadable=config.skip_unreadable,
        strict=config.strict,
        group_by=config.group_by,
        target=config.target,
        split=split,
        exact=exact,
    )
    data = with_label_noise(data, config.label_noise, config.noise_kind, config.split_seed)
    data = corrected(data, relabel=config.relabel or (), drop=config.drop or ())
    if config.train_on_all:
        data = data.without_validation()
    return replace(data, train=data.train.balanced()) if config.class_weight == "balanced" else data


def read_data_of_run(run: Path, config: RunConfig, *, data_dir: Path | None = None, named: str | None = None) -> Data:
    """Read the data of a run that was started before, whose settings are `config`; its images keep their parts.

    Args:
        data_dir: the folder with the known data sets, if it has moved.
        named: as in `read_data`.
    """
    moved = config if data_dir is None else config.model_copy(update={"data_dir": data_dir})
    return read_data(with_stored_decisions(moved, run), split_of(run), named=named)


def noise_note(config: RunConfig) -> str | None:
    """Return a sentence about the run's label noise, or None if it has none."""
    if config.label_noise == 0:
        return None
    noise = f"label_noise {config.label_noise:g}, noise_kind {config.noise_kind}"
    return f"training and validation labels were made wrong on purpose ({noise}); the test labels are correct"


def check_settings(config: RunConfig, data: Data, world: World = ALONE) -> None:
    """Raise InputError if the device, the network or the data cannot be used, before anything is written."""
    # This comes first because all processes take part in it, and any of them may raise an error below.
    if len(set(world.gather(data.fingerprint))) > 1:
        raise InputError(f"the processes read different data from {config.data}: give them all the same data")
    if missing := set(range(len(data.class_names))) - set(np.unique(data.train.labels).tolist()):
        what = f"{config.data} has no training samples of class {data.class_names[min(missing)]}"
        raise InputError(f"{what}: add samples, or remove the class")
    device = pick_device(config.device)
    card = model_card(config, data)
    check_network(**card._architecture())
    build_criterion(config, world)
    try_own_code(config, len(data.class_names), card.embedding_dim)
    if config.head_learning_rate is not None and is_code(card.network):
        what = f"head_learning_rate needs a built-in network, but the network is {card.network}"
        raise InputError(f"{what}: omit it, and use learning_rate for all layers")
    if device.type == "cpu" and card.network in NETWORKS:
        _require_batch_memory(config, card, len(data.train), world)
    if len(data.sample_shape) != 3:
        _reject_augmentation(config, data)
    if config.stretches[-1] == 0:
        return
    # Stratified batches differ by one sample, so some are smaller than batch_size.
    smallest = len(data.train) // math.ceil(len(data.train) / config.batch_size)
    if min(smallest, config.batch_size) < 2 * world.size:
        what = f"the smallest batch size is {smallest} and the number of processes is {world.size}"
        raise InputError(what, need="at least two samples per process", do="raise --batch-size")
    if config.objective in LDA_OBJECTIVES and config.sampler != "shuffle":
        _require_two_classes_in_each_batch(config, data)


def _require_batch_memory(config: RunConfig, card: ModelCard, samples: int, world: World) -> None:
    """Raise InputError if the activations of a batch, which training keeps for the gradient, exceed the memory.

    This is a lower bound, so some batches that pass do not fit either.
    """
    network = outline_network(**card._architecture())
    weights = sum(parameter.nbytes for parameter in network.parameters())
    do = "lower --width, or use smaller samples"
    require_memory(weights, "the network with its gradient and momentum", copies=_WEIGHT_COPIES, do=do)
    kept = sample_memory(network, card.sample_shape).kept // (2 if config.precision == "bfloat16" else 1)
    share = min(samples, config.batch_size) // world.size
    at_once = min(share, config.chunk_size or share)
    do = f"lower --batch-size or --image-size, or pass a --chunk-size below {at_once}"
    require_memory(at_once * kept, f"a batch of {counted(at_once, 'sample')}", copies=1, do=do)


def _require_two_classes_in_each_batch(config: RunConfig, data: Data) -> None:
    """Raise InputError if an epoch has more batches than samples outside the most common class."""
    counts, batches = np.bincount(data.train.labels), math.ceil(len(data.train) / config.batch_size)
    others = len(data.train) - int(counts.max())
    if batches > others:
        enough = sufficient_batch_size(config.batch_size, data.train.labels, two_classes=True)
        raise InputError(
            f"an epoch has {batches} batches, but only {others} training samples are not of class "
            f"{data.class_names[counts.argmax()]}",
            need="two classes in every batch",
            do=f"pass --batch-size {enough} or more, or add samples",
        )


def _reject_augmentation(config: RunConfig, rows: Data) -> None:
    if config.tta is not None:
        raise InputError(no_views(rows.sample_shape))
    for name, off in (("flip", "--no-flip"), ("translate", "--translate 0")):
        if getattr(config, name):
            raise InputError(f"{name} needs images, but the samples have shape {rows.sample_shape}: pass {off}")
