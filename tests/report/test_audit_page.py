"""The page of an audit: all samples once, text escaped, nothing from elsewhere."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
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
    assert run.estimate in top
    assert "Note: the model is &lt;weak&gt;." in top
    assert "Note: a file is missing." in top


def test_a_card_for_each_suspect_with_its_image(run):
    run = replace(run, audit=replace(run.audit, mistakes=60))
    found = tags(audit_page(run))
    cards = [attributes["data-row"] for tag, attributes in found if tag == "li" and "data-row" in attributes]
    suspects = [str(place) for place in run.order[:90]]
    assert cards[: len(suspects)] == suspects
    images = [attributes["src"] for tag, attributes in found if tag == "img"]
    assert len(images) == len(cards)
    assert all(source.startswith("data:image/") for source in images)


def cards_of(page, section):
    """Return the cards of a section, as HTML, by the index of the sample."""
    inside = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
    return {int(card.partition('"')[0]): card for card in inside.split('<li data-row="')[1:]}


def test_the_page_has_at_least_40_samples_with_their_ranks(run):
    few = replace(run, audit=replace(run.audit, mistakes=3))
    cards = cards_of(audit_page(few), "suspects")
    assert list(cards) == run.order[:40]
    for rank, card in enumerate(cards.values(), 1):
        assert f"rank {rank}<" in card
        assert "margin" not in card
    # A sample with a confirmed label is not suggested again.
    confirmed = np.ones_like(run.confirmed)
    confirmed[run.order[7]] = False
    assert list(cards_of(audit_page(replace(few, confirmed=confirmed)), "suspects")) == [run.order[7]]


def test_samples_of_the_test_set_are_marked(run):
    cards = cards_of(audit_page(run), "suspects")
    marked = {place for place, card in cards.items() if "test set: correct it in your data" in card}
    assert marked == {place for place in cards if run.parts[place] == "test"}
    assert 0 < len(marked) < len(cards)


def test_outliers_have_a_distance_and_a_suggestion_only_if_it_fits_better(run):
    distances, margins = run.audit.distances.copy(), run.audit.margins.copy()
    distances[[5, 6]], margins[[5, 6]] = [900.0, 800.0], [0.5, -0.5]
    cards = cards_of(
        audit_page(replace(run, audit=replace(run.audit, distances=distances, margins=margins))), "outliers"
    )
    assert "distance 900.0" in cards[5]
    assert "\N{RIGHTWARDS ARROW}" not in html.unescape(cards[5])
    assert 'data-decision="accepted"' not in cards[5]
    assert 'data-decision="dropped"' in cards[5]
    assert "\N{RIGHTWARDS ARROW}" in html.unescape(cards[6])
    assert 'data-decision="accepted"' in cards[6]


def test_the_page_shows_the_command_with_its_own_file(run):
    page = html.unescape(audit_page(run))
    assert f"{run.command}</code>" in page
    assert run.command.endswith("--relabel decisions-run.csv")
    assert "Download decisions-run.csv" in page


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
