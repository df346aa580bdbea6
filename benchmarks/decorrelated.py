"""FastNet with decorrelated outputs: a network of one's own for the search in results/search."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deeplda.networks import FastNet


class Decorrelated(nn.Module):
    """Rows (n, d) -> rows of mean 0 and total covariance I, in training those of the batch, else running ones."""

    mean: Tensor
    covariance: Tensor

    def __init__(self, width: int, momentum: float = 0.4) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.eye(width))

    def forward(self, rows: Tensor) -> Tensor:
        mean, covariance = self.mean, self.covariance
        if self.training:
            mean = rows.mean(0)
            centred = rows - mean
            covariance = centred.T @ centred / len(rows)
            self.mean.lerp_(mean.detach(), self.momentum)
            self.covariance.lerp_(covariance.detach(), self.momentum)
        ridge = 1e-5 * covariance.diagonal().mean() * torch.eye(len(covariance))
        root = torch.linalg.cholesky(covariance + ridge)
        return torch.linalg.solve_triangular(root, (rows - mean).T, upper=False).T


def fastnet(sample_shape: tuple[int, ...], embedding_dim: int, *, width: float = 1.0) -> FastNet:
    """FastNet whose outputs cannot become copies of each other."""
    network = FastNet(sample_shape, embedding_dim, width=width)
    network.output[-1] = Decorrelated(embedding_dim)
    return network
