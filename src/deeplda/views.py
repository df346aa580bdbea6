"""Views of an image, mirrored or shifted by a pixel, over which test-time augmentation averages embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Views = Literal["mirror", "views"]


def averaged(embed: Callable[[Tensor], Tensor], images: Tensor, tta: Views | None) -> Tensor:
    """Return the embeddings (n, d) of images (n, C, H, W), averaged over views of each image.

    "mirror" averages over the image and its mirror image. "views" also shifts both by one pixel, up and to the left or
    down and to the right, with reflected edges, and averages over all six with the weights of Jordan's airbench: a half
    for the two that are not shifted, and a quarter for the two of each shift.
    """
    if tta is None:
        return embed(images)
    mirrored = (embed(images) + embed(images.flip(-1))) / 2
    if tta == "mirror":
        return mirrored
    shifted = [averaged(embed, _shifted(images, by), "mirror") for by in (1, -1)]
    return mirrored / 2 + (shifted[0] + shifted[1]) / 4


def reflected(positions: Tensor, size: int) -> Tensor:
    """Return positions beyond 0..size-1 reflected at the first or last position, which is not repeated."""
    inside = positions.abs()
    return torch.where(inside >= size, 2 * (size - 1) - inside, inside).clamp(0, size - 1)


def _shifted(images: Tensor, by: int) -> Tensor:
    """Return images whose pixel (i, j) is the given images' pixel (i + by, j + by)."""
    rows, columns = (
        reflected(torch.arange(size, device=images.device) + by, size) for size in (images.shape[-2], images.shape[-1])
    )
    return images[:, :, rows[:, None], columns]


def no_views(sample_shape: Sequence[int]) -> str:
    """Return the error message for test-time augmentation of samples that are not images."""
    what = f"only images can be mirrored or shifted, but the samples have shape {tuple(sample_shape)}"
    return f"{what}: omit tta or mirror"
