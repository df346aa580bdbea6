"""Small folders of images for the tests of packs."""

import numpy as np
from PIL import Image


def save(file, seed, shape=(4, 5, 3)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(file)


def photos(root, numbers, parts=("",), shape=(4, 5, 3)):
    """Images of two classes, with a number each, in every one of these parts."""
    for place, part in enumerate(parts):
        for number in numbers:
            save(root / part / ("cat", "dog")[number % 2] / f"{number:03}.png", 1000 * place + number, shape)
    return root
