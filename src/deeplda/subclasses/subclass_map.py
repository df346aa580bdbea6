"""The way from subclasses back to classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.errors import got


@dataclass(frozen=True)
class SubclassMap:
    """Which class each subclass belongs to.

    Subclasses are 0..S-1 and classes 0..C-1. The subclasses of a class stand side by side, and classes in their order,
    so that a tie between the highest scores goes to the same class before and after the way back.

    Args:
        parents: the class of each subclass, such as (0, 0, 1, 2, 2): ascending from 0, no class left out.

    Raises ValueError for other parents.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        ascending = all(0 <= later - earlier <= 1 for earlier, later in pairwise(self.parents))
        if not self.parents or self.parents[0] != 0 or not ascending:
            raise ValueError(
                got(
                    f"parents {self.parents}",
                    need="the class of each subclass, ascending from 0, with no class left out",
                    do="number subclasses class by class, as in (0, 0, 1)",
                )
            )

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> SubclassMap:
        """The map for classes of so many subclasses each: [2, 1] gives parents (0, 0, 1)."""
        return cls(tuple(parent for parent, size in enumerate(sizes) for _ in range(size)))

    def __len__(self) -> int:
        """The number of subclasses, S."""
        return len(self.parents)

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return self.parents[-1] + 1

    @property
    def sizes(self) -> list[int]:
        """The number of subclasses of each class."""
        counts = Counter(self.parents)
        return [counts[parent] for parent in range(self.classes)]

    def names(self, class_names: Sequence[str]) -> tuple[str, ...]:
        """A name for each subclass: "cat/0", "cat/1", and plain "cat" where it is the only one of its class."""
        if len(class_names) != self.classes:
            raise ValueError(
                got(f"{len(class_names)} class names", need=f"{self.classes}", do="name every class of the map")
            )
        return tuple(
            f"{name}/{place}" if size > 1 else name
            for name, size in zip(class_names, self.sizes, strict=True)
            for place in range(size)
        )

    @overload
    def to_classes(self, subclasses: Tensor) -> Tensor: ...
    @overload
    def to_classes(self, subclasses: NDArray[Any]) -> NDArray[np.int64]: ...
    def to_classes(self, subclasses: Tensor | NDArray[Any]) -> Tensor | NDArray[np.int64]:
        """The class of each subclass label, of any shape: tensor to tensor on its device, array to array, int64.

        The highest of subclass scores (n, S), brought to its class, is the paper's prediction.
        Raises ValueError for a label that is no subclass.
        """
        labels = np.asarray(subclasses) if not isinstance(subclasses, Tensor) else subclasses
        outside = labels[(labels < 0) | (labels >= len(self))]
        if len(outside):
            raise ValueError(
                got(f"subclass {int(outside[0])}", need=f"0 to {len(self) - 1}", do="use the map of these labels")
            )
        if isinstance(labels, Tensor):
            return torch.tensor(self.parents, device=labels.device)[labels.long()]
        parents: NDArray[np.int64] = np.array(self.parents, dtype=np.int64)[labels.astype(np.int64)]
        return parents

    def class_scores(self, scores: Tensor) -> Tensor:
        """The best score among the subclasses of each class: (n, S) -> (n, C).

        Its `argmax` is the class of the best subclass, the paper's prediction, also where scores tie.
        """
        return torch.stack([siblings.amax(1) for siblings in self._by_class(scores)], dim=1)

    def class_log_sums(self, scores: Tensor) -> Tensor:
        """log of the sum of exp(score) over the subclasses of each class: (n, S) -> (n, C).

        Its softmax is the probability of each class: the sum of those of its subclasses by the softmax of `scores`.
        """
        return torch.stack([siblings.logsumexp(1) for siblings in self._by_class(scores)], dim=1)

    def _by_class(self, values: Tensor) -> tuple[Tensor, ...]:
        """The columns of the subclasses of each class. ValueError if there is not one for each subclass."""
        if values.ndim != 2 or values.shape[1] != len(self):
            raise ValueError(
                got(
                    f"values of shape {tuple(values.shape)}",
                    need=f"(n, {len(self)}), one for each subclass",
                    do="pass what a predictor of these subclasses gave",
                )
            )
        return torch.split(values, self.sizes, dim=1)
