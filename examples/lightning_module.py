"""DeepLDALoss in a LightningModule, on scikit-learn's digits.

    python examples/lightning_module.py

The training step is the usual one. The network returns an embedding, not class scores, so at the end of training the
module fits a predictor on the embedding of the training images. The predictor is part of the module:
`trainer.save_checkpoint` after `fit` saves it too. Checkpoints that Lightning writes during training do not have it.
"""

from __future__ import annotations

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from deeplda import DeepLDALoss
from deeplda.predictors import Hyperplanes


class DigitReader(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
        self.loss = DeepLDALoss()
        self.predictor = Hyperplanes()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=3e-3)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        images, labels = batch
        loss: Tensor = self.loss(self.network(images), labels)
        self.log("loss", loss)
        self.log("smallest eigenvalue", self.loss.diagnostics.eigenvalues[0])
        return loss

    @torch.no_grad()
    def on_train_end(self) -> None:
        images, labels = self.trainer.train_dataloader.dataset.tensors
        self.predictor.fit(self.eval().network(images.to(self.device)), labels.to(self.device))

    def test_step(self, batch: list[Tensor]) -> None:
        images, labels = batch
        self.log("accuracy", (self.predictor.predict(self.network(images)) == labels).float().mean())


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    split = train_test_split((images / 16).astype("float32"), labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = map(torch.from_numpy, split)
    train_loader = DataLoader(TensorDataset(x_train, y_train), batch_size=200, shuffle=True)
    test_loader = DataLoader(TensorDataset(x_test, y_test), batch_size=200)

    reader = DigitReader()
    trainer = lightning.Trainer(
        max_epochs=20,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(reader, train_loader)
    [result] = trainer.test(reader, test_loader, verbose=False)
    print(f"test accuracy {100 * result['accuracy']:.2f} %")


if __name__ == "__main__":
    main()
