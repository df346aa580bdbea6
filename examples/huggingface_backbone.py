"""A Hugging Face style backbone as the network of DeepLDALoss and DeepLDAClassifier, on scikit-learn's digits.

    python examples/huggingface_backbone.py

Such a model returns an output object with fields instead of a tensor. A module of a few lines turns the field that
represents the image into an embedding, which makes it a network like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDAClassifier, DeepLDALoss
from deeplda.predictors import Hyperplanes


class Embedding(nn.Module):
    """A linear layer on the pooled output of the backbone."""

    def __init__(self, backbone: nn.Module, hidden_size: int, embedding_dim: int) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(hidden_size, embedding_dim)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(pixel_values=images).pooler_output)


def main() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
    split = train_test_split(images, labels, test_size=0.3, stratify=labels, random_state=0)

    classifier = DeepLDAClassifier(network=Embedding(Backbone(), 32, 10), max_epochs=40, random_state=0)
    classifier.fit(split[0], split[2])
    print(f"DeepLDAClassifier: test accuracy {100 * classifier.score(split[1], split[3]):.2f} %")

    x_train, x_test, y_train, y_test = map(torch.from_numpy, split)
    network, criterion = Embedding(Backbone(), 32, 10), DeepLDALoss()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(x_train)).split(200):
            optimizer.zero_grad()
            criterion(network(x_train[batch]), y_train[batch]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        predictor = Hyperplanes().fit(network(x_train), y_train)
        accuracy = (predictor.predict(network(x_test)) == y_test).float().mean().item()
    print(f"DeepLDALoss in a loop: test accuracy {100 * accuracy:.2f} %")


class Backbone(nn.Module):
    """A stand-in for AutoModel.from_pretrained(...): a transformer over the eight rows of a digit."""

    @dataclass
    class Output:
        last_hidden_state: Tensor
        pooler_output: Tensor

    def __init__(self, hidden_size: int = 32) -> None:
        super().__init__()
        self.rows, self.positions = nn.Linear(8, hidden_size), nn.Parameter(torch.randn(8, hidden_size))
        self.encoder = nn.TransformerEncoderLayer(hidden_size, 2, 64, batch_first=True, norm_first=True)

    def forward(self, pixel_values: Tensor) -> Output:
        hidden = self.encoder(self.rows(pixel_values.squeeze(1)) + self.positions)
        return self.Output(last_hidden_state=hidden, pooler_output=hidden.mean(1))


if __name__ == "__main__":
    main()
