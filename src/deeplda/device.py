"""Torch devices: device selection, training precision and random number generators."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from deeplda.errors import InputError

# torch's default generators belong to the process. The lock is reentrant, because code of the user that is called in a
# seeded block may itself fit a classifier.
_one_seeded_block = threading.RLock()


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


def autocast_for(precision: str | None, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context for training a network on `device`.

    `precision` is "float32", "bfloat16", or None for bfloat16 on a GPU that supports it and float32 elsewhere.
    """
    supported = device.type == "cuda" and torch.cuda.is_bf16_supported()
    rounded = supported if precision is None else precision == "bfloat16"
    if not rounded and not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=rounded)


def warn_if_slow(precision: str | None, device: torch.device) -> None:
    """Warn if bfloat16 was requested on a processor without instructions for it, where it is slower than float32."""
    # Older releases of torch cannot list a processor's capabilities.
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    supported = any("bf16" in name for name, present in capabilities.items() if present)
    if precision == "bfloat16" and device.type == "cpu" and capabilities and not supported:
        message = "this processor has no bfloat16 instructions, so bfloat16 will be slow: use --precision float32"
        warnings.warn(message, UserWarning, stacklevel=2)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's default generators of the CPU and of `device` for this block, then restore their states.

    Dropout and the initial weights of modules have no other source of random numbers. Only one thread at a time can be
    in such a block, so trainings in several threads draw the same numbers as one after the other, and leave the
    caller's generators as they were.
    """
    with _one_seeded_block:
        generators = _default_generators(device)
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                # torch.manual_seed would do the same for every device, but takes 0.3 ms on a machine without CUDA,
                # because it records stack traces in case CUDA is used later.
                generator.manual_seed(seed)
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def _default_generators(device: torch.device) -> list[torch.Generator]:
    """Return the default generators of the CPU and of `device`."""
    if device.type == "cpu":
        return [torch.default_generator]
    module = torch.get_device_module(device)
    index = module.current_device() if device.index is None else device.index
    return [torch.default_generator, module.default_generators[index]]
