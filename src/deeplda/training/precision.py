"""The arithmetic in which a network is trained. Weights, loss and predictions are in float32 all the same."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch


def arithmetic(precision: str | None, device: torch.device) -> torch.autocast:
    """The context in which a network on `device` runs in training; None: bfloat16 on a GPU that has it."""
    gpu_has_it = device.type == "cuda" and torch.cuda.is_bf16_supported()
    rounded = gpu_has_it if precision is None else precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=rounded)


def warn_where_slow(precision: str | None, device: torch.device) -> None:
    """Say so where bfloat16 is asked of a processor without instructions for it, which is slower in it."""
    # Older releases of torch do not tell.
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    has_it = any("bf16" in name for name, there in capabilities.items() if there)
    if precision == "bfloat16" and device.type == "cpu" and capabilities and not has_it:
        message = "this processor has no instructions for bfloat16 and will be slow in it: use --precision float32"
        warnings.warn(message, UserWarning, stacklevel=2)
