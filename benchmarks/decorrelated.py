"""FastNet with whitened outputs under the name that results/search uses; now the same as `--outputs whitened`."""

from __future__ import annotations

from deeplda.networks import FastNet


def fastnet(sample_shape: tuple[int, ...], embedding_dim: int, *, width: float = 1.0) -> FastNet:
    """FastNet whose outputs cannot become copies of each other."""
    return FastNet(sample_shape, embedding_dim, width=width, outputs="whitened")
