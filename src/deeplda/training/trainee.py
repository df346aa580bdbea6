"""The network, criterion and optimiser that the loop trains, built from the settings and the data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deeplda.batch_rule import default_width, remedies
from deeplda.core.large_batch import large_batch_backward
from deeplda.core.margins import leave_one_out_margins
from deeplda.data.dataset import Data, Labels, Part
from deeplda.device import autocast_for, pick_device, seeded, warn_if_slow
from deeplda.errors import InputError, TrainingError, while_training
from deeplda.losses import DeepLDALoss
from deeplda.model import Model, ModelCard
from deeplda.model_card import LDA_PREDICTORS, PredictorName
from deeplda.networks import StartsFromData, WhitenedOutput, build_network, default_network, training_flops
from deeplda.networks.hidden_layer import MOST_FEATURES
from deeplda.networks.inspection import first_mismatch
from deeplda.normalisation import Normalisation, byte_sums
from deeplda.predictors import Softmax
from deeplda.predictors.feature_moments import LayerStatistics
from deeplda.sampling import stratified_sample
from deeplda.subclasses import SubclassMap
from deeplda.training.batches import Batch
from deeplda.training.config import LDA_OBJECTIVES, SOFTMAX_OBJECTIVES, FitConfig, layer_sizes
from deeplda.training.criteria import build_criterion, lda_part
from deeplda.training.evaluation import Watch, evaluate, gather_both_statistics, gather_statistics, unwatched
from deeplda.training.margin_sums import MarginSums
from deeplda.training.metrics import AUGMENTED, FinalScores, Scores, Spectrum
from deeplda.training.optim import build_optimizer
from deeplda.training.parallel import ALONE, World
from deeplda.training.splitting_classes import split_by_settings, standardised

# Enough samples for a network that is initialised from the data before training, for example by whitening patches.
_STARTING_SAMPLES = 2_000


@dataclass
class Classifier:
    """A model being trained, as a `Trainee` of the loop.

    Attributes:
        world: the processes that train the model together.
        head: the layer from the embedding to class scores, used for softmax if the embedding dimension is not the
            number of classes; otherwise the identity.
        trained: the network and the head, which together contain all trained parameters, and the subclasses of the
            training samples if they are found again during training.
        parallel: `trained`, wrapped to exchange gradients with the other processes.
        margins: how well the label of each training sample fitted in the epochs so far; None if nothing reads it.
        class_labels: (n,), the classes of the training samples, if their subclasses are found again during training.
        spectra: whether `examine` returns the spectrum; it takes a third of the time of a step on a small table.
    """

    config: FitConfig
    world: World
    model: Model
    head: nn.Module
    trained: nn.Module
    parallel: nn.Module
    criterion: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    margins: MarginSums | None
    class_labels: Labels | None = None
    spectra: bool = True

    @property
    def lda_width(self) -> int | None:
        """The width of the embedding if the criterion is an LDA loss alone, which needs large batches; else None."""
        return self.model.card.embedding_dim if isinstance(self.criterion, DeepLDALoss) else None

    def start_from(self, model: Model) -> None:
        """Copy the weights of a trained model, and those of its softmax layer if both have one.

        Raises InputError if its layers have other sizes.
        """
        found = model.network.state_dict()
        if wrong := first_mismatch(self.model.network.state_dict(), found):
            what = f"the layers of the network differ from those that it should start from ({wrong})"
            raise InputError(f"{what}: keep the settings of the network, or start with new weights")
        self.model.network.load_state_dict(found)
        if isinstance(self.head, nn.Linear) and "softmax" in model.card.predictors:
            softmax = model._named_predictor("softmax")
            self.head.load_state_dict({"weight": softmax.weight, "bias": softmax.bias})

    def step(self, batch: Batch, learning_rate: float) -> float:
        """Take one optimiser step and return the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * (learning_rate / self.config.learning_rate)
            # As in optimizer.zero_grad(), which takes five times as long because it also reports to a profiler.
            for parameter in group["params"]:
                parameter.grad = None
        with autocast_for(self.config.precision, self.device), while_training():
            loss = self._backward(self.model.normalisation.prepare(batch.inputs), batch)
        value = float(loss)
        if not math.isfinite(value):
            raise TrainingError("training failed because the loss is not finite: lower --learning-rate")
        self.optimizer.step()
        return value

    def _backward(self, inputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of the whole batch, given its normalised inputs; store its gradient in the parameters."""
        if (chunk := self.config.chunk_size) is not None:
            return large_batch_backward(self.parallel, self._criterion, inputs, batch, chunk_size=chunk)
        loss = self._criterion(self.parallel(inputs), batch)
        loss.backward()  # type: ignore[no-untyped-call]  # not typed in torch
        return loss.detach()

    def _criterion(self, outputs: Tensor, batch: Batch) -> Tensor:
        loss: Tensor = self.criterion(outputs.float(), batch.labels, batch.weights)
        if self.margins is not None and batch.places is not None:
            parents = self.model.card.parents
            classes = batch.labels if parents is None else torch.tensor(parents, device=self.device)[batch.labels]
            self.margins.add(batch.places, leave_one_out_margins(outputs, classes, self.config.lam))
        return loss

    def regroup(self, data: Data, epoch: int) -> bool:
        """Find the subclasses again in the embedding if that is due before `epoch`, counted from 0."""
        every = self.config.recluster
        if every is None or self.class_labels is None or epoch == 0 or epoch % every:
            return False
        labels = self.world.in_first(lambda: self._new_subclasses(data))
        self.trained.subclasses.copy_(torch.from_numpy(labels))  # type: ignore[operator]  # a buffer
        return True

    def _new_subclasses(self, data: Data) -> Labels:
        """Split the classes by k-means on the standardised embedding of the training set."""
        assert self.class_labels is not None
        points = standardised(self.model.transform(data.train.inputs))
        return split_by_settings(self.config, points, self.class_labels, data.class_names).labels

    def grouped(self, data: Data) -> Data:
        """Return the data with the current subclasses as labels of the training set, and use these from now on."""
        if self.class_labels is None:
            return data
        labels = self.trained.subclasses.cpu().numpy().copy()  # type: ignore[operator]  # a buffer
        parents = np.empty(labels.max() + 1, dtype=np.int64)
        parents[labels] = self.class_labels
        self.model.card = self.model.card.model_copy(update={"parents": tuple(parents.tolist())})
        if (lda := lda_part(self.criterion)) is not None and lda.parents is not None:
            lda.parents = self.model.card.parents
        return replace(data, train=replace(data.train, labels=labels))

    def examine(self, fit_part: Part, validation: Part) -> tuple[Scores | None, Spectrum]:
        """Return the scores on `validation` and the spectrum of the last batch."""
        self.world.average_buffers(self.model.network)
        if len(validation) == 0:
            return None, self._spectrum()
        self.fit_predictors(fit_part)
        return evaluate(self.model, validation, world=self.world, calibrate=True), self._spectrum()

    def finish(self, data: Data, watch: Watch) -> Model:
        """Return the model, with its predictors fitted on the whole training set and calibrated on the validation set.

        Without a validation set, the probabilities are not calibrated.
        """
        if moments_suffice(self.config):
            with while_training():
                self._use(standardised_moments(self.model, data))
        else:
            self.fit_predictors(data.train, watch, features=True)
        evaluate(self.model, data.val, world=self.world, calibrate=True)
        return self.model

    def score(self, data: Data, watch: Watch) -> FinalScores:
        """Return the scores of the finished model on the validation and test sets."""
        classes = np.asarray(self.model.card.subclass_map.parents)[data.train.labels]
        scores = FinalScores(
            validation=evaluate(self.model, data.val, world=self.world),
            test=evaluate(self.model, data.test, watch, self.world),
            class_names=list(data.class_names),
            train_counts=np.bincount(classes, minlength=len(data.class_names)).tolist(),
        )
        if (tta := self.config.tta) is None:
            return scores
        augmented = {
            "validation": evaluate(self.model, data.val, world=self.world, tta=tta),
            "test": evaluate(self.model, data.test, watch, self.world, tta=tta),
        }
        return scores.model_copy(update={AUGMENTED[tta]: augmented})

    def flops(self, sample_shape: tuple[int, ...]) -> int:
        """Return the number of floating-point operations in the forward and backward pass of one sample."""
        return training_flops(self.trained, sample_shape)

    def mute(self) -> None:
        """Do not warn about small batches: the caller has given advice before the first step."""
        if (lda := lda_part(self.criterion)) is not None:
            lda._checked = True

    def close(self) -> None:
        """Drop `DistributedDataParallel`, which can hang at exit if it outlives its process group."""
        self.parallel = self.trained

    def describe_step(self) -> str:
        """Return the range of the eigenvalues of the last batch, for the progress bar."""
        if (lda := lda_part(self.criterion)) is None:
            return ""
        eigenvalues = lda.diagnostics.eigenvalues
        return f"  eigenvalues {float(eigenvalues[0]):.2f} to {float(eigenvalues[-1]):.2f}"

    def _spectrum(self) -> Spectrum:
        """Return the spectrum of the last batch; empty for objectives other than LDA."""
        if not self.spectra or (lda := lda_part(self.criterion)) is None:
            return {}
        seen = lda.diagnostics
        return {"eigenvalues": seen.eigenvalues.tolist(), "selected": seen.selected, "dead_dims": seen.dead_dims}

    def fit_predictors(self, part: Part, watch: Watch = unwatched, *, features: bool = False) -> None:
        """Fit the predictors on `part` with the current network; softmax copies the trained layer instead.

        With `features`, the statistics of the last hidden layer are gathered in the same pass.
        """
        if self.config.objective in SOFTMAX_OBJECTIVES:
            softmax = self.model._named_predictor("softmax")
            assert isinstance(softmax, Softmax)
            layer = self.head if isinstance(self.head, nn.Linear) else None
            classes = torch.arange(len(self.model.card.subclass_map), device=self.device)
            softmax.set_layer(classes, *((layer.weight, layer.bias) if layer else (None, None)))
        if LDA_PREDICTORS[0] in self.model.card.predictors:
            with while_training():
                if features:
                    self._use(gather_both_statistics(self.model, part, watch, self.world))
                else:
                    self.model._fit_statistics(gather_statistics(self.model, part, watch, self.world))

    def _use(self, found: LayerStatistics) -> None:
        """Fit the predictors, and store the statistics of the last hidden layer unless it is missing or too wide."""
        self.model._fit_statistics(found.outputs)
        if found.features is not None and found.some is not None and found.some.shape[1] <= MOST_FEATURES:
            self.model._set_feature_statistics(found.features, found.some)


def moments_suffice(config: FitConfig) -> bool:
    """Return whether the model follows from the moments of the training features, because it has no layers."""
    scored = config.objective in SOFTMAX_OBJECTIVES
    return config.network == "identity" and config.scatter != "dorfer" and not scored


def standardised_moments(model: Model, data: Data) -> LayerStatistics:
    """Return the statistics of the training features as a model without layers normalises them."""
    normalisation = model.normalisation
    return data._full_pass.moments.standardised(normalisation.mean, normalisation.deviation, model.card.scatter)


class _NetworkAndHead(nn.Module):
    def __init__(self, network: nn.Module, head: nn.Module, subclasses: Labels | None = None) -> None:
        super().__init__()
        self.network, self.head = network, head
        if subclasses is not None:
            # As a buffer, they are part of every checkpoint.
            self.register_buffer("subclasses", torch.from_numpy(subclasses.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.network(inputs))
        return outputs


def build_trainee(
    config: FitConfig,
    data: Data,
    network: nn.Module | None = None,
    subclasses: SubclassMap | None = None,
    world: World = ALONE,
    normalisation: Normalisation | None = None,
    statistic: Callable[[Tensor], Tensor] | None = None,
) -> Classifier:
    """Build everything needed for training, with new weights drawn from the seed or around the given `network`.

    Args:
        subclasses: the subclasses that label the training set; by default, its labels are classes.
        normalisation: the normalisation of inputs; by default, it is fitted on the training set, except that the
            encoded rows of a table are not changed.
        statistic: the user's function of the eigenvalues; by default, it is imported if `config` names one.

    Raises InputError if the settings do not fit the data.
    """
    device = pick_device(config.device)
    if world.first:
        warn_if_slow(config.precision, device)
    card = model_card(config, data, subclasses)
    groups, outputs = len(card.subclass_map), card.embedding_dim
    with seeded(config.seed, device):
        network = network or build_network(**card._architecture())
        scored = config.objective in SOFTMAX_OBJECTIVES
        head = nn.Linear(outputs, groups) if scored and outputs != groups else nn.Identity()
    if world.size > 1 and device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]  # not typed
    for layer in network.modules():
        if isinstance(layer, WhitenedOutput):
            # A single process trains alone, even if the caller's program has a process group.
            layer.local = world.size == 1
    model = Model(card, network)
    if normalisation is not None:
        model.normalisation = normalisation
    elif data.table is None:
        _fit(model.normalisation, config, data, world)
    model._place(device)
    if isinstance(network, StartsFromData):
        some = data.train.inputs[stratified_sample(data.train.labels, _STARTING_SAMPLES, seed=0)]
        network.start_from(model.normalisation.prepare(torch.from_numpy(some).to(device)))
    regroups = config.recluster is not None and subclasses is not None
    trained = _NetworkAndHead(model.network, head, data.train.labels if regroups else None).to(device)
    parallel = trained if world.size == 1 or config.epochs == 0 else _parallel(trained)
    optimizer = build_optimizer(config, trained, _output_parameters(network, head))
    # In eval mode, the loss does not communicate with other ranks, so a single process trains alone even if the
    # caller's program has a process group.
    criterion = build_criterion(config, world, subclasses, statistic).to(device).train(world.size > 1)
    if (lda := lda_part(criterion)) and (lda is not criterion or _nothing_to_advise(config, data, outputs)):
        # The rule was not measured for objective joint.
        lda._checked = True
    classes = subclasses.to_classes(data.train.labels) if subclasses is not None and regroups else None
    margins = MarginSums(len(data.train))
    return Classifier(config, world, model, head, trained, parallel, criterion, optimizer, device, margins, classes)


def _fit(normalisation: Normalisation, config: FitConfig, data: Data, world: World) -> None:
    """Fit the normalisation on the training set."""
    inputs = data.train.inputs
    if moments_suffice(config):
        moments = data._full_pass.moments
        normalisation.fit_moments(moments.mean, moments.deviation)
    elif inputs.dtype == np.uint8:
        # Sums of bytes are exact, so each process needs to read only its share of them.
        normalisation.fit_sums(world.total(byte_sums(world.share(inputs))))
    else:
        normalisation.fit(inputs)


def model_card(config: FitConfig, data: Data, subclasses: SubclassMap | None = None) -> ModelCard:
    """Return the card of the model to train.

    By default, the output dimension is the number of classes, for an LDA loss at most half the batch size. The outputs
    of objective joint are class scores, so they have one dimension for each class or subclass. Raises InputError if the
    settings contradict this.
    """
    groups, joint = len(subclasses or data.class_names), config.objective == "joint"
    outputs = config.embedding_dim or ("subclasses" if joint else default_embedding_dim(config, len(data.class_names)))
    if config.network == "identity":
        outputs = config.embedding_dim or data.sample_shape[0]
        if config.stretches[-1] > 0:
            what = f"network identity has nothing to train, but epochs is {config.stretches[-1]}"
            raise InputError(f"{what}: pass --epochs 0, or use deeplda fit-features")
    if outputs == "subclasses":
        outputs = groups
    # Before the classes are split, the number of subclasses is unknown.
    if joint and outputs != groups and (subclasses is not None or config.subclasses == 1):
        what = f"embedding_dim is {outputs}, but objective joint needs one output per class or subclass, here {groups}"
        raise InputError(f"{what}: omit embedding_dim, or use another objective")
    return ModelCard(
        network=config.network or default_network(data.sample_shape),
        width=config.width,
        embedding_dim=outputs,
        head=config.head,
        logit_scale=config.logit_scale,
        outputs=config.outputs,
        hidden_layer_sizes=None if config.hidden_layer_sizes is None else layer_sizes(config.hidden_layer_sizes),
        dropout=config.dropout,
        sample_shape=data.sample_shape,
        class_names=data.class_names,
        predictors=predictors_of(config),
        alpha=config.alpha,
        lam=config.lam,
        scatter=config.scatter,
        priors=config.priors,
        parents=subclasses.parents if subclasses else None,
        subclass_decision=config.subclass_decision,
        table=data.table,
    )


def _nothing_to_advise(config: FitConfig, data: Data, width: int) -> bool:
    """Return whether a batch is the whole training set, so that it cannot be larger, and no width suits it better."""
    if config.batch_size < len(data.train):
        return False
    return remedies(np.unique(data.train.labels, return_counts=True)[1].tolist(), width).dims is None


def default_embedding_dim(config: FitConfig, classes: int) -> int:
    lda_alone = config.objective in LDA_OBJECTIVES and config.objective not in SOFTMAX_OBJECTIVES
    return default_width(classes, config.batch_size) if lda_alone else classes


def predictors_of(config: FitConfig) -> tuple[PredictorName, ...]:
    """Return the predictors of the objective; the first one makes the decisions.

    The outputs under a loss of the user's are an embedding.
    """
    softmax: tuple[PredictorName, ...] = ("softmax",) if config.objective in SOFTMAX_OBJECTIVES else ()
    return softmax + (LDA_PREDICTORS if config.objective in LDA_OBJECTIVES or not softmax else ())


def _output_parameters(network: nn.Module, head: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a built-in network's output layers and of the head on top of them."""
    layers = [getattr(network, name) for name in getattr(network, "output_layers", ())]
    return [parameter for layer in (*layers, head) if layer is not None for parameter in layer.parameters()]


def _parallel(trained: nn.Module) -> DistributedDataParallel:
    """Wrap a module so that processes exchange gradients but not buffers."""
    with warnings.catch_warnings():
        # Older releases of torch know the option only under this name.
        warnings.filterwarnings("ignore", ".*broadcast_buffers.* is deprecated")
        return DistributedDataParallel(trained, broadcast_buffers=False)
