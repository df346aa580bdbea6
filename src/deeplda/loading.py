"""Load models from folders. The folders may be untrusted; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from deeplda.errors import InputError, code_not_run
from deeplda.io import expanded, read_tensors
from deeplda.model import FEATURE_STATISTICS, NEIGHBOURS, QUANTILES, STATISTICS, Model
from deeplda.model_card import ModelCard, read_card
from deeplda.networks import build_network
from deeplda.networks.inspection import first_mismatch, outline, require_sample_memory
from deeplda.networks.registry import outline_network
from deeplda.output_folder import unchanged
from deeplda.predictors import FeatureStatistics
from deeplda.predictors.linear import complete_predictor_state
from deeplda.predictors.unknown_scores import MOST_NEIGHBOURS
from deeplda.predictors.unknown_scores import QUANTILES as QUANTILE_COUNT
from deeplda.user_code import is_code

# Below these limits, products of the statistics do not overflow.
_LARGEST_MEAN, _LARGEST_SCATTER = 1e100, 1e200
_ROUNDING = 1e-6


def load(path: str | Path, *, network: str | nn.Module | None = None, device: str = "cpu") -> Model:
    """Load the model from a run folder or a model folder.

    Args:
        network: needed if the network is your own code: "module.path:callable" as in training, or a module of the same
            architecture, into which the weights are loaded. Code that is named only in the folder is never imported.
        device: the device on which the model computes.

    Raises InputError if there is no model or it is damaged. The sizes in model.json are compared with the sizes of the
    stored weights before any memory is allocated for them, except for a network of your own, which your code builds.
    """
    folder = model_folder(expanded(path))
    with unchanged(folder):
        card, state = _read(folder, network)
    _check_sizes(card, state, folder, own_network=isinstance(network, nn.Module) or is_code(card.network))
    if not isinstance(network, nn.Module):
        network = build_network(**card._architecture())
    model = _empty_model(card, network)
    _load_weights(model, state, folder / "weights.safetensors")
    return model._place(torch.device(device)).eval()


def model_folder(path: Path) -> Path:
    """Return the folder of the model in a run folder; a model folder is returned unchanged."""
    return path / "model" if (path / "run.toml").exists() or (path / "model").is_dir() else path


def _read(folder: Path, network: str | nn.Module | None) -> tuple[ModelCard, dict[str, Tensor]]:
    """Read both files in a model folder. Raises InputError if the network is code that the caller did not name."""
    card = read_card(folder / "model.json")
    if not isinstance(network, nn.Module) and is_code(card.network) and network != card.network:
        do = f"pass network={card.network!r} (--network on the command line) or a module with the same architecture"
        raise code_not_run(folder, card.network, do)
    state = read_tensors(folder / "weights.safetensors")
    for name in card.predictors:
        complete_predictor_state(state, f"predictors.{name}.")
    return card, state


def _empty_model(card: ModelCard, network: nn.Module) -> Model:
    """Build a model whose buffers have the right shapes, so that a state can be loaded into it."""
    model = Model(card, network)
    for name in card.predictors:
        model._named_predictor(name)._reserve(len(card.subclass_map), card.layer_width)
    if model.features_rule is not None and card.features_dim is not None:
        model.features_rule._reserve(len(card.subclass_map), card.features_dim)
    return model


def _check_sizes(card: ModelCard, state: dict[str, Tensor], folder: Path, *, own_network: bool) -> None:
    """Raise InputError if the sizes in model.json differ from the stored weights, or if a sample exceeds the memory.

    This limits the memory that building and using the model can allocate, whatever an untrusted folder declares.
    """
    with _blaming(folder):
        network: nn.Module = nn.Identity()
        if not own_network:
            network = outline_network(**card._architecture())
        declared = outline(lambda: _empty_model(card, network))
    apart = (STATISTICS, FEATURE_STATISTICS, QUANTILES, NEIGHBOURS, *(["network."] if own_network else []))
    stored = {name: tensor for name, tensor in state.items() if not name.startswith(apart)}
    if wrong := first_mismatch(declared.state_dict(), stored):
        raise _mismatch(folder, wrong)
    if not own_network:
        with _blaming(folder):
            require_sample_memory(network, card.sample_shape)


def _load_weights(model: Model, state: dict[str, Tensor], file: Path) -> None:
    of_outputs, of_features = (_taken(state, prefix) for prefix in (STATISTICS, FEATURE_STATISTICS))
    quantiles, neighbours = state.pop(QUANTILES, None), state.pop(NEIGHBOURS, None)
    if any(name.startswith("normalisation.") and state[name].dtype == torch.float64 for name in state):
        model.double()
    if wrong := first_mismatch(model.state_dict(), state):
        raise _mismatch(file.parent, wrong)
    _check_values(state, file)
    model.load_state_dict(state)
    card, rule = model.card, model.features_rule
    if of_outputs:
        if set(card.predictors) == {"softmax"}:
            raise _wrong_statistics(file)
        statistics = _checked_statistics(of_outputs, card, card.layer_width, file)
        for name in card.predictors:
            model._named_predictor(name)._statistics = statistics
    if (rule is not None) != bool(of_features) or (card.layer == "features" and not of_outputs):
        raise _wrong_statistics(file)
    if rule is not None and card.features_dim is not None:
        plain = card.model_copy(update={"scatter": "pooled", "class_weight": None})
        rule._statistics = _checked_statistics(of_features, plain, card.features_dim, file)
    model.rejection.quantiles = _checked_quantiles(quantiles, card, file)
    model.rejection.neighbours = _checked_neighbours(neighbours, card, file)


def _taken(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors with this prefix from a state, and return them without it."""
    return {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}


def _checked_quantiles(quantiles: Tensor | None, card: ModelCard, file: Path) -> Tensor | None:
    """Return the quantiles of the unknown score. Raises InputError if they cannot be quantiles, or are out of place."""
    if (quantiles is None) != (card.unknown is None):
        raise _mismatch(file.parent, f"{QUANTILES!r} is {'missing' if quantiles is None else 'unexpected'}")
    if quantiles is not None and not (
        quantiles.shape == (QUANTILE_COUNT,)
        and quantiles.dtype == torch.float64
        and quantiles.isfinite().all()
        and (quantiles.diff() >= 0).all()
    ):
        raise InputError(f"{QUANTILES!r} in {file} are not {QUANTILE_COUNT:,} ascending numbers: train again")
    return quantiles


def _checked_neighbours(rows: Tensor | None, card: ModelCard, file: Path) -> Tensor | None:
    """Return the stored features. Raises InputError unless they are of length 1 and as wide as the hidden layer."""
    if (rows is None) != (card.features_dim is None):
        raise _mismatch(file.parent, f"{NEIGHBOURS!r} is {'missing' if rows is None else 'unexpected'}")
    if rows is not None and not (
        rows.ndim == 2
        and 1 <= len(rows) <= 2 * MOST_NEIGHBOURS
        and rows.shape[1] == card.features_dim
        and rows.dtype == torch.float32
        and rows.isfinite().all()
        and (rows.square().sum(1) <= 1 + 1e-3).all()
    ):
        raise InputError(f"{NEIGHBOURS!r} in {file} are not features of length 1: train again")
    return rows


def _check_values(state: dict[str, Tensor], file: Path) -> None:
    """Raise InputError if the normalisation or a predictor cannot be used.

    The network is not checked: it may have infinite buffers, such as masks. A model checks its outputs instead.
    """
    for name, tensor in state.items():
        if not name.startswith("network.") and not tensor.isfinite().all():
            raise InputError(f"{name!r} in {file} has values that are not finite: train again")
    if not (state["normalisation.deviation"] > 0).all():
        raise InputError(f"'normalisation.deviation' in {file} has values that are not positive: train again")
    for name, tensor in state.items():
        if name.endswith(".calibration.inverse_temperature") and not tensor > 0:
            raise InputError(f"{name!r} in {file} is not positive: train again")
        if name.endswith(".calibration.uniform_share") and not 0 <= tensor < 1:
            raise InputError(f"{name!r} in {file} is not between 0 and 1: train again")
        is_classes = name.startswith(("predictors.", "features_rule.")) and name.endswith(".classes")
        if is_classes and not torch.equal(tensor, torch.arange(len(tensor))):
            raise InputError(f"{name!r} in {file} is not 0, 1, ..., the positions of the classes: train again")
        if name.endswith(".calibration.samples") and not tensor >= 0:
            raise InputError(f"{name!r} in {file} is negative: train again")


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    """Say in an InputError raised in this block that model.json is the cause."""
    try:
        yield
    except InputError as error:
        raise InputError(f"model.json in {folder} cannot be used: {error}") from None


def _mismatch(folder: Path, what: str) -> InputError:
    found = f"weights.safetensors in {folder} does not fit model.json ({what})"
    return InputError(found, need="both files from the same model", do="train again")


def _wrong_statistics(file: Path) -> InputError:
    found = f"{file} has statistics that do not fit model.json"
    return InputError(found, need="both files from the same model", do="train again")


def _is_scatter(matrix: Tensor) -> bool:
    """Return whether a matrix can be a sum of outer products, up to rounding.

    It must be symmetric, and no covariance may exceed the bound given by the variances.
    """
    deviations = matrix.diagonal().clamp(min=0).sqrt()
    most = torch.outer(deviations, deviations)
    return bool(
        ((matrix.diagonal() >= 0) & (matrix.diagonal() <= _LARGEST_SCATTER)).all()
        and (matrix.abs() <= (1 + _ROUNDING) * most).all()
        and ((matrix - matrix.T).abs() <= _ROUNDING * most).all()
    )


def _checked_statistics(state: dict[str, Tensor], card: ModelCard, d: int, file: Path) -> FeatureStatistics:
    """Return the statistics of a layer of width `d` that are stored with a model.

    Raises InputError if no set of features could have such values.
    """
    c = len(card.subclass_map)
    scatters, announced = ["within"], state.get("announced", torch.tensor(True))
    shapes = {"classes": (c,), "counts": (c,), "means": (c, d), "within": (d, d), "weighted": (0,)}
    if card.scatter == "dorfer" or card.class_weight is not None:
        shapes["weighted"] = (d, d)
        scatters.append("weighted")
    if (
        any(name not in state or state[name].shape != shape for name, shape in shapes.items())
        or any(state[name].dtype != torch.float64 or not state[name].isfinite().all() for name in [*shapes][1:])
        or announced.shape != ()
        or announced.dtype != torch.bool
        or ("weighted" in scatters and not announced)
        or state["classes"].dtype != torch.int64
        or not torch.equal(state["classes"], torch.arange(c))
        or not (state["counts"] > 0).all()
        or state["counts"].sum() > 2**53
        or state["means"].abs().max() > _LARGEST_MEAN
        or not all(_is_scatter(state[name]) for name in scatters)
    ):
        raise _wrong_statistics(file)
    return FeatureStatistics.from_state(state, scatter=card.scatter, class_weight=card.class_weight)
