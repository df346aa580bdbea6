"""Start a run from trained weights: those of a run, a model folder or a safetensors file, which may be untrusted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deeplda.data.dataset import Data
from deeplda.data.folder_options import FolderSplit, Grown
from deeplda.data.stored_split import StoredSplit
from deeplda.errors import InputError
from deeplda.io import expanded, read_tensors
from deeplda.loading import load, model_folder
from deeplda.model_card import ModelCard, read_card
from deeplda.networks import build_network
from deeplda.networks.inspection import first_mismatch
from deeplda.networks.registry import outline_network
from deeplda.training.config import DECISION_SETTINGS, RunConfig, settings_in
from deeplda.training.run_folder import has_checkpoint, split_of, started_on, with_stored_decisions
from deeplda.training.trainee import Classifier
from deeplda.user_code import is_code, require_named

# Settings that only say how the earlier run itself was trained.
_NOT_INHERITED = ("start_from", "start_hash", "extended_to")
# Prefixes of the names of weights in the module that is trained.
_NETWORK, _HEAD = "network.", "head."


def inherited_settings(path: Path, given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a run which starts from `path` has unless the user gives others.

    A run provides all of its settings, a model folder those of its network, and a file none. Square images also provide
    the size to which a folder of images is resized.

    Args:
        given: the settings that the user gave.

    Raises InputError if there is nothing to start from, or if a setting to inherit is code that the user did not name.
    """
    if not path.exists():
        raise InputError(
            f"start_from is {path}, which does not exist: pass a run, a model folder or a .safetensors file"
        )
    if not path.is_dir():
        return {}
    card = read_card(model_folder(path) / "model.json")
    settings = card.model_dump(include={"network", "width", "head", "logit_scale", "outputs"}, exclude_none=True)
    if (path / "run.toml").exists():
        own = settings_in(path / "run.toml")
        stored = with_stored_decisions(RunConfig.parse(own, str(path / "run.toml")), path.resolve())
        # The network is that of the model, whose code the user has named, whatever run.toml says.
        settings |= own | {"network": card.network}
        settings |= {name: getattr(stored, name) for name in DECISION_SETTINGS if name in own}
    elif card.embedding_dim != len(card.class_names):
        settings["embedding_dim"] = card.embedding_dim
    require_named(path, {**settings, **given, "network": card.network}, given)
    source, shape = given.get("data") or settings.get("data"), card.sample_shape
    if isinstance(source, str) and expanded(source).is_dir() and len(shape) == 3 and shape[1] == shape[2]:
        settings.setdefault("image_size", shape[1])
    return {name: value for name, value in settings.items() if name not in _NOT_INHERITED}


def starting_weights(config: RunConfig, folder: Path) -> StartingWeights | None:
    """Read the weights that the run in `folder` starts from; None if there are none, or if it has a checkpoint.

    Raises InputError if they cannot be read, or are not those with which the run was started.
    """
    if config.start_from is None or has_checkpoint(folder):
        return None
    if not config.start_from.exists():
        what = f"{config.start_from}, which this run starts from, does not exist"
        raise InputError(f"{what}: restore it, or start a new run with --start-from")
    found = StartingWeights.read(config.start_from, config.network)
    if config.start_hash not in (None, found.digest):
        what = f"{config.start_from} no longer contains the weights that this run was started from"
        raise InputError(f"{what}: restore them, or start a new run with --start-from")
    return found


def starting_split(config: RunConfig, folder: Path) -> FolderSplit:
    """Return how the data of the run in `folder` is split, as `split_of` does.

    A new run that starts from another one keeps the parts of its images.
    """
    own = split_of(folder)
    if own != "content" or config.start_from is None or not (config.start_from / "run.toml").exists():
        return own
    earlier = split_of(config.start_from)
    return Grown(earlier) if isinstance(earlier, StoredSplit) else own


def seen_note(config: RunConfig, data: Data, split: FolderSplit) -> str | None:
    """Return a sentence if the starting weights may have been trained on samples to evaluate on, or None."""
    start = config.start_from
    if start is None or started_on(start) == data.fingerprint:
        return None
    if not isinstance(split, Grown) or data.split is None:
        return f"the test set may contain samples that {start} was trained on: its split does not apply to this data"
    if RunConfig.of(start).train_on_all and not config.train_on_all:
        return f"{start} was trained on the validation set too, so the validation scores are too good"
    return None


class _Fit(NamedTuple):
    """The weights to load, and the names of the output layers that keep their new weights."""

    kept: dict[str, Tensor]
    reinitialised: list[str]


@dataclass(frozen=True, eq=False)
class StartingWeights:
    """Trained weights to start a run from.

    Attributes:
        path: the run, model folder or file that contains them.
        tensors: the weights by their names in the module that is trained: "network." and the name in the network, or
            "head." and the name in the layer from the embedding to class scores.
        card: the model that they belong to; None for a file.
    """

    path: Path
    tensors: dict[str, Tensor]
    card: ModelCard | None

    @classmethod
    def read(cls, path: Path, network: str | None) -> StartingWeights:
        """Read weights; a custom network is built only if `network` names its code. Raises InputError if that fails."""
        if not path.is_dir():
            state = read_tensors(path)
            if "normalisation.mean" in state:  # the weights of a whole model
                return cls(path, _under(state, _NETWORK), None)
            return cls(path, {_NETWORK + name: tensor for name, tensor in state.items()}, None)
        model = load(path, network=network)
        tensors = _state(model.network, nn.Identity())
        if "softmax" in model.card.predictors:
            layer = model._named_predictor("softmax")
            tensors |= {f"{_HEAD}weight": layer.weight, f"{_HEAD}bias": layer.bias}
        return cls(path, tensors, model.card)

    @property
    def digest(self) -> str:
        """Hex digest of the weights and of the classes that they were trained for."""
        found = hashlib.blake2b(repr(self.card and (self.card.class_names, self.card.parents)).encode(), digest_size=16)
        for name, tensor in sorted(self.tensors.items()):
            found.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()

    def require_fit(self, card: ModelCard) -> None:
        """Raise InputError if the weights do not fit the network of a new model, apart from its output layer."""
        build = build_network if is_code(card.network) else outline_network
        self._fit(build(**card._architecture()), nn.Identity(), card)

    def load_into(self, trainee: Classifier) -> str:
        """Load the weights, and return a sentence about the layers that were kept and those that were not.

        An output layer is kept if its shape and the classes are the same as before.
        """
        found = self._fit(trainee.model.network, trainee.head, trainee.model.card)
        trainee.trained.load_state_dict(found.kept, strict=False)
        kept = ", ".join(dict.fromkeys(name.removeprefix(_NETWORK).partition(".")[0] for name in found.kept))
        if not found.reinitialised:
            return f"starting from {self.path}: kept all layers ({kept})"
        return f"starting from {self.path}: kept the layers {kept}; reinitialised {', '.join(found.reinitialised)}"

    def _fit(self, network: nn.Module, head: nn.Module, card: ModelCard) -> _Fit:
        expected = _state(network, head)
        output = (*self._output_layers(network, card.embedding_dim), _HEAD)
        body = {name: tensor for name, tensor in expected.items() if not name.startswith(output)}
        kept = {name: tensor for name, tensor in self.tensors.items() if not name.startswith(output)}
        if wrong := first_mismatch(body, kept):
            raise self._mismatch(card, wrong)
        reinitialised = []
        for layer in output:
            ours, theirs = _under(expected, layer), _under(self.tensors, layer)
            if self._has_classes_of(card) and first_mismatch(ours, theirs) is None:
                kept |= theirs
            elif ours:
                reinitialised.append("softmax" if layer == _HEAD else layer.removeprefix(_NETWORK).removesuffix("."))
        self._require_finite(kept, expected)
        return _Fit(kept, reinitialised)

    def _output_layers(self, network: nn.Module, width: int) -> list[str]:
        """Return the output layers, by what the names of their weights start with.

        In a network of your own, these are the layers that differ from the stored ones only in their number of outputs.
        """
        if (named := getattr(network, "output_layers", None)) is not None:
            return [f"{_NETWORK}{name}." for name in named]
        differing = [
            name
            for name, tensor in _state(network, nn.Identity()).items()
            if (before := self.tensors.get(name)) is not None
            and tensor.shape != before.shape
            and (tensor.shape[:1], tensor.shape[1:]) == ((width,), before.shape[1:])
        ]
        return list(dict.fromkeys(f"{name.rpartition('.')[0]}." for name in differing))

    def _has_classes_of(self, card: ModelCard) -> bool:
        """Return whether outputs may mean the same as those of a new model; a file does not tell."""
        own = self.card
        return own is None or (own.class_names == card.class_names and own.parents is None and card.parents is None)

    def _require_finite(self, kept: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
        for name, tensor in kept.items():
            # A network of your own may have infinite buffers, such as masks.
            may_be_infinite = not expected[name].is_meta and not expected[name].isfinite().all()
            if not may_be_infinite and not tensor.isfinite().all():
                raise InputError(f"{name.removeprefix(_NETWORK)!r} in {self.path} has values that are not finite")

    def _mismatch(self, card: ModelCard, wrong: str) -> InputError:
        what = f"the weights in {self.path} do not fit {_described(card)} ({wrong.replace(_NETWORK, '', 1)})"
        if self.card is None:
            return InputError(f"{what}: pass the --network and --width with which they were trained")
        do = f"pass --network {self.card.network} --width {self.card.width:g}"
        if (self.card.network, self.card.width) == (card.network, card.width):
            do = "use samples of that shape"
        return InputError(what, need=_described(self.card), do=do)


def _described(card: ModelCard) -> str:
    return f"network {card.network} with width {card.width:g} for samples of shape {card.sample_shape}"


def _state(network: nn.Module, head: nn.Module) -> dict[str, Tensor]:
    """Return the weights by their names in the module that is trained."""
    parts = ((_NETWORK, network), (_HEAD, head))
    return {prefix + name: tensor for prefix, part in parts for name, tensor in part.state_dict().items()}


def _under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith(prefix)}
