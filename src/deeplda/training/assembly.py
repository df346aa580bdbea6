"""What is trained, put together from the settings and the data."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deeplda.data import Data, Part, load_data
from deeplda.data.memory import available_memory
from deeplda.errors import InputError, TrainingError, got, while_training
from deeplda.model import Model, ModelCard, no_mirror_image
from deeplda.networks import StartsFromData, build_network, default_network, training_flops
from deeplda.networks.allocation import AllocationLimit
from deeplda.objective import RDLDALoss, large_batch_backward
from deeplda.predictors import Softmax
from deeplda.subclasses import SubclassMap
from deeplda.training.config import RunConfig
from deeplda.training.cross_entropy import SharedCrossEntropy
from deeplda.training.evaluation import Watch, evaluate, gather_statistics, unwatched
from deeplda.training.muon import Muon
from deeplda.training.precision import arithmetic, warn_where_slow
from deeplda.training.randomness import kept_generators
from deeplda.training.sampler import stratified_sample, sufficient_batch_size
from deeplda.training.world import ALONE, World

# As many suffice for what a network takes from the data before it is trained, such as the whitening of patches.
_STARTING_SAMPLES = 2_000


@dataclass
class Classifier:
    """A model under training, as the loop's `Trainee`.

    Attributes:
        world: the processes that train it together.
        head: the layer from the embedding to class scores, for cross-entropy on an embedding that is not as wide as
            there are classes; else the identity.
        trained: network and head together: all that has parameters.
        parallel: the same, exchanging its gradients with the other processes.
    """

    config: RunConfig
    world: World
    model: Model
    head: nn.Module
    trained: nn.Module
    parallel: nn.Module
    criterion: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device

    def step(self, inputs: Tensor, labels: Tensor, learning_rate: float) -> float:
        """One step of the optimiser; the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * (learning_rate / self.config.learning_rate)
        self.optimizer.zero_grad()
        with arithmetic(self.config.precision, self.device), while_training():
            loss = self._backward(self.model.normalised(inputs), labels)
        value = float(loss)
        if not math.isfinite(value):
            raise TrainingError("training cannot go on: the loss is not finite: lower --learning-rate")
        self.optimizer.step()
        return value

    def _backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of the whole batch, whose gradient is left with the parameters."""
        if self.config.chunk_size is not None:
            return large_batch_backward(
                self.parallel, self._criterion, inputs, labels, chunk_size=self.config.chunk_size
            )
        loss = self._criterion(self.parallel(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # not typed in torch
        return loss.detach()

    def _criterion(self, outputs: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.criterion(outputs.float(), labels)
        return loss

    def examine(self, fit_part: Part, validation: Part) -> tuple[dict[str, Any], float | None]:
        """The spectrum of the last batch and the scores on `validation`; its accuracy decides."""
        self.world.average_buffers(self.model.network)
        if len(validation) == 0:
            return self._spectrum() | {"validation": None}, None
        self._fit_predictors(fit_part)
        scores = evaluate(self.model, validation, world=self.world)
        assert scores is not None
        return self._spectrum() | {"validation": scores}, scores["accuracy"]

    def finish(self, data: Data, watch: Watch) -> Model:
        """The model, its predictors fitted on the whole training part."""
        self._fit_predictors(data.train, watch)
        return self.model

    def score(self, data: Data, watch: Watch) -> dict[str, Any]:
        """How the finished model does on validation and test part; "mirrored" with both views of each image."""
        found: dict[str, Any] = {
            "validation": evaluate(self.model, data.val, world=self.world),
            "test": evaluate(self.model, data.test, watch, self.world),
            "class_names": list(data.class_names),
            "train_counts": self._train_counts(data.train),
        }
        if self.config.tta == "mirror":
            found["mirrored"] = {
                "validation": evaluate(self.model, data.val, world=self.world, mirror=True),
                "test": evaluate(self.model, data.test, watch, self.world, mirror=True),
            }
        return found

    def _train_counts(self, train: Part) -> list[int]:
        """How many training samples each class has."""
        classes = np.asarray(self.model.card.subclass_map.parents)[train.labels]
        return [int(count) for count in np.bincount(classes, minlength=len(self.model.class_names))]

    def flops(self, sample_shape: tuple[int, ...]) -> int:
        """Of forward and backward pass of one sample."""
        return training_flops(self.trained, sample_shape)

    def close(self) -> None:
        """Let go of the other processes: a `DistributedDataParallel` that outlives its group can hang at the end."""
        self.parallel = self.trained

    def words(self) -> str:
        """The range of the eigenvalues of the last batch."""
        if not isinstance(self.criterion, RDLDALoss):
            return ""
        eigenvalues = self.criterion.diagnostics.eigenvalues
        return f"  eigenvalues {float(eigenvalues[0]):.2f} to {float(eigenvalues[-1]):.2f}"

    def _spectrum(self) -> dict[str, Any]:
        """What the last batch looked like to an LDA objective; nothing for cross-entropy."""
        if not isinstance(self.criterion, RDLDALoss):
            return {}
        seen = self.criterion.diagnostics
        return {"eigenvalues": seen.eigenvalues.tolist(), "selected": seen.selected, "dead_dims": seen.dead_dims}

    def _fit_predictors(self, part: Part, watch: Watch = unwatched) -> None:
        """Fit the model's predictors on `part` as the network is now; softmax takes over the trained layer."""
        if self.config.objective != "cce":
            with while_training():
                self.model.fit_statistics(gather_statistics(self.model, part, watch, self.world))
            return
        softmax = self.model.predictor
        assert isinstance(softmax, Softmax)
        layer = self.head if isinstance(self.head, nn.Linear) else None
        classes = torch.arange(len(self.model.card.subclass_map), device=self.device)
        softmax.set_layer(classes, *((layer.weight, layer.bias) if layer else (None, None)))


def read_data(config: RunConfig) -> Data:
    """The data of a run. Raises InputError where it cannot be read."""
    data = load_data(
        config.data,
        data_dir=config.data_dir,
        image_size=config.image_size,
        split_seed=config.split_seed,
        skip_unreadable=config.skip_unreadable,
    )
    return data.without_validation() if config.train_on_all else data


class _Trained(nn.Module):
    """Network and head."""

    def __init__(self, network: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.network(inputs))
        return outputs


def assemble(
    config: RunConfig,
    data: Data,
    network: nn.Module | None = None,
    subclasses: SubclassMap | None = None,
    world: World = ALONE,
) -> Classifier:
    """Everything with fresh weights, drawn from the seed of the settings, or around the `network` given.

    With `subclasses` the labels of the training part are subclasses. Raises InputError for settings that do not suit.
    """
    device = pick_device(config.device)
    if world.first:
        warn_where_slow(config.precision, device)
    groups = subclasses or SubclassMap(tuple(range(len(data.class_names))))
    embedding_dim = _embedding_dim(config, groups)
    with kept_generators():
        torch.manual_seed(config.seed)
        network = network or _build_network(config, data, groups)
        needs_layer = config.objective == "cce" and embedding_dim != len(groups)
        head = nn.Linear(embedding_dim, len(groups)) if needs_layer else nn.Identity()
    card = ModelCard(
        network=_network_name(config, data),
        width=config.width,
        embedding_dim=embedding_dim,
        sample_shape=data.sample_shape,
        class_names=data.class_names,
        predictors=("softmax",) if config.objective == "cce" else ("hyperplanes", "nearest_mean", "classic_lda"),
        alpha=config.alpha,
        lam=config.lam,
        scatter=config.scatter,
        class_weight=config.class_weight,
        parents=subclasses.parents if subclasses else None,
        subclass_decision=config.subclass_decision,
    )
    if world.size > 1 and device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]  # not typed
    model = Model(card, network)
    model.normalisation.fit(data.train.inputs)
    model.place(device)
    if isinstance(network, StartsFromData):
        some = data.train.inputs[stratified_sample(data.train.labels, _STARTING_SAMPLES, seed=0)]
        network.start_from(model.normalised(torch.from_numpy(some).to(device)))
    trained = _Trained(model.network, head).to(device)
    parallel = trained if world.size == 1 else _parallel(trained)
    optimizer = _optimizer(config, trained)
    # Alone also where the caller's own program has a process group: in eval mode the loss asks nobody else.
    criterion = _criterion(config, data.train, len(groups), world).to(device).train(world.size > 1)
    return Classifier(config, world, model, head, trained, parallel, criterion, optimizer, device)


def _parallel(trained: nn.Module) -> DistributedDataParallel:
    """Gradients are exchanged, buffers are not."""
    with warnings.catch_warnings():
        # The name that older releases of torch know it by.
        warnings.filterwarnings("ignore", ".*broadcast_buffers.* is deprecated")
        return DistributedDataParallel(trained, broadcast_buffers=False)


def _optimizer(config: RunConfig, trained: nn.Module) -> torch.optim.Optimizer:
    """With the highest learning rate of each of its groups as "initial_lr"."""
    rate, momentum, decay = config.learning_rate, config.momentum, config.weight_decay
    optimizer = (
        Muon(trained, rate, config.filter_learning_rate, momentum, decay)
        if config.optimizer == "muon"
        else torch.optim.SGD(trained.parameters(), rate, momentum, weight_decay=decay, nesterov=True)
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def fitting_in_memory() -> AllocationLimit:
    """Within the block, refuse to build a network that is larger than the memory there is, with an InputError."""
    sentence = got("a network that does not fit in memory", need="a smaller one", do="lower --width or --embedding-dim")
    return AllocationLimit(available_memory() or 2**62, sentence)


def check_settings(config: RunConfig, data: Data, world: World = ALONE) -> None:
    """Raise InputError for a device, a network or data that cannot be used, before anything is written."""
    # First: all processes take part in it, and any of them may raise below.
    if len(set(world.gather(data.fingerprint))) > 1:
        raise InputError(f"the processes read different data from {config.data}: give all of them the same")
    if missing := set(range(len(data.class_names))) - set(np.unique(data.train.labels).tolist()):
        raise InputError(
            got(
                f"{config.data} has no training sample of {data.class_names[min(missing)]}",
                need="one of every class",
                do="add some, or leave the class out",
            )
        )
    pick_device(config.device)
    with fitting_in_memory():
        _build_network(config, data, SubclassMap(tuple(range(len(data.class_names)))))
    if len(data.sample_shape) != 3:
        _refuse_augmentation(config, data)
    # Stratified batches differ by one sample, so that some have less than was asked for.
    smallest = len(data.train) // math.ceil(len(data.train) / config.batch_size)
    if min(smallest, config.batch_size) < 2 * world.size:
        raise InputError(
            got(
                f"batches of down to {smallest} for {world.size} processes",
                need="two samples for each",
                do="raise --batch-size",
            )
        )
    if config.objective != "cce" and config.sampler == "stratified":
        _require_two_classes_in_each_batch(config, data)


def _require_two_classes_in_each_batch(config: RunConfig, data: Data) -> None:
    """Raise InputError where an epoch has more batches than samples that are not of the commonest class."""
    counts, batches = np.bincount(data.train.labels), math.ceil(len(data.train) / config.batch_size)
    others = len(data.train) - int(counts.max())
    if batches > others:
        enough = sufficient_batch_size(config.batch_size, data.train.labels, config.objective)
        raise InputError(
            got(
                f"{others} training samples that are not {data.class_names[counts.argmax()]} for {batches} batches",
                need="two classes in every batch",
                do=f"pass --batch-size {enough} or more, or add samples",
            )
        )


def _refuse_augmentation(config: RunConfig, rows: Data) -> None:
    if config.tta == "mirror":
        raise InputError(no_mirror_image(rows.sample_shape))
    for name, off in (("flip", "--no-flip"), ("translate", "--translate 0")):
        if getattr(config, name):
            raise InputError(got(f"{name} for samples of shape {rows.sample_shape}", need="images", do=f"pass {off}"))


def pick_device(name: str) -> torch.device:
    """The device of that name, "auto" for CUDA where there is one. Raises InputError where it cannot be used."""
    try:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
        # In float64, which predictors work in and some devices lack.
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise InputError(
            got(f"device {name!r} ({reason})", need="one this machine has, with float64", do="use cpu")
        ) from None
    return device


def _network_name(config: RunConfig, data: Data) -> str:
    return config.network or default_network(data.sample_shape)


def _embedding_dim(config: RunConfig, groups: SubclassMap) -> int:
    """As many outputs as classes, unless the settings say otherwise."""
    if config.embedding_dim == "subclasses":
        return len(groups)
    return config.embedding_dim or groups.classes


def _build_network(config: RunConfig, data: Data, groups: SubclassMap) -> nn.Module:
    name, outputs = _network_name(config, data), _embedding_dim(config, groups)
    return build_network(name, data.sample_shape, outputs, width=config.width)


def _criterion(config: RunConfig, train: Part, groups: int, world: World) -> nn.Module:
    """RDLDALoss, or cross-entropy with the same class weights."""
    if config.objective != "cce":
        return RDLDALoss(
            config.alpha, config.lam, config.epsilon, config.statistic, config.scatter, config.class_weight
        )
    weights = torch.ones(groups)
    if config.class_weight is not None:
        counts = torch.bincount(torch.from_numpy(train.labels), minlength=groups).float()
        weights = counts.sum() / (len(counts) * counts.clamp(min=1))
    if world.size == 1:
        return nn.CrossEntropyLoss(weights, label_smoothing=config.label_smoothing)
    return SharedCrossEntropy(weights, config.label_smoothing, world)
