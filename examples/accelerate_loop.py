"""DeepLDALoss in a Hugging Face Accelerate loop, on scikit-learn's digits.

    python examples/accelerate_loop.py
    ACCELERATE_USE_CPU=1 torchrun --nproc-per-node 2 examples/accelerate_loop.py

Accelerate splits each batch of 200 among the processes. The loss detects the process group, and its value and gradient
are those of all 200 samples, so nothing has to be gathered.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deeplda import DeepLDALoss
from deeplda.predictors import Hyperplanes


def main() -> None:
    # Batches of 200 in total, and the same ones for any number of processes.
    batches = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    accelerator = Accelerator(dataloader_config=batches)
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    split = train_test_split((images / 16).astype("float32"), labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = (torch.from_numpy(part).to(accelerator.device) for part in split)

    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    loader = DataLoader(TensorDataset(x_train, y_train), batch_size=200, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(layers.parameters(), lr=3e-3)
    network, optimizer, loader = accelerator.prepare(layers, optimizer, loader)
    criterion = DeepLDALoss()

    for _ in range(20):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(criterion(network(x), y))
            optimizer.step()

    layers = accelerator.unwrap_model(network).eval()
    with torch.no_grad():
        predictor = Hyperplanes().fit(layers(x_train), y_train)
        accuracy = (predictor.predict(layers(x_test)) == y_test).float().mean().item()
    accelerator.print(f"processes: {accelerator.num_processes}, test accuracy {100 * accuracy:.2f} %")
    accelerator.end_training()


if __name__ == "__main__":
    main()
