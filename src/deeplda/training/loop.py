"""The training loop: read it from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deeplda.data import Data
from deeplda.errors import InputError, StoppedError, TrainingError, got
from deeplda.model import Model, ModelCard
from deeplda.networks import build_network, default_network
from deeplda.objective import RDLDALoss
from deeplda.predictors import Hyperplanes, Softmax
from deeplda.training.batches import BatchSource
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate, fit_predictors
from deeplda.training.progress import Progress
from deeplda.training.run_folder import RunFolder
from deeplda.training.sampler import epoch_batches, stratified_sample
from deeplda.training.schedule import learning_rate

# During training the predictors are fitted on at most this many training samples; the final ones on all.
_FIT_SAMPLES = 10_000
_SEED_STRIDE = 1_000_003


def train(
    config: RunConfig, data: Data, run: RunFolder, progress: Progress, stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Train from the run's newest checkpoint, or from the start, to the end; return the summary row.

    Every step draws its random numbers from the seed and its own number, so a run that was killed and resumed ends
    in the same weights as one that was not. Raises StoppedError soon after `stop` says so, with the state saved.
    """
    device = pick_device(config.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model, head = build_model(config, data)
        model.place(device)
        trained = nn.ModuleDict({"network": model.network, "head": head}).to(device)
        criterion = build_criterion(config, data, device)
        optimizer = torch.optim.SGD(
            trained.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=True,
        )
        counters = _take_up(run, trained, optimizer)
        source = BatchSource(data.train, device, flip=config.flip, translate=config.translate)
        fit_part = data.train.take(stratified_sample(data.train.labels, _FIT_SAMPLES, config.seed))
        clock = _Clock(counters.seconds)
        progress.start(config, data, counters, run.notes)

        while counters.epoch < config.epochs and not _out_of_patience(config, counters):
            batches = epoch_batches(
                data.train.labels, config.batch_size, kind=config.sampler, seed=config.seed, epoch=counters.epoch
            )
            trained.train()
            for places in batches[counters.step :]:
                step = counters.epoch * len(batches) + counters.step
                torch.manual_seed(config.seed * _SEED_STRIDE + step)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(config, step, len(batches))
                loss = _step(model, head, criterion, optimizer, *source.batch(places))
                counters.step += 1
                counters.loss_sum += loss
                progress.step(counters, len(batches), len(places), loss, criterion)
                stopping = stop()
                if counters.step < len(batches) and (stopping or clock.checkpoint_due(config.checkpoint_seconds)):
                    counters.seconds = clock.total()
                    run.save("last", Snapshot.of(trained, optimizer, counters))
                    clock.checkpoint()
                    if stopping:
                        raise StoppedError(f"stopped in epoch {counters.epoch + 1}, saved")

            row = {"kind": "epoch", "epoch": counters.epoch + 1, "loss": counters.loss_sum / len(batches)}
            row |= {"learning_rate": learning_rate(config, step, len(batches))} | _spectrum(criterion)
            _set_predictors(model, head, data, config)
            fit_predictors(model, fit_part, config)
            validation = evaluate(model, data.val)
            counters = _next_epoch(counters, validation["accuracy"], clock.total())
            row |= {"validation": validation, "seconds": round(counters.seconds, 3)}
            snapshot = Snapshot.of(trained, optimizer, counters)
            if counters.best_epoch == counters.epoch:
                run.save("best", snapshot)
            run.log(row)
            run.save("last", snapshot)
            clock.checkpoint()
            progress.epoch(row, counters)
            if stop():
                raise StoppedError(f"stopped after epoch {counters.epoch}, saved")

        return _finish(config, data, run, model, head, trained, counters, progress)


def pick_device(name: str) -> torch.device:
    """The device of that name, "auto" for CUDA where there is one. Raises InputError where it cannot be used."""
    try:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(got(f"device {name!r} ({reason})", need="one this machine has", do="use cpu")) from None
    return device


def check_settings(config: RunConfig, data: Data) -> None:
    """Raise InputError for a device or a network that cannot be had, before anything is written."""
    pick_device(config.device)
    _build_network(config, data)


def build_model(config: RunConfig, data: Data) -> tuple[Model, nn.Module]:
    """The model with fresh weights, and the layer from its embedding to class scores (identity where none is needed).

    The embedding is as wide as there are classes, unless the settings say otherwise.
    """
    classes = len(data.class_names)
    name, embedding_dim, network = _build_network(config, data)
    needs_layer = config.objective == "cce" and embedding_dim != classes
    head = nn.Linear(embedding_dim, classes) if needs_layer else nn.Identity()
    card = ModelCard(
        network=name,
        width=config.width,
        embedding_dim=embedding_dim,
        sample_shape=data.sample_shape,
        class_names=data.class_names,
        predictors=("softmax",) if config.objective == "cce" else ("hyperplanes", "nearest_mean", "classic_lda"),
    )
    model = Model(card, network)
    model.normalisation.fit(data.train.inputs)
    _set_predictors(model, head, data, config)
    return model, head


def _build_network(config: RunConfig, data: Data) -> tuple[str, int, nn.Module]:
    """The name, the width of the output, and the network with fresh weights."""
    name = config.network or default_network(data.sample_shape)
    embedding_dim = config.embedding_dim or len(data.class_names)
    return name, embedding_dim, build_network(name, data.sample_shape, embedding_dim, width=config.width)


def build_criterion(config: RunConfig, data: Data, device: torch.device) -> nn.Module:
    """The loss: RDLDALoss, or cross-entropy with the same class weights."""
    if config.objective != "cce":
        return RDLDALoss(
            config.alpha, config.lam, config.epsilon, config.statistic, config.scatter, config.class_weight
        )
    weight = None
    if config.class_weight == "balanced":
        counts = torch.bincount(torch.from_numpy(data.train.labels), minlength=len(data.class_names)).float()
        weight = (counts.sum() / (len(counts) * counts.clamp(min=1))).to(device)
    return nn.CrossEntropyLoss(weight)


def _take_up(run: RunFolder, trained: nn.Module, optimizer: torch.optim.Optimizer) -> Counters:
    """Restore the newest whole checkpoint, if there is one."""
    snapshot = run.latest()
    if snapshot is None:
        run.keep_rows(0)
        return Counters()
    snapshot.restore(trained, optimizer)
    run.keep_rows(snapshot.counters.epoch)
    return snapshot.counters


def _step(
    model: Model,
    head: nn.Module,
    criterion: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
) -> float:
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=inputs.is_cuda and torch.cuda.is_bf16_supported()):
        outputs = head(model(inputs))
    try:
        loss = criterion(outputs.float(), labels)
    except ValueError as error:
        raise TrainingError(f"training cannot go on: {error}") from None
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _set_predictors(model: Model, head: nn.Module, data: Data, config: RunConfig) -> None:
    """Give the predictors the settings of the run, and softmax the trained layer."""
    for name in model.card.predictors:
        predictor = model.named_predictor(name)
        if isinstance(predictor, Softmax):
            layer = head if isinstance(head, nn.Linear) else None
            classes = torch.arange(len(data.class_names))
            predictor.set_layer(classes, *((layer.weight, layer.bias) if layer else (None, None)))
            predictor.to(model.normalisation.mean.device)
        elif isinstance(predictor, Hyperplanes):
            predictor.alpha, predictor.lam = config.alpha, config.lam


def _spectrum(criterion: nn.Module) -> dict[str, Any]:
    """What the last batch looked like to an LDA objective; nothing for cross-entropy."""
    if not isinstance(criterion, RDLDALoss):
        return {}
    seen = criterion.diagnostics
    return {"eigenvalues": seen.eigenvalues.tolist(), "selected": seen.selected, "dead_dims": seen.dead_dims}


def _next_epoch(counters: Counters, accuracy: float, seconds: float) -> Counters:
    """The counters after an epoch; the first of equally good epochs stays the best."""
    better = accuracy > counters.best_accuracy
    return Counters(
        epoch=counters.epoch + 1,
        seconds=seconds,
        best_epoch=counters.epoch + 1 if better else counters.best_epoch,
        best_accuracy=accuracy if better else counters.best_accuracy,
    )


def _out_of_patience(config: RunConfig, counters: Counters) -> bool:
    return config.patience is not None and counters.epoch - counters.best_epoch >= config.patience


def _finish(
    config: RunConfig,
    data: Data,
    run: RunFolder,
    model: Model,
    head: nn.Module,
    trained: nn.Module,
    counters: Counters,
    progress: Progress,
) -> dict[str, Any]:
    """Best weights, predictors fitted on the whole training part, the model saved and scored."""
    progress.finishing()
    run.best().restore(trained)
    _set_predictors(model, head, data, config)
    fit_predictors(model, data.train, config)
    run.save_model(model)
    summary = {
        "kind": "summary",
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        "seconds": round(counters.seconds, 3),
        "validation": evaluate(model, data.val),
        "test": evaluate(model, data.test),
        "class_names": list(data.class_names),
    }
    run.log(summary)
    return summary


class _Clock:
    """Seconds spent on a run over all its sessions, and since its last checkpoint."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.monotonic()
        self._checkpoint = self._start

    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    def checkpoint_due(self, interval: float) -> bool:
        return time.monotonic() - self._checkpoint > interval

    def checkpoint(self) -> None:
        self._checkpoint = time.monotonic()
