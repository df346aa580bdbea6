"""A plain PyTorch loop on scikit-learn's digits, with cross-entropy and with two discriminant losses.

    python examples/loss_in_your_loop.py

Network, optimiser, batches and epochs are the same. A network trained with a discriminant loss returns an embedding,
not class scores, so scikit-learn's LDA, fitted on the training embedding, classifies its samples. For comparison, the
samples of the cross-entropy network are classified in the same way and, as usual, by the highest score. The learning
rate was tuned for none of the losses, so this is not a fair comparison of them; benchmarks/fair_loop.py is one.
"""

from __future__ import annotations

from statistics import mean, stdev

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDALoss, RDLDALoss

EPOCHS, BATCH_SIZE, SEEDS = 30, 200, (0, 1, 2)


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test = (torch.tensor(x, dtype=torch.float32) for x in split[:2])
    y_train, y_test = (torch.tensor(y) for y in split[2:])
    losses = {
        "cross-entropy": nn.CrossEntropyLoss(),
        "DeepLDALoss()": DeepLDALoss(),
        "RDLDALoss()": RDLDALoss(),
    }
    found: dict[str, list[float]] = {}
    for name, loss in losses.items():
        for seed in SEEDS:
            network = train(loss, x_train, y_train, seed)
            train_features, test_features = embed(network, x_train), embed(network, x_test)
            lda = LinearDiscriminantAnalysis().fit(train_features, y_train)
            found.setdefault(f"{name}, by LDA", []).append(100 * lda.score(test_features, y_test.numpy()))
            if not isinstance(loss, DeepLDALoss):
                right = test_features.argmax(1) == y_test.numpy()
                found.setdefault(f"{name}, by the highest score", []).append(100 * right.mean())
        print(f"trained with {name}", flush=True)

    print(f"\nscikit-learn digits, {len(x_train)} training and {len(x_test)} test images, {len(SEEDS)} seeds each\n")
    print(f"{'loss':52}{'test accuracy':>16}")
    for name, accuracies in found.items():
        print(f"{name:52}{mean(accuracies):9.2f} ± {stdev(accuracies):.2f}")


def train(loss: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return network


def embed(network: nn.Module, x: Tensor) -> NDArray[np.float32]:
    with torch.no_grad():
        features: NDArray[np.float32] = network(x).numpy()
    return features


if __name__ == "__main__":
    main()
