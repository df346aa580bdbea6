"""A limit on what building a network may allocate."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from deeplda.errors import InputError

_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})


class AllocationLimit(TorchFunctionMode):
    """Within the block, refuse a tensor that would bring what was made so far above `most` bytes, before it is made.

    So settings that a file declares, such as a width, cannot fill the memory. Raises InputError with `sentence`.
    """

    def __init__(self, most: int, sentence: str) -> None:
        super().__init__()
        self._left, self._sentence = most, sentence

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS or func is torch.arange:
            self._left -= _values(func, args, kwargs) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if self._left < 0:
                raise InputError(self._sentence)
        return func(*args, **kwargs)


def _values(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """How many numbers a call makes."""
    if func is torch.arange:
        return args[0] if len(args) == 1 and isinstance(args[0], int) else 0
    sizes = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
    return math.prod(size for size in sizes if isinstance(size, int))
