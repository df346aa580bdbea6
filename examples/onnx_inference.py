"""Classify with an exported model. It needs only onnxruntime and numpy, neither PyTorch nor deeplda.

    deeplda export runs/digits-lda
    python examples/onnx_inference.py runs/digits-lda/model/model.onnx images.npy
    python examples/onnx_inference.py runs/photos-lda/model/model.onnx one.jpg two.png

Image files become pixels by deeplda/data/pixels.py, exactly as for `deeplda predict`. That file needs only numpy and
Pillow, so you can copy it into your service.

Images in arrays are uint8, N x C x H x W or N x H x W x C; rows of numbers are N x features. From an .npz file it reads
the array "x_test", or the first one. Without a file it classifies random samples, which only shows that the model runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify samples with an exported model.")
    parser.add_argument("model", type=Path, help="model.onnx")
    parser.add_argument(
        "samples", type=Path, nargs="*", help="image files, or one .npy or .npz file; random samples if omitted"
    )
    arguments = parser.parse_args()

    session = onnxruntime.InferenceSession(arguments.model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    class_names, shape = json.loads(about["class_names"]), tuple(json.loads(about["sample_shape"]))
    dtype = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(double)": np.float64}[
        session.get_inputs()[0].type
    ]

    names: list[str] = []
    if not arguments.samples:
        samples = random_samples(shape, dtype)
    elif arguments.samples[0].suffix in (".npy", ".npz"):
        samples = read(arguments.samples[0], shape)
        if dtype == np.uint8 and samples.dtype != np.uint8:
            parser.error(f"{arguments.samples[0]} has dtype {samples.dtype}, need uint8 images")
    else:
        samples, names = decode(arguments.samples, shape), list(map(str, arguments.samples))
    for start in range(0, len(samples), 100):
        batch = np.ascontiguousarray(samples[start : start + 100], dtype=dtype)
        (probabilities,) = session.run(["probabilities"], {"inputs": batch})
        for place, row in enumerate(probabilities, start):
            print(f"{names[place] if names else place}: {class_names[row.argmax()]} {row.max():.4f}")


def read(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read samples from a file, images with the channels first."""
    samples = np.load(file)
    if not isinstance(samples, np.ndarray):
        samples = samples["x_test" if "x_test" in samples else samples.files[0]]
    if len(shape) == 3 and samples.shape[1:] == (*shape[1:], shape[0]) != shape:
        samples = np.moveaxis(samples, 3, 1)
    if samples.shape[1:] != shape:
        raise SystemExit(f"{file} has samples of shape {samples.shape[1:]}, need {shape}")
    return samples


def decode(files: list[Path], shape: tuple[int, ...]) -> np.ndarray:
    """Read image files as the model saw its training images."""
    from PIL import Image

    from deeplda.data.pixels import image_pixels

    def pixels(file: Path) -> np.ndarray:
        with Image.open(file) as image:
            return image_pixels(image, shape[0], shape[1:])

    return np.stack([pixels(file) for file in files])


def random_samples(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype == np.uint8:
        return rng.integers(0, 256, (5, *shape), dtype=np.uint8)
    return rng.standard_normal((5, *shape))


if __name__ == "__main__":
    main()
