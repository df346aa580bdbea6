"""The second stage of Algorithm 1: split classes into subclasses by k-means in the autoencoder's embedding."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import save

from deeplda.data.dataset import Data
from deeplda.device import pick_device
from deeplda.errors import while_training
from deeplda.io import read_arrays, read_small
from deeplda.memory import require_memory
from deeplda.output_folder import OutputFolder
from deeplda.subclasses import Clusters, SubclassMap
from deeplda.training.autoencoder_stage import Reconstruction, SampleAutoencoder
from deeplda.training.config import AutoencoderConfig, FitConfig
from deeplda.training.loop import train
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun, Run, open_run, summary_row
from deeplda.training.splitting_classes import split_by_settings, standardised

# Standardising the points takes copies of them.
_POINT_COPIES = 3
_FILES = ("subclasses.safetensors", "subclasses.json")


class _SubclassFile(BaseModel):
    """The contents of subclasses.json."""

    model_config = ConfigDict(extra="forbid")

    identity: str
    parents: tuple[int, ...]
    notes: list[str]


def find_subclasses(
    config: FitConfig,
    data: Data,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
    stages: Path | None = None,
) -> Clusters:
    """Split the classes of the training set according to the settings, and report the result.

    Args:
        folder: the run folder; the autoencoder and the subclasses are saved there, and reused if they exist.
        stages: a folder shared by several runs; runs with the same data and settings reuse each other's results.
    """
    if stages:
        with OutputFolder.open(stages.parent, create=False) as sweep:
            sweep.subfolder(stages.name).close()
    identity = _identity(config, data)
    places = [folder / "subclasses"] if folder else []
    places += [stages / f"subclasses-{identity}"] if stages else []
    found = next((kept for place in places if (kept := read_clusters(place, identity, data))), None)
    if found is None:
        points = _points(config, data, progress, stop, folder, stages)
        with progress.status("splitting the classes"), while_training():
            found = split_by_settings(config, points, data.train.labels, data.class_names)
    for place in places:
        if read_clusters(place, identity, data) is None:
            _write_clusters(place, identity, found)
    for note in subclass_notes(found):
        progress.note(note)
    return found


def on_subclasses(data: Data, clusters: Clusters) -> Data:
    """Return the data with subclasses as the labels of the training set."""
    return replace(data, train=replace(data.train, labels=clusters.labels))


def subclass_notes(clusters: Clusters) -> list[str]:
    """Return messages for the user: the number of subclasses and merged clusters."""
    return [f"split {clusters.map.classes} classes into {len(clusters.map)} subclasses", *clusters.notes]


def read_clusters(place: Path, identity: str | None, data: Data) -> Clusters | None:
    """Return the subclasses stored in `place`, or None if they are missing, damaged or for different settings."""
    try:
        file = _SubclassFile.model_validate_json(read_small(place / "subclasses.json"))
        arrays = read_arrays(place / "subclasses.safetensors")
        subclasses = SubclassMap(file.parents)
        labels, centres = arrays["labels"], arrays["centres"]
    except (OSError, ValueError, KeyError):
        return None
    usable = (
        identity in (None, file.identity)
        and subclasses.classes == len(data.class_names)
        and (labels.shape == data.train.labels.shape and labels.dtype == np.int64)
        and (centres.ndim == 2 and len(centres) == len(subclasses) and centres.dtype.kind == "f")
        and (labels.min() >= 0 and labels.max() < len(subclasses))
        and np.array_equal(subclasses.to_classes(labels), data.train.labels)
    )
    return Clusters(labels, subclasses, centres, file.notes) if usable else None


def _write_clusters(place: Path, identity: str, clusters: Clusters) -> None:
    """Write the subclasses atomically. If another run has written them first, its result is the same."""
    file = _SubclassFile(identity=identity, parents=clusters.map.parents, notes=clusters.notes)
    with OutputFolder.open(place.parent, create=False) as parent, parent.new_folder(place.name, ours=_FILES) as folder:
        folder.write("subclasses.safetensors", save({"labels": clusters.labels, "centres": clusters.centres}))
        folder.write("subclasses.json", file.model_dump_json(indent=2) + "\n")


def _identity(config: FitConfig, data: Data) -> str:
    """Return a hash of everything that the subclasses depend on."""
    space = cluster_space(config, data)
    settings = (config.subclasses, config.cluster_starts, config.smallest_cluster, config.seed, space)
    autoencoder = AutoencoderConfig.of(config).to_toml() if space == "autoencoder" else ""
    return hashlib.blake2b(f"{settings}{autoencoder}{data.fingerprint}".encode(), digest_size=8).hexdigest()


def cluster_space(config: FitConfig, data: Data) -> str:
    """Return the space in which k-means runs: "autoencoder" (its embedding) or "inputs"."""
    return config.cluster_on or ("autoencoder" if data.images else "inputs")


def _points(
    config: FitConfig,
    data: Data,
    progress: Progress,
    stop: Callable[[], bool],
    folder: Path | None,
    stages: Path | None,
) -> NDArray[Any]:
    """Return the points (n, d) for k-means: standardised inputs, or their embedding from a trained autoencoder."""
    if cluster_space(config, data) == "inputs":
        samples, size = len(data.train), math.prod(data.sample_shape)
        do = "pass --cluster-on autoencoder, or use fewer samples"
        require_memory(4 * samples * size, "the inputs as points for k-means", copies=_POINT_COPIES, do=do)
        return standardised(np.asarray(data.train.inputs, dtype=np.float32).reshape(samples, size))
    settings = AutoencoderConfig.of(config)
    if folder is None:
        autoencoder = _train_autoencoder(settings, data, MemoryRun(), progress, stop)
        return autoencoder.embed(data.train.inputs, progress.watch)
    digest = hashlib.blake2b(f"{settings.to_toml()}{data.fingerprint}".encode(), digest_size=8).hexdigest()
    place = stages / f"autoencoder-{digest}" if stages else folder / "autoencoder"
    with OutputFolder.open(place.parent, create=False) as parent:
        parent.subfolder(place.name).close()  # rejects a link
    with open_run(place, settings, data.fingerprint, wait=stages is not None) as run:
        if summary_row(place) is None:
            _train_autoencoder(settings, data, run, progress, stop)
    own = folder / "autoencoder"
    if stages and not own.exists():
        own.symlink_to(os.path.relpath(place, folder), target_is_directory=True)
    autoencoder = SampleAutoencoder.load(place / "model").to(pick_device(config.device))
    return autoencoder.embed(data.train.inputs, progress.watch)


def _train_autoencoder(
    settings: AutoencoderConfig, data: Data, run: Run, progress: Progress, stop: Callable[[], bool]
) -> SampleAutoencoder:
    progress.note("training the autoencoder whose embedding will be used to split the classes:")
    trainee = Reconstruction.build(settings, data)
    train(settings, data, trainee, run, progress, stop)
    return trainee.trained
