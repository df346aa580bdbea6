"""The samples of a run, ranked by how likely their labels are wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.audit import Audit, far_samples, wrong_counts, wrong_share
from deeplda.data import Data
from deeplda.data.corrections import confirmed_labels, has_decisions, sample_names
from deeplda.data.dataset import Inputs, joined
from deeplda.data.splitting import PARTS
from deeplda.errors import InputError
from deeplda.formatting import counted, percent
from deeplda.loading import load
from deeplda.model import Model, ModelCard
from deeplda.output_folder import OutputFolder
from deeplda.printing import as_csv, csv_cell
from deeplda.report.record import RunRecord, read_record
from deeplda.report.wording import command
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import read_margins, split_of, started_on, with_stored_decisions

CSV_FILE, PAGE_FILE = "audit.csv", "audit.html"
# If a model agrees with fewer labels than this, its own mistakes are many of the first samples.
_RELIABLE = 0.9
COLUMNS = ("sample", "part", "given", "suggested", "margin", "distance", "duplicate_of", "decision")


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """A finished run with the audit of all its samples: those of the training, validation and test sets, in this order.

    Attributes:
        names, parts: the name of each sample, such as its file, and its set.
        inputs: the samples, (n, *sample_shape).
        confirmed: (n,) bool, whether the decisions that the run was trained with call the given label right.
        notes: sentences for the user about the data and the margins.
    """

    record: RunRecord
    card: ModelCard
    audit: Audit
    names: tuple[str, ...]
    parts: tuple[str, ...]
    inputs: Inputs
    confirmed: NDArray[np.bool_]
    notes: tuple[str, ...]

    @cached_property
    def order(self) -> list[int]:
        """The indices of all samples, the most likely mistake first, and those with confirmed labels last."""
        order = self.audit.order
        return [*order[~self.confirmed[order]].tolist(), *order[self.confirmed[order]].tolist()]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The place of each sample in `order`, counted from 1."""
        return {place: rank for rank, place in enumerate(self.order, 1)}

    @property
    def duplicates(self) -> list[int]:
        """Of each pair of near-duplicates, the sample that fits its label less, unless this label is confirmed."""
        pairs = ([place for place in pair if not self.confirmed[place]] for pair in self.audit.duplicates)
        return list(dict.fromkeys(min(pair, key=lambda place: self.audit.margins[place]) for pair in pairs if pair))

    @property
    def outliers(self) -> list[int]:
        """The samples that are unusually far from every class, without those whose labels are confirmed."""
        if self.audit.distances is None:
            return []
        trained = ("train", "val") if self.record.config.train_on_all else ("train",)
        found = far_samples(self.audit.distances, np.isin(self.parts, trained))
        return [place for place in found.tolist() if not self.confirmed[place]]

    @property
    def decisions_file(self) -> str:
        """The name under which the page downloads the decisions."""
        return f"decisions-{self.record.path.resolve().name}.csv"

    @property
    def command(self) -> str:
        """The command that repeats the training with all decisions so far and those of `decisions_file`."""
        config = with_stored_decisions(self.record.config, self.record.path)
        return f"{command(config, self.record.path)} --relabel {shlex.quote(self.decisions_file)}"

    @cached_property
    def copies(self) -> dict[int, int]:
        """The first near-duplicate with a different label, for each sample that has one, both as indices."""
        pairs = [both for i, j in self.audit.duplicates for both in ((i, j), (j, i))]
        return dict(reversed(pairs))

    def row(self, place: int) -> dict[str, str | float]:
        """Return the row of a sample for CSV and JSON, without a decision."""
        audit = self.audit
        return {
            "sample": self.names[place],
            "part": self.parts[place],
            "given": str(audit.given[place]),
            "suggested": str(audit.suggested[place]),
            "margin": round(float(audit.margins[place]), 4),
            "distance": "" if audit.distances is None else round(float(audit.distances[place]), 3),
            "duplicate_of": self.names[self.copies[place]] if place in self.copies else "",
        }

    def rows(self) -> list[dict[str, str | float]]:
        """Return the rows of all samples, the most likely mistake first."""
        return [self.row(place) for place in self.order]

    @property
    def estimate(self) -> str:
        """Say how many labels are wrong."""
        low, high = self.audit.mistakes_range
        found = f"{low:,} to {high:,} of {counted(len(self.names), 'label')} are estimated to be wrong"
        return f"{found} (95 % interval; the best estimate is {self.audit.mistakes:,})"

    @property
    def rule(self) -> str:
        """Describe in a sentence where the margins come from."""
        if not self.audit.from_training.any():
            return "All margins come from the scores of the finished model, not from the training."
        return (
            "The margins of training samples are means over the epochs of the training, except the first quarter; "
            "those of validation and test samples come from the scores of the finished model, so the two kinds are "
            "ranked separately and merged."
        )


def audit_run(
    folder: Path,
    *,
    data_dir: Path | None = None,
    network: str | None = None,
    named: str | None = None,
    device: str = "cpu",
) -> AuditedRun:
    """Audit all samples of a finished run.

    Args:
        named: the data that the user named, as in `read_data`.

    Raises InputError if the run is not finished, its model or data cannot be read, or its classes have changed.
    """
    record, model = read_record(folder), load(folder, network=network, device=device)
    update: dict[str, object] = {"train_on_all": False} | ({} if data_dir is None else {"data_dir": data_dir})
    # The names of samples without files depend on the set that they are in, also if the run trained on both.
    config = with_stored_decisions(record.config.model_copy(update=update), folder)
    data = _data_of_run(config, folder, named)
    if (data.class_names, data.sample_shape, data.table) != (
        model.class_names,
        model.card.sample_shape,
        model.card.table,
    ):
        raise InputError(f"{record.config.data} has changed since {folder} was trained: restore it, or train again")
    sets = {name: getattr(data, name) for name in PARTS}
    samples = joined(*sets.values())
    margins, notes = _margins(record, data)
    found = model.audit(samples.inputs, np.asarray(model.class_names)[samples.labels], margins=margins)
    mistakes, mistakes_range, doubts = _mistakes(record, model, data)
    names = tuple(name for part in PARTS for name in sample_names(sets[part], part))
    confirmed = _confirmed(config, names, found.given.tolist())
    if count := int(confirmed.sum()):
        notes.append(f"ranked last because earlier decisions have confirmed the label: {counted(count, 'sample')}")
    return AuditedRun(
        record=record,
        card=model.card,
        audit=replace(found, mistakes=mistakes, mistakes_range=mistakes_range),
        names=names,
        parts=tuple(name for name in PARTS for _ in range(len(sets[name]))),
        inputs=samples.inputs,
        confirmed=confirmed,
        notes=(*data.notes, *notes, *doubts),
    )


def _data_of_run(config: RunConfig, folder: Path, named: str | None) -> Data:
    """Return the data that the run was trained on or, if some of its images are gone or others, what is there now."""
    split = split_of(folder)
    try:
        return read_data(config, split, exact=True, named=named)
    except InputError:
        return read_data(config, split, named=named)


def _confirmed(config: RunConfig, names: Sequence[str], given: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether the decision files of a run call the given label of each sample right, (n,)."""
    decided = confirmed_labels((*(config.relabel or ()), *(config.drop or ())))
    cells = ((str(csv_cell(name)), str(csv_cell(label))) for name, label in zip(names, given, strict=True))
    return np.array([decided.get(name) == label for name, label in cells], dtype=bool)


def _mistakes(record: RunRecord, model: Model, data: Data) -> tuple[int, tuple[int, int], list[str]]:
    """Return the estimated number of wrong labels in all sets, its 95 % interval, and notes about it.

    The samples that the run was not trained on stand for all of them. But the test set may come from elsewhere: if its
    labels are clearly better or worse than those of the validation set, it is judged on its own.
    """
    judged = (data.test,) if record.config.train_on_all else (data.val, data.test)
    scores, labels = [model.decision_function(part.inputs) for part in judged], [part.labels for part in judged]
    shares = [wrong_share(*both) for both in zip(scores, labels, strict=True)]
    every_score, every_label = np.concatenate(scores), np.concatenate(labels)
    if max(share.low for share in shares) > min(share.high for share in shares):
        sets = [(shares[0], len(data.train) + len(data.val)), (shares[1], len(data.test))]
    else:
        sets = [(wrong_share(every_score, every_label), len(data.train) + len(data.val) + len(data.test))]
    agreement = float((every_score.argmax(1) == every_label).mean())
    doubt = (
        f"the model agrees with only {percent(agreement, 1)} of the labels that it was not trained on, so many of the "
        "first samples are its own mistakes"
    )
    return *wrong_counts(*sets), [doubt] if agreement < _RELIABLE else []


def _margins(record: RunRecord, data: Data) -> tuple[NDArray[np.float64], list[str]]:
    """Return the margins that the run kept for its training samples, NaN for all others, and notes."""
    sizes = len(data.train), len(data.val), len(data.test)
    margins = np.full(sum(sizes), np.nan)
    trained = data.without_validation() if record.config.train_on_all else data
    if started_on(record.path) != trained.fingerprint:
        what = f"{record.config.data} has changed since {record.path} was trained"
        return margins, [f"{what}, so the margins kept during training are not used"]
    found = read_margins(record.path, len(trained.train))
    if found is None:
        return margins, ["the run was trained by a version that kept no margins"]
    margins[: len(found)] = found
    return margins, []


def write_audit(run: AuditedRun, page: str) -> tuple[Path, Path]:
    """Write audit.csv and audit.html to the run folder, and return their paths.

    Raises InputError if there is an audit.csv with decisions already.
    """
    path = run.record.path
    if (path / CSV_FILE).exists() and has_decisions(path / CSV_FILE):
        raise InputError(f"{path / CSV_FILE} has decisions, which would be lost: rename it or move it first")
    with OutputFolder.open(path) as folder:
        folder.write(CSV_FILE, as_csv(COLUMNS, run.rows()))
        folder.write(PAGE_FILE, page)
    return path / CSV_FILE, path / PAGE_FILE
