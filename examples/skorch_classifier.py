"""DeepLDALoss as the criterion of a skorch network, on scikit-learn's digits.

    python examples/skorch_classifier.py

The network learns an embedding; with a predictor fitted on it, the network is a classifier. scikit-learn then searches
for the best alpha, which is a parameter of the criterion like any other.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from skorch import NeuralNet
from torch import nn

from deeplda import DeepLDALoss
from deeplda.predictors import Hyperplanes


class DiscriminantNet(ClassifierMixin, NeuralNet):
    def initialize_criterion(self) -> Self:
        super().initialize_criterion()
        self.predictor_ = Hyperplanes(alpha=self.criterion_.alpha)
        return self

    def fit(self, X: NDArray[np.float32], y: NDArray[np.int64]) -> Self:
        super().fit(X, y)
        self.predictor_.fit(self.forward(X), torch.from_numpy(y))
        return self

    def predict(self, X: NDArray[np.float32]) -> NDArray[np.int64]:
        return self.predictor_.predict(self.forward(X)).numpy()


def layers(width: int = 128) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def main() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    split = train_test_split((images / 16).astype("float32"), labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = split

    network = DiscriminantNet(
        layers,
        criterion=DeepLDALoss,
        optimizer=torch.optim.Adam,
        lr=3e-3,
        batch_size=200,
        max_epochs=10,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
    )
    search = GridSearchCV(network, {"criterion__alpha": [0.0, 0.6, 1.0]}, cv=3).fit(x_train, y_train)
    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"alpha {parameters['criterion__alpha']}: {100 * score:.2f} % in cross-validation")
    print(f"test accuracy {100 * search.score(x_test, y_test):.2f} %")


if __name__ == "__main__":
    main()
