"""A trained model: network, normalisation, predictors and class names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from deeplda.errors import InputError, got
from deeplda.io import expanded, new_folder
from deeplda.model_card import ModelCard, PredictorName, first_problem
from deeplda.networks.inspection import output_width, zero_sample
from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, LinearPredictor, NearestMean, Softmax

__all__ = ["Model", "ModelCard"]

# Prefix of the statistics' names in weights.safetensors.
STATISTICS = "statistics."

_PREDICTORS: dict[PredictorName, type[LinearPredictor]] = {
    "hyperplanes": Hyperplanes,
    "nearest_mean": NearestMean,
    "classic_lda": ClassicLDA,
    "softmax": Softmax,
}
_BATCH = 500


class Model(nn.Module):
    """A network together with everything it needs to classify samples as they come.

    Inputs are arrays or tensors in the form of the training data: images N x C x H x W as uint8 or as floats of the
    same range 0..255, or rows of numbers N x features. With `mirror`, the embedding of an image is the mean of its own
    and that of its mirror image, at twice the cost.

    Make one with `from_parts` after your own training loop, or read one with `deeplda.load`.

    Attributes:
        card: the settings of the model, saved as model.json.
        network: the module from normalised samples to embeddings.
    """

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        self.card, self.network, self.normalisation = card, network, Normalisation(card.sample_shape)
        self.predictors = nn.ModuleDict({name: _PREDICTORS[name]() for name in card.predictors})
        if "hyperplanes" in card.predictors:
            self.predictors["hyperplanes"] = Hyperplanes(
                alpha=card.alpha, lam=card.lam, scatter=card.scatter, class_weight=card.class_weight
            )

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
        """Make a model of a network that you trained in your own loop.

        It predicts, measures distances, learns new classes, saves itself and can be exported like any other model.
        `deeplda.load` needs the network again, `load(folder, network=network)`: code is never saved.

        Args:
            network: maps samples (n, *sample_shape) to embeddings (n, d). The model uses this very module.
            predictor: a fitted `Hyperplanes`, `NearestMean` or `ClassicLDA`, or a `Softmax`. The model gets a copy.
            class_names: a name for each class, in ascending order of the labels that the predictor was fitted on.
            sample_shape: shape of one sample, such as (features,) or (channels, height, width).
            mean, deviation: inputs become (x - mean) / deviation before they enter the network. A number, or one
                number for each channel or feature; by default inputs are left as they are.

        Raises InputError if the parts do not fit together, and for predictor options that a saved model cannot
        record: `normalize="unit"` and `probability="sigmoid"`. If the predictor has other priors than the default,
        they apply until a class is added.
        """
        name = _predictor_name(predictor)
        count, width = predictor.weight.shape
        if len(class_names) != count:
            raise InputError(f"{len(class_names)} class names, need {count}, one for each class")
        shape = tuple(int(size) for size in sample_shape)
        if (outputs := output_width(network, shape)) != width:
            what = f"a network with {outputs} outputs and a predictor of {width}"
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
        """Names of the classes, in the order of the columns of `predict_proba`."""
        return self.card.class_names

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor that decides: the first one on the card."""
        return self._named_predictor(self.card.predictors[0])

    @property
    def statistics(self) -> FeatureStatistics | None:
        """Statistics of the embedded training set; None for a model trained with cross-entropy."""
        return self.predictor._statistics

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings (n, embedding_dim) of inputs (n, *sample_shape)."""
        embedding: Tensor = self.network(self.normalisation.prepare(inputs))
        return embedding

    def transform(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float32]:
        """Return the embeddings (n, embedding_dim) of inputs (n, *sample_shape)."""
        return self._collect(lambda embedding: embedding, inputs, mirror=mirror)

    def predict(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.str_]:
        """Return the class name of each sample, (n,)."""
        names: NDArray[np.str_] = np.asarray(self.class_names)[self.predict_proba(inputs, mirror=mirror).argmax(1)]
        return names

    def predict_proba(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float64]:
        """Return the probability of each class, (n, C), in the order of `class_names`."""
        return self._collect(lambda embedding: self.class_scores(embedding).softmax(1), inputs, mirror=mirror)

    def predict_subclasses(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.str_]:
        """Return the subclass of each sample, (n,): "cat/1" is the second one of "cat"; an only one is just "cat"."""
        scores = self._collect(self.predictor.decision_function, inputs, mirror=mirror)
        names: NDArray[np.str_] = np.asarray(self.card.subclass_map.names(self.class_names))[scores.argmax(1)]
        return names

    def mahalanobis(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float64]:
        """Return the distance of each sample to the nearest class, (n,): large for samples that belong to no class.

        Raises InputError if the model has no statistics.
        """
        self._require_statistics()
        return self._collect(self.predictor.mahalanobis, inputs, mirror=mirror)

    def add_class(self, inputs: Tensor | NDArray[np.generic], name: str) -> None:
        """Add a class from a few examples (n, *sample_shape), without retraining the network.

        The predictors are refitted with their default priors: priors that you or an estimator chose are lost.

        Raises InputError if a class of that name exists, or the model has no statistics.
        """
        statistics = self._require_statistics()
        if not isinstance(name, str) or not name:
            raise InputError(f"class {name!r}", need="a name, as a string", do=f"pass {str(name) or 'new'!r}")
        if name in self.class_names:
            raise InputError(f"class {name!r} already exists: choose another name")
        features = torch.as_tensor(self.transform(inputs))
        parents, known = self.card.subclass_map.parents, len(self.class_names)
        statistics = statistics.with_class(features, len(parents))
        update = {"class_names": (*self.class_names, name), "parents": self.card.parents and (*parents, known)}
        self.card = self.card.model_copy(update=update)
        self._fit_statistics(statistics)

    def class_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the scores of the classes, (n, C) float64, for embeddings (n, embedding_dim).

        The deciding predictor computes them, or the one named. With subclasses, the score of a class is that of its
        best subclass, as in the paper, or log(sum(exp(score))), whose softmax adds up the probabilities of siblings.
        """
        scores = (self._named_predictor(predictor) if predictor else self.predictor).decision_function(embedding)
        if self.card.parents is None:
            return scores
        if self.card.subclass_decision == "sum":
            return self.card.subclass_map.class_log_sums(scores)
        return self.card.subclass_map.class_scores(scores)

    @torch.no_grad()
    def embeddings(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> Iterator[Tensor]:
        """Yield the embeddings in batches, computed in eval mode on the model's device.

        Raises InputError for inputs of another shape, for NaN or infinity, and for images that were scaled to 0..1 if
        the training images were not.
        """
        inputs = inputs if isinstance(inputs, Tensor) else _as_array(inputs)
        if tuple(inputs.shape[1:]) != self.card.sample_shape:
            needed = f"(n, {', '.join(map(str, self.card.sample_shape))}), the shape of the training data"
            raise InputError(f"inputs of shape {tuple(inputs.shape)}, need {needed}")
        if mirror and len(self.card.sample_shape) != 3:
            raise InputError(no_mirror_image(self.card.sample_shape))
        self._check_values(inputs)
        self.eval()
        for start in range(0, len(inputs), _BATCH):
            batch = _as_tensor(inputs[start : start + _BATCH]).to(self.normalisation.mean.device)
            yield (self(batch) + self(batch.flip(-1))) / 2 if mirror else self(batch)

    def save(self, path: str | Path) -> None:
        """Write a new model folder atomically, for `deeplda.load`. Raises InputError if the path exists."""
        folder = expanded(path).absolute()
        with new_folder(folder) as temporary:
            # Checked here, where no other process can write it between the check and the end of the block.
            if folder.exists():
                raise InputError(f"{folder} already exists", need="a new folder", do="choose another name")
            self._write(temporary)

    def _collect(
        self, function: Callable[[Tensor], Tensor], inputs: Tensor | NDArray[np.generic], *, mirror: bool = False
    ) -> NDArray[Any]:
        """Return `function` of the embeddings as one array, even if there are no inputs."""
        found = [function(embedding).cpu().numpy() for embedding in self.embeddings(inputs, mirror=mirror)]
        nothing = self.normalisation.mean.new_empty((0, self.card.embedding_dim))
        return np.concatenate(found or [function(nothing).cpu().numpy()])

    def _named_predictor(self, name: str) -> LinearPredictor:
        predictor = self.predictors[name]
        assert isinstance(predictor, LinearPredictor)
        return predictor

    def _fit_statistics(self, statistics: FeatureStatistics) -> None:
        """Fit every predictor from the statistics of the embedded training set, and keep these."""
        for name in self.card.predictors:
            self._named_predictor(name).fit_statistics(statistics)

    def _require_statistics(self) -> FeatureStatistics:
        """Return the statistics of the embedded training set. Raises InputError if there are none."""
        if self.statistics is None:
            what = "a model without statistics of its training set, as after cross-entropy"
            raise InputError(what, need="one trained with an LDA objective", do="train with --objective lda")
        return self.statistics

    def _check_values(self, inputs: Tensor | NDArray[np.generic]) -> None:
        """Raise InputError for NaN or infinity, and for images in 0..1 if the training images had a wider range."""
        floating = inputs.is_floating_point() if isinstance(inputs, Tensor) else inputs.dtype.kind == "f"
        if not floating or len(inputs) == 0:
            return
        inputs = _as_tensor(inputs)
        if not inputs.isfinite().all():
            do = "fill in missing values, or leave these samples out"
            raise InputError("inputs that are NaN or infinite", need="finite numbers", do=do)
        if inputs.ndim == 4 and self.normalisation.mean.max() > 1 and inputs.min() >= 0 and 0 < inputs.max() <= 1:
            raise InputError("images of 0 to 1", need="the range of the training images", do="scale them as those were")

    def _place(self, device: torch.device) -> Model:
        """Move to a device, with filters in channels_last memory, which makes convolutions faster."""
        self.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        return self

    def _write(self, folder: Path) -> None:
        """Write weights.safetensors and model.json into `folder`, which exists and is empty."""
        state = self.state_dict()
        if self.statistics is not None:
            state |= {f"{STATISTICS}{name}": tensor for name, tensor in self.statistics.state().items()}
        # Copies, because safetensors rejects tensors that share memory, such as those of tied layers.
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        save_file(copies, folder / "weights.safetensors")
        (folder / "model.json").write_text(self.card.model_dump_json(indent=2) + "\n", encoding="utf-8")


class Normalisation(nn.Module):
    """(x - mean) / deviation for each channel of images or each feature of rows; the identity until fitted.

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

    def fit(self, inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Normalisation:
        """Compute mean and deviation of inputs (n, *sample_shape); a constant channel or feature is only centred."""
        axes = (0, *range(2, inputs.ndim))
        count = inputs.size // inputs.shape[1]
        mean = sum(part.sum(axes, dtype=np.float64) for part in _parts(inputs)) / count
        centre = mean.reshape((-1,) + (1,) * (inputs.ndim - 2))
        squares = sum(np.square(part - centre).sum(axes) for part in _parts(inputs))
        deviation = np.sqrt(squares / count)
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        self.deviation.copy_(torch.as_tensor(np.where(deviation > 0, deviation, 1.0)).view_as(self.deviation))
        return self

    def set(self, mean: ArrayLike | Tensor | None, deviation: ArrayLike | Tensor | None) -> None:
        """Set mean and deviation, each to a number or to one for each channel or feature; None leaves it as it is.

        Raises InputError for any other number of values, and for a deviation that is not positive.
        """
        for name, given, buffer in (("mean", mean, self.mean), ("deviation", deviation, self.deviation)):
            if given is None:
                continue
            values = torch.as_tensor(given, dtype=torch.float64).flatten()
            if len(values) not in (1, len(buffer)):
                needed = f"1 or {len(buffer)}, one for each channel or feature"
                raise InputError(f"{len(values)} values of {name}, need {needed}")
            if not values.isfinite().all() or (name == "deviation" and not (values > 0).all()):
                raise InputError(f"{name} must be finite{' and > 0' if name == 'deviation' else ''}, got {given}")
            buffer.copy_(values.expand(len(buffer)).view_as(buffer))


def no_mirror_image(sample_shape: Sequence[int]) -> str:
    """Return the error message for mirroring samples that are not images."""
    return got(f"mirrored samples of shape {tuple(sample_shape)}", need="images", do="omit --tta, or mirror")


def _predictor_name(predictor: LinearPredictor) -> PredictorName:
    """Return the name of a predictor on a card. Raises InputError if a model cannot use it."""
    name = next((name for name, kind in _PREDICTORS.items() if type(predictor) is kind), None)
    if name is None:
        kind = type(predictor).__name__
        raise InputError(f"a predictor of type {kind}", need="one of deeplda.predictors", do="use Hyperplanes")
    if len(predictor.classes) == 0:
        raise InputError("a predictor that is not fitted: call fit first")
    for option, needed in (("normalize", "within"), ("probability", "softmax")):
        if getattr(predictor, option, needed) != needed:
            what = f"a predictor with {option}={getattr(predictor, option)!r}, which a saved model cannot record"
            raise InputError(f"{what}: fit one with {option}={needed!r}")
    return name


def _parts(inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Yield the inputs in float64, in pieces of about 16 MB, so that the copies stay small."""
    step = max(1, 2**21 // max(1, inputs[0].size))
    for start in range(0, len(inputs), step):
        yield inputs[start : start + step].astype(np.float64)


def _as_array(inputs: object) -> NDArray[np.generic]:
    """Convert lists, data frames and the like to an array. Raises InputError if they do not hold numbers."""
    try:
        array: NDArray[np.generic] = np.asarray(inputs)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "buif":
        do = "read files with deeplda.data.read_images, or use deeplda predict"
        raise InputError(f"inputs is a {type(inputs).__name__}", need="an array or tensor of numbers", do=do)
    return array


def _as_tensor(numbers: Tensor | NDArray[np.generic]) -> Tensor:
    """Convert any array to a tensor: read-only, with negative strides, of another byte order, or above 64 bits."""
    if isinstance(numbers, Tensor):
        return numbers
    kind = np.float64 if numbers.dtype.itemsize > 8 else numbers.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(numbers, kind, ["C", "W"]))
