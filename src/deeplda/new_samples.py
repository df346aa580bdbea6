"""Samples that are added to a trained model: which classes they belong to, and the statistics with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.errors import InputError
from deeplda.predictors import FeatureStatistics


@dataclass(frozen=True, eq=False)
class SamplesToAdd:
    """The classes of samples to add.

    Attributes:
        new: the names of the new classes, in the order of their first samples.
        labels: (n,), the label of each sample in the statistics; with subclasses, that of its only subclass.
    """

    new: tuple[str, ...]
    labels: NDArray[np.int64]

    @classmethod
    def of(
        cls, names: Sequence[str] | NDArray[np.str_], samples: int, known: Sequence[str], parents: Sequence[int] | None
    ) -> SamplesToAdd:
        """Return the classes of samples with these names, given the known classes and the class of each subclass.

        Raises InputError if the number of names is wrong, if a name is not a string or is empty, or if a class has
        subclasses, because the subclass of a sample is not known.
        """
        given = [str(name) if isinstance(name, str) else name for name in names]
        if len(given) != samples or samples == 0:
            what = f"there are {len(given)} class names for {samples} samples"
            raise InputError(f"{what}, need one for each of at least one sample")
        if wrong := [name for name in given if not isinstance(name, str) or not name]:
            raise InputError(f"a class name is {wrong[0]!r}, need non-empty strings")
        parents = tuple(range(len(known))) if parents is None else parents
        labels = {name: parents.index(place) for place, name in enumerate(known)}
        split = {name for place, name in enumerate(known) if parents.count(place) > 1}
        if found := [name for name in given if name in split]:
            what = f"class {found[0]!r} has subclasses, and which of them a sample belongs to is not known"
            raise InputError(f"{what}: add only samples of other classes, or train again")
        new = tuple(dict.fromkeys(name for name in given if name not in labels))
        labels |= {name: len(parents) + place for place, name in enumerate(new)}
        return cls(new, np.array([labels[name] for name in given]))

    def added_to(self, statistics: FeatureStatistics, features: Tensor) -> FeatureStatistics:
        """Return new statistics that include the samples, given their features (n, d)."""
        larger = FeatureStatistics.from_state(statistics.state() | {"announced": torch.tensor(False)})
        larger.update(features, torch.from_numpy(self.labels))
        return larger
