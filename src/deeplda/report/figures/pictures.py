"""Images of the data: what an autoencoder makes of them, and what a subclass holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deeplda.errors import got
from deeplda.report.figures.style import WIDTH, AxesArray, grid_of, in_style, new_figure, short

Pixels = NDArray[np.uint8]

_LEAST_COLUMNS, _MOST_COLUMNS = 5, 10
# White pixels between images, as a share of their width.
_GAP = 1 / 12


@in_style
def reconstructions(originals: Pixels, reconstructions: Pixels, *, title: str = "") -> tuple[Figure, AxesArray]:
    """Images n x C x H x W above what was made of them; at most the first ten."""
    if originals.shape != reconstructions.shape:
        what = f"originals of shape {originals.shape}, reconstructions {reconstructions.shape}"
        raise ValueError(got(what, need="the same", do="pass each image with its reconstruction"))
    return _rows({"original": originals, "reconstruction": reconstructions}, title)


@in_style
def subclass_sheet(images_by_subclass: Mapping[str, Pixels], *, title: str = "") -> tuple[Figure, AxesArray]:
    """One row a subclass: its name and the first ten of its images n x C x H x W."""
    return _rows(images_by_subclass, title)


def channels_last(images: Pixels) -> Pixels:
    """N x H x W x 3, or N x H x W for grey ones; of other numbers of channels the first alone."""
    if images.ndim != 4 or images.dtype != np.uint8:
        what = f"images of shape {images.shape}, {images.dtype}"
        raise ValueError(got(what, need="n x C x H x W, uint8", do="pass the images as they are stored"))
    return images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images[:, 0]


def show(axes: Axes, image: Pixels) -> None:
    """One image, grey from black to white or in colour, without ticks."""
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _rows(images: Mapping[str, Pixels], title: str) -> tuple[Figure, AxesArray]:
    """One strip of images a row, its name beside it."""
    columns = max(_LEAST_COLUMNS, min(_MOST_COLUMNS, max(map(len, images.values()))))
    strips = [_strip(channels_last(found[:columns]), columns) for found in images.values()]
    height, width = strips[0].shape[:2]
    figure = new_figure(0.1 + len(strips) * (0.05 + 0.8 * WIDTH * height / width) + 0.25 * bool(title), title)
    array, panels = grid_of(figure, len(strips), 1)
    for axes, name, strip in zip(panels, images, strips, strict=True):
        show(axes, strip)
        axes.set_ylabel(short(name), rotation=0, ha="right", va="center")
    return figure, array[:, 0]


def _strip(images: Pixels, columns: int) -> Pixels:
    """Images N x H x W [x 3] side by side, H x W' [x 3], with room for `columns`."""
    _, height, width, *colours = images.shape
    pitch = width + max(1, round(_GAP * width))
    strip = np.full((height, columns * pitch, *colours), 255, np.uint8)
    for place, image in enumerate(images):
        strip[:, place * pitch : place * pitch + width] = image
    return strip
