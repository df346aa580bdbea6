"""What an error says fits on one line, whatever was in the file it is about."""

import errno
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplda.errors import InputError, got, one_line, unwritten


@given(st.text(st.characters(), max_size=50))
def test_an_error_is_one_printable_line(text):
    sentence = str(InputError(f"class {text} is not known"))
    assert sentence.isprintable()
    assert one_line(sentence) == sentence
    assert str(pickle.loads(pickle.dumps(InputError(sentence)))) == sentence


def test_what_breaks_the_line_or_speaks_to_the_terminal_is_spelled_out():
    assert one_line("a\nb\x1b[2J\ud800é") == "a\\nb\\x1b[2J\\ud800é"


def test_a_long_value_does_not_drown_what_to_do():
    sentence = str(InputError(got("names " + "x" * 10**6, need="fewer", do="shorten them")))
    assert len(sentence) < 2_100
    assert sentence.startswith("names x")
    assert sentence.endswith("need fewer: shorten them")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "cannot write: No space left on device"),
        (errno.EFBIG, "cannot write: File too large"),
        (errno.EROFS, "cannot write: Read-only file system"),
        (errno.EACCES, "not allowed: Permission denied"),
        (errno.EPERM, "not allowed: Operation not permitted"),
    ],
)
def test_a_disk_that_cannot_be_used_is_a_sentence(number, words):
    sentence = unwritten(OSError(number, os.strerror(number), "model.json"))
    assert sentence.startswith(f"{words} (model.json); ")


def test_other_failures_are_not_explained_away():
    assert unwritten(OSError(errno.EBADF, "Bad file descriptor")) is None
