"""A trained model: network, normalisation, predictors and class names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from safetensors.torch import save
from torch import Tensor, nn

from deeplda.audit import Audit, audit_samples, class_indices
from deeplda.core.options import check_choice
from deeplda.data.data_frames import encoded_frame, is_frame
from deeplda.data.dataset import Inputs
from deeplda.data.mapped_rows import MappedRows
from deeplda.errors import InputError, NotFiniteError
from deeplda.io import expanded
from deeplda.model_card import ModelCard, PredictorName, first_problem
from deeplda.networks import NETWORKS
from deeplda.networks.inspection import output_width, samples_at_once, zero_sample
from deeplda.output_folder import OutputFolder
from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, LinearPredictor, NearestMean, Softmax
from deeplda.predictors.linear import Priors
from deeplda.views import Views, averaged

__all__ = ["Model", "ModelCard"]

# The files of a model folder, including its exports.
MODEL_FILES = frozenset({"model.json", "weights.safetensors", "model.onnx", "model.pt2"})
# Prefix of the statistics' names in weights.safetensors.
STATISTICS = "statistics."

_PREDICTORS: dict[PredictorName, type[LinearPredictor]] = {
    "hyperplanes": Hyperplanes,
    "nearest_mean": NearestMean,
    "classic_lda": ClassicLDA,
    "softmax": Softmax,
}
# Samples for a model; `MappedRows` are those of a pack.
ModelInputs = Tensor | NDArray[np.generic] | MappedRows
# The number of samples processed at once by the user's own networks, whose activations we do not know.
_BATCH = 500


class Model(nn.Module):
    """A network together with everything it needs to classify raw samples.

    Inputs are arrays or tensors in the form of the training data: images N x C x H x W, as uint8 or as floats in the
    same range 0..255, or feature vectors N x features. If the model was trained on a table, they can also be data
    frames with the columns of that table. With `tta="mirror"`, the embeddings of each image and its mirror
    image are averaged, at twice the cost; with `tta="views"`, those of six views, of which four are shifted by a pixel.
    `mirror=True` is the same as `tta="mirror"`.

    Create a model with `from_parts` after your own training loop, or read one with `deeplda.load`.

    Attributes:
        card: the settings of the model, saved as model.json.
        network: the module that maps normalised samples to embeddings.
    """

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        self.card, self.network, self.normalisation = card, network, Normalisation(card.sample_shape)
        self.predictors = nn.ModuleDict({name: _PREDICTORS[name]() for name in card.predictors})
        if "hyperplanes" in card.predictors:
            self.predictors["hyperplanes"] = Hyperplanes(
                alpha=card.alpha, lam=card.lam, scatter=card.scatter, class_weight=card.class_weight
            )
        if "classic_lda" in card.predictors and card.class_weight == "balanced":
            self.predictors["classic_lda"] = ClassicLDA(priors=None)

    @classmethod
    def from_parts(
        cls,
        network: nn.Module,
        predictor: LinearPredictor,
        class_names: Sequence[str],
        sample_shape: Sequence[int],
        *,
        mean: ArrayLike | Tensor | None = None,
        deviation: ArrayLike | Tensor | None = None,
    ) -> Model:
        """Create a model from a network that you trained in your own loop.

        The model works like one trained by deeplda. Code is never saved, so pass the network again when you load the
        model, as in ``deeplda.load(folder, network=network)``.

        Args:
            network: maps samples (n, *sample_shape) to embeddings (n, d). The model uses this module, not a copy.
            predictor: a fitted `Hyperplanes`, `NearestMean` or `ClassicLDA`, or a `Softmax`. The model gets a copy.
            class_names: a name for each class, in ascending order of the labels that the predictor was fitted on.
            sample_shape: shape of one sample, such as (features,) or (channels, height, width).
            mean, deviation: the network receives (x - mean) / deviation. Each is one number, or one number for each
                channel or feature. By default, inputs are not changed.

        Raises InputError if the parts do not fit together, or if the predictor has an option that a saved model cannot
        record: `normalize="unit"` or `probability="sigmoid"`. The predictor's calibration is kept. Priors other than
        the predictor's default apply until a class is added.
        """
        name = _predictor_name(predictor)
        count, width = predictor.weight.shape
        if len(class_names) != count:
            raise InputError(f"there are {len(class_names)} class names, need {count}, one for each class")
        shape = tuple(int(size) for size in sample_shape)
        if (outputs := output_width(network, shape)) != width:
            what = f"the network has {outputs} outputs, but the predictor was fitted on {width}"
            raise InputError(f"{what}: fit the predictor on the output of this network")
        statistics = predictor._statistics
        options = predictor if isinstance(predictor, Hyperplanes) else statistics
        try:
            card = ModelCard(
                network=f"{type(network).__module__}:{type(network).__qualname__}",
                width=1.0,
                embedding_dim=width,
                sample_shape=shape,
                class_names=tuple(map(str, class_names)),
                predictors=(name,),
                alpha=getattr(options, "alpha", 1.0),
                lam=getattr(options, "lam", 1e-3),
                scatter="pooled" if options is None else options.scatter,
                class_weight=None if options is None else options.class_weight,
            )
        except ValidationError as error:
            raise InputError(f"these parts do not make a model: {first_problem(error)}") from None
        model = cls(card, network)
        model.normalisation.set(mean, deviation)
        # In a model, classes are numbered by their position in class_names.
        classes = torch.arange(count)
        model.predictor.load_state_dict(predictor.state_dict() | {"classes": classes})
        if statistics is not None:
            model.predictor._statistics = FeatureStatistics.from_state(
                statistics.state() | {"classes": classes}, scatter=card.scatter, class_weight=card.class_weight
            )
        like = zero_sample(network, (0,))
        model.normalisation.to(dtype=like.dtype if like.dtype == torch.float64 else torch.float32)
        return model.to(like.device)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names, in the order of the columns of `predict_proba`."""
        return self.card.class_names

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor that makes the decisions, the first one on the card."""
        return self._named_predictor(self.card.predictors[0])

    @property
    def statistics(self) -> FeatureStatistics | None:
        """Statistics of the embedded training set; None for a model trained with cross-entropy alone."""
        return self.predictor._statistics

    @property
    def calibrated_on(self) -> int:
        """The number of samples outside the training set that the probabilities were calibrated on; 0 if none."""
        return int(self.predictor.calibration.samples)

    @cached_property
    def batch_size(self) -> int:
        """The number of samples that are processed at once, at most 500; it depends only on the network and card."""
        ours = type(self.network) in NETWORKS.values()
        return samples_at_once(self.network, self.card.sample_shape) if ours else _BATCH

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings (n, embedding_dim) of inputs (n, *sample_shape)."""
        embedding: Tensor = self.network(self.normalisation.prepare(inputs))
        return embedding

    def transform(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> NDArray[np.float32]:
        """Return the embeddings (n, embedding_dim) of inputs (n, *sample_shape)."""
        return self._collect(lambda embedding: embedding, inputs, tta=tta, mirror=mirror)

    def predict(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> NDArray[np.str_]:
        """Return the class name of each sample, (n,)."""
        best = self.decision_function(inputs, tta=tta, mirror=mirror).argmax(1)
        names: NDArray[np.str_] = np.asarray(self.class_names)[best]
        return names

    def predict_proba(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the probability of each class, (n, C), in the order of `class_names`.

        The probabilities are calibrated if `calibrated_on` is positive; otherwise, they are far too confident.
        """
        return self._collect(self.class_probabilities, inputs, tta=tta, mirror=mirror)

    def decision_function(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the score of each class, (n, C), which no calibration has changed, in the order of `class_names`."""
        return self._collect(self.class_scores, inputs, tta=tta, mirror=mirror)

    def predict_subclasses(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.str_]:
        """Return the subclass of each sample, (n,): "cat/1" is the second of "cat"; an unsplit class is just "cat"."""
        scores = self._collect(self.predictor._scores, inputs, tta=tta, mirror=mirror)
        names: NDArray[np.str_] = np.asarray(self.card.subclass_map.names(self.class_names))[scores.argmax(1)]
        return names

    def mahalanobis(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the distance from each sample to the nearest class, (n,); it is large if a sample belongs to no class.

        Raises InputError if the model has no statistics.
        """
        self._require_statistics()
        return self._collect(self.predictor.mahalanobis, inputs, tta=tta, mirror=mirror)

    def audit(self, inputs: ModelInputs, labels: ArrayLike, *, margins: ArrayLike | None = None) -> Audit:
        """Find samples whose labels are likely to be wrong, near-duplicates with different labels, and outliers.

        Args:
            labels: (n,), the class name of each sample.
            margins: (n,), how well the labels fitted during training, NaN if unknown: `margins.safetensors` of a run
                has them for its training set. Without them, the scores of the model decide, which fit the labels of its
                own training samples too well if it has memorised them.

        Raises InputError if a label is not a class of the model, or if the numbers of samples differ.
        """
        if self.card.table is not None and is_frame(inputs):
            inputs = encoded_frame(inputs, self.card.table)
        samples = inputs if isinstance(inputs, MappedRows) else np.asarray(inputs)
        given = class_indices(np.asarray(labels), self.class_names)
        if len(given) != len(samples):
            raise InputError(
                f"there are {len(samples)} samples and {len(given)} labels, need one label for each sample"
            )
        if (given < 0).any():
            wrong = np.asarray(labels)[given < 0][0]
            raise InputError(f"labels contains {str(wrong)!r}, need one of the classes of the model")
        embedding = torch.from_numpy(self.transform(inputs))
        distances = None if self.statistics is None else self._on_device(self.predictor.mahalanobis, embedding)
        scores, probabilities = (self._on_device(f, embedding) for f in (self.class_scores, self.class_probabilities))
        known = None if margins is None else np.asarray(margins, dtype=np.float64)
        found = audit_samples(samples, embedding.numpy(), scores, probabilities, given, distances, known)
        return found._named(np.asarray(self.class_names))

    def add_class(self, inputs: ModelInputs, name: str) -> None:
        """Add a class from a few examples (n, *sample_shape), without retraining the network.

        The calibration is kept, and so are the class weights of an estimator. The new class has the prior of an average
        class, except with classic LDA, whose priors are the class frequencies.

        Raises InputError if a class with that name already exists, the model has no statistics, or it has a softmax
        predictor, whose layer is trained.
        """
        statistics = self._require_statistics()
        if "softmax" in self.card.predictors:
            what = "a class cannot be added to a model with softmax, whose layer is trained for its classes"
            raise InputError(f"{what}: train with objective lda")
        if not isinstance(name, str) or not name:
            raise InputError(f"the class name is {name!r}, need a non-empty string: pass {str(name) or 'new'!r}")
        if name in self.class_names:
            raise InputError(f"class {name!r} already exists: choose another name")
        features = torch.as_tensor(self.transform(inputs))
        parents, known = self.card.subclass_map.parents, len(self.class_names)
        statistics = statistics.with_class(features, len(parents))
        update = {"class_names": (*self.class_names, name), "parents": self.card.parents and (*parents, known)}
        self.card = self.card.model_copy(update=update)
        for name in self.card.predictors:
            predictor = self._named_predictor(name)
            predictor.priors = self._priors(predictor, statistics)
            predictor._refit(statistics)

    def class_probabilities(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the calibrated probability of each class, (n, C) float64, for embeddings (n, embedding_dim).

        `predictor` names the predictor to use, by default the first one on the card. Raises InputError if a score is
        not finite.
        """
        chosen = self._named_predictor(predictor) if predictor else self.predictor
        probabilities: Tensor = chosen.calibration(self.class_scores(embedding, predictor))
        return probabilities

    def class_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the score of each class, (n, C) float64, for embeddings (n, embedding_dim).

        `predictor` names the predictor to use, by default the first one on the card. With subclasses, the score of a
        class is its best subclass's score, as in the paper, or log(sum(exp(score))) over its subclasses, whose softmax
        adds up their probabilities; `card.subclass_decision` determines which.

        Raises InputError if a score is not finite.
        """
        return _finite(self._unchecked_scores(embedding, predictor))

    def _unchecked_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the class scores, without a check, which cannot be part of an exported graph."""
        scores = (self._named_predictor(predictor) if predictor else self.predictor)._scores(embedding)
        if self.card.parents is None:
            return scores
        if self.card.subclass_decision == "sum":
            return self.card.subclass_map.class_log_sums(scores)
        return self.card.subclass_map.class_scores(scores)

    @torch.no_grad()
    def embeddings(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> Iterator[Tensor]:
        """Yield the embeddings in batches, computed in eval mode on the model's device.

        Raises InputError if the inputs have the wrong shape, contain NaN or infinity, or are images scaled to 0..1
        although the training images were not, or if an embedding is not finite.
        """
        if self.card.table is not None and is_frame(inputs):
            inputs = encoded_frame(inputs, self.card.table)
        inputs = inputs if isinstance(inputs, Tensor | MappedRows) else _as_array(inputs)
        if tuple(inputs.shape[1:]) != self.card.sample_shape:
            needed = f"(n, {', '.join(map(str, self.card.sample_shape))}), the shape of the training data"
            raise InputError(f"inputs has shape {tuple(inputs.shape)}, need {needed}")
        tta = tta or ("mirror" if mirror else None)
        if tta is not None:
            check_choice("tta", tta, get_args(Views), or_else="None")
            if len(self.card.sample_shape) != 3:
                raise InputError(no_views(self.card.sample_shape))
        self._check_values(inputs)
        self.eval()
        for start in range(0, len(inputs), self.batch_size):
            batch = _as_tensor(inputs[start : start + self.batch_size]).to(self.normalisation.mean.device)
            yield _finite(averaged(self, batch, tta))

    def save(self, path: str | Path) -> None:
        """Write a new model folder atomically, for `deeplda.load`. Raises InputError if the path exists."""
        path = expanded(path).absolute()
        with OutputFolder.open(path.parent) as parent, parent.new_folder(path.name, ours=None) as folder:
            self._write(folder)

    def _collect(
        self,
        function: Callable[[Tensor], Tensor],
        inputs: ModelInputs,
        *,
        tta: Views | None = None,
        mirror: bool = False,
    ) -> NDArray[Any]:
        """Apply `function` to the embeddings and return the results as one array, even if there are no inputs."""
        parts = self.embeddings(inputs, tta=tta, mirror=mirror)
        found = [_finite(function(part)).cpu().numpy() for part in parts]
        nothing = self.normalisation.mean.new_empty((0, self.card.embedding_dim))
        return np.concatenate(found or [function(nothing).cpu().numpy()])

    def _on_device(self, function: Callable[[Tensor], Tensor], embedding: Tensor) -> NDArray[Any]:
        """Apply `function` to embeddings in memory, which are moved to the device of the model."""
        return function(embedding.to(self.normalisation.mean.device)).cpu().numpy()

    def _named_predictor(self, name: str) -> LinearPredictor:
        predictor = self.predictors[name]
        assert isinstance(predictor, LinearPredictor)
        return predictor

    def _fit_statistics(self, statistics: FeatureStatistics) -> None:
        """Fit every predictor except softmax from the statistics of the embedded training set, and store these."""
        for name in self.card.predictors:
            predictor = self._named_predictor(name)
            if isinstance(predictor, Softmax):
                predictor._statistics = statistics
            else:
                predictor.priors = self._priors(predictor, statistics)
                predictor.fit_statistics(statistics)

    def _priors(self, predictor: LinearPredictor, statistics: FeatureStatistics) -> Priors:
        """Return the priors with which a predictor of this model is fitted.

        Priors belong to classes: if they are equal, each subclass has its share of its class's prior, so that splitting
        a class does not make it more likely.
        """
        if self.card.parents is None or predictor.priors == "empirical":
            return predictor.priors
        parents = torch.tensor(self.card.parents)
        sizes = torch.zeros(len(self.class_names), dtype=torch.float64).index_add_(0, parents, statistics.counts)
        return (statistics.counts / sizes[parents]).tolist()

    def _require_statistics(self) -> FeatureStatistics:
        """Return the statistics of the embedded training set. Raises InputError if there are none."""
        if self.statistics is None:
            what = "the model has no statistics of its training set, like all models trained with cross-entropy alone"
            raise InputError(f"{what}: train with objective lda")
        return self.statistics

    def _check_values(self, inputs: ModelInputs) -> None:
        """Raise InputError if values are NaN or infinite, or if images are in 0..1 but the training images were not."""
        floating = inputs.is_floating_point() if isinstance(inputs, Tensor) else inputs.dtype.kind == "f"
        if not floating or len(inputs) == 0:
            return
        inputs = _as_tensor(inputs)
        if not inputs.isfinite().all():
            do = "fill in missing values, or omit these samples"
            raise InputError("inputs contains NaN or infinity", need="finite numbers", do=do)
        if inputs.ndim == 4 and self.normalisation.mean.max() > 1 and inputs.min() >= 0 and 0 < inputs.max() <= 1:
            what = "the images are scaled to 0..1, but the training images were not"
            raise InputError(f"{what}: scale them like the training images")

    def _place(self, device: torch.device) -> Model:
        """Move the model to a device, with filters in channels_last memory, which makes convolutions faster."""
        self.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        return self

    def _write(self, folder: OutputFolder) -> None:
        """Write weights.safetensors and model.json into `folder`."""
        state = self.state_dict()
        if self.statistics is not None:
            state |= {f"{STATISTICS}{name}": tensor for name, tensor in self.statistics.state().items()}
        # Copies, because safetensors rejects tensors that share memory, such as the weights of tied layers.
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        folder.write("weights.safetensors", save(copies))
        folder.write("model.json", self.card.model_dump_json(indent=2) + "\n")


class Normalisation(nn.Module):
    """Normalise each image channel or feature to (x - mean) / deviation; the identity until fitted.

    Buffers: mean and deviation, (channels, 1, 1) or (features,).
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, sample_shape: Sequence[int]) -> None:
        super().__init__()
        shape = (sample_shape[0],) + (1,) * (len(sample_shape) - 1)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise inputs (n, *sample_shape)."""
        return (inputs.to(self.mean.dtype) - self.mean) / self.deviation

    def prepare(self, inputs: Tensor) -> Tensor:
        """Normalise inputs for a network; images get channels_last memory, which makes convolutions faster."""
        normalised = self.forward(inputs)
        return normalised.contiguous(memory_format=torch.channels_last) if normalised.ndim == 4 else normalised

    def fit(self, inputs: Inputs) -> Normalisation:
        """Compute mean and deviation of inputs (n, *sample_shape); constant channels or features are only centred."""
        if inputs.dtype == np.uint8:
            return self.fit_sums(byte_sums(inputs))
        axes = (0, *range(2, inputs.ndim))
        count = math.prod(inputs.shape) // inputs.shape[1]
        mean = sum(part.sum(axes, dtype=np.float64) for part in _parts(inputs)) / count
        centre = mean.reshape((-1,) + (1,) * (inputs.ndim - 2))
        squares = sum(np.square(part - centre).sum(axes) for part in _parts(inputs))
        return self._set_moments(mean, np.sqrt(squares / count))

    def fit_sums(self, sums: NDArray[np.int64]) -> Normalisation:
        """Compute mean and deviation from `byte_sums`, which may be added up over parts of the inputs."""
        # With Python's integers, there is no rounding before the last step, whatever the number of samples.
        moments = [(int(n), int(first), int(second)) for n, first, second in sums.T]
        mean = np.array([first / n for n, first, _ in moments])
        variance = np.array([(n * second - first**2) / n**2 for n, first, second in moments])
        return self._set_moments(mean, np.sqrt(variance))

    def _set_moments(self, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Normalisation:
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        self.deviation.copy_(torch.as_tensor(np.where(deviation > 0, deviation, 1.0)).view_as(self.deviation))
        return self

    def set(self, mean: ArrayLike | Tensor | None, deviation: ArrayLike | Tensor | None) -> None:
        """Set mean and deviation, each to one number or one per channel or feature; None leaves a value unchanged.

        Raises InputError if the number of values is wrong, a value is not finite, or a deviation is not positive.
        """
        for name, given, buffer in (("mean", mean, self.mean), ("deviation", deviation, self.deviation)):
            if given is None:
                continue
            values = torch.as_tensor(given, dtype=torch.float64).flatten()
            if len(values) not in (1, len(buffer)):
                needed = f"1 or {len(buffer)}, one for each channel or feature"
                raise InputError(f"{name} has {len(values)} values, need {needed}")
            if not values.isfinite().all() or (name == "deviation" and not (values > 0).all()):
                raise InputError(f"{name} must be finite{' and > 0' if name == 'deviation' else ''}, got {given}")
            buffer.copy_(values.expand(len(buffer)).view_as(buffer))


def uncalibrated_note(model: Model) -> str | None:
    """Return a sentence for the user if the probabilities of a model are not calibrated."""
    if model.calibrated_on:
        return None
    return "the probabilities are far too confident, because no samples outside the training set calibrated them"


def no_views(sample_shape: Sequence[int]) -> str:
    """Return the error message for test-time augmentation of samples that are not images."""
    what = f"only images can be mirrored or shifted, but the samples have shape {tuple(sample_shape)}"
    return f"{what}: omit tta or mirror"


def _predictor_name(predictor: LinearPredictor) -> PredictorName:
    """Return the name of a predictor for the card. Raises InputError if a model cannot use the predictor."""
    name = next((name for name, kind in _PREDICTORS.items() if type(predictor) is kind), None)
    if name is None:
        kind = type(predictor).__name__
        need, do = "one from deeplda.predictors", "use Hyperplanes, for example"
        raise InputError(f"the predictor is a {kind}", need=need, do=do)
    if len(predictor.classes) == 0:
        raise InputError("the predictor is not fitted: call fit first")
    for option, needed in (("normalize", "within"), ("probability", "softmax")):
        if getattr(predictor, option, needed) != needed:
            what = f"the predictor has {option}={getattr(predictor, option)!r}, which a saved model cannot record"
            raise InputError(f"{what}: fit one with {option}={needed!r}")
    return name


def _finite(values: Tensor) -> Tensor:
    """Return the values unchanged. Raises InputError if one of them is NaN or infinite."""
    if not values.isfinite().all():
        raise NotFiniteError
    return values


def byte_sums(inputs: Inputs) -> NDArray[np.int64]:
    """Return the number, the sum and the sum of squares of the values of each channel or feature, (3, C).

    The inputs are uint8, so all sums are exact integers, and those of several parts can be added up in any order.
    """
    sums = np.zeros((3, inputs.shape[1]), dtype=np.int64)
    for part in _parts(inputs):
        # float64 holds all integers of this size, and NumPy multiplies them faster.
        values = part.reshape(len(part), inputs.shape[1], -1)
        sums[0] += values.shape[0] * values.shape[2]
        sums[1] += values.sum((0, 2)).astype(np.int64)
        sums[2] += np.einsum("ncp,ncp->c", values, values).astype(np.int64)
    return sums


def _parts(inputs: Inputs) -> Iterator[NDArray[np.float64]]:
    """Yield the inputs as float64 in pieces of about 16 MB, so that the copies stay small."""
    step = max(1, 2**21 // max(1, math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), step):
        yield np.asarray(inputs[start : start + step], dtype=np.float64)


def _as_array(inputs: object) -> NDArray[np.generic]:
    """Convert a list, data frame or similar object to an array. Raises InputError if it does not contain numbers."""
    try:
        array: NDArray[np.generic] = np.asarray(inputs)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "buif":
        do = "read files with deeplda.data.read_images, or use deeplda predict"
        raise InputError(f"inputs is a {type(inputs).__name__}", need="an array or tensor of numbers", do=do)
    return array


def _as_tensor(numbers: ModelInputs) -> Tensor:
    """Convert any array to a tensor, even with negative strides, a foreign byte order, no write access or > 64 bits."""
    if isinstance(numbers, Tensor):
        return numbers
    kind = np.float64 if numbers.dtype.itemsize > 8 else numbers.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(numbers, kind, ["C", "W"]))
