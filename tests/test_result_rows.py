"""The CSV files of the benchmarks: rows survive the file, and an interrupted benchmark can be resumed."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import pytest

COLUMNS = ("data", "seed", "accuracy")
ROWS = [{"data": "iris, all", "seed": 0, "accuracy": 91.5}, {"data": 'the "wine"', "seed": 1, "accuracy": 88.25}]


@pytest.fixture
def result_rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import result_rows as module  # type: ignore[import-not-found]  # not a package

    found: ModuleType = module
    return found


def test_rows_survive_the_file(result_rows: ModuleType, tmp_path: Path) -> None:
    for row in ROWS:
        result_rows.append_rows(tmp_path / "rows.csv", COLUMNS, [row])
    as_text = [{name: str(value) for name, value in row.items()} for row in ROWS]
    assert result_rows.read_rows(tmp_path / "rows.csv") == as_text


def test_a_file_appended_to_equals_one_written_at_once(result_rows: ModuleType, tmp_path: Path) -> None:
    for row in ROWS:
        result_rows.append_rows(tmp_path / "rows.csv", COLUMNS, [row])
    with (tmp_path / "expected.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ROWS)
    assert (tmp_path / "rows.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()


def test_a_file_keeps_its_line_endings(result_rows: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(b"data,seed,accuracy\r\niris,0,91.5\r\n")
    result_rows.append_rows(file, COLUMNS, ROWS)
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n") == 4


def test_rows_are_written_together_or_not_at_all(result_rows: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with pytest.raises(ValueError, match="unknown"):
        result_rows.append_rows(file, COLUMNS, [*ROWS, {"unknown": 1}])
    assert not file.exists()


def test_a_benchmark_without_a_file_has_no_rows(result_rows: ModuleType, tmp_path: Path) -> None:
    result_rows.append_rows(None, COLUMNS, ROWS)
    assert result_rows.read_rows(None) == result_rows.read_rows(tmp_path / "rows.csv") == []


def test_rows_of_a_file_and_of_this_process_match_alike(result_rows: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    result_rows.append_rows(file, COLUMNS, ROWS)
    for rows in (ROWS, result_rows.read_rows(file)):
        assert result_rows.matching(rows, data="iris, all", seed=0, accuracy=91.5) == rows[:1]
        assert result_rows.matching(rows, data="iris, all", seed=1) == []
        assert result_rows.matching(rows) == rows
