"""A trained model: network, normalisation, predictors and class names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save_file
from torch import Tensor, nn

from deeplda.core.checks import check_regularisation
from deeplda.errors import InputError, got
from deeplda.io import expanded, new_folder, read_small
from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, LinearPredictor, NearestMean, Softmax
from deeplda.subclasses import SubclassMap

__all__ = ["Model", "ModelCard"]


class Normalisation(nn.Module):
    """(x - mean) / deviation, for each channel of images or each feature of rows; the training part's figures."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, sample_shape: Sequence[int]) -> None:
        super().__init__()
        shape = (sample_shape[0],) + (1,) * (len(sample_shape) - 1)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs.to(self.mean.dtype) - self.mean) / self.deviation

    def fit(self, inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Normalisation:
        """Take mean and deviation from inputs (n, *sample_shape); a constant channel or feature is only centred."""
        axes = (0, *range(2, inputs.ndim))
        count = inputs.size // inputs.shape[1]
        mean = sum(part.sum(axes, dtype=np.float64) for part in _parts(inputs)) / count
        centre = mean.reshape((-1,) + (1,) * (inputs.ndim - 2))
        squares = sum(np.square(part - centre).sum(axes) for part in _parts(inputs))
        deviation = np.sqrt(squares / count)
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        self.deviation.copy_(torch.as_tensor(np.where(deviation > 0, deviation, 1.0)).view_as(self.deviation))
        return self


def _parts(inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Pieces of about 16 MB, so that float64 copies stay small."""
    step = max(1, 2**21 // max(1, inputs[0].size))
    for start in range(0, len(inputs), step):
        yield inputs[start : start + step].astype(np.float64)


# Names that take more than this as an array, in which each has the room of the longest, are no names.
_LARGEST_NAMES = 2**26


class ModelCard(BaseModel):
    """Contents of model.json: all that is needed to rebuild a model, its weights apart.

    Attributes:
        parents: the class of each subclass, where the model was trained on subclasses.
        subclass_decision: a class is that of the best subclass, or the one whose subclasses sum highest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    network: str
    width: float = Field(gt=0)
    embedding_dim: int = Field(ge=1)
    sample_shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, max_length=3)
    class_names: tuple[str, ...] = Field(min_length=2)
    predictors: tuple[Literal["hyperplanes", "nearest_mean", "classic_lda", "softmax"], ...] = Field(min_length=1)
    alpha: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False)
    scatter: Literal["pooled", "sum", "dorfer"] = "pooled"
    class_weight: Literal["balanced"] | None = None
    parents: tuple[int, ...] | None = None
    subclass_decision: Literal["argmax", "sum"] = "argmax"

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.parents is not None and SubclassMap(self.parents).classes != len(self.class_names):
            raise ValueError("parents are of another number of classes")
        if 4 * max(map(len, self.class_names)) * len(self.class_names) > _LARGEST_NAMES:
            raise ValueError("class names are too long")
        if "softmax" in self.predictors and len(self.predictors) > 1:
            raise ValueError("softmax goes with no other predictor")
        check_regularisation(self.alpha, self.lam, self.scatter, self.class_weight)
        return self

    @property
    def subclass_map(self) -> SubclassMap:
        """The way from what the predictors decide between to classes; without subclasses each class is its own."""
        return SubclassMap(self.parents or tuple(range(len(self.class_names))))


def read_card(file: Path) -> ModelCard:
    """Read model.json. Raises InputError where it is missing or not a model's."""
    if not file.is_file():
        what = f"{file.parent} holds no model" if file.parent.is_dir() else f"there is no folder {file.parent}"
        raise InputError(
            got(what, need="model.json and weights.safetensors", do="give the folder of a finished run or of its model")
        )
    try:
        return ModelCard.model_validate_json(read_small(file))
    except OSError as error:
        raise InputError(
            got(f"{file} cannot be read ({error.strerror})", need="it as saved", do="train again")
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{file} is not a model's: {where}: {first['msg']}") from None


_PREDICTORS: dict[str, type[LinearPredictor]] = {
    "hyperplanes": Hyperplanes,
    "nearest_mean": NearestMean,
    "classic_lda": ClassicLDA,
    "softmax": Softmax,
}
# Names in weights.safetensors that are of the statistics begin so.
STATISTICS = "statistics."
_BATCH = 500


class Model(nn.Module):
    """A network with what surrounds it.

    Inputs are as the data has them: uint8 images or float of the same range 0..255, N x C x H x W, or rows of numbers
    N x features; arrays or tensors. With `mirror` the embedding of an image is the mean of its own and that of its
    mirror image, at twice the cost.
    """

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        self.card = card
        self.network = network
        self.normalisation = Normalisation(card.sample_shape)
        self.predictors = nn.ModuleDict({name: self._unfitted(name) for name in card.predictors})

    @property
    def statistics(self) -> FeatureStatistics | None:
        """Of the embedding of the training part; cross-entropy has none."""
        return self.predictor._statistics

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.card.class_names

    def _unfitted(self, name: str) -> LinearPredictor:
        if name != "hyperplanes":
            return _PREDICTORS[name]()
        card = self.card
        return Hyperplanes(alpha=card.alpha, lam=card.lam, scatter=card.scatter, class_weight=card.class_weight)

    def fit_statistics(self, statistics: FeatureStatistics) -> None:
        """Fit every predictor from the statistics of the training part's embedding, and keep them."""
        for name in self.card.predictors:
            self.named_predictor(name).fit_statistics(statistics)

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor that decides: the first of the card."""
        return self.named_predictor(self.card.predictors[0])

    def named_predictor(self, name: str) -> LinearPredictor:
        predictor = self.predictors[name]
        assert isinstance(predictor, LinearPredictor)
        return predictor

    def forward(self, inputs: Tensor) -> Tensor:
        """Embedding (n, embedding_dim) of inputs (n, *sample_shape)."""
        embedding: Tensor = self.network(self.normalised(inputs))
        return embedding

    def normalised(self, inputs: Tensor) -> Tensor:
        """Inputs as the network takes them, images in channels_last memory."""
        normalised: Tensor = self.normalisation(inputs)
        return normalised.contiguous(memory_format=torch.channels_last) if normalised.ndim == 4 else normalised

    def transform(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float32]:
        """Embedding (n, embedding_dim)."""
        parts = [embedding.cpu().numpy() for embedding in self.embeddings(inputs, mirror=mirror)]
        return np.concatenate(parts) if parts else np.empty((0, self.card.embedding_dim), dtype=np.float32)

    def predict(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.str_]:
        """Class name of each sample, (n,)."""
        names: NDArray[np.str_] = np.asarray(self.class_names)[self.predict_proba(inputs, mirror=mirror).argmax(1)]
        return names

    def predict_proba(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float64]:
        """Probability of each class, (n, C), in the order of `class_names`."""
        parts = [
            self.class_scores(embedding).softmax(1).cpu().numpy()
            for embedding in self.embeddings(inputs, mirror=mirror)
        ]
        return np.concatenate(parts) if parts else np.empty((0, len(self.class_names)))

    def predict_subclasses(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.str_]:
        """Subclass of each sample, (n,): "cat/1" for the second of the cats, "cat" where there is only one."""
        names = np.asarray(self.card.subclass_map.names(self.class_names))
        parts = [
            self.predictor.decision_function(embedding).argmax(1).cpu()
            for embedding in self.embeddings(inputs, mirror=mirror)
        ]
        found: NDArray[np.str_] = names[torch.cat(parts).numpy()] if parts else names[:0]
        return found

    def class_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Scores of the classes, (n, C) float64, by the deciding predictor or the one named.

        Of subclasses the best stands for its class, the paper's way, or the log of the sum of exp(score), whose
        softmax sums the probabilities of siblings.
        """
        scores = (self.named_predictor(predictor) if predictor else self.predictor).decision_function(embedding)
        if self.card.parents is None:
            return scores
        if self.card.subclass_decision == "sum":
            return self.card.subclass_map.class_log_sums(scores)
        return self.card.subclass_map.class_scores(scores)

    def mahalanobis(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> NDArray[np.float64]:
        """Distance of each sample to the nearest class, (n,): large for what is like none of them."""
        self._require_statistics()
        parts = [
            self.predictor.mahalanobis(embedding).cpu().numpy() for embedding in self.embeddings(inputs, mirror=mirror)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def add_class(self, inputs: Tensor | NDArray[np.generic], name: str) -> None:
        """Learn a new class from a few examples, without training. Raises InputError for a name that is there.

        Predictors are fitted anew: weights of classes that an estimator had added to their priors are not kept.
        """
        statistics = self._require_statistics()
        if not isinstance(name, str) or not name:
            raise InputError(got(f"class {name!r}", need="a name, as a string", do=f"pass {str(name) or 'new'!r}"))
        if name in self.class_names:
            raise InputError(got(f"class {name!r} is there already", need="a new name", do="choose another"))
        features = torch.as_tensor(self.transform(inputs))
        parents, known = self.card.subclass_map.parents, len(self.class_names)
        statistics = statistics.with_class(features, len(parents))
        update = {"class_names": (*self.class_names, name), "parents": self.card.parents and (*parents, known)}
        self.card = self.card.model_copy(update=update)
        self.fit_statistics(statistics)

    def _require_statistics(self) -> FeatureStatistics:
        """Of the embedding of the training part. Raises InputError for a model that has none."""
        if self.statistics is None:
            raise InputError(got("a model trained with cross-entropy", need="an LDA objective", do="train with rdlda"))
        return self.statistics

    @torch.no_grad()
    def embeddings(self, inputs: Tensor | NDArray[np.generic], *, mirror: bool = False) -> Iterator[Tensor]:
        """The embedding in batches, in eval mode, on the model's device."""
        inputs = inputs if isinstance(inputs, Tensor) else _numbers(inputs)
        if tuple(inputs.shape[1:]) != self.card.sample_shape:
            raise InputError(
                got(
                    f"inputs of shape {tuple(inputs.shape)}",
                    need=f"(n, {', '.join(map(str, self.card.sample_shape))})",
                    do="bring the samples to the shape of the training data",
                )
            )
        if mirror and len(self.card.sample_shape) != 3:
            raise InputError(no_mirror_image(self.card.sample_shape))
        self._require_sound(inputs)
        self.eval()
        for start in range(0, len(inputs), _BATCH):
            batch = _as_tensor(inputs[start : start + _BATCH]).to(self.normalisation.mean.device)
            yield (self(batch) + self(batch.flip(-1))) / 2 if mirror else self(batch)

    def _require_sound(self, inputs: Tensor | NDArray[np.generic]) -> None:
        """Raise InputError for NaN, and for images that were scaled to 0..1 where those of the training were not."""
        floating = inputs.is_floating_point() if isinstance(inputs, Tensor) else inputs.dtype.kind == "f"
        if not floating or len(inputs) == 0:
            return
        inputs = _as_tensor(inputs)
        if not inputs.isfinite().all():
            do = "fill missing values in, or leave these samples out"
            raise InputError(got("inputs that are NaN or infinite", need="numbers", do=do))
        if inputs.ndim == 4 and self.normalisation.mean.max() > 1 and inputs.min() >= 0 and 0 < inputs.max() <= 1:
            raise InputError(
                got("images of 0 to 1", need="the range of the training images", do="scale them as those were")
            )

    def place(self, device: torch.device) -> Model:
        """Move to a device, filters in channels_last memory, which convolutions are faster in."""
        self.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        return self

    def save(self, path: str | Path) -> None:
        """Write a new model folder, whole or not at all, for `deeplda.load`. Raises InputError where one is there."""
        folder = expanded(path).absolute()
        if folder.exists():
            raise InputError(got(f"{folder} is there already", need="a new folder", do="choose another name"))
        with new_folder(folder) as temporary:
            self.write(temporary)

    def write(self, folder: Path) -> None:
        """Write weights.safetensors and model.json into `folder`, which exists and is empty."""
        state = self.state_dict()
        if self.statistics is not None:
            state |= {f"{STATISTICS}{name}": tensor for name, tensor in self.statistics.state().items()}
        # Copies: safetensors refuses tensors that share memory, as those of tied layers do.
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        save_file(copies, folder / "weights.safetensors")
        (folder / "model.json").write_text(self.card.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _numbers(inputs: object) -> NDArray[np.generic]:
    """What is no tensor as an array, such as lists and data frames. Raises InputError where it is not of numbers."""
    try:
        array: NDArray[np.generic] = np.asarray(inputs)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "buif":
        do = "read files with deeplda.data.read_images, or use deeplda predict"
        raise InputError(got(f"inputs is a {type(inputs).__name__}", need="an array or tensor of numbers", do=do))
    return array


def _as_tensor(numbers: Tensor | NDArray[np.generic]) -> Tensor:
    """A tensor of an array as it may come: read only, turned round, of other byte order, or of more than 64 bits."""
    if isinstance(numbers, Tensor):
        return numbers
    kind = np.float64 if numbers.dtype.itemsize > 8 else numbers.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(numbers, kind, ["C", "W"]))


def no_mirror_image(sample_shape: Sequence[int]) -> str:
    """The mistake of asking for one."""
    return got(f"mirrored samples of shape {tuple(sample_shape)}", need="images", do="leave --tta, or mirror, out")
