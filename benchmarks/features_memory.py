"""The memory and the time that `deeplda fit-features` takes, as the number of rows grows.

    python benchmarks/features_memory.py [--rows 100000 400000 1000000] [--format npz] [--classes 10]

Each file has 512 float32 features: an uncompressed .npz file, or a Parquet file with a column of lists in row groups of
10,000 rows. RssAnon is the memory that a process holds for itself, without mapped files, which the system can drop at
any time; it is sampled every 20 ms. The CPU time includes that of the system.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from packed import watched_memory

Block = tuple[NDArray[np.float32], NDArray[np.int64]]

_FEATURES, _BLOCK = 512, 10_000
_EMPTY = "import deeplda.cli.fit_features, deeplda.training.pipeline, deeplda.report.report_files"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[100_000, 400_000, 1_000_000])
    parser.add_argument("--format", choices=("npz", "parquet"), default="npz")
    parser.add_argument("--classes", type=int, default=10)
    options = parser.parse_args()
    print(f"imported libraries: {measured('-c', _EMPTY)[0]:,} MB")
    print(f"{'rows':>12}{'file':>12}{'largest RssAnon':>18}{'seconds':>10}{'CPU':>10}{'accuracy':>11}")
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"features.{options.format}"
            (write_npz if options.format == "npz" else write_parquet)(path, blocks(rows, options.classes), rows)
            start, used = time.perf_counter(), cpu_seconds()
            run = ("--run", f"{folder}/run", "--json", "--quiet")
            memory, text = measured("-m", "deeplda", "fit-features", str(path), *run)
            seconds, used = time.perf_counter() - start, cpu_seconds() - used
            size, accuracy = path.stat().st_size / 1e6, json.loads(text)["test"]["accuracy"]
            print(f"{rows:12,}{size:9,.0f} MB{memory:15,} MB{seconds:10.1f}{used:10.1f}{accuracy:11.4f}", flush=True)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def blocks(rows: int, classes: int) -> Iterator[Block]:
    rng = np.random.default_rng(0)
    means = 0.2 * rng.normal(size=(classes, _FEATURES)).astype(np.float32)
    for start in range(0, rows, _BLOCK):
        labels = rng.integers(0, classes, min(_BLOCK, rows - start))
        noise = rng.standard_normal((len(labels), _FEATURES), dtype=np.float32)
        yield means[labels] + 2 * noise, labels


def write_npz(path: Path, found: Iterator[Block], rows: int) -> None:
    features, labels, start = np.empty((rows, _FEATURES), np.float32), np.empty(rows, np.int64), 0
    for some, of in found:
        features[start : start + len(of)], labels[start : start + len(of)] = some, of
        start += len(of)
    np.savez(path, features=features, labels=labels)


def write_parquet(path: Path, found: Iterator[Block], _rows: int) -> None:
    schema = pa.schema({"embedding": pa.list_(pa.float32()), "label": pa.string()})
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for features, labels in found:
            names = [f"class {label}" for label in labels]
            writer.write_table(pa.table({"embedding": list(features), "label": names}, schema))


def measured(*command: str) -> tuple[int, str]:
    """Run Python in a process of its own, and return its largest RssAnon in MB and its output."""
    with (
        subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process,
        watched_memory([process.pid]) as largest,
    ):
        text = process.communicate()[0]
    return largest(), text


if __name__ == "__main__":
    main()
