"""Small trained runs for the tests of the report."""

import numpy as np

from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

HOSTILE = ("<script>alert(1)</script>", "\"&'", "</script><img src=x onerror=alert(2)>", "größer 猫 " + "x" * 60)


def train_run(folder, data, **settings):
    """Train a run of two quick epochs, and return its folder."""
    chosen = {"epochs": 2, "learning_rate": 0.1, "width": 0.25, "device": "cpu", **settings}
    run_to_end(RunConfig(data=str(data), **chosen), folder, Progress())
    return folder


def image_set(file, names, *, train=60, test=20, side=8):
    """Write an .npz of noisy colour images, `train` and `test` of each class; each class has its own colour."""
    rng = np.random.default_rng(0)
    colours = rng.uniform(60, 190, (len(names), 3))

    def part(each):
        labels = np.repeat(np.arange(len(names)), each)
        pixels = colours[labels][:, None, None] + rng.normal(0, 60, (len(labels), side, side, 3))
        return np.clip(pixels, 0, 255).astype(np.uint8), labels

    return _save(file, names, part(train), part(test))


def row_set(file, names, *, train=60, test=20, features=15):
    """Write an .npz of rows of numbers, `train` and `test` of each class."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, 1, (len(names), features))

    def part(each):
        labels = np.repeat(np.arange(len(names)), each)
        return means[labels] + rng.normal(0, 1.5, (len(labels), features)), labels

    return _save(file, names, part(train), part(test))


def _save(file, names, train, test):
    arrays = {"x_train": train[0], "y_train": train[1], "x_test": test[0], "y_test": test[1]}
    np.savez(file, class_names=np.array(names), **arrays)
    return file
