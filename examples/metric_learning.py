"""DeepLDALoss, a loss of pytorch-metric-learning, and their sum, on scikit-learn's digits.

    python examples/metric_learning.py

All are called as `loss(embeddings, labels)`. The AccuracyCalculator assigns each test image the class of its nearest
neighbour among the training images; MAP@R measures how compact the classes are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDALoss

# The same geometry for training and test: embeddings are not normalised to length 1.
distance = LpDistance(normalize_embeddings=False)
triplets, miner = TripletMarginLoss(margin=1.0, distance=distance), BatchHardMiner(distance=distance)
discriminant = DeepLDALoss()


def hard_triplets(embeddings: Tensor, labels: Tensor) -> Tensor:
    return triplets(embeddings, labels, miner(embeddings, labels))


def both(embeddings: Tensor, labels: Tensor) -> Tensor:
    return hard_triplets(embeddings, labels) + discriminant(embeddings, labels)


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    split = train_test_split((images / 16).astype("float32"), labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = map(torch.from_numpy, split)

    knn = CustomKNN(distance)
    calculator = AccuracyCalculator(("precision_at_1", "mean_average_precision_at_r"), k="max_bin_count", knn_func=knn)
    for name, loss in {"hard triplets": hard_triplets, "discriminant": discriminant, "both": both}.items():
        network = train(loss, x_train, y_train)
        with torch.no_grad():
            result = calculator.get_accuracy(network(x_test), y_test, network(x_train), y_train)
        precision, together = result["precision_at_1"], result["mean_average_precision_at_r"]
        print(f"{name:14} test accuracy {100 * precision:.2f} %, MAP@R {together:.3f}")


def train(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(200):
            optimizer.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return network


if __name__ == "__main__":
    main()
