"""A pretrained backbone in the style of Hugging Face, frozen and fine-tuned, on scikit-learn's digits.

    python examples/huggingface_backbone.py

The backbone is a vision transformer of the package transformers, built from its config without a download, or a small
stand-in if the package is not installed. To have something pretrained, it first learns to classify the digits 0 to 4.
The task is then to tell 5, 6, 7, 8 and 9 apart. With a backbone of your own, replace `build_backbone` and `pretrain` by
`AutoModel.from_pretrained(...)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDAClassifier, DeepLDALoss
from deeplda.predictors import Hyperplanes

HIDDEN = 32
# Of the images that the backbone was pretrained on, here of pixels from 0 to 1: see its image processor.
MEAN, DEVIATION = 0.5, 0.5


class Embedding(nn.Module):
    """A linear layer on the pooled output of a backbone, which takes normalised images.

    Args:
        frozen: keep the backbone as it is: its weights get no gradient, and it has no dropout in training either.
    """

    def __init__(self, backbone: nn.Module, embedding_dim: int, *, frozen: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.frozen = backbone, nn.Linear(HIDDEN, embedding_dim), frozen
        self.backbone.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> Embedding:
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def features(self, images: Tensor) -> Tensor:
        """Return the pooled output (n, HIDDEN) for images (n, 1, 8, 8) with pixels from 0 to 1."""
        return self.backbone(pixel_values=(images - MEAN) / DEVIATION).pooler_output

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def main() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(images / 16).float().reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(labels)
    backbone = build_backbone()
    pretrain(backbone, images[labels < 5], labels[labels < 5])
    pretrained = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    rows = torch.arange(len(labels))[labels >= 5]
    train, test = train_test_split(rows, test_size=0.3, stratify=labels[rows], random_state=0)

    # Frozen: the features are computed once. Plain LDA on them needs no training at all.
    network = Embedding(backbone, 5, frozen=True).eval()
    with torch.no_grad():
        x_train, x_test = network.features(images[train]), network.features(images[test])
    report("frozen, LDA on the features", Hyperplanes().fit(x_train, labels[train]).predict(x_test), labels[test])
    # A small network on the same features is trained in seconds.
    classifier = DeepLDAClassifier(max_epochs=40, random_state=0).fit(x_train.numpy(), labels[train].numpy())
    predicted = torch.from_numpy(classifier.predict(x_test.numpy()))
    report("frozen, DeepLDAClassifier on the features", predicted, labels[test])

    # Fine-tuned: the new layer learns ten times as fast as the backbone, whose weights are good already.
    backbone.load_state_dict(pretrained)
    network, criterion = Embedding(backbone, 5), DeepLDALoss()
    optimizer = torch.optim.AdamW(
        [{"params": network.backbone.parameters(), "lr": 3e-4}, {"params": network.head.parameters(), "lr": 3e-3}]
    )
    network.train()
    for _ in range(20):
        for batch in torch.randperm(len(train)).split(100):
            optimizer.zero_grad()
            criterion(network(images[train[batch]]), labels[train[batch]]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        predictor = Hyperplanes().fit(network(images[train]), labels[train])
        report("fine-tuned with DeepLDALoss", predictor.predict(network(images[test])), labels[test])


def report(name: str, predicted: Tensor, labels: Tensor) -> None:
    print(f"{name}: test accuracy {100 * (predicted == labels).float().mean().item():.2f} %")


def pretrain(backbone: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Stands for the weeks that somebody else spent on it."""
    network = nn.Sequential(Embedding(backbone, 5))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(15):
        for batch in torch.randperm(len(images)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()


def build_backbone() -> nn.Module:
    """Return a small vision transformer with random weights, whose output has the field `pooler_output`."""
    try:
        from transformers import ViTConfig, ViTModel
    except ImportError:
        return Backbone()
    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    return ViTModel(config)


class Backbone(nn.Module):
    """A stand-in: a transformer over the eight rows of a digit."""

    @dataclass
    class Output:
        last_hidden_state: Tensor
        pooler_output: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.positions = nn.Linear(8, HIDDEN), nn.Parameter(torch.randn(8, HIDDEN))
        self.encoder = nn.TransformerEncoderLayer(HIDDEN, 2, 64, batch_first=True, norm_first=True)

    def forward(self, pixel_values: Tensor) -> Output:
        hidden = self.encoder(self.rows(pixel_values.squeeze(1)) + self.positions)
        return self.Output(last_hidden_state=hidden, pooler_output=hidden.mean(1))


if __name__ == "__main__":
    main()
