"""Tables and drawings of the page."""

import re

import numpy as np

from deeplda.report.components import MOST_ROWS, class_table, confusion_table, file_name, sortable_table
from deeplda.report.markup import assets


def test_a_class_that_was_never_predicted_has_no_precision():
    table = class_table(np.array([[3, 0], [2, 0]]), ("a", "b"))
    assert ">none</td>" in table
    assert "a (2)" in table


def test_a_class_table_is_sorted_by_its_exact_values():
    table = class_table(np.array([[1, 2], [0, 1]]), ("a", "b"))
    values = [float(text) for text in re.findall(r'data-value="([\d.]+)" class="number"', table)]
    np.testing.assert_allclose(values, [3, 1 / 3, 1, 1, 1, 1 / 3])


def test_the_confusion_matrix_of_many_classes_is_drawn():
    names = [f"class {i}" for i in range(30)]
    drawing = confusion_table(np.eye(30, dtype=np.int64) * 5, names)
    assert drawing.count("<rect") == 30
    assert "class 29 predicted as class 29: 5" in drawing
    assert "<td" in confusion_table(np.eye(20, dtype=np.int64), names[:20])


def test_rare_mistakes_are_visible_in_the_confusion_matrix():
    assert 'class="wrong heat1"' in confusion_table(np.array([[99, 1], [0, 0]]), ("a", "b"))


def test_the_name_of_a_file_may_break_after_its_folders():
    assert file_name("cats/<b>/1.jpg") == "cats/<wbr>&lt;b&gt;/<wbr>1.jpg"
    assert file_name("row 17") == "row 17"


def test_a_table_without_rows():
    assert "<tbody></tbody>" in sortable_table("empty", ["a", "b"], [])


def shown_classes(table):
    return re.findall(r'<th scope="row" data-value="([^"]+)"', table)


def test_the_worst_classes_come_first():
    """Classes with the same recall are in the order of their precision; a class without samples is last."""
    confusion = np.array([[4, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 3, 0, 0], [0, 0, 0, 4, 0], [0, 0, 0, 3, 1]])
    table = class_table(confusion, ("a", "b", "c", "d", "e"))
    assert shown_classes(table) == ["e", "c", "d", "a", "b"]
    assert 'class="number" aria-sort="ascending"><button type="button">recall' in table


def test_a_long_table_is_folded_without_a_script():
    names = [f"class {i}" for i in range(MOST_ROWS + 1)]
    confusion = np.eye(len(names), dtype=np.int64)
    table = class_table(confusion, names)
    assert len(shown_classes(table)) == MOST_ROWS + 1
    assert f"show all {MOST_ROWS + 1} classes" in table
    assert "folded" not in class_table(confusion[1:, 1:], names[1:])
    style, _ = assets()
    assert f".folded:not(:has(.unfold:checked)) tbody tr:nth-child(n + {MOST_ROWS + 1}) {{ display: none; }}" in style
