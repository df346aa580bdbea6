"""The URL of a database: where it comes from, and that nothing of the password is shown."""

import pytest

from deeplda.errors import InputError
from deeplda.experiments.storage_url import VARIABLE, public_url, storage_url, without_password

URL = "postgresql+psycopg://me:secret@host/db"


def test_credentials_are_not_written_down():
    assert public_url("postgresql+psycopg://me:secret@host:5433/db?sslmode=require&password=secret") == (
        "postgresql+psycopg://host:5433/db"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:secret@host/db",
        "postgresql+psycopg://:secret@host/db",
        "postgresql+psycopg://me:se/secret@host/db",
        "postgresql+psycopg://me:se?secret@host/db",
        "postgresql+psycopg://me:se@secret@host/db",
        "postgresql+psycopg://me@host/db?sslmode=require&password=secret",
        "postgresql+psycopg://host/db?sslpassword=secret",
        "mssql+pyodbc://?odbc_connect=DRIVER%3Dx%3BPWD%3Dsecret",
    ],
)
def test_a_password_on_the_command_line_is_rejected(url):
    with pytest.raises(InputError, match=r"list of processes.*DEEPLDA_STORAGE") as error:
        storage_url(url, {})
    assert "secret" not in str(error.value)
    assert storage_url(None, {VARIABLE: url}) == url


@pytest.mark.parametrize("url", ["postgresql+psycopg://me@host:5433/db?passfile=/home/me/pass", "mysql://host/db"])
def test_a_url_without_a_password_may_be_on_the_command_line(url):
    assert storage_url(url, {}) == url
    assert storage_url(url, {VARIABLE: URL}) == url


def test_the_url_may_be_in_a_file(tmp_path):
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")
    assert storage_url(str(file), {}) == URL
    assert storage_url(None, {VARIABLE: str(file)}) == URL


def test_without_a_url_there_is_none():
    assert storage_url(None, {}) is None
    assert storage_url(None, {VARIABLE: ""}) is None


@pytest.mark.parametrize("content", [b"", b"secret", b"\xffsecret", b"secret" * 100_000])
def test_a_file_without_a_url_is_rejected(tmp_path, content):
    file = tmp_path / "url"
    file.write_bytes(content)
    with pytest.raises(InputError, match="storage is not the URL") as error:
        storage_url(str(file), {})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("value", ["me:secret@host/db", "secret" * 1000, "~secret", ""])
def test_a_value_that_is_neither_a_url_nor_a_file_is_not_shown(value):
    with pytest.raises(InputError, match="storage is not the URL") as error:
        storage_url(value, {})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("character", "@/?#")
def test_a_character_of_the_password_that_must_be_quoted(character):
    with pytest.raises(InputError, match="%40, %2F, %3F and %23") as error:
        public_url(f"postgresql+psycopg://deep:sec{character}ret@host/db")
    assert "sec" not in str(error.value)
    assert "ret@" not in str(error.value)
    assert "deep" not in str(error.value)


def test_a_quoted_password_is_not_shown():
    assert public_url("postgresql+psycopg://me:a%40%2F%3F%23%7Bb@host/db") == "postgresql+psycopg://host/db"


def test_messages_of_drivers_do_not_show_the_password():
    url = "postgresql+psycopg://me:se%40cret@host/db?sslpassword=an%20other"
    message = "cannot connect with se%40cret, se@cret, an%20other or 'an other' as me"
    assert without_password(message, url) == "cannot connect with ***, ***, an%20other or '***' as me"
    assert without_password("no URL", None) == "no URL"
