"""What is trained, put together from the settings and the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deeplda.data import Data, Part, load_data
from deeplda.errors import InputError, TrainingError, got
from deeplda.model import Model, ModelCard
from deeplda.networks import build_network, default_network
from deeplda.objective import RDLDALoss
from deeplda.predictors import Softmax
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import Watch, gather_statistics, unwatched


@dataclass
class Trainee:
    """A model under training.

    Attributes:
        head: the layer from the embedding to class scores, for cross-entropy on an embedding that is not as wide as
            there are classes; else the identity.
        trained: network and head together: all that has parameters.
    """

    config: RunConfig
    model: Model
    head: nn.Module
    trained: nn.Module
    criterion: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device

    def step(self, inputs: Tensor, labels: Tensor, learning_rate: float) -> float:
        """One step of the optimiser; the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        half = inputs.is_cuda and torch.cuda.is_bf16_supported()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            outputs = self.head(self.model(inputs))
        try:
            loss = self.criterion(outputs.float(), labels)
        except ValueError as error:
            raise TrainingError(f"training cannot go on: {error}") from None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def fit_predictors(self, part: Part, watch: Watch = unwatched) -> None:
        """Fit the model's predictors on `part` as the network is now; softmax takes over the trained layer."""
        if self.config.objective != "cce":
            self.model.fit_statistics(gather_statistics(self.model, part, watch))
            return
        softmax = self.model.predictor
        assert isinstance(softmax, Softmax)
        layer = self.head if isinstance(self.head, nn.Linear) else None
        classes = torch.arange(len(self.model.class_names), device=self.device)
        softmax.set_layer(classes, *((layer.weight, layer.bias) if layer else (None, None)))

    def snapshot(self, counters: Counters) -> Snapshot:
        return Snapshot.of(self.trained, self.optimizer, counters)


def read_data(config: RunConfig) -> Data:
    """The data of a run. Raises InputError where it cannot be read."""
    return load_data(
        config.data,
        data_dir=config.data_dir,
        image_size=config.image_size,
        split_seed=config.split_seed,
        skip_unreadable=config.skip_unreadable,
    )


def assemble(config: RunConfig, data: Data, network: nn.Module | None = None) -> Trainee:
    """Everything with fresh weights, drawn from torch's generator, or around the `network` given.

    Raises InputError for settings that do not suit.
    """
    device = pick_device(config.device)
    name, embedding_dim = _network_name(config, data), _embedding_dim(config, data)
    network = network or _build_network(config, data)
    classes = len(data.class_names)
    needs_layer = config.objective == "cce" and embedding_dim != classes
    head = nn.Linear(embedding_dim, classes) if needs_layer else nn.Identity()
    card = ModelCard(
        network=name,
        width=config.width,
        embedding_dim=embedding_dim,
        sample_shape=data.sample_shape,
        class_names=data.class_names,
        predictors=("softmax",) if config.objective == "cce" else ("hyperplanes", "nearest_mean", "classic_lda"),
        alpha=config.alpha,
        lam=config.lam,
        scatter=config.scatter,
        class_weight=config.class_weight,
    )
    model = Model(card, network)
    model.normalisation.fit(data.train.inputs)
    model.place(device)
    trained = nn.ModuleDict({"network": model.network, "head": head}).to(device)
    optimizer = torch.optim.SGD(
        trained.parameters(),
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=True,
    )
    return Trainee(config, model, head, trained, _criterion(config, data).to(device), optimizer, device)


def check_settings(config: RunConfig, data: Data) -> None:
    """Raise InputError for a device or a network that cannot be had, before anything is written."""
    pick_device(config.device)
    _build_network(config, data)


def pick_device(name: str) -> torch.device:
    """The device of that name, "auto" for CUDA where there is one. Raises InputError where it cannot be used."""
    try:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(got(f"device {name!r} ({reason})", need="one this machine has", do="use cpu")) from None
    return device


def _network_name(config: RunConfig, data: Data) -> str:
    return config.network or default_network(data.sample_shape)


def _embedding_dim(config: RunConfig, data: Data) -> int:
    """As many outputs as classes, unless the settings say otherwise."""
    return config.embedding_dim or len(data.class_names)


def _build_network(config: RunConfig, data: Data) -> nn.Module:
    name, outputs = _network_name(config, data), _embedding_dim(config, data)
    return build_network(name, data.sample_shape, outputs, width=config.width)


def _criterion(config: RunConfig, data: Data) -> nn.Module:
    """RDLDALoss, or cross-entropy with the same class weights."""
    if config.objective != "cce":
        return RDLDALoss(
            config.alpha, config.lam, config.epsilon, config.statistic, config.scatter, config.class_weight
        )
    if config.class_weight is None:
        return nn.CrossEntropyLoss()
    counts = torch.bincount(torch.from_numpy(data.train.labels), minlength=len(data.class_names)).float()
    return nn.CrossEntropyLoss(counts.sum() / (len(counts) * counts.clamp(min=1)))
