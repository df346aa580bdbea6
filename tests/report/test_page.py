"""The pages are self-contained, fetch nothing, and show names as text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise, product

import numpy as np
import pytest
from PIL import Image
from trained_runs import HOSTILE, image_set, row_set, train_run

from deeplda.formatting import percent
from deeplda.report.analysis import class_scores
from deeplda.report.comparison_page import comparison_page
from deeplda.report.configurations import configurations
from deeplda.report.diagnosis import diagnose
from deeplda.report.page import run_page
from deeplda.report.record import inspect_run, inspect_runs, read_record
from deeplda.training.config import RunConfig
from deeplda.training.run_folder import read_metrics


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


def page_data(page):
    """Return the JSON that the scripts of a page read."""
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(block)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    images = image_set(home / "<b>it's.npz", HOSTILE)
    train_run(home / "lda", images)
    train_run(home / "cce", images, objective="cce", epochs=1)
    train_run(home / "rows", row_set(home / "rows.npz", ("a", "b", "c")))
    return home


def test_scores_on_six_views_stand_beside_the_others(tmp_path):
    images = image_set(tmp_path / "images.npz", ("red", "green"))
    found = Page(run_page(inspect_run(train_run(tmp_path / "run", images, tta="views", epochs=1))))
    assert "hyperplanes, views" in found.text
    assert "mirrored" not in found.text


def test_a_run_without_validation_says_that_probabilities_are_not_calibrated(tmp_path):
    images = image_set(tmp_path / "images.npz", ("red", "green"))
    run = train_run(tmp_path / "run", images, train_on_all=True, epochs=1)
    assert "not calibrated" in Page(run_page(inspect_run(run))).text


@pytest.fixture(scope="module")
def markup(home):
    return run_page(inspect_run(home / "lda"))


@pytest.fixture(scope="module")
def page(markup):
    return Page(markup)


@pytest.fixture(scope="module")
def comparison(home):
    groups = configurations([read_record(home / "lda"), read_record(home / "cce")])
    return comparison_page("Both", groups, inspect_runs([group.runs[0] for group in groups], points=40))


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
    data = page_data(markup)
    assert data["classes"] == list(HOSTILE)
    assert len(data["runs"]) == len(data["samples"]) == 1


def test_the_page_is_ascii_and_the_same_every_time(home, markup):
    assert markup.isascii()
    assert markup == run_page(inspect_run(home / "lda"))


def test_what_was_run_and_how_well(home, page):
    run = inspect_run(home / "lda")
    right = int(np.trace(run.scores.confusion))
    for text in (
        f"{right} of 80 correct",
        "nearest mean",
        "classic LDA",
        "epochs",
        "--epochs 2 --learning-rate",
        "torch",
    ):
        assert text in page.text
    for found in run.scores.predictors.values():
        assert f"{100 * found.balanced_accuracy:.2f} %" in page.text
        assert f"{found.auc:.4f}" in page.text


def test_the_verdict_and_the_mistakes_come_first(page):
    order = [section["id"] for section in page.all("section")]
    assert order == [
        "verdict",
        "hardest",
        "embedding",
        "training",
        "classes",
        "scores",
        "probabilities",
        "dimensions",
        "again",
    ]


@pytest.mark.parametrize("run", ["lda", "cce", "rows"])
def test_the_verdict_is_that_of_the_doctor(home, run):
    text = Page(run_page(inspect_run(home / run))).text
    findings = diagnose(read_metrics(home / run), RunConfig.of(home / run))
    for finding in findings:
        assert finding.what in text
        assert finding.why in text
        assert (finding.do in text) == (finding.severity != "good")


@pytest.mark.parametrize("which", ["markup", "comparison"])
def test_headings_tables_and_pictures_are_accessible(which, request):
    page = Page(request.getfixturevalue(which))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(head["scope"] in ("row", "col") for head in page.all("th"))
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing.get("aria-label") or "aria-hidden" in drawing for drawing in page.all("svg"))
    assert len({attributes["id"] for _, attributes in page.tags if "id" in attributes}) == len(
        [1 for _, attributes in page.tags if "id" in attributes]
    )


def test_a_sweep_shows_mean_and_spread_over_the_seeds(home, tmp_path):
    images = home / "<b>it's.npz"
    folders = [train_run(tmp_path / f"{name}{seed}", images, objective=name, seed=seed, epochs=1)
               for name in ("lda", "cce") for seed in (0, 1)]  # fmt: skip
    groups = configurations([read_record(folder) for folder in folders])
    markup = comparison_page("Sweep", groups, inspect_runs([group.runs[0] for group in groups], points=40))
    text = Page(markup).text
    for group in groups:
        accuracies = [100 * run.scores.accuracy for run in group.runs]
        assert f"{np.mean(accuracies):.2f} ± {np.std(accuracies, ddof=1):.2f} %" in text
    assert markup.count('class="strip"') == markup.count('class="scatter"') == len(groups) == 2
    assert all(folder.name in text for folder in folders)


def test_a_comparison_without_repeated_runs_has_no_spread(comparison):
    assert 'id="configurations"' not in comparison


def test_rows_of_numbers_have_no_images(home):
    page = Page(run_page(inspect_run(home / "rows")))
    assert not page.all("img")
    assert "feature vectors of size 15" in page.text


def test_cross_entropy_says_what_its_axes_are(home):
    text = Page(run_page(inspect_run(home / "cce"))).text
    assert "come from classic LDA" in text
    assert "Eigenvalues" not in text


def test_a_comparison_has_each_run_once_and_shared_images_once(comparison):
    data = page_data(comparison)
    assert [run["samples"] for run in data["runs"]] == [0, 0]
    assert len(data["samples"]) == 1
    assert comparison.count('class="scatter"') == 2
    assert "objective cce, epochs 1" in comparison


def test_runs_with_different_classes_are_compared_class_by_class(tmp_path):
    names = {"one": ("a", "b", "c"), "two": ("d", "c", "b")}
    for run, classes in names.items():
        train_run(tmp_path / run, row_set(tmp_path / f"{run}.npz", classes))
    groups = configurations([read_record(tmp_path / run) for run in names])
    drawn = inspect_runs([group.runs[0] for group in groups], points=40)
    page = comparison_page("Both", groups, drawn)
    data = page_data(page)
    assert sorted(data["classes"]) == ["a", "b", "c", "d"]
    for run, packed in zip(drawn, data["runs"], strict=True):
        for kind in ("labels", "decided"):
            shown = np.frombuffer(base64.b64decode(packed[kind]), "<u2")
            assert [data["classes"][c] for c in shown] == [run.class_names[c] for c in getattr(run, kind)]
    assert "do not compare their accuracies" in Page(page).text
    (table,) = re.findall(r'<section id="classes".*?<tbody>(.*?)</tbody>', page, re.S)
    shown = [
        [re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in table.split("<tr>")
    ]
    recalls = {name: row for name, *row in filter(None, shown)}
    assert recalls.keys() == {"a", "b", "c", "d"}
    for place, group in enumerate(groups):
        (run,) = group.runs
        known = {
            name: percent(scores.recall, 1)
            for name, scores in zip(run.class_names, class_scores(run.scores.confusion), strict=True)
        }
        assert {name: row[place] for name, row in recalls.items()} == dict.fromkeys(recalls, "none") | known


def photo_folder(folder):
    """Write two classes of noise as PNG files, and return their folder."""
    rng = np.random.default_rng(0)
    for name, i in product(("<i>", "b"), range(20)):
        file = folder / name / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(file)
    return folder


def test_skipped_files_are_listed(tmp_path):
    photos = photo_folder(tmp_path / "photos")
    broken = [f"b/{i:02} <cut>.png" for i in range(22)]
    for name in broken:
        (photos / name).write_bytes(b"not an image")
    run = inspect_run(train_run(tmp_path / "run", photos, epochs=1, skip_unreadable=True))
    page = Page(run_page(run))
    assert run.left_out == tuple(broken)
    assert "22 files could not be read" in page.text
    assert [text for tag, text in page.texts if tag == "li" and text in broken] == broken
    assert "2 more" in page.text
    assert str(photos / broken[0]) not in page.text


def test_without_skipped_files_there_is_no_list(page):
    assert "could not be read" not in page.text


def test_samples_of_a_folder_are_called_by_their_file(tmp_path):
    run = inspect_run(train_run(tmp_path / "run", photo_folder(tmp_path / "photos"), epochs=1))
    assert all((tmp_path / "photos" / name).is_file() for name in run.names)
    shown = [run.names[i] for i in run.hardest(24)[0]]
    assert shown
    assert all(name in Page(run_page(run)).text for name in shown)
