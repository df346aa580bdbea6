"""The URL of a sweep's database: where it comes from, and which part of it may be shown or written to files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, unquote

from deeplda.errors import InputError
from deeplda.io import expanded, read_small

VARIABLE = "DEEPLDA_STORAGE"
_LONGEST_URL = 2**16
# Options in a URL that contain a password, for example of libpq and ODBC.
_SECRET_OPTION = re.compile(r"password|passwd|pwd|odbc_connect", re.IGNORECASE)


def storage_url(option: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the URL from --storage or, by default, from the environment; None if there is none.

    Both may instead name a file that contains the URL. Raises InputError if there is a password in `option`.
    """
    if option is not None and "://" in option and _has_password(option):
        raise InputError(
            "--storage contains a password, which all users of this machine can see in the list of processes: set "
            f"{VARIABLE} to the URL instead, pass the name of a file that contains it, or omit the password and use "
            "PGPASSWORD or ~/.pgpass"
        )
    given = environment.get(VARIABLE) if option is None else option
    if option is None and not given:
        return None
    assert given is not None
    return given if "://" in given else _read(given)


def public_url(url: str) -> str:
    """Return the URL of a database without user, password and options, so that it can be written to files.

    Raises InputError if it is not a URL, or if workers cannot share such a database.
    """
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    _require_quoted(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _not_a_url() from None
    if parsed.get_backend_name() == "sqlite":
        raise InputError(
            "storage is an SQLite file, from which two workers can take the same trial",
            need="a database server such as PostgreSQL",
            do="omit --storage to use the journal in the sweep's folder, which workers can share",
        )
    return str(URL.create(parsed.drivername, host=parsed.host, port=parsed.port, database=parsed.database))


def without_password(message: str, url: str | None) -> str:
    """Return the message of a database driver, which may quote the URL, without the passwords in it."""
    for secret in sorted(_passwords(url or ""), key=len, reverse=True):
        message = message.replace(secret, "***")
    return message


def _read(file: str) -> str:
    try:
        found = read_small(expanded(file), _LONGEST_URL).decode().strip()
    except (OSError, ValueError):
        raise _not_a_url() from None
    if "://" not in found:
        raise _not_a_url()
    return found


def _has_password(url: str) -> bool:
    account, at, rest = url.partition("://")[2].rpartition("@")
    options = (rest if at else url).partition("?")[2]
    return ":" in account or any(_SECRET_OPTION.search(name) for name, _ in parse_qsl(options))


def _require_quoted(url: str) -> None:
    """Raise InputError if a password is ambiguous; nothing of the URL is shown, because it may be the password."""
    account, *others = url.partition("://")[2].split("@")
    if len(others) > 1 or (others and re.search("[/?#]", account)):
        raise InputError(
            "the URL of the storage has an unquoted @, /, ? or # in its user name or password: write these characters "
            "as %40, %2F, %3F and %23"
        )


def _passwords(url: str) -> Iterator[str]:
    """Yield the passwords in a URL, quoted and unquoted."""
    account, _, _ = url.partition("://")[2].rpartition("@")
    options = [value for name, value in parse_qsl(url.partition("?")[2]) if _SECRET_OPTION.search(name)]
    for found in (account.partition(":")[2], *options):
        yield from {found, unquote(found)} - {""}


def _not_a_url() -> InputError:
    return InputError(
        "storage is not the URL of a database",
        need="a URL such as postgresql+psycopg://user@host/database, or a file that contains it",
        do="omit --storage to keep the state in the sweep's folder",
    )
