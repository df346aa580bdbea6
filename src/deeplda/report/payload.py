"""The data of the interactive plots, packed small for the page's script.

Numbers are little-endian arrays in base64. Places are 16-bit steps between the lowest and the highest of an axis:
finer than a screen.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.report.analysis import silverman_width
from deeplda.report.contents import RunContents
from deeplda.report.thumbnails import thumbnail_sheet

MOST_AXES = 10
MOST_DIMENSIONS = 100
_MOST_VALUES = 12
_BINS = 512
_KEPT_BINS = 128
_STEPS = 65535


def points(contents: RunContents) -> dict[str, Any]:
    """Where the samples lie on each axis, what they are and what they were taken for."""
    coordinates = contents.coordinates[:, :MOST_AXES]
    low, high = coordinates.min(0), coordinates.max(0)
    return {
        "axes": list(contents.axes[:MOST_AXES]),
        "low": low.tolist(),
        "high": high.tolist(),
        "coordinates": _packed(_in_steps(coordinates, low, high).T, "<u2"),
        "labels": _packed(contents.labels, "<u2"),
        "decided": _packed(contents.decided, "<u2"),
        "probabilities": _packed(np.round(contents.probabilities * _STEPS), "<u2"),
    }


def samples(contents: RunContents) -> dict[str, Any]:
    """What samples are called, and what they look like: one sheet of thumbnails, or the first values of rows."""
    names = {"names": list(contents.names)}
    if contents.images:
        sheet = thumbnail_sheet(np.asarray(contents.samples, dtype=np.uint8))
        return names | {"sheet": sheet.source, "tile": sheet.tile, "pitch": sheet.pitch, "columns": sheet.columns}
    shown = contents.samples[:, :_MOST_VALUES]
    return names | {"values": _packed(shown, "<f4"), "shown": shown.shape[1], "all": contents.samples.shape[1]}


def densities(contents: RunContents) -> dict[str, Any]:
    """The density of each class along each output dimension, integrating to 1."""
    embedding = contents.embedding[:, :MOST_DIMENSIONS].astype(np.float64)
    classes = len(contents.class_names)
    low, high, found = [], [], []
    for values in embedding.T:
        ends = _range(values)
        curves = class_densities(values, contents.labels, classes, ends)
        peak = curves.max() or 1.0
        found.append(np.round(curves * (_STEPS / peak)))
        low.append(ends[0])
        high.append(ends[1])
    return {
        "low": low,
        "high": high,
        "bins": _KEPT_BINS,
        "curves": _packed(np.stack(found), "<u2"),
        "all": contents.embedding.shape[1],
    }


def class_densities(
    values: NDArray[np.float64], labels: NDArray[np.int64], classes: int, ends: tuple[float, float]
) -> NDArray[np.float64]:
    """Gaussian kernel estimate of the density of each class, (classes, 128), at even steps between the ends.

    Silverman's bandwidth for each class, at least a step; a class without samples is 0 throughout.
    """
    width = (ends[1] - ends[0]) / _BINS
    within = (values >= ends[0]) & (values < ends[1])
    values, labels = values[within], labels[within]
    bins = np.minimum(((values - ends[0]) / width).astype(np.int64), _BINS - 1)
    counts = np.bincount(labels * _BINS + bins, minlength=classes * _BINS).reshape(classes, _BINS).astype(np.float64)
    totals = counts.sum(1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    bandwidth = np.array([silverman_width(values[labels == c]) if totals[c] else 0.0 for c in range(classes)])
    bandwidth = np.maximum(bandwidth, (ends[1] - ends[0]) / _KEPT_BINS)
    # The convolution with a Gaussian, by Fourier transform; the padding keeps the two ends apart.
    frequencies = np.fft.rfftfreq(2 * _BINS, width)
    kernel = np.exp(-2 * (np.pi * bandwidth[:, None] * frequencies) ** 2)
    smooth = np.fft.irfft(np.fft.rfft(shares, 2 * _BINS) * kernel, 2 * _BINS)[:, :_BINS] / width
    curves: NDArray[np.float64] = np.maximum(smooth, 0).reshape(classes, _KEPT_BINS, -1).mean(2)
    return curves


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """From the lowest to the highest value, but for the outermost thousandths, with room for the tails."""
    low, high = (float(end) for end in np.quantile(values, [0.001, 0.999]))
    margin = 0.25 * (high - low) or max(abs(high) * 1e-3, 1e-6)
    return low - margin, high + margin


def _in_steps(values: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> NDArray[np.float64]:
    span = np.where(high > low, high.astype(np.float64) - low, 1.0)
    return np.round((values - low.astype(np.float64)) / span * _STEPS)


def _packed(array: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()
