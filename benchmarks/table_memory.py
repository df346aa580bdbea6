"""The memory that reading a Parquet table takes, as the number of rows grows.

    python benchmarks/table_memory.py [ROWS ...]

Each table has 10 columns of numbers, 5 of categories and a target of 4 classes, in row groups of 100,000 rows. A
process of its own reads it with `load_data`. RssAnon is the memory that a process holds for itself, without mapped
files, which the system can drop at any time; it is sampled every 20 ms.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from packed import watched_memory

_GROUP = 100_000
_READ = """
import sys, time
from deeplda.data import load_data
start = time.perf_counter()
data = load_data(sys.argv[1])
print(time.perf_counter() - start, len(data.train), data.sample_shape[0], flush=True)
"""
_EMPTY = "import deeplda.data, deeplda.data.table_source, deeplda.sampling"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, default=[1_000_000, 2_000_000, 5_000_000])
    print(f"imported libraries: {measured(_EMPTY)[0]:,} MB")
    print(f"{'rows':>12}{'largest RssAnon':>18}{'seconds':>10}{'training rows':>16}{'outputs':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for rows in parser.parse_args().rows:
            path = Path(folder) / "table.parquet"
            write_table(path, rows)
            memory, text = measured(_READ, str(path))
            seconds, training, outputs = text.split()
            print(f"{rows:12,}{memory:15,} MB{float(seconds):10.1f}{int(training):16,}{outputs:>10}", flush=True)


def write_table(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    words = [np.array([f"word {place}" for place in range(count)]) for count in (3, 6, 12, 18, 22)]
    writer = None
    for start in range(0, rows, _GROUP):
        n = min(_GROUP, rows - start)
        target = rng.integers(0, 4, n)
        table = {f"number {place}": rng.normal(size=n) + 0.1 * place * target for place in range(10)}
        table |= {f"category {place}": some[rng.integers(0, len(some), n)] for place, some in enumerate(words)}
        found = pa.table(table | {"tier": np.array(["a", "b", "c", "d"])[target]})
        writer = writer or pq.ParquetWriter(path, found.schema)
        writer.write_table(found)
    assert writer is not None
    writer.close()


def measured(code: str, *words: str) -> tuple[int, str]:
    """Run code in a process of its own, and return its largest RssAnon in MB and its output."""
    with (
        subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process,
        watched_memory([process.pid]) as largest,
    ):
        text = process.communicate()[0]
    return largest(), text


if __name__ == "__main__":
    main()
