"""Journals and databases: opening them, and what is said if they cannot be used."""

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from deeplda.errors import InputError, TrainingError
from deeplda.experiments.sweep_storage import open_study, reporting_lost_storage

URL = "postgresql+psycopg://me:secret%21@127.0.0.1:1/db"


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch):
    monkeypatch.setattr("deeplda.experiments.sweep_storage._TRIES", 1)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "storage is not the URL"),
        ("sqlite:///states.db", "two workers can take the same trial"),
        ("postgresql+psycopg://me@127.0.0.1:1/db", "cannot be used as storage"),
        ("postgresql+psycopg://me:secret{0}@127.0.0.1:1/db", "cannot be used as storage"),
        ("postgresql+psycopg://me:{secret}@127.0.0.1:1/db", "cannot be used as storage"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/db?nonsense=1", "cannot be used as storage"),
        ("postgresql+psycopg://me:sec@ret@127.0.0.1:1/db", "unquoted"),
        ("foo://me:secret@host/db", "cannot be used as storage"),
    ],
)
def test_storages_that_cannot_be_used(tmp_path, url, message):
    with pytest.raises(InputError, match=message) as error:
        open_study("s", tmp_path, url, prune=False)
    assert "secret" not in str(error.value)
    assert "ret@" not in str(error.value)


def test_a_driver_that_quotes_the_password_is_not_quoted(tmp_path, monkeypatch):
    def fail(url, **_):
        raise ValueError(f"cannot parse {url} with password secret!\nmore")

    monkeypatch.setattr("deeplda.experiments.sweep_storage.RDBStorage", fail)
    with pytest.raises(InputError, match="cannot be used as storage: cannot parse") as error:
        open_study("s", tmp_path, URL, prune=False)
    assert "secret" not in str(error.value)


def test_a_storage_that_is_lost_is_reported_without_the_password():
    message = r"cannot be reached \(no answer .*run the same command"
    with pytest.raises(TrainingError, match=message) as error, reporting_lost_storage(URL):
        raise StorageInternalError("commit") from OSError(f"no answer from {URL}, secret!\nmore")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_study_that_is_not_a_sweep_is_rejected(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.jsonl")))
    optuna.create_study(study_name="s", storage=storage, direction="minimize")
    with pytest.raises(InputError, match="not a deeplda sweep"):
        open_study("s", tmp_path, None, prune=False)


def test_a_study_whose_name_is_not_text_is_rejected(tmp_path):
    open_study("name", tmp_path, None, prune=False)
    file = tmp_path / "journal.jsonl"
    file.write_text(file.read_text().replace('"study_name":"name"', '"study_name":NaN'))
    with pytest.raises(InputError, match="is not text"):
        open_study("name", tmp_path, None, prune=False)
