"""Where and how torch computes: the device, its precision and its random generators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch

from deeplda.errors import InputError, got


def pick_device(name: str) -> torch.device:
    """The device of that name, "auto" for CUDA where there is one. Raises InputError where it cannot be used."""
    try:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
        # In float64, which predictors work in and some devices lack.
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise InputError(
            got(f"device {name!r} ({reason})", need="one this machine has, with float64", do="use cpu")
        ) from None
    return device


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


def kept_generators() -> AbstractContextManager[None]:
    """Within the block the default generators may be seeded and drawn from; afterwards they are as before.

    Those of CUDA devices only where the program has begun to use CUDA: asking them for their state would begin it.
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # not typed in torch
    devices = range(torch.cuda.device_count()) if in_use else range(0)
    return torch.random.fork_rng(devices)
