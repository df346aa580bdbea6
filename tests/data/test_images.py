"""Decoding image files: modes, depth, orientation, size, and broken files."""

import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deeplda.data import read_images
from deeplda.data.images import Header, decode, in_threads, read_header, resize_arrays
from deeplda.errors import InputError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 4), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 4, 3), dtype=np.uint8)


def save(path: Path, pixels: NDArray[np.generic] | Image.Image, **more: object) -> Path:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **more)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "webp", "PNG"])
def test_lossless_formats_give_every_pixel(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"a.{suffix}", COLOUR, **({"lossless": True} if suffix == "webp" else {}))
    np.testing.assert_array_equal(decode(path, 3), COLOUR.transpose(2, 0, 1))
    assert read_header(path) == Header((6, 4), grey=False)


def test_grey_and_colour_are_converted(tmp_path: Path) -> None:
    grey, colour = save(tmp_path / "g.png", GREY), save(tmp_path / "c.png", COLOUR)
    assert read_header(grey).grey
    np.testing.assert_array_equal(decode(grey, 1), GREY[None])
    np.testing.assert_array_equal(decode(grey, 3), np.stack([GREY] * 3))
    luma = COLOUR @ [0.299, 0.587, 0.114]
    assert np.abs(decode(colour, 1)[0] - luma).max() <= 1


def test_jpeg_is_close_to_the_original(tmp_path: Path) -> None:
    flat = np.full((16, 16, 3), (200, 100, 50), dtype=np.uint8)
    path = save(tmp_path / "a.jpeg", flat, quality=95)
    assert np.abs(decode(path, 3).astype(int) - flat.transpose(2, 0, 1)).max() <= 3


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    deep = np.array([[0, 128, 129, 257], [32768, 65535, 65406, 65407]], dtype=np.uint16)
    path = save(tmp_path / "a.png", deep)
    assert read_header(path).grey
    np.testing.assert_array_equal(decode(path, 1)[0], np.round(deep / 257))
    np.testing.assert_array_equal(decode(path, 3)[2], np.round(deep / 257))


def test_alpha_is_dropped(tmp_path: Path) -> None:
    alpha = np.dstack([COLOUR, RNG.integers(0, 256, (6, 4), dtype=np.uint8)])
    np.testing.assert_array_equal(decode(save(tmp_path / "a.png", alpha), 3), COLOUR.transpose(2, 0, 1))
    path = save(tmp_path / "la.png", Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(GREY[::-1].copy())]))
    assert read_header(path).grey
    np.testing.assert_array_equal(decode(path, 1)[0], GREY)


def test_palette_bilevel_and_cmyk(tmp_path: Path) -> None:
    palette = Image.fromarray((np.arange(24).reshape(6, 4) % 3).astype(np.uint8), mode="L").convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    path = save(tmp_path / "p.png", palette, transparency=bytes([0, 128, 255]))
    assert not read_header(path).grey
    (shown,) = in_threads(lambda file: decode(file, 3), [path])  # Pillow warns of this kind of transparency
    np.testing.assert_array_equal(shown[:, 0, :3], np.array([[10, 40, 70], [20, 50, 80], [30, 60, 90]]))
    assert read_images([path], channels=1, image_size=(6, 4)).shape == (1, 1, 6, 4)
    bilevel = save(tmp_path / "b.png", Image.fromarray(GREY > 127))
    np.testing.assert_array_equal(decode(bilevel, 1)[0], np.where(GREY > 127, 255, 0))
    cmyk = save(tmp_path / "c.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0)), quality=95)
    assert np.abs(decode(cmyk, 3)[:, 4, 4].astype(int) - [255, 0, 0]).max() <= 4


@pytest.mark.parametrize("suffix", ["png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, suffix: str) -> None:
    # How an upright image must be stored for each value of the tag, by the tag's definition: it says which sides of
    # the upright image the first row and the first column of the stored image are.
    stored = {
        1: COLOUR,
        2: COLOUR[:, ::-1],
        3: COLOUR[::-1, ::-1],
        4: COLOUR[::-1],
        5: COLOUR.transpose(1, 0, 2),
        6: COLOUR.transpose(1, 0, 2)[::-1],
        7: COLOUR.transpose(1, 0, 2)[::-1, ::-1],
        8: COLOUR.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    more = {"lossless": True} if suffix == "webp" else {}
    path = save(tmp_path / f"a.{suffix}", np.ascontiguousarray(stored), exif=exif, **more)
    np.testing.assert_array_equal(decode(path, 3), COLOUR.transpose(2, 0, 1))
    assert read_header(path) == Header((6, 4), grey=False)


def test_a_broken_exif_tag_is_ignored(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", COLOUR, exif=b"Exif\x00\x00garbage")
    assert in_threads(read_header, [path]) == [Header((6, 4), grey=False)]
    np.testing.assert_array_equal(decode(path, 3), COLOUR.transpose(2, 0, 1))


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(COLOUR), Image.fromarray(255 - COLOUR)]
    path = tmp_path / "a.webp"
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
    np.testing.assert_array_equal(decode(path, 3), COLOUR.transpose(2, 0, 1))


def test_read_images_resizes_all_alike(tmp_path: Path) -> None:
    paths = [save(tmp_path / "a.png", GREY), save(tmp_path / "b.jpg", np.full((300, 500, 3), 7, np.uint8))]
    pixels = read_images(paths, channels=3, image_size=(5, 7))
    assert pixels.shape == (2, 3, 5, 7)
    assert pixels.dtype == np.uint8
    assert (pixels[1] == 7).all()
    np.testing.assert_array_equal(pixels[0], decode(paths[0], 3, (5, 7)))
    assert read_images([], channels=1, image_size=(2, 2)).shape == (0, 1, 2, 2)
    with pytest.raises(InputError, match="2 channels"):
        read_images(paths, channels=2, image_size=(2, 2))


def test_arrays_are_resized_as_files_are(tmp_path: Path) -> None:
    board = np.indices((64, 64)).sum(0) % 2 * 255
    path = save(tmp_path / "a.png", board.astype(np.uint8))
    small = decode(path, 1, (8, 8))
    assert np.abs(small.astype(int) - 127).max() <= 8
    np.testing.assert_array_equal(resize_arrays(board.astype(np.uint8)[None, None], 8)[0], small)


def png_header_only(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [12_000, 100_000])
def test_decompression_bombs_are_rejected_by_name(tmp_path: Path, side: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header_only(side, side))
    with pytest.raises(InputError, match=r"bomb\.png has more than .* pixels"):
        read_images([path], channels=3, image_size=(4, 4))


def broken_files(folder: Path) -> list[Path]:
    noise = RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    paths = []
    for suffix in ("png", "jpg", "bmp", "webp"):
        path = save(folder / f"cut.{suffix}", noise)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        paths.append(path)
    for name, content in (("text.png", b"hello"), ("empty.jpg", b""), ("no_data.png", png_header_only(4, 4))):
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    gif = save(folder / "a.gif", noise)
    return [*paths, gif.rename(folder / "gif_in_disguise.png")]


def test_broken_files_are_rejected_by_name(tmp_path: Path) -> None:
    for path in broken_files(tmp_path):
        with pytest.raises(InputError, match=rf"{path.name} cannot be read .* need an intact PNG"):
            read_images([path], channels=3, image_size=(4, 4))


def test_missing_file_and_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.png does not exist"):
        read_images([tmp_path / "gone.png"], channels=1, image_size=(1, 1))
    with pytest.raises(InputError, match="cannot be read"):
        read_images([tmp_path], channels=1, image_size=(1, 1))


def test_warnings_are_silenced_and_filters_restored(tmp_path: Path) -> None:
    before = list(warnings.filters)
    path = save(tmp_path / "a.png", COLOUR)

    def noisy(_: int) -> NDArray[np.uint8]:
        warnings.warn("of a decoder", UserWarning, stacklevel=1)
        return decode(path, 3)

    assert len(in_threads(noisy, range(8))) == 8
    assert list(warnings.filters) == before


def bmp_header_only(width: int, height: int) -> bytes:
    size = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + size


def jpeg_header_only(width: int, height: int) -> bytes:
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0])
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xd9"


def webp_header_only(width: int, height: int) -> bytes:
    chunk = b"VP8L" + struct.pack("<I", 10) + b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(5)
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "content",
    [
        png_header_only(60_000, 60_000),
        bmp_header_only(60_000, 60_000),
        bmp_header_only(60_000, -60_000),
        jpeg_header_only(60_000, 60_000),
        webp_header_only(16_383, 16_383),
        png_header_only(2**31 - 1, 2**31 - 1),
        bmp_header_only(2**31 - 1, 1),
    ],
    ids=["png", "bmp", "bmp upside down", "jpeg", "webp", "largest png", "longest bmp"],
)
def test_a_few_bytes_that_declare_a_huge_image(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "huge").write_bytes(content)
    for read in (
        lambda path: read_images([path], channels=3, image_size=(4, 4)),
        lambda path: in_threads(read_header, [path]),
    ):
        with pytest.raises(InputError, match=r"huge (has more than|cannot be read)"):
            read(tmp_path / "huge")


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_images_without_pixels(tmp_path: Path, size: tuple[int, int]) -> None:
    for name, content in (
        ("a.png", png_header_only(*size)),
        ("a.bmp", bmp_header_only(*size)),
        ("a.jpg", jpeg_header_only(*size)),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            in_threads(read_header, [tmp_path / name])
        with pytest.raises(InputError, match="cannot be read"):
            read_images([tmp_path / name], channels=3, image_size=(4, 4))


def test_animated_png_gives_its_first_frame_and_other_formats_are_rejected(tmp_path: Path) -> None:
    frames = [Image.fromarray(COLOUR), Image.fromarray(255 - COLOUR)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode(tmp_path / "a.png", 3), COLOUR.transpose(2, 0, 1))
    frames[0].save(tmp_path / "animated.gif", save_all=True, append_images=frames[1:])
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(tmp_path / "deep.tiff")
    for name in ("animated.gif", "deep.tiff"):
        with pytest.raises(InputError, match="unknown image format"):
            decode(tmp_path / name, 3)


def test_a_large_sixteen_bit_image_takes_little_more_than_its_pixels(tmp_path: Path, little_memory: None) -> None:  # noqa: ARG001
    Image.fromarray(np.full((3_500, 3_500), 65_535, dtype=np.uint16)).save(tmp_path / "deep.png", compress_level=1)
    assert (read_images([tmp_path / "deep.png"], channels=1, image_size=(8, 8)) == 255).all()


def test_a_pipe_is_not_an_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="Not a regular file"):
        decode(tmp_path / "pipe.png", 3)
