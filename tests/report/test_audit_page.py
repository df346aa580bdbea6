"""The page of an audit: all samples once, text escaped, nothing from elsewhere."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from trained_runs import HOSTILE, image_set, train_run

from deeplda.report.audit_page import audit_page
from deeplda.report.audited_run import COLUMNS, audit_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("hostile")
    return audit_run(train_run(home / "run", image_set(home / "images.npz", HOSTILE), label_noise=0.2))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(page):
    parser = Tags()
    parser.feed(page)
    return parser.found


def test_the_estimate_and_the_notes_stand_at_the_top(run):
    page = audit_page(replace(run, notes=("the model is <weak>", "a file is missing")))
    top = page.partition("<body>")[2].partition("accept")[0]
    assert run.estimate.startswith("about ")
    assert run.estimate.replace("about", "About") in top
    assert "Note: the model is &lt;weak&gt;." in top
    assert "Note: a file is missing." in top


def test_a_card_for_each_suspect_with_its_image(run):
    found = tags(audit_page(run))
    cards = [attributes["data-row"] for tag, attributes in found if tag == "li" and "data-row" in attributes]
    suspects = [str(place) for place in run.audit.suspects]
    assert suspects
    assert cards[: len(suspects)] == suspects
    images = [attributes["src"] for tag, attributes in found if tag == "img"]
    assert len(images) == len(cards)
    assert all(source.startswith("data:image/") for source in images)


def test_markup_in_names_has_no_effect_and_nothing_is_requested(run):
    page = audit_page(run)
    page.encode("ascii")
    assert [tag for tag, _ in tags(page)].count("script") == 2
    assert "<script>alert" not in page
    policy = next(
        attributes["content"] for tag, attributes in tags(page) if tag == "meta" and "http-equiv" in attributes
    )
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert not re.search(r"(src|href)=\"(?!data:)", page)


def test_the_lines_for_the_script_are_those_of_the_csv_file(run):
    page = audit_page(run)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    for place, line in data["rows"].items():
        (row,) = csv.DictReader(io.StringIO(f"{data['header']}\n{line},accepted\n"))
        assert tuple(row) == COLUMNS
        assert row["decision"] == "accepted"
        assert row["sample"] == run.names[int(place)]
        assert row["given"] == run.audit.given[int(place)]


def test_the_same_run_gives_the_same_page(run):
    assert audit_page(run) == audit_page(run)
