"""Sets too large for memory are refused."""

import pytest

from deeplda.data import memory
from deeplda.errors import InputError


def test_this_machine_has_memory() -> None:
    available = memory.available_memory()
    assert available is None or available > 2**20


def test_twice_the_samples_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * 2**30)
    memory.require_memory(2**30, "s")
    with pytest.raises(InputError, match=r"s takes 2\.2 GiB to read and 2\.0 GiB is free.*--image-size"):
        memory.require_memory(int(1.1 * 2**30), "s")


def test_unknown_memory_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.require_memory(2**80, "s")
