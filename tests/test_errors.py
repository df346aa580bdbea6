"""An error message is one printable line, whatever the file contained that it is about."""

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


def test_line_breaks_and_control_characters_are_escaped():
    assert one_line("a\nb\x1b[2J\ud800é") == "a\\nb\\x1b[2J\\ud800é"


def test_a_long_value_is_cut_and_the_advice_kept():
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
def test_a_failed_write_is_one_sentence(number, words):
    sentence = unwritten(OSError(number, os.strerror(number), "model.json"))
    assert sentence.startswith(f"{words} (model.json); ")


def test_other_failures_of_the_system_are_one_sentence_too():
    assert unwritten(OSError(errno.EIO, "Input/output error", "model.json")).startswith("failed: Input/output error")
    assert unwritten(OSError("not from the system")) is None
