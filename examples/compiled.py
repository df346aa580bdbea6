"""torch.compile with DeepLDALoss, on scikit-learn's digits.

    python examples/compiled.py
    python examples/compiled.py aot_eager    # a backend that needs no C++ compiler

Network and loss are compiled as one function. The compiler compiles the network and skips the loss, whose float64
linear algebra would not get faster, so value and gradient are the same as without compilation.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDALoss
from deeplda.predictors import Hyperplanes


def main(backend: str = "inductor") -> None:
    images, labels = load_digits(return_X_y=True)
    split = train_test_split((images / 16).astype("float32"), labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = map(torch.from_numpy, split)

    _, plain_losses = train(x_train, y_train, backend, plain=True)
    network, losses = train(x_train, y_train, backend)
    print(f"first loss: {plain_losses[0]:.6f} plain, {losses[0]:.6f} compiled")
    with torch.no_grad():
        predictor = Hyperplanes().fit(network(x_train), y_train)
        accuracy = (predictor.predict(network(x_test)) == y_test).float().mean().item()
    print(f"test accuracy {100 * accuracy:.2f} %")


def train(x: Tensor, y: Tensor, backend: str, *, plain: bool = False) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    criterion = DeepLDALoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return criterion(network(images), labels)

    step = torch.compile(loss_of, backend=backend, disable=plain)
    losses = []
    for _ in range(20):
        for batch in torch.randperm(len(x))[:1200].split(200):  # all of one size: each new size would be compiled again
            optimizer.zero_grad()
            loss = step(x[batch], y[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return network, losses


if __name__ == "__main__":
    main(*sys.argv[1:])
