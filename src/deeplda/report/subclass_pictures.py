"""Pictures of a run on subclasses: originals beside reconstructions, and what the subclasses are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import InputError, got
from deeplda.report.figures.pictures import reconstructions, subclass_sheet
from deeplda.report.figures.saving import save
from deeplda.subclasses import Clusters
from deeplda.training.autoencoder_stage import SampleAutoencoder
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.progress import Progress
from deeplda.training.subclass_stage import read_clusters

_SHOWN = 10


def write_subclass_pictures(folder: Path, progress: Progress) -> list[Path]:
    """Draw into figures/ of a run: reconstructions.png, and subclasses-CLASS.png for each class; return the files.

    Nothing is drawn for rows of numbers, nor where the classes were not split in an autoencoder's embedding. Raises
    InputError where the stages of the run are not whole.
    """
    config = RunConfig.read(folder / "run.toml")
    if config.subclasses == 1 or not (folder / "autoencoder").exists():
        return []
    data = read_data(config)
    if not data.images:
        return []
    clusters = read_clusters(folder / "subclasses", None, data)
    if clusters is None:
        raise InputError(got(f"{folder / 'subclasses'} is not whole", need="it as written", do="train again"))
    autoencoder = SampleAutoencoder.load(folder / "autoencoder" / "model")
    pictures = folder / "figures"
    images = data.train.inputs.astype(np.uint8, copy=False)
    shown = data.test.inputs[:_SHOWN].astype(np.uint8, copy=False) if len(data.test) else images[:_SHOWN]
    given_back = autoencoder.reconstruct(shown).round().astype(np.uint8)
    figure, _ = reconstructions(shown, given_back, title="test images, and what the autoencoder makes of them")
    files = [save(figure, pictures, "reconstructions")[0]]
    nearest = nearest_to_centres(autoencoder.embed(images, progress.watch), clusters)
    names = clusters.map.names(data.class_names)
    for place, class_name in enumerate(data.class_names):
        own = [subclass for subclass, parent in enumerate(clusters.map.parents) if parent == place]
        nearest_images = {names[subclass]: images[nearest[subclass]] for subclass in own}
        figure, _ = subclass_sheet(
            nearest_images, title=f"{class_name}: training images nearest to the centre of each subclass"
        )
        files.append(save(figure, pictures, f"subclasses-{_file_name(place, class_name)}")[0])
    return files


def nearest_to_centres(embedding: NDArray[np.float32], clusters: Clusters) -> list[NDArray[np.intp]]:
    """For each subclass the places of those of its samples that are nearest to its centre, the nearest first."""
    nearest = []
    for subclass, centre in enumerate(clusters.centres):
        own = np.flatnonzero(clusters.labels == subclass)
        order = np.argsort(np.square(embedding[own] - centre).sum(1), kind="stable")
        nearest.append(own[order[:_SHOWN]])
    return nearest


def _file_name(place: int, class_name: str) -> str:
    """A name for a file, whatever the class is called."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in class_name)
    return f"{place}-{plain[:40]}"
