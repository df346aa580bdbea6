"""Torch devices: device selection, training precision and random number generators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch

from deeplda.errors import InputError


def pick_device(name: str) -> torch.device:
    """Return the device with this name; "auto" means CUDA if available, otherwise the CPU.

    Raises InputError if this machine does not have the device or the device does not support float64.
    """
    try:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
        # Predictors compute in float64, which some devices lack.
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except Exception as error:  # torch raises many types of error for a device that it does not have
        reason = next(iter(str(error).splitlines()), type(error).__name__).partition(". ")[0]
        raise InputError(
            f"device {name!r} cannot be used ({reason})",
            need="a device on this machine that supports float64",
            do="use cpu",
        ) from None
    return device


def autocast_for(precision: str | None, device: torch.device) -> torch.autocast:
    """Return the autocast context for training a network on `device`.

    `precision` is "float32", "bfloat16", or None for bfloat16 on a GPU that supports it and float32 elsewhere.
    """
    supported = device.type == "cuda" and torch.cuda.is_bf16_supported()
    rounded = supported if precision is None else precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=rounded)


def warn_if_slow(precision: str | None, device: torch.device) -> None:
    """Warn if bfloat16 was requested on a processor without instructions for it, where it is slower than float32."""
    # Older releases of torch cannot list a processor's capabilities.
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    supported = any("bf16" in name for name, present in capabilities.items() if present)
    if precision == "bfloat16" and device.type == "cpu" and capabilities and not supported:
        message = "this processor has no bfloat16 instructions, so bfloat16 will be slow: use --precision float32"
        warnings.warn(message, UserWarning, stacklevel=2)


def preserved_generators() -> AbstractContextManager[None]:
    """Restore the state of torch's default random number generators after this block, which may seed and use them.

    CUDA generators are included only if the program already uses CUDA, because reading their state would initialise
    it.
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # not typed in torch
    devices = range(torch.cuda.device_count()) if in_use else range(0)
    return torch.random.fork_rng(devices)
