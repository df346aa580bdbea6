"""A trained model: network, normalisation, predictors and class names; how it is saved and loaded.

A model folder holds `weights.safetensors` and `model.json`. Neither can carry code: the network is rebuilt by its
registered name, and a network of the user's own is built only where the caller names it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save_file
from torch import Tensor, nn

from deeplda.atomic import new_folder
from deeplda.data.memory import available_memory
from deeplda.errors import InputError, code_not_run, got
from deeplda.files import expanded, read_small, read_tensors
from deeplda.networks import build_network
from deeplda.networks.allocation import AllocationLimit
from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, LinearPredictor, NearestMean, Softmax
from deeplda.subclasses import SubclassMap

PREDICTORS: dict[str, type[LinearPredictor]] = {
    "hyperplanes": Hyperplanes,
    "nearest_mean": NearestMean,
    "classic_lda": ClassicLDA,
    "softmax": Softmax,
}
_BATCH = 500
_STATISTICS = "statistics."
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    sample_shape: tuple[int, ...] = Field(min_length=1, max_length=3)
    class_names: tuple[str, ...] = Field(min_length=2)
    predictors: tuple[Literal["hyperplanes", "nearest_mean", "classic_lda", "softmax"], ...] = Field(min_length=1)
    alpha: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False)
    scatter: Literal["pooled", "sum", "dorfer"] = "pooled"
    class_weight: Literal["balanced"] | None = None
    parents: tuple[int, ...] | None = None
    subclass_decision: Literal["argmax", "sum"] = "argmax"

    @model_validator(mode="after")
    def _parents_are_classes(self) -> Self:
        if self.parents is not None and SubclassMap(self.parents).classes != len(self.class_names):
            raise ValueError("parents are of another number of classes")
        return self

    @property
    def subclass_map(self) -> SubclassMap:
        """The way from what the predictors decide between to classes; without subclasses each class is its own."""
        return SubclassMap(self.parents or tuple(range(len(self.class_names))))


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
        self.statistics: FeatureStatistics | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.card.class_names

    def _unfitted(self, name: str) -> LinearPredictor:
        if name != "hyperplanes":
            return PREDICTORS[name]()
        card = self.card
        return Hyperplanes(alpha=card.alpha, lam=card.lam, scatter=card.scatter, class_weight=card.class_weight)

    def fit_statistics(self, statistics: FeatureStatistics) -> None:
        """Fit every predictor from the statistics of the training part's embedding, and keep them."""
        self.statistics = statistics
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
        """Learn a new class from a few examples, without training. Raises InputError for a name that is there."""
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
        self._require_sound(torch.as_tensor(inputs))
        self.eval()
        for start in range(0, len(inputs), _BATCH):
            batch = torch.as_tensor(inputs[start : start + _BATCH]).to(self.normalisation.mean.device)
            yield (self(batch) + self(batch.flip(-1))) / 2 if mirror else self(batch)

    def _require_sound(self, inputs: Tensor) -> None:
        """Raise InputError for NaN, and for images that were scaled to 0..1 where those of the training were not."""
        if not inputs.is_floating_point() or len(inputs) == 0:
            return
        if not inputs.isfinite().all():
            do = "fill missing values in, or leave these samples out"
            raise InputError(got("inputs that are NaN or infinite", need="numbers", do=do))
        if inputs.ndim == 4 and self.normalisation.mean.max() > 1 and inputs.min() >= 0 and 0 < inputs.max() <= 1:
            raise InputError(
                got("images of 0 to 1", need="the range of the training images, 0 to 255", do="multiply them by 255")
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
            state |= {f"{_STATISTICS}{name}": tensor for name, tensor in self.statistics.state().items()}
        # Copies: safetensors refuses tensors that share memory, as those of tied layers do.
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        save_file(copies, folder / "weights.safetensors")
        (folder / "model.json").write_text(self.card.model_dump_json(indent=2) + "\n")


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


def no_mirror_image(sample_shape: Sequence[int]) -> str:
    """The mistake of asking for one."""
    return got(f"mirrored samples of shape {tuple(sample_shape)}", need="images", do="leave --tta, or mirror, out")


def load(path: str | Path, *, network: str | nn.Module | None = None, device: str = "cpu") -> Model:
    """The model of a run folder or a model folder.

    Args:
        network: for a model whose network is code of your own, "module.path:callable" as it was trained with, or a
            module of that kind, which takes on the weights. What a folder says is never imported on its word alone.

    Raises InputError where there is no model, or it is not whole.
    """
    folder = expanded(path)
    folder = folder / "model" if (folder / "model").is_dir() else folder
    card = read_card(folder / "model.json")
    if not isinstance(network, nn.Module) and ":" in card.network:
        if network != card.network:
            raise code_not_run(folder, card.network, f"pass network={card.network!r} (--network on the command line)")
        network = build_network(card.network, card.sample_shape, card.embedding_dim, width=card.width)
    state = read_tensors(folder / "weights.safetensors")
    model = _with_room_for(state, card, network if isinstance(network, nn.Module) else None, folder)
    _load_weights(model, state, folder / "weights.safetensors")
    return model.place(torch.device(device)).eval()


def _with_room_for(state: dict[str, Tensor], card: ModelCard, network: nn.Module | None, folder: Path) -> Model:
    """The model that the card describes, before its weights are loaded.

    Raises InputError where it would take much more memory than the weights do, before that is taken: the card lies.
    """
    # A file with holes can be larger than any disk.
    most = min(4 * sum(tensor.nbytes for tensor in state.values()) + 2**20, available_memory() or 2**62)
    lie = got(f"model.json in {folder} describes more than the weights hold", need="one model's", do="train again")
    try:
        with AllocationLimit(most, lie):
            network = network or build_network(card.network, card.sample_shape, card.embedding_dim, width=card.width)
            model = Model(card, network)
            for name in card.predictors:
                model.named_predictor(name).reserve(len(card.subclass_map), card.embedding_dim)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"model.json in {folder} is not a model's: {error}") from None
    return model


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


def _load_weights(model: Model, state: dict[str, Tensor], file: Path) -> None:
    gathered = {name.removeprefix(_STATISTICS): state.pop(name) for name in list(state) if name.startswith(_STATISTICS)}
    if any(name.startswith("normalisation.") and state[name].dtype == torch.float64 for name in state):
        model.double()
    expected = model.state_dict()
    wrong = list(expected.keys() ^ state.keys())
    wrong += [name for name in expected.keys() & state.keys() if not _alike(expected[name], state[name])]
    if wrong:
        raise InputError(
            got(f"{file} does not fit model.json in {sorted(wrong)[0]!r}", need="both of one model", do="train again")
        )
    model.load_state_dict(state)
    if gathered:
        model.statistics = _checked_statistics(gathered, model.card, file)
        for name in model.card.predictors:
            model.named_predictor(name).recall(model.statistics)


def _alike(expected: Tensor, found: Tensor) -> bool:
    """Whether a tensor of a file can take the place of ours."""
    same_kind = found.dtype in _FLOATS if expected.is_floating_point() else found.dtype == expected.dtype
    return same_kind and found.shape == expected.shape


def _checked_statistics(state: dict[str, Tensor], card: ModelCard, file: Path) -> FeatureStatistics:
    c, d = len(card.subclass_map), card.embedding_dim
    shapes = {"classes": (c,), "counts": (c,), "means": (c, d), "within": (d, d), "weighted": (0,)}
    if card.scatter == "dorfer" or card.class_weight is not None:
        shapes["weighted"] = (d, d)
    if (
        any(name not in state or state[name].shape != shape for name, shape in shapes.items())
        or any(state[name].dtype != torch.float64 or not state[name].isfinite().all() for name in [*shapes][1:])
        or state["classes"].dtype != torch.int64
        or not torch.equal(state["classes"], torch.arange(c))
        or not (state["counts"] >= 1).all()
        or state["counts"].sum() > 2**53
    ):
        raise InputError(got(f"{file} has statistics that do not fit model.json", need="one model's", do="train again"))
    return FeatureStatistics.from_state(state, scatter=card.scatter, class_weight=card.class_weight)


def _parts(inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Pieces of about 16 MB, so that float64 copies stay small."""
    step = max(1, 2**21 // max(1, inputs[0].size))
    for start in range(0, len(inputs), step):
        yield inputs[start : start + step].astype(np.float64)
