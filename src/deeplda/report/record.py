"""The data behind a report: the record in a run folder, and the test samples as the model sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from deeplda.classical.linear_discriminant import column_signs
from deeplda.data import Data
from deeplda.data.corrections import sample_names
from deeplda.data.dataset import Inputs
from deeplda.errors import InputError, one_line
from deeplda.loading import load
from deeplda.model import Model, ModelCard
from deeplda.predictors import FeatureStatistics, discriminant_directions
from deeplda.report.analysis import fisher_ratios, single_dimension_accuracy
from deeplda.sampling import stratified_sample
from deeplda.training.config import DATA_SETTINGS, RunConfig
from deeplda.training.evaluation import evaluate, gather_statistics
from deeplda.training.metrics import EpochRow, Scores, SummaryRow
from deeplda.training.preparation import read_data_of_run
from deeplda.training.run_folder import read_environment, read_metrics, recorded_summary

_SEED = 0
# Number of training samples used to compute the discriminant directions of a cross-entropy network.
_FIT_SAMPLES = 5_000

Floats = NDArray[np.float64]


class Environment(BaseModel):
    """The contents of environment.json; `cuda` is the name of the GPU, if there was one."""

    model_config = ConfigDict(frozen=True, strict=True)

    started: str = ""
    machine: str = ""
    cores: int | None = None
    threads: int | None = None
    cuda: str | None = None
    python: str = ""
    versions: dict[str, str] = {}
    data_fingerprint: str = ""

    @classmethod
    def parse(cls, found: Mapping[str, object]) -> Self:
        """Read untrusted JSON; fields that are missing or have the wrong type stay empty."""
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            wrong = {mistake["loc"][0] for mistake in error.errors()}
            return cls.model_validate({name: value for name, value in found.items() if name not in wrong})


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The record of a finished run, without its model.

    Attributes:
        epochs: the epochs in metrics.jsonl; may be incomplete if the file is damaged.
        summary: the last row of metrics.jsonl, with the scores of the saved model.
    """

    path: Path
    config: RunConfig
    environment: Environment
    epochs: list[EpochRow]
    summary: SummaryRow

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.summary.class_names or ())

    @property
    def scores(self) -> Scores:
        """Scores on the complete test set."""
        assert isinstance(self.summary.test, Scores)
        return self.summary.test

    @property
    def validation_score(self) -> float | None:
        """Validation score of the selected epoch; None without a validation set."""
        return self.summary.validation.score if self.summary.validation else None

    @property
    def validation_accuracies(self) -> dict[int, float]:
        """Validation accuracy by epoch, for the epochs after which it was measured."""
        return {row.epoch: row.validation.accuracy for row in self.epochs if isinstance(row.validation, Scores)}

    @property
    def spectra(self) -> list[list[float]] | None:
        """Ascending eigenvalues of each epoch's last batch; None for objectives other than LDA."""
        found = [row.eigenvalues for row in self.epochs if row.eigenvalues is not None]
        return found if found and len(found) == len(self.epochs) else None


@dataclass(frozen=True, eq=False)
class InspectedRun(RunRecord):
    """A finished run, together with its test samples as the model sees them.

    Attributes:
        sizes: number of samples in the training, validation and test sets.
        places: (n,) the samples shown, as indices into the test set, in random order so that no class is always
            drawn on top.
        names: names of the samples shown, such as "test sample 17" or a file name.
        samples: the samples shown, as images n x C x H x W, which may be in a file, or feature vectors n x features.
        labels, decided: (n,) true and predicted classes, as indices into class_names.
        probabilities: (n,) probability of the predicted class.
        calibrated_on: number of validation samples that the probabilities were calibrated on; 0 if they were not.
        embedding: (n, d) float32, the network's output.
        coordinates: (n, m) float32, the discriminant coordinates named in `axes`.
        fisher_ratios, single_accuracies: (d,) Fisher ratio and accuracy of each output alone.
        left_out: the unreadable files that were skipped on request, relative to the data folder.
        notes: sentences for the user about the data, if it was read from disk.
        rescored: whether the scores were computed again, because the folder of images has changed since the training.
    """

    card: ModelCard
    sizes: dict[str, int]
    places: NDArray[np.int64]
    names: tuple[str, ...]
    samples: Inputs
    labels: NDArray[np.int64]
    decided: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    calibrated_on: int
    embedding: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    axes: tuple[str, ...]
    fisher_ratios: Floats
    single_accuracies: Floats
    left_out: tuple[str, ...]
    notes: tuple[str, ...] = ()
    rescored: bool = False

    @property
    def images(self) -> bool:
        """Whether the samples are images rather than feature vectors."""
        return self.samples.ndim == 4

    def hardest(self, count: int) -> tuple[NDArray[np.intp], int]:
        """Return the indices of the hardest samples shown, and the number of mistakes among all samples shown.

        The hardest samples are the most confident mistakes or, if there are none, the least confident predictions.
        """
        wrong = np.flatnonzero(self.decided != self.labels)
        if len(wrong):
            return wrong[np.argsort(-self.probabilities[wrong], kind="stable")][:count], len(wrong)
        return np.argsort(self.probabilities, kind="stable")[:count], 0


def read_record(folder: Path) -> RunRecord:
    """Read the record of a finished run. Raises InputError if there is no finished run in the folder."""
    config, summary = RunConfig.of(folder), recorded_summary(folder)
    if summary is None:
        raise InputError(f"{folder} is not finished: resume it with deeplda train --resume --run {folder}")
    if summary.class_names is None:
        raise InputError(f"{folder} contains the autoencoder of a run: pass the run folder itself")
    epochs = [row for row in read_metrics(folder) if isinstance(row, EpochRow)]
    return RunRecord(folder, config, Environment.parse(read_environment(folder)), epochs, summary)


def inspect_run(
    folder: Path,
    *,
    points: int = 10_000,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
    model: Model | None = None,
    data: Data | None = None,
) -> InspectedRun:
    """Read a finished run and apply its model to its test samples.

    Args:
        points: maximum number of test samples shown; a larger test set is subsampled, stratified by class.
        data_dir: the folder that contains the known data sets, if it has moved.
        network: the code of a custom network, as in `load`.
        named: the data that the user named, as in `read_data`.
        model, data: the run's model and data (labelled with classes, not subclasses) if they are already in memory;
            by default, they are read from disk.

    Raises InputError if the run is not finished, its model or data cannot be read, the data has changed (except a
    folder of images, of which the images that the run was not trained on are shown), or the model computes values that
    are not finite.
    """
    record = read_record(folder)
    model = load(folder, network=network) if model is None else model
    if data is not None:
        return _inspect(record, model, data, points)
    data = read_data_of_run(folder, record.config, data_dir=data_dir, named=named)
    return replace(_inspect(record, model, data, points), notes=data.notes)


def inspect_runs(
    records: Sequence[RunRecord],
    *,
    points: int,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
) -> list[InspectedRun]:
    """Inspect several runs as `inspect_run` does. If consecutive runs use the same data, it is read only once."""
    found: list[InspectedRun] = []
    before: tuple[object, ...] | None = None
    for record in records:
        # Runs on a folder that has changed in between have the same settings but other splits.
        source = (record.environment.data_fingerprint, *(getattr(record.config, name) for name in DATA_SETTINGS))
        if source != before:
            data, before = read_data_of_run(record.path, record.config, data_dir=data_dir, named=named), source
        found.append(_inspect(record, load(record.path, network=network), data, points))
    return found


def finished_trials(sweep: Path) -> list[RunRecord]:
    """Read the finished runs of a sweep, best validation score first. Raises InputError if there are none."""
    folders = sorted(file.parent for file in (sweep / "trials").glob("*/run.toml"))
    records = [read_record(folder) for folder in folders if recorded_summary(folder) is not None]
    if not records and (sweep / "trials.csv").exists():
        what = f"{sweep} has only the scores of its trials, in trials.csv, and no runs to report on"
        raise InputError(f"{what}: use deeplda table")
    if not records:
        raise InputError(f"{sweep} has no finished trial: wait until deeplda sweep has finished one")
    return sorted(records, key=lambda run: run.validation_score or 0, reverse=True)


def is_sweep(folder: Path) -> bool:
    return (folder / "sweep.toml").is_file()


def _inspect(record: RunRecord, model: Model, data: Data, points: int) -> InspectedRun:
    _check_unchanged(record, model, data)
    if data.changed:
        scores = evaluate(model, data.test)
        record = replace(record, summary=record.summary.model_copy(update={"test": scores}))
    places = np.random.default_rng(_SEED).permutation(stratified_sample(data.test.labels, points, _SEED))
    shown = data.test.take(places)
    # Images in a file are read when they are drawn.
    samples = shown.inputs if data.images else np.asarray(shown.inputs)
    embedding = torch.cat(list(model.embeddings(samples)))
    decided = model.class_scores(embedding).argmax(1).cpu().numpy()
    probabilities, embedding = model.class_probabilities(embedding).amax(1).cpu().numpy(), embedding.cpu()
    statistics = model.statistics
    if statistics is None:  # A cross-entropy model does not store them.
        some = stratified_sample(data.train.labels, _FIT_SAMPLES, _SEED)
        statistics = gather_statistics(model, data.train.take(some))
    coordinates, axes = _coordinates(statistics, model.card, embedding)
    fisher, accuracy = _power(_class_means(statistics, model.card), shown.labels, embedding.numpy())
    return InspectedRun(
        **vars(record),
        card=model.card,
        sizes={"training": len(data.train), "validation": len(data.val), "test": len(data.test)},
        places=places,
        names=sample_names(shown, "test sample", places.tolist()),
        samples=samples,
        labels=shown.labels,
        decided=decided,
        probabilities=probabilities,
        calibrated_on=model.calibrated_on,
        embedding=embedding.float().numpy(),
        coordinates=coordinates,
        axes=axes,
        fisher_ratios=fisher,
        single_accuracies=accuracy,
        left_out=tuple(_within(Path(record.config.data), file) for file in data.left_out),
        notes=data.notes if data.changed else (),
        rescored=data.changed,
    )


def _within(folder: Path, file: str) -> str:
    """Return the name of a file relative to the folder, or as it is if it lies elsewhere."""
    return one_line(str(Path(file).relative_to(folder)) if Path(file).is_relative_to(folder) else file)


def _check_unchanged(record: RunRecord, model: Model, data: Data) -> None:
    """Raise InputError if the data has changed since the run was scored, or if the scores are of a different model."""
    if (record.class_names, tuple(record.scores.predictors)) != (model.class_names, model.card.predictors):
        what = f"metrics.jsonl and the model in {record.path} have different classes or predictors"
        raise InputError(f"{what}: train again")
    trained_on = model.class_names, model.card.sample_shape, record.environment.data_fingerprint or data.fingerprint
    if (data.class_names, data.sample_shape, trained_on[2] if data.changed else data.fingerprint) != trained_on:
        what = f"{record.config.data} has changed since {record.path} was trained"
        raise InputError(f"{what}: restore the original data, or train again")


def _coordinates(
    statistics: FeatureStatistics, card: ModelCard, embedding: torch.Tensor
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Return the embedding in discriminant coordinates, strongest first, and the names of the coordinates.

    If there is only one coordinate, a second one spreads the samples at random, so that they overlap less.
    """
    alpha = 1.0 if card.predictors == ("softmax",) else card.alpha
    directions = discriminant_directions(statistics, alpha, card.lam).flip(0)
    directions = directions * column_signs(directions.T)[:, None]
    eigenvalues = ((directions @ statistics.between()) * directions).sum(1).tolist()
    mean = statistics.counts @ statistics.means / statistics.counts.sum()
    found = ((embedding.double() - mean) @ directions.T).float().numpy()
    names = tuple(f"discriminant {i} (eigenvalue {v:.3g})" for i, v in enumerate(eigenvalues, 1))
    if len(names) > 1:
        return found, names
    spread = np.random.default_rng(_SEED).uniform(-1, 1, (len(found), 1)).astype(np.float32)
    return np.concatenate([found, spread], 1), (*names, "random spread, no meaning")


def _class_means(statistics: FeatureStatistics, card: ModelCard) -> Floats:
    """Return the mean of each class's training samples, (C, d), even if the statistics are per subclass."""
    means = statistics.means
    if len(means) == len(card.class_names):
        return np.asarray(means)
    member = torch.nn.functional.one_hot(torch.tensor(card.subclass_map.parents)).T * statistics.counts
    return np.asarray(member @ means / member.sum(1, keepdim=True))


def _power(means: Floats, labels: NDArray[np.int64], embedding: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return the Fisher ratio and accuracy of each output alone, (d,) each; NaN if there is only one class."""
    if len(np.unique(labels)) < 2:
        nothing = np.full(embedding.shape[1], np.nan)
        return nothing, nothing
    # In one dimension, LDA predicts the class with the nearest mean, so the means can replace the training samples.
    return fisher_ratios(embedding, labels), single_dimension_accuracy(means, np.arange(len(means)), embedding, labels)
