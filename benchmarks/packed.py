"""Training from a pack beside training on the same images in memory: images per second, and memory.

    python benchmarks/packed.py /tmp/noise.pack
    python benchmarks/packed.py /tmp/noise.pack --images 100000 --network convnet-small --width 0.125

Writes a pack of noise images of 3 x 64 x 64 in ten classes, which differ in a faint pattern. First, it reads batches
at random places from the file while it is not in the system's cache: with NumPy's indexing of the mapped array, and
with the samples announced to the system, as training does. Then it trains for one epoch, each time in a process of its
own: from the pack, which the system has cached, on the same images in memory, from the pack after it was dropped from
the cache, and from the pack in two processes. By default, the network does next to nothing, so that reading is as
visible as possible. RssAnon is the memory that a process holds for itself, without mapped files, which the system can
take back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deeplda.data import Data, Part, open_pack
from deeplda.data.folder_options import FolderOptions
from deeplda.data.listed_source import Samples
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.pack_index import IMAGES_FILE
from deeplda.data.pack_writer import write_pack
from deeplda.data.splitting import DIGEST_DTYPE, content_digest
from deeplda.errors import InputError
from deeplda.training.config import RunConfig
from deeplda.training.loop import run_epochs
from deeplda.training.preparation import read_data
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import build_trainee

SHAPE, CLASSES = (3, 64, 64), 10
CACHED, DROPPED, IN_MEMORY = "pack", "pack, not cached", "in memory"
_PAUSE = 0.02


def main() -> None:
    options = arguments()
    if options.kind:
        print(json.dumps(train(options)))
        return
    if not is_complete(options.pack):
        with watched_memory([os.getpid()]) as largest:
            start = time.perf_counter()
            packed = write_pack(options.pack, Noise(options.images), FolderOptions(), show)
            seconds = time.perf_counter() - start
        print(f"packed {packed.added:,} of {packed.images:,} images in {seconds:.0f} s, RssAnon {largest():,} MB")
    reading(options.pack, options.batch_size)
    print(f"{'':20}{'images/s':>12}{'ready after':>14}{'largest RssAnon':>18}")
    rows = {kind: fresh_process(kind) for kind in (CACHED, IN_MEMORY, DROPPED) if kind not in options.skip}
    if "two processes" not in options.skip:
        rows["two processes"] = two_processes(options)
    for kind, row in rows.items():
        print(f"{kind:20}{row['rate']:12,.0f}{row['ready']:12.1f} s{row['memory']:15,.0f} MB")
    if IN_MEMORY in rows:
        for kind in (CACHED, DROPPED):
            print(f"{kind} / {IN_MEMORY}: {rows[kind]['rate'] / rows[IN_MEMORY]['rate']:.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training from a pack.")
    parser.add_argument("pack", type=Path)
    parser.add_argument("--images", type=int, default=400_000)
    parser.add_argument("--network", default="packed:pooled")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--skip", action="append", default=[], help="a row that is not measured")
    parser.add_argument("--kind", help="train this way alone, for a process of its own")
    return parser.parse_args()


def pooled(sample_shape: tuple[int, ...], embedding_dim: int) -> nn.Module:
    """A network that does little more than average blocks of pixels."""
    channels, height, width = sample_shape
    hidden = nn.Linear(channels * (height // 8) * (width // 8), 64)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), hidden, nn.ReLU(), nn.Linear(64, embedding_dim))


def reading(pack: Path, batch_size: int, batches: int = 40) -> None:
    """Show how fast batches at random places are read from a file that is not cached, and how many bytes that takes."""
    for name in ("plain", "announced"):
        images = open_pack(pack).images
        rows = MappedRows(images) if name == "announced" else images
        drop_from_cache(pack)
        rng, before, start = np.random.default_rng(0), bytes_read(), time.perf_counter()
        for _ in range(batches):
            rows[rng.integers(0, len(images), batch_size)]
        rate, read = batches * batch_size / (time.perf_counter() - start), bytes_read() - before
        needed = batches * batch_size * images[0].size
        print(f"{name} reading: {rate:,.0f} images/s, {read / needed:.2f} times the bytes")
        del images, rows  # the system keeps mapped pages


def is_complete(pack: Path) -> bool:
    try:
        open_pack(pack)
    except InputError:
        return False
    return True


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])


class Noise:
    """Images of noise, to be packed; each depends only on its number."""

    def __init__(self, count: int) -> None:
        root = Path("noise")
        numbers = ((label, number) for label in range(CLASSES) for number in range(label, count, CLASSES))
        files = tuple(ImageFile(root, f"class{label}", f"{number:07}.png", "train", label) for label, number in numbers)
        self.listing = Listing(root, ("train",), tuple(f"class{label}" for label in range(CLASSES)), files)
        faint = np.random.default_rng(0).integers(0, 64, (CLASSES, 3, 8, 8), dtype=np.uint8)
        self._patterns = faint.repeat(8, axis=2).repeat(8, axis=3)

    def shape(self, files: Sequence[ImageFile], _image_size: int | None) -> tuple[int, int, int] | None:
        return SHAPE if files else None

    def digests(self, files: Sequence[ImageFile]) -> list[bytes | None]:
        return [content_digest(self._pixels(file).tobytes()) for file in files]

    def read(self, files: Sequence[ImageFile], _shape: tuple[int, int, int], *, resize: bool) -> Samples:
        del resize
        pixels = np.stack([self._pixels(file) for file in files])
        digests = [content_digest(image.tobytes()) for image in pixels]
        return Samples(files, pixels, np.array(digests, dtype=DIGEST_DTYPE), {})

    def _pixels(self, file: ImageFile) -> NDArray[np.uint8]:
        rng = np.random.default_rng(int(file.name.removesuffix(".png")))
        noise = np.frombuffer(rng.bytes(3 * 64 * 64), dtype=np.uint8).reshape(SHAPE)
        return noise // 4 * 3 + self._patterns[file.label]


class Clock(Progress):
    """The time of the first and of the last step."""

    def __init__(self) -> None:
        self.first, self.last, self.samples = 0.0, 0.0, 0

    def step(self, _counters: object, _steps: int, samples: int, _loss: float, _describe: object) -> None:
        self.last = time.perf_counter()
        self.samples += samples if self.first else 0
        self.first = self.first or self.last


def train(options: argparse.Namespace) -> dict[str, float]:
    """Train for one epoch in this process, and return images per second, seconds to the first step, and memory."""
    with watched_memory([os.getpid()]) as largest:
        start = time.perf_counter()
        config = RunConfig(data=str(options.pack), **settings(options))
        if options.kind == DROPPED:
            drop_from_cache(options.pack)
        data = read_data(config, place=options.pack)
        if options.kind == IN_MEMORY:
            data = in_memory(data)
        trainee, clock = build_trainee(config, data), Clock()
        if options.kind == DROPPED:
            drop_from_cache(options.pack)
        run_epochs(config, data, trainee, MemoryRun(), clock)
        return {
            "rate": clock.samples / (clock.last - clock.first), "ready": clock.first - start, "memory": largest()
        }  # fmt: skip


def settings(options: argparse.Namespace) -> dict[str, object]:
    return {
        "network": options.network, "width": options.width, "batch_size": options.batch_size, "epochs": 1, "flip": True
    }  # fmt: skip


def in_memory(data: Data) -> Data:
    def read(part: Part) -> Part:
        return replace(part, inputs=np.asarray(part.inputs))

    return replace(data, train=read(data.train), val=read(data.val), test=read(data.test))


def drop_from_cache(pack: Path) -> None:
    with (pack / IMAGES_FILE).open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fresh_process(kind: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--kind", kind]
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    found: dict[str, float] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
    )
    return found


def two_processes(options: argparse.Namespace) -> dict[str, float]:
    """Train with `deeplda train --processes 2`; the rate is that of the whole epoch, with its validation."""
    with tempfile.TemporaryDirectory() as folder:
        given = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            for name, value in settings(options).items()
        ]
        command = [sys.executable, "-m", "deeplda", "train", str(options.pack), "--processes", "2", "--quiet", "--json"]
        environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
        start = time.perf_counter()
        with (
            subprocess.Popen(
                [*command, *given, "--run", f"{folder}/run"], env=environment, stdout=subprocess.DEVNULL
            ) as job,
            watched_memory([job.pid]) as largest,
        ):
            job.wait()
        rows = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
        samples = sum(rows[-1]["train_counts"])
        seconds = rows[0]["seconds"]
        return {"rate": samples / seconds, "ready": time.perf_counter() - start, "memory": largest()}


class watched_memory:  # noqa: N801  # a context manager
    """Measure the largest RssAnon of any of these processes and their children, in MB."""

    def __init__(self, processes: list[int]) -> None:
        self._processes, self._largest, self._stop = processes, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return lambda: self._largest

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE):
            for process in [*self._processes, *self._children()]:
                self._largest = max(self._largest, anonymous_memory(process))

    def _children(self) -> Iterator[int]:
        for process in self._processes:
            try:
                text = Path(f"/proc/{process}/task/{process}/children").read_text()
            except OSError:
                continue
            yield from map(int, text.split())


def anonymous_memory(process: int | str = "self") -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1000 for line in lines if line.startswith("RssAnon")), 0)


def show(blocks: Iterator[NDArray[np.uint8]], images: int, activity: str) -> Iterator[NDArray[np.uint8]]:
    print(f"{activity}: {images:,} images", file=sys.stderr)
    return blocks


if __name__ == "__main__":
    main()
