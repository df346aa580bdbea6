"""Detection of torch.func's transforms (grad, vmap, jvp, ...), which the loss supports in part.

For most of them torch has no public interface. Without its private functions, the answers are those outside of
transforms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_ACTIVE = getattr(torch._C, "_are_functorch_transforms_active", None)


def transforms_active() -> bool:
    """Return whether the caller runs inside a transform such as `torch.func.grad` or `torch.vmap`."""
    return _ACTIVE is not None and bool(_ACTIVE())


def is_batched(tensor: Tensor) -> bool:
    """Return whether `torch.vmap`, or `is_grads_batched` of `torch.autograd.grad`, has hidden a dimension."""
    functorch = getattr(torch._C, "_functorch", None)
    if functorch is None or functorch.is_legacy_batchedtensor(tensor):
        return functorch is not None
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def has_tangent(tensor: Tensor) -> bool:
    """Return whether the tensor is being differentiated in forward mode, as in `torch.func.jvp`."""
    unpacked = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]  # not typed in torch
    return unpacked.tangent is not None


def to_list(tensor: Tensor) -> list[Any]:
    """Return the numbers of a tensor (n,)."""
    try:
        numbers: list[Any] = tensor.tolist()
    except RuntimeError:  # torch 2.6 inside of transforms
        return [number.item() for number in tensor]
    return numbers
