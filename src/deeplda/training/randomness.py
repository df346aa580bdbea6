"""torch's random generators, which are the caller's too."""

from contextlib import AbstractContextManager

import torch


def kept_generators() -> AbstractContextManager[None]:
    """Within the block the default generators may be seeded and drawn from; afterwards they are as before.

    Those of CUDA devices only where the program has begun to use CUDA: asking them for their state would begin it.
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # not typed in torch
    devices = range(torch.cuda.device_count()) if in_use else range(0)
    return torch.random.fork_rng(devices)
