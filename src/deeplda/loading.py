"""Load models from folders, which may be untrusted: nothing in them is executed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from deeplda.errors import InputError, code_not_run, got
from deeplda.io import expanded, read_tensors
from deeplda.memory import available_memory
from deeplda.model import STATISTICS, Model, ModelCard, read_card
from deeplda.networks import build_network
from deeplda.networks.allocation import AllocationLimit
from deeplda.predictors import FeatureStatistics

# What is computed with their squares stays a number.
_LARGEST_MEAN, _LARGEST_SCATTER = 1e100, 1e200
_ROUNDING = 1e-6
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    if not isinstance(network, nn.Module) and ":" in card.network and network != card.network:
        do = f"pass network={card.network!r} (--network on the command line), or a module of that kind"
        raise code_not_run(folder, card.network, do)
    state = read_tensors(folder / "weights.safetensors")
    model = _with_room_for(state, card, network if isinstance(network, nn.Module) else None, folder)
    _load_weights(model, state, folder / "weights.safetensors")
    return model.place(torch.device(device)).eval()


def _with_room_for(state: dict[str, Tensor], card: ModelCard, network: nn.Module | None, folder: Path) -> Model:
    """The model that the card describes, before its weights are loaded.

    Raises InputError where it would take much more memory than the weights do, before that is taken: the card lies.
    """
    # Code of the user's own may need more on the way than it keeps.
    beside = 2**30 if ":" in card.network else 2**20
    # A file with holes can be larger than any disk.
    most = min(4 * sum(tensor.nbytes for tensor in state.values()) + beside, available_memory() or 2**62)
    lie = got(f"model.json in {folder} describes more than the weights hold", need="one model's", do="train again")
    try:
        with AllocationLimit(most, lie):
            network = network or build_network(card.network, card.sample_shape, card.embedding_dim, width=card.width)
            model = Model(card, network)
            for name in card.predictors:
                model.named_predictor(name)._reserve(len(card.subclass_map), card.embedding_dim)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"model.json in {folder} is not a model's: {error}") from None
    return model


def _load_weights(model: Model, state: dict[str, Tensor], file: Path) -> None:
    gathered = {name.removeprefix(STATISTICS): state.pop(name) for name in list(state) if name.startswith(STATISTICS)}
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
        statistics = _checked_statistics(gathered, model.card, file)
        for name in model.card.predictors:
            model.named_predictor(name)._statistics = statistics


def _alike(expected: Tensor, found: Tensor) -> bool:
    """Whether a tensor of a file can take the place of ours."""
    same_kind = found.dtype in _FLOATS if expected.is_floating_point() else found.dtype == expected.dtype
    return same_kind and found.shape == expected.shape


def _is_scatter(matrix: Tensor) -> bool:
    """Whether a matrix can be a sum of outer products, but for rounding: symmetric, no covariance above what the
    variances allow."""
    deviations = matrix.diagonal().clamp(min=0).sqrt()
    most = torch.outer(deviations, deviations)
    return bool(
        ((matrix.diagonal() >= 0) & (matrix.diagonal() <= _LARGEST_SCATTER)).all()
        and (matrix.abs() <= (1 + _ROUNDING) * most).all()
        and ((matrix - matrix.T).abs() <= _ROUNDING * most).all()
    )


def _checked_statistics(state: dict[str, Tensor], card: ModelCard, file: Path) -> FeatureStatistics:
    c, d = len(card.subclass_map), card.embedding_dim
    scatters = ["within"]
    shapes = {"classes": (c,), "counts": (c,), "means": (c, d), "within": (d, d), "weighted": (0,)}
    if card.scatter == "dorfer" or card.class_weight is not None:
        shapes["weighted"] = (d, d)
        scatters.append("weighted")
    if (
        "softmax" in card.predictors
        or any(name not in state or state[name].shape != shape for name, shape in shapes.items())
        or any(state[name].dtype != torch.float64 or not state[name].isfinite().all() for name in [*shapes][1:])
        or state["classes"].dtype != torch.int64
        or not torch.equal(state["classes"], torch.arange(c))
        or not (state["counts"] >= 1).all()
        or state["counts"].sum() > 2**53
        or state["means"].abs().max() > _LARGEST_MEAN
        or not all(_is_scatter(state[name]) for name in scatters)
    ):
        raise InputError(got(f"{file} has statistics that do not fit model.json", need="one model's", do="train again"))
    return FeatureStatistics.from_state(state, scatter=card.scatter, class_weight=card.class_weight)
