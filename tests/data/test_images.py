"""Decoding image files: modes, depth, orientation, size, and broken files."""

import json
import os
import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deeplda.data import pixels as pixels_module
from deeplda.data import read_images
from deeplda.data.images import (
    Header,
    decode,
    decode_and_digest,
    file_digest,
    in_threads,
    read_header,
    resize_arrays,
)
from deeplda.data.splitting import content_digest
from deeplda.errors import InputError
from missing_modules import run_without

# 48 x 32 pixels, made with x265: red grows by 5 per column, green by 7 per row, and blue is 128.
HEIC = Path(__file__).with_name("gradient.heic")

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


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff"])
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
    np.testing.assert_array_equal(resize_arrays(board.astype(np.uint8)[None, None], (8, 8))[0], small)


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
    for suffix in ("png", "jpg", "bmp", "webp", "gif", "tiff"):
        path = save(folder / f"cut.{suffix}", noise)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        paths.append(path)
    for name, content in (("text.png", b"hello"), ("empty.jpg", b""), ("no_data.png", png_header_only(4, 4))):
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    heic = folder / "cut.heic"
    heic.write_bytes(HEIC.read_bytes()[:500])
    icon = save(folder / "a.ico", noise)
    return [*paths, heic, icon.rename(folder / "icon_in_disguise.png")]


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


def gif_header_only(width: int, height: int) -> bytes:
    screen = struct.pack("<2H3B", width, height, 0x80, 0, 0) + bytes(6)
    return b"GIF89a" + screen + b"," + struct.pack("<4HB", 0, 0, width, height, 0) + b"\x02\x01\x00\x00;"


def tiff_header_only(width: int, height: int, tile: tuple[int, int] | None = None) -> bytes:
    """A greyscale TIFF without compression, in one strip or one tile that is not there."""
    entries = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 277: 1}
    entries |= {322: tile[0], 323: tile[1], 324: 8, 325: 16} if tile else {273: 8, 278: height, 279: 16}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, entries[tag]) for tag in sorted(entries))
    return b"II*\x00" + struct.pack("<I", 8) + struct.pack("<H", len(entries)) + directory + bytes(4)


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
        gif_header_only(65_535, 65_535),
        tiff_header_only(60_000, 60_000),
        tiff_header_only(8, 8, tile=(2**20, 2**20)),
        tiff_header_only(2**31 - 1, 2**31 - 1),
        png_header_only(2**31 - 1, 2**31 - 1),
        bmp_header_only(2**31 - 1, 1),
    ],
    ids=[
        *("png", "bmp", "bmp upside down", "jpeg", "webp", "gif", "tiff", "tiff with a huge tile", "largest tiff"),
        *("largest png", "longest bmp"),
    ],
)
def test_a_few_bytes_that_declare_a_huge_image(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "huge").write_bytes(content)
    for read in (
        lambda path: read_images([path], channels=3, image_size=(4, 4)),
        lambda path: in_threads(lambda file: decode_and_digest(file, 3), [path]),
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


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.tiff"])
def test_the_first_frame_of_several(tmp_path: Path, name: str) -> None:
    # A palette of few colours, so that GIF is lossless.
    first = (COLOUR // 128 * 255).astype(np.uint8)
    frames = [Image.fromarray(first), Image.fromarray(255 - first)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode(tmp_path / name, 3), first.transpose(2, 0, 1))


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate", "packbits"])
def test_tiff_of_eight_and_sixteen_bits(tmp_path: Path, compression: str) -> None:
    path = save(tmp_path / "a.tif", COLOUR, compression=compression)
    np.testing.assert_array_equal(decode(path, 3), COLOUR.transpose(2, 0, 1))
    deep = RNG.integers(0, 65536, (6, 4), dtype=np.uint16)
    path = save(tmp_path / "deep.tif", deep, compression=compression)
    assert read_header(path) == Header((6, 4), grey=True)
    np.testing.assert_array_equal(decode(path, 1)[0], np.round(deep / 257))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_tiff_of_32_bits_is_rejected(tmp_path: Path, dtype: type) -> None:
    path = save(tmp_path / "a.tif", np.ones((6, 4), dtype=dtype))
    with pytest.raises(InputError, match="its pixels have 32 bits; convert it to 8 or 16 bits"):
        decode(path, 1)


def test_heic(tmp_path: Path) -> None:
    y, x = np.mgrid[:32, :48]
    made_from = np.stack([5 * x, 7 * y, np.full_like(x, 128)])
    assert read_header(HEIC) == Header((32, 48), grey=False)
    assert np.abs(decode(HEIC, 3).astype(int) - made_from).max() < 16
    renamed = tmp_path / "really_heic.jpg"
    renamed.write_bytes(HEIC.read_bytes())
    code = f"from deeplda.data import read_images; read_images({str(renamed)!r}, channels=1, image_size=(4, 4))"
    done = run_without({"pi_heif"}, code, cwd=tmp_path)
    assert "HEIC needs an extra package, pip install 'deeplda[heic]'" in done.stderr


def test_read_images_takes_paths_strings_contents_and_open_files(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", COLOUR)
    content = path.read_bytes()
    with path.open("rb") as opened:
        found = read_images([path, str(path), content, BytesIO(content), opened], channels=3, image_size=(6, 4))
        assert not opened.closed
    assert all((image == COLOUR.transpose(2, 0, 1)).all() for image in found)
    for one in (path, str(path), content, BytesIO(content)):
        assert read_images(one, channels=3, image_size=(6, 4)).shape == (1, 3, 6, 4)
    with pytest.raises(InputError, match=r"^the image cannot be read \(unknown image format\)"):
        read_images(b"nothing", channels=3, image_size=(6, 4))


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", COLOUR)
    pixels, digest = decode_and_digest(path, 3)
    np.testing.assert_array_equal(pixels, COLOUR.transpose(2, 0, 1))
    assert digest == file_digest(path) == content_digest(path.read_bytes())


def test_pixels_need_neither_torch_nor_the_rest_of_the_package(tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", np.full((60, 80, 3), (200, 100, 50), dtype=np.uint8))
    code = f"""
import sys
from PIL import Image
sys.path.insert(0, {str(Path(pixels_module.__file__).parent)!r})
from pixels import image_pixels
print(image_pixels(Image.open({str(path)!r}), 3, (5, 7))[:, 2, 3].tolist())
"""
    done = run_without({"torch", "deeplda", "pydantic", "sklearn"}, code, cwd=tmp_path)
    assert np.abs(np.array(json.loads(done.stdout)) - [200, 100, 50]).max() <= 3, done.stderr


@pytest.mark.usefixtures("little_memory")
def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", COLOUR)
    os.truncate(path, 2**40)
    for read in (lambda: decode(path, 3), lambda: file_digest(path)):
        with pytest.raises(InputError, match="the file is larger than 512 MiB"):
            read()


def test_a_large_sixteen_bit_image_takes_little_more_than_its_pixels(tmp_path: Path, little_memory: None) -> None:  # noqa: ARG001
    Image.fromarray(np.full((3_500, 3_500), 65_535, dtype=np.uint16)).save(tmp_path / "deep.png", compress_level=1)
    assert (read_images([tmp_path / "deep.png"], channels=1, image_size=(8, 8)) == 255).all()


def test_a_pipe_is_not_an_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="Not a regular file"):
        decode(tmp_path / "pipe.png", 3)
