"""Autoencoders: shapes at every size, ranges, symmetry, and that they learn to reconstruct."""

from math import prod

import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn

from deeplda.errors import InputError
from deeplda.networks import (
    Autoencoder,
    DorferNet,
    EncoderDecoder,
    RowAutoencoder,
    SmallAutoencoder,
    build_autoencoder,
    reconstruction_error,
)

SIDES = [(24, 24), (25, 25), (28, 28), (32, 32), (33, 33), (47, 47), (96, 96), (25, 47), (96, 24), (24, 33)]
SHAPES = [(1, 8, 8), (3, 24, 25), (30,)]


def learn(network: EncoderDecoder, samples: Tensor, steps: int) -> tuple[float, float]:
    """The error of the first step and after the last one."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    errors = []
    for _ in range(steps):
        optimizer.zero_grad()
        error = reconstruction_error(network(samples), samples)
        error.backward()
        optimizer.step()
        errors.append(error.item())
    return errors[0], errors[-1]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIDES, ids=str)
def test_reconstructions_have_the_shape_and_range_of_the_images(channels: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    network = Autoencoder((channels, *size), width=1 / 32)
    images = torch.rand(2, channels, *size)
    embedding, reconstruction = network.encode(images), network(images)
    assert embedding.shape == (2, 256)
    assert (embedding.abs() < 1).all()
    assert embedding.min() < 0 < embedding.max()
    assert reconstruction.shape == images.shape
    assert ((reconstruction > 0) & (reconstruction < 1)).all()


@pytest.mark.parametrize("size", [(4, 4), (5, 23), (8, 8), (23, 96)], ids=str)
def test_small_images_have_an_autoencoder_too(size: tuple[int, int]) -> None:
    network = build_autoencoder((2, *size), width=0.25)
    images = torch.rand(3, 2, *size)
    assert isinstance(network, SmallAutoencoder)
    assert network(images).shape == images.shape
    assert network.encode(images).shape == (3, network.embedding_dim)
    assert network.embedding_dim < prod(images.shape[1:])


@pytest.mark.parametrize(("features", "expected"), [(1, 1), (4, 4), (16, 16), (300, 16)])
def test_rows_keep_at_most_16_numbers(features: int, expected: int) -> None:
    torch.manual_seed(0)
    network = build_autoencoder((features,), width=0.5)
    rows = 10 * torch.randn(50, features)
    assert isinstance(network, RowAutoencoder)
    assert network.encode(rows).shape == (50, expected)
    assert (network.encode(rows).abs() <= 1).all()
    assert network(rows).shape == rows.shape
    assert network(rows).min() < 0  # no Sigmoid at the end


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_is_decode_of_encode(shape: tuple[int, ...]) -> None:
    network = build_autoencoder(shape, width=1 / 16).eval()
    samples = torch.rand(3, *shape)
    torch.testing.assert_close(network(samples), network.decode(network.encode(samples)), rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_reaches_every_parameter(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = build_autoencoder(shape, width=1 / 8)
    samples = torch.rand(16, *shape)
    reconstruction_error(network(samples), samples).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def channels_of(network: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_channels, m.out_channels) for m in network.modules() if isinstance(m, nn.Conv2d)]


@pytest.mark.parametrize("width", [1.0, 0.25])
def test_encoder_has_dorfernets_convolutions_and_the_decoder_mirrors_them(width: float) -> None:
    network = Autoencoder((3, 32, 32), width=width)
    dorfernet = DorferNet((3, 32, 32), 10, width=width)
    blocks = nn.Sequential(dorfernet.block1, dorfernet.block2, dorfernet.block3)
    assert channels_of(network.encoder) == channels_of(blocks)
    assert channels_of(network.decoder) == [(out, into) for into, out in reversed(channels_of(network.encoder))]
    assert not any(isinstance(m, nn.Dropout) for m in network.modules())
    assert network.embedding_dim == 256


def test_width_scales_the_small_and_the_row_autoencoder() -> None:
    assert channels_of(SmallAutoencoder((1, 8, 8), width=0.5).encoder) == [(1, 16), (16, 16), (16, 32), (32, 32)]
    linear = [m.out_features for m in RowAutoencoder((5,), 3, width=0.5).modules() if isinstance(m, nn.Linear)]
    assert linear == [64, 64, 3, 64, 64, 5]


def test_embedding_of_an_image_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    network = Autoencoder((1, 24, 24), 8, width=1 / 16).eval()
    images = torch.rand(6, 1, 24, 24)
    torch.testing.assert_close(network.encode(images)[2:3], network.encode(images[2:3]), rtol=1e-4, atol=1e-5)


def test_channels_last_gives_the_same_reconstruction() -> None:
    torch.manual_seed(0)
    network = Autoencoder((3, 33, 25), 8, width=1 / 16).eval()
    images = torch.rand(3, 3, 33, 25)
    usual = network(images)
    network.to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(images.to(memory_format=torch.channels_last)), usual, rtol=1e-4, atol=1e-5)


def test_learns_to_reconstruct_images() -> None:
    torch.manual_seed(0)
    images = torch.rand(8, 3, 3, 3).repeat_interleave(9, 2).repeat_interleave(8, 3)  # 27 x 24, nine squares each
    before, after = learn(Autoencoder((3, 27, 24), width=1 / 8), images, steps=40)
    assert after < before / 4


def test_learns_to_reconstruct_digits() -> None:
    torch.manual_seed(0)
    digits = torch.tensor(load_digits().images[:100], dtype=torch.float32)[:, None] / 16
    before, after = learn(build_autoencoder((1, 8, 8), width=0.25), digits, steps=40)
    assert after < before / 4


def test_learns_to_reconstruct_rows() -> None:
    torch.manual_seed(0)
    rows = torch.tensor(load_wine().data, dtype=torch.float32)
    rows = (rows - rows.mean(0)) / rows.std(0)
    before, after = learn(RowAutoencoder((13,), 6), rows, steps=60)
    assert after < before / 4


def test_reconstruction_error_is_the_papers_equation() -> None:
    torch.manual_seed(0)
    images, reconstruction = torch.rand(5, 3, 4, 6), torch.rand(5, 3, 4, 6)
    literal = sum((x - y).norm() ** 2 for x, y in zip(images, reconstruction, strict=True)) / 5
    torch.testing.assert_close(reconstruction_error(reconstruction, images), literal)


def test_reconstruction_error_refuses_shapes_that_would_be_stretched() -> None:
    with pytest.raises(ValueError, match=r"reconstruction has shape \(5, 1\), need .*\(5, 3\)"):
        reconstruction_error(torch.rand(5, 1), torch.rand(5, 3))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 3, 32), r"the small autoencoder cannot process images of 3 x 32 pixels, need at least 4 x 4"),
        ((32, 32), r"shape is \(32, 32\), need \(features,\) or \(channels, height, width\)"),
        ((), r"sample_shape is \(\)"),
        ((0,), r"at least 1"),
        ((3, 0, 32), r"at least 1"),
    ],
)
def test_unsuitable_samples_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_autoencoder(shape)


def test_unsuitable_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="23 x 32 pixels, need at least 24 x 24"):
        Autoencoder((3, 23, 32))
    with pytest.raises(InputError, match="need images"):
        Autoencoder((30,))
    with pytest.raises(InputError, match="need feature vectors"):
        RowAutoencoder((1, 8, 8))
    for kind, shape in ((Autoencoder, (3, 24, 24)), (SmallAutoencoder, (1, 8, 8)), (RowAutoencoder, (5,))):
        with pytest.raises(InputError, match="embedding_dim is 0"):
            kind(shape, 0)
        with pytest.raises(InputError, match=r"width=0\.001"):
            kind(shape, width=0.001)
