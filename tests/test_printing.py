"""Untrusted text is printed as printable lines, strict JSON, and CSV without formulas, and by these functions only."""

import ast
import csv
import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table

import deeplda
from deeplda.printing import as_csv, as_json, plain_console, say, say_lines

HOSTILE = "\x1b[31mred\x07\x9b2J\r[b]:smile:\u202e"
ESCAPED = "\\x1b[31mred\\x07\\x9b2J\\r[b]:smile:\\u202e"


def test_a_line(capsys):
    say(f"a\n{HOSTILE}")
    assert capsys.readouterr().out == f"a\\n{ESCAPED}\n"


def test_several_lines_are_printed_in_full(capsys):
    say_lines(f"{HOSTILE}\n{'x' * 10_000}\n")
    assert capsys.readouterr().out == f"{ESCAPED}\n{'x' * 10_000}\n"


def test_everything_on_a_console():
    table = Table(HOSTILE, title=HOSTILE, show_footer=True)
    table.columns[0].footer = HOSTILE
    table.add_row(HOSTILE)
    stream = io.StringIO()
    console = plain_console(stream, soft_wrap=True)
    console.print(HOSTILE)
    console.print(Group(table, HOSTILE))
    shown = stream.getvalue()
    assert shown.count(ESCAPED) == 6
    assert shown.replace("\n", "").isprintable()


def test_json_has_no_nan_and_no_infinity():
    text = as_json({"a": [1.5, math.nan, (math.inf, "NaN")], "b": {"c": -math.inf}, "d": True})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [1.5, None, [None, "NaN"]],
        "b": {"c": None},
        "d": True,
    }


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("-" + "1" * 1000 + "x", "'-" + "1" * 1000 + "x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\\t=1"),
        ("\r=1", "\\r=1"),
        (HOSTILE, ESCAPED),
        ("-0.1250", "-0.1250"),
        ("-1e-10 0.5 3", "-1e-10 0.5 3"),
        ("a=b", "a=b"),
        (-0.5, "-0.5"),
        (3, "3"),
        (None, ""),
        ("", ""),
    ],
)
def test_a_cell_is_neither_a_formula_nor_a_control_character(cell, shown):
    text = as_csv(["=name", "x"], [{"=name": cell, "x": 1}])
    assert list(csv.reader(io.StringIO(text))) == [["'=name", "x"], [shown, "1"]]


@given(st.text(st.characters(), max_size=30))
def test_any_text_is_one_printable_cell(text):
    (cell,), *others = csv.reader(io.StringIO(as_csv([text or "x"], [])))
    assert cell.isprintable()
    assert not others


def test_nothing_else_prints():
    """Progress bars and tables use consoles, which `plain_console` makes; errors.py prints warnings.

    __main__.py says that it was stopped, perhaps before printing.py was imported.
    """
    source = Path(deeplda.__file__).parent
    for file in source.rglob("*.py"):
        if file.relative_to(source).as_posix() in ("printing.py", "errors.py", "__main__.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            where = f"{file}:{getattr(node, 'lineno', 0)}"
            assert called not in ("print", "sys.stdout.write", "sys.stderr.write", "csv.writer"), where
            assert called != "Console" or ast.unparse(node) == "Console(stderr=True)", where
