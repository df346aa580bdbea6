"""The files of a report: the page for one run, the comparison of several runs, and figures as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeplda.data import Data
from deeplda.errors import InputError
from deeplda.model import Model
from deeplda.output_folder import OutputFolder, write_file
from deeplda.report.analysis import separated_class
from deeplda.report.comparison_page import MOST_DRAWN, comparison_page
from deeplda.report.configurations import configurations
from deeplda.report.page import run_page
from deeplda.report.record import InspectedRun, RunRecord, inspect_run, inspect_runs
from deeplda.subclasses import Clusters
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data_of_run
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.run_folder import has_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from deeplda.training.autoencoder_stage import SampleAutoencoder

# Maximum number of samples shown for each run in a comparison.
_POINTS_COMPARED = 2_000
# Maximum number of images drawn: for the worst mistakes, and for each subclass and the reconstructions.
_MOST_MISTAKES, _IMAGES_PER_ROW = 24, 10


def write_report(
    folder: Path,
    *,
    output: Path | None = None,
    figures: bool = False,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
    model: Model | None = None,
    data: Data | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the report on a finished run, by default to report.html in its folder, and return the report's path.

    Args:
        figures: also write figures as PNG and SVG to figures/ in the run folder.
        data_dir, network, named, model, data: see `inspect_run`.
        progress: receives progress reports; by default, they are shown in the terminal.

    Raises the same errors as `inspect_run`.
    """
    progress = progress or TerminalProgress()
    file = output or folder / "report.html"
    with progress.status(f"writing the report on {folder}"):
        run = inspect_run(folder, data_dir=data_dir, network=network, named=named, model=model, data=data)
        for note in run.notes:
            progress.note(note)
        if output is None:
            with OutputFolder.open(folder) as run_folder:
                run_folder.write(file.name, run_page(run))
        else:
            write_file(file, run_page(run))
        if figures:
            with OutputFolder.open(folder) as run_folder, run_folder.subfolder("figures") as subfolder:
                _write_figures(run, subfolder)
    return file


def write_comparison(
    title: str,
    records: Sequence[RunRecord],
    output: Path,
    *,
    unused: bool = False,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
) -> Path:
    """Write a comparison of several runs to `output` and return its path.

    With `unused`, nothing is overwritten: if `output` exists, its name is numbered.

    Raises InputError if a run cannot be inspected.
    """
    with TerminalProgress().status(f"comparing {len(records)} runs"):
        groups = configurations(records)
        best = [group.runs[0] for group in groups[:MOST_DRAWN]]
        # Published results have no models, and so no embeddings to draw.
        best = best if all(has_model(run.path) for run in best) else []
        drawn = inspect_runs(best, points=_POINTS_COMPARED, data_dir=data_dir, network=network, named=named)
        page = comparison_page(title, groups, drawn)
        with OutputFolder.open(output.parent) as folder:
            if unused:
                return output.with_name(folder.write_new(output.name, page))
            folder.write(output.name, page)
    return output


def write_subclass_figures(
    folder: Path, progress: Progress, data: Data | None = None, named: str | None = None
) -> list[Path]:
    """Draw the subclasses of a run, save the figures in its figures/ folder and return the PNG files.

    The files are reconstructions.png and, for each class, subclasses-INDEX-CLASS.png. Nothing is drawn for tabular
    data, or if the classes were not split in the embedding of an autoencoder. `data` is labelled with classes; by
    default, it is read from disk, with `named` as in `read_data`. Raises InputError if the run's autoencoder or
    subclasses are damaged.
    """
    from deeplda.report import figures
    from deeplda.training.autoencoder_stage import SampleAutoencoder
    from deeplda.training.subclass_stage import read_clusters

    config = RunConfig.read(folder / "run.toml")
    if config.subclasses == 1 or not (folder / "autoencoder").exists():
        return []
    data = data or read_data_of_run(folder, config, named=named)
    if not data.images:
        return []
    clusters = read_clusters(folder / "subclasses", None, data)
    if clusters is None:
        raise InputError(f"{folder / 'subclasses'} is damaged: train again")
    autoencoder = SampleAutoencoder.load(folder / "autoencoder" / "model")
    with OutputFolder.open(folder) as output, output.subfolder("figures") as subfolder:
        return [
            figures.save(figure, subfolder, name)[0]
            for name, figure in _subclass_figures(autoencoder, clusters, data, progress)
        ]


def _subclass_figures(
    autoencoder: SampleAutoencoder, clusters: Clusters, data: Data, progress: Progress
) -> Iterator[tuple[str, Figure]]:
    """Yield the reconstructions and one sheet per class, each with the name of its file."""
    from deeplda.report import figures

    images = data.train.inputs
    shown = np.asarray((data.test.inputs if len(data.test) else images)[:_IMAGES_PER_ROW], dtype=np.uint8)
    reconstructed = autoencoder.reconstruct(shown).round().astype(np.uint8)
    figure, _ = figures.reconstructions(shown, reconstructed, title="test images and their reconstructions")
    yield "reconstructions", figure
    nearest = nearest_to_centres(autoencoder.embed(images, progress.watch), clusters)
    names = clusters.map.names(data.class_names)
    for place, class_name in enumerate(data.class_names):
        own = [subclass for subclass, parent in enumerate(clusters.map.parents) if parent == place]
        sheet = {names[subclass]: images[nearest[subclass]].astype(np.uint8, copy=False) for subclass in own}
        title = f"{class_name}: training images closest to the centre of each subclass"
        figure, _ = figures.subclass_sheet(sheet, title=title)
        safe = re.sub("[^A-Za-z0-9]", "-", class_name)[:40]
        yield f"subclasses-{place}-{safe}", figure


def nearest_to_centres(embedding: NDArray[np.float32], clusters: Clusters) -> list[NDArray[np.intp]]:
    """Return the indices of the samples closest to the centre of their subclass, closest first, for each subclass."""
    nearest = []
    for subclass, centre in enumerate(clusters.centres):
        own = np.flatnonzero(clusters.labels == subclass)
        order = np.argsort(np.square(embedding[own] - centre).sum(1), kind="stable")
        nearest.append(own[order[:_IMAGES_PER_ROW]])
    return nearest


def _write_figures(run: InspectedRun, folder: OutputFolder) -> None:
    """Draw all figures for a run and save them in `folder` as PNG and SVG."""
    from deeplda.report import figures

    names = run.class_names
    drawn = {
        "learning-curves": figures.learning_curves([*run.epochs, run.summary]),
        "confusion": figures.confusion_matrix(run.scores.confusion, names),
        "embedding": figures.embedding_plane(run.coordinates[:, :2], run.labels, names, axis_names=run.axes),
        "densities": figures.densities(run.embedding, run.labels, names),
    }
    if run.spectra:
        drawn["eigenvalues"] = figures.eigenvalue_spectrum([row.epoch for row in run.epochs], run.spectra)
    if len(np.unique(run.labels)) > 1:
        best = [names[c] if c >= 0 else "none" for c in separated_class(run.embedding, run.labels)]
        drawn["dimension-power"] = figures.dimension_power(run.fisher_ratios, run.single_accuracies, best)
    if run.images:
        places, mistakes = run.hardest(_MOST_MISTAKES)
        wrong = places if mistakes else places[:0]
        true, decided = ([names[c] for c in which[wrong]] for which in (run.labels, run.decided))
        images = run.samples[wrong].astype(np.uint8)
        drawn["mistakes"] = figures.worst_mistakes(images, true, decided, run.probabilities[wrong])
    for name, (figure, _) in drawn.items():
        figures.save(figure, folder, name)
