"""The page carries all it needs, asks for nothing, and shows names as text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import product

import numpy as np
import pytest
from PIL import Image
from trained_runs import HOSTILE, image_set, row_set, train_run

from deeplda.errors import InputError
from deeplda.report.comparison import check_comparable, comparison_page, run_names
from deeplda.report.contents import read_contents, read_many, read_record
from deeplda.report.hardest_section import hardest
from deeplda.report.page import run_page
from deeplda.report.sections import class_table, confusion_matrix, sortable_table
from deeplda.report.writing import write_report


class Page(HTMLParser):
    """Tags with their attributes and texts, and the texts of scripts, styles and everything."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.own = [], [], {}
        self.feed(page)
        self.close()
        self.text = " ".join(text for tag, text in self.texts if tag not in ("script", "style"))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append((self.lasttag, data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    images = image_set(home / "<b>it's.npz", HOSTILE)
    train_run(home / "lda", images)
    train_run(home / "cce", images, objective="cce", epochs=1)
    train_run(home / "rows", row_set(home / "rows.npz", ("a", "b", "c")))
    return home


@pytest.fixture(scope="module")
def markup(home):
    return run_page(read_contents(home / "lda"))


@pytest.fixture(scope="module")
def page(markup):
    return Page(markup)


@pytest.fixture(scope="module")
def comparison(home):
    records = [read_record(home / "lda"), read_record(home / "cce")]
    return comparison_page("Both", records, read_many(records, points=40))


@pytest.mark.parametrize("which", ["markup", "comparison"])
def test_nothing_is_fetched(which, request):
    page = Page(request.getfixturevalue(which))
    addresses = [a[name] for _, a in page.tags for name in ("src", "href", "srcset", "action", "data") if name in a]
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    style = "".join(text for tag, text in page.texts if tag == "style")
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("which", ["markup", "comparison"])
def test_the_policy_lets_this_style_and_script_through_and_nothing_else(which, request):
    markup = request.getfixturevalue(which)
    page = Page(markup)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", markup, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert not any("style" in attributes for _, attributes in page.tags)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


@pytest.mark.parametrize("which", ["markup", "comparison"])
def test_hostile_names_are_text(which, request):
    page = Page(request.getfixturevalue(which))
    scripts = page.all("script")
    assert [script.get("type") for script in scripts] == ["application/json", None]
    assert not any(image.get("src") == "x" for image in page.all("img"))
    for name in HOSTILE:
        assert name in page.text
    assert "<b>it's" in page.text


def test_the_data_is_whole(markup):
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', markup, re.S)
    data = json.loads(block)
    assert data["classes"] == list(HOSTILE)
    assert len(data["runs"]) == len(data["samples"]) == 1


def test_the_page_is_ascii_and_the_same_every_time(home, markup):
    assert markup.isascii()
    assert markup == run_page(read_contents(home / "lda"))


def test_what_was_run_and_how_well(home, page):
    contents = read_contents(home / "lda")
    right = int(np.trace(contents.scores["confusion"]))
    for text in (
        f"{right} of 80 right",
        "nearest mean",
        "classic LDA",
        "epochs",
        "--epochs 2 --learning-rate",
        "torch",
    ):
        assert text in page.text
    for found in contents.scores["predictors"].values():
        assert f"{100 * found['balanced_accuracy']:.2f}\u00a0%" in page.text
        assert f"{found['auc']:.4f}" in page.text


def test_rows_of_numbers_have_no_images(home):
    page = Page(run_page(read_contents(home / "rows")))
    assert not page.all("img")
    assert "rows of 15" in page.text


def test_cross_entropy_says_what_its_axes_are(home):
    text = Page(run_page(read_contents(home / "cce"))).text
    assert "those of classic LDA" in text
    assert "Eigenvalues" not in text


def test_a_comparison_has_each_run_once_and_shared_images_once(comparison):
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', comparison, re.S)
    data = json.loads(block)
    assert [run["samples"] for run in data["runs"]] == [0, 0]
    assert len(data["samples"]) == 1
    assert comparison.count('class="scatter"') == 2
    assert "objective cce, epochs 1" in comparison


def test_runs_on_other_classes_are_not_compared(home):
    with pytest.raises(InputError, match="different classes"):
        check_comparable([read_record(home / "lda"), read_record(home / "rows")])


def test_runs_that_differ_in_nothing_are_called_by_their_folder(home):
    record = read_record(home / "lda")
    assert run_names([record, record]) == [str(record.path)] * 2


def test_the_hardest_are_the_surest_mistakes(home):
    contents = read_contents(home / "lda")
    places, mistakes = hardest(contents)
    assert mistakes == (contents.decided != contents.labels).sum() > 0
    assert (contents.decided[places] != contents.labels[places]).all()
    assert (np.diff(contents.probabilities[places]) <= 0).all()


def test_samples_of_a_folder_are_called_by_their_file(tmp_path):
    rng = np.random.default_rng(0)
    for name, i in product(("<i>", "b"), range(20)):
        file = tmp_path / "photos" / name / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(file)
    contents = read_contents(train_run(tmp_path / "run", tmp_path / "photos", epochs=1))
    assert all((tmp_path / "photos" / name).is_file() for name in contents.names)
    shown = [contents.names[i] for i in hardest(contents)[0]]
    assert shown
    assert all(name in Page(run_page(contents)).text for name in shown)


def test_class_figures_are_those_of_scikit_learn():
    from sklearn.metrics import precision_recall_fscore_support

    rng = np.random.default_rng(0)
    labels, decided = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (labels, decided), 1)
    values = [float(text) for text in re.findall(r'data-value="([\d.]+)" class="number"', class_table(counts, "abc"))]
    precision, recall, _, n = precision_recall_fscore_support(labels, decided)
    np.testing.assert_allclose(values, np.stack([n, recall, precision], 1).ravel())


def test_a_class_that_was_never_decided_for_has_no_precision():
    table = class_table(np.array([[3, 0], [2, 0]]), ("a", "b"))
    assert ">none</td>" in table
    assert "a (2)" in table


def test_the_confusion_matrix_of_many_classes_is_drawn():
    names = [f"class {i}" for i in range(30)]
    drawing = confusion_matrix(np.eye(30, dtype=np.int64) * 5, names)
    assert drawing.count("<rect") == 30
    assert "class 29 taken for class 29: 5" in drawing
    assert "<td" in confusion_matrix(np.eye(20, dtype=np.int64), names[:20])


def test_a_table_without_rows():
    assert "<tbody></tbody>" in sortable_table("empty", ["a", "b"], [])


def test_the_report_is_written_beside_the_run(home, markup):
    file = write_report(home / "lda")
    assert file == home / "lda" / "report.html"
    assert file.read_text() == markup
    assert write_report(home / "lda", output=home / "other.html").read_text() == markup
