"""Everything that is not an element is escaped text."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplda.report.markup import data_block, element, together

# What HTML itself changes or forbids is not a matter of escaping: carriage returns, NUL and lone surrogates.
TEXTS = st.text(st.characters(exclude_characters="\r\x00", exclude_categories=("Cs",)))


class Reader(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def read(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(TEXTS, TEXTS)
def test_texts_and_attributes_come_back_as_they_were(text, value):
    found = read(element("p", text, title=value))
    assert found.tags == [("p", {"title": value})]
    assert found.text == text


def test_elements_nest_and_numbers_are_written():
    assert element("p", element("b", "<"), [1, "&"], ()) == "<p><b>&lt;</b>1&amp;</p>"
    assert together("<", element("i")) == "&lt;<i></i>"


@pytest.mark.parametrize(
    ("attributes", "written"),
    [
        ({"class_": "a", "aria_label": "b"}, ' class="a" aria-label="b"'),
        ({"hidden": True}, " hidden"),
        ({"hidden": False, "id": None}, ""),
        ({"x": 0, "viewBox": "0 0 1 1"}, ' x="0" viewBox="0 0 1 1"'),
        ({"name": "a", "for_": "b"}, ' name="a" for="b"'),
    ],
)
def test_attributes(attributes, written):
    assert element("p", **attributes) == f"<p{written}></p>"


def test_elements_that_hold_nothing_are_not_closed():
    assert element("img", src="data:,") == '<img src="data:,">'


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5))
def test_no_text_ends_the_data(data):
    block = data_block("data", data)
    assert block.count("<") == 2
    assert (
        json.loads(block.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")) == data
    )
