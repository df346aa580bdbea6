"""DeepLDALoss in your own DistributedDataParallel loop, on scikit-learn's digits.

    torchrun --nproc-per-node 2 examples/ddp_your_loop.py

The sampler splits each batch of 200 among the processes. The loss and its gradient are those of all 200 samples, so two
processes learn the same as one, up to rounding.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from deeplda import DeepLDALoss, StratifiedBatchSampler

EPOCHS, BATCH_SIZE = 20, 200


def main() -> None:
    dist.init_process_group("gloo")  # "nccl" on GPUs
    train()
    # Only after the network is deleted: a DistributedDataParallel that outlives its group can hang.
    dist.destroy_process_group()


def train() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test = (torch.tensor(x, dtype=torch.float32) for x in split[:2])
    y_train, y_test = (torch.tensor(y) for y in split[2:])
    train_set = TensorDataset(x_train, y_train)
    sampler = StratifiedBatchSampler(y_train, BATCH_SIZE, seed=0)
    loader = DataLoader(train_set, batch_sampler=sampler)

    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    network = DistributedDataParallel(layers)
    criterion = DeepLDALoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(network(x), y)
            loss.backward()
            optimizer.step()
    print(f"rank {rank} of {ranks}: last loss {loss.item():.6f}, {criterion.diagnostics.classes} classes", flush=True)

    if rank == 0:
        with torch.no_grad():
            train_features, test_features = layers(x_train).numpy(), layers(x_test).numpy()
        lda = LinearDiscriminantAnalysis().fit(train_features, y_train)
        print(f"test accuracy {100 * lda.score(test_features, y_test):.2f} %", flush=True)


if __name__ == "__main__":
    main()
