"""The size of a network, known before any memory is allocated for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from deeplda.errors import InputError, got
from deeplda.memory import available_memory

M = TypeVar("M", bound=nn.Module)

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def outline(build: Callable[[], M]) -> M:
    """Call `build` on torch's meta device: the module has shapes and dtypes, but no values and takes no memory.

    Only for our own modules. Other constructors may compute with values, which a tensor on the meta device lacks.

    Raises InputError if the module would not fit in the available memory, or if its sizes exceed 64 bits.
    """
    too_large = got("the network does not fit in memory", need="a smaller one", do="lower the width or embedding_dim")
    try:
        with torch.device("meta"):
            module = build()
    # torch has no error of its own for a size or a product of sizes beyond 64 bits.
    except (RuntimeError, TypeError, OverflowError) as error:
        if "verflow" not in str(error):
            raise
        raise InputError(too_large) from None
    available = available_memory()
    if available is not None and sum(tensor.nbytes for tensor in module.state_dict().values()) > available:
        raise InputError(too_large)
    return module


def first_mismatch(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """Describe the first tensor, by name, in which a stored state differs from the expected one; None if all match.

    A match has the same name and shape, and the same dtype or, for floating-point numbers, any floating-point dtype.
    `expected` may be on the meta device.
    """
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{name!r} is missing"
        if name not in expected:
            return f"{name!r} is unexpected"
        ours, theirs = expected[name], found[name]
        if ours.shape != theirs.shape:
            return f"{name!r} has shape {tuple(theirs.shape)} instead of {tuple(ours.shape)}"
        if theirs.dtype not in (_FLOATS if ours.is_floating_point() else (ours.dtype,)):
            return f"{name!r} has dtype {theirs.dtype} instead of {ours.dtype}"
    return None
