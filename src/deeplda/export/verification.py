"""An exported graph set against the model it was made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeplda.model import Model

OUTPUTS = ("scores", "probabilities", "embedding")
TOLERANCE = 1e-4
_ROUNDING = 1e-5
_BATCH = 100

# Runs an exported graph: samples -> the outputs by name.
Runner = Callable[[NDArray[Any]], dict[str, NDArray[Any]]]


class VerificationError(RuntimeError):
    """An exported graph does not compute what its model does."""


@dataclass(frozen=True)
class Verification:
    """A graph set against its model.

    Attributes:
        samples: how many were compared.
        difference: the largest between two probabilities.
        different: decisions that differ.
        clearly_different: those of them where the model's two best probabilities are farther apart than 1e-4.
        embedding_difference: the largest between two values of the embedding, relative to its largest value.
        consistent: the graph's scores and probabilities are what the predictor makes of the graph's embedding.
    """

    samples: int
    difference: float
    different: int
    clearly_different: int
    embedding_difference: float
    consistent: bool

    @property
    def close(self) -> bool:
        """Probabilities agree to 1e-4, and so do decisions but for ties."""
        return self.difference <= TOLERANCE and self.clearly_different == 0

    @property
    def passed(self) -> bool:
        """Close, or apart by no more than rounding: scores of thousands, which well separated classes have, carry
        the last digit of a float32 embedding into the probabilities of samples between two classes."""
        return self.consistent and (self.close or self.embedding_difference <= _ROUNDING)


def verify(model: Model, run: Runner, inputs: NDArray[Any]) -> Verification:
    """Compare what `run` gives for `inputs` with the model: the first sample alone, the others in batches."""
    pieces = np.split(inputs, range(1, len(inputs), _BATCH))
    found = _joined([run(piece) for piece in pieces])
    # Piece by piece too: a product of one row may round otherwise than that of many.
    expected = _joined([_decided(model, model.transform(piece)) for piece in pieces])
    decided = _decided(model, found["embedding"])
    different = found["probabilities"].argmax(1) != expected["probabilities"].argmax(1)
    second, best = np.sort(expected["probabilities"], 1)[:, -2:].T
    largest = np.abs(expected["embedding"]).max()
    return Verification(
        samples=len(inputs),
        difference=float(np.abs(found["probabilities"] - expected["probabilities"]).max()),
        different=int(different.sum()),
        clearly_different=int((different & (best - second > TOLERANCE)).sum()),
        embedding_difference=float(np.abs(found["embedding"] - expected["embedding"]).max() / (largest or 1)),
        consistent=all(np.allclose(found[name], decided[name], rtol=1e-6, atol=1e-6) for name in OUTPUTS),
    )


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}


def _decided(model: Model, embedding: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The outputs that belong to an embedding."""
    scores = model.class_scores(torch.as_tensor(embedding))
    return {"scores": scores.numpy(), "probabilities": scores.softmax(1).numpy(), "embedding": embedding}
