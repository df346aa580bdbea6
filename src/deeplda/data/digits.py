"""Handwritten digits, 8 x 8, bundled with scikit-learn: 1,797 images, no test part of their own."""

from __future__ import annotations

import numpy as np

from deeplda.data.dataset import Part, Source


def read() -> Source:
    """The digits as uint8 N x 1 x 8 x 8, their grey levels 0..16 brought to 0..255."""
    from sklearn.datasets import load_digits  # takes over a second to import

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return Source("digits", Part(images, bunch.target.astype(np.int64)), tuple("0123456789"))
