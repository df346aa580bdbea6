"""The journal of a sweep: a file to which all workers append what they do, one JSON object per line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from deeplda.errors import InputError
from deeplda.output_folder import OutputFolder

_NAME = "journal.jsonl"
# More than workers write in 200 days altogether, mostly as heartbeats; and more than the settings of any sweep take.
_LARGEST_FILE, _LONGEST_LINE = 2**28, 2**20


class SweepJournal(BaseJournalBackend):
    """Optuna's journal, safe against processes that stall or die at any moment and against a full disk.

    Workers append under a lock that they keep however long it takes, and that the system releases if they die. Optuna's
    own file backend takes the lock away from a worker that stalls for 30 seconds, which may then overwrite the lines of
    others. An incomplete last line is not read, and removed by the next writer.

    Raises InputError if the file is not a journal, or if the folder was moved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The lines that have been read, and their length in bytes, where reading continues.
        self._lines = self._bytes = 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries from this number on; only new lines are read from disk."""
        if log_number_from < self._lines:
            self._lines = self._bytes = 0
        while lines := self._new_lines():
            for line in lines:
                log = self._parse(line)
                self._lines += 1
                self._bytes += len(line)
                if self._lines > log_number_from:
                    yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, after waiting for other processes that do the same."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with OutputFolder.open(self._folder, create=False) as folder, folder.locked(_NAME, wait=True):
            self._require_plausible((self._folder / _NAME).lstat().st_size)
            folder.append_lines(_NAME, lines.encode())

    def _new_lines(self) -> list[bytes]:
        """Return complete lines that have not been read yet, but not all of them if there are many."""
        with OutputFolder.open(self._folder, create=False) as folder:
            try:
                # The lock is released before the lines are used, because using them can mean to append others.
                with folder.reading(_NAME) as stream:
                    self._require_plausible(os.fstat(stream.fileno()).st_size)
                    stream.seek(self._bytes)
                    found = stream.read(_LONGEST_LINE)
            except FileNotFoundError:
                self._require_plausible(0)
                return []
        if len(found) == _LONGEST_LINE and b"\n" not in found:
            raise corrupt(self._folder, f"a line is longer than {_LONGEST_LINE:,} bytes")
        return [line + b"\n" for line in found.split(b"\n")[:-1]]

    def _require_plausible(self, size: int) -> None:
        if size < self._bytes:
            what = f"{self._folder / _NAME} was removed or replaced while it was in use"
            raise InputError(f"{what}: if the folder was moved, run the command again with its new path")
        if size > _LARGEST_FILE:
            raise corrupt(self._folder, f"it has {size:,} bytes")

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            log = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise corrupt(self._folder, f"{type(error).__name__}: {error}") from None
        if not isinstance(log, dict):
            raise corrupt(self._folder, "a line is not a JSON object")
        return log


def corrupt(folder: Path, reason: str) -> InputError:
    """Return the error for a journal that cannot be used."""
    do = "remove it and start again; finished trials are kept in their folders"
    return InputError(f"{folder / _NAME} is corrupt ({reason}): {do}")
