"""Figures: what they return and show, that they are reproducible, and that colour-blind readers can use them."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from deeplda.report import figures
from deeplda.training.metrics import EpochRow, Scores, SummaryRow
from metric_scores import scores_with

NAMES = ["cat", "dog & wolf", "$5 <bill>", "_underscore"]


def embedding(n=80, d=4, classes=4):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return rng.normal(size=(n, d)) + rng.normal(0, 4, (classes, d))[labels], labels


def images(n, channels=3, side=6):
    return np.random.default_rng(0).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def scores(accuracy, predictors):
    return Scores.model_validate(scores_with(accuracy, **dict.fromkeys(predictors, accuracy)))


def rows(epochs=4, predictors=("hyperplanes", "classic_lda")):
    """Return a run's metrics as the loop writes them."""
    found = [
        EpochRow(epoch=e, loss=-float(e), learning_rate=0.1, validation=scores(0.5 + 0.1 * e, predictors), seconds=1.0)
        for e in range(1, epochs + 1)
    ]
    test = scores(0.875, predictors)
    summary = SummaryRow(
        validation=test, test=test, class_names=["a", "b"], epochs=epochs, best_epoch=epochs, seconds=1.0
    )
    return [*found, summary]


def figure_of(name):
    """Return one figure, with its axes, or the functions that draw each of them."""
    x, y = embedding()
    power = np.arange(1.0, 6), np.arange(1.0, 6) / 10
    made = {
        "densities": lambda: figures.densities(x, y, NAMES, title="A title"),
        "accuracy_against_alpha": lambda: figures.accuracy_against_alpha(
            [0, 0.5, 1], [[0.8, 0.82], [0.9], []], {"cross-entropy": [0.7, 0.72]}, {0: 0.91, 1: 0.92}, title="A title"
        ),
        "eigenvalue_spectrum": lambda: figures.eigenvalue_spectrum(
            [1, 2, 3], [[0.1, 1], [-1e-17, 2], [0.3, 30]], title="A title"
        ),
        "dimension_power": lambda: figures.dimension_power(*power, [*NAMES, "cat"], title="A title"),
        "dimension_power_of_runs": lambda: figures.dimension_power(
            {"alpha 0": power[0], "alpha 1": np.stack([power[0]] * 3)}, {"alpha 0": power[1], "alpha 1": power[1]},
            title="A title",
        ),
        "confusion_matrix": lambda: figures.confusion_matrix(np.diag([3, 4, 5, 0]), NAMES, title="A title"),
        "embedding_plane": lambda: figures.embedding_plane(x[:, :2], y, NAMES, title="A title"),
        "worst_mistakes": lambda: figures.worst_mistakes(
            images(2), ["cat", "dog"], ["dog", "cat"], [0.9, 1], title="A title"
        ),
        "learning_curves": lambda: figures.learning_curves(rows(), title="A title"),
        "reconstructions": lambda: figures.reconstructions(images(3), images(3), title="A title"),
        "subclass_sheet": lambda: figures.subclass_sheet(
            {"cat, 1": images(12, 1), "cat, 2": images(2, 1), "dog, 1": images(0, 1)}, title="A title"
        ),
    }  # fmt: skip
    return made if name is None else made[name]()


ALL = sorted(figure_of(None))


def texts(figure):
    """Return the texts in the SVG of a figure."""
    return said(figures.svg(figure))


def said(svg):
    return {"".join(node.itertext()) for node in ET.fromstring(svg).iter() if node.tag.endswith("}text")}


@cache
def drawn(name):
    """A figure of each kind, its axes and its SVG, drawn once for all tests."""
    figure, axes = figure_of(name)
    return figure, axes, figures.svg(figure)


@pytest.mark.parametrize("name", ALL)
def test_a_figure_and_its_axes_under_their_title(name):
    figure, axes, svg = drawn(name)
    assert type(figure) is Figure
    found = [axes] if isinstance(axes, Axes) else [one for one in axes.flat if one is not None]
    assert found
    assert all(one.figure is figure for one in found)
    assert "A title" in said(svg)
    assert svg.startswith("<svg")


@pytest.mark.parametrize("name", ALL)
def test_readable_at_the_width_of_a_page(name):
    figure, _, _ = drawn(name)
    assert figure.get_figwidth() == pytest.approx(16 / 2.54)
    assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 8


@pytest.mark.parametrize("name", ALL)
def test_the_same_data_gives_the_same_bytes(name):
    figure, _, svg = drawn(name)
    assert figures.svg(figure_of(name)[0]) == svg
    assert figures.svg(figure) == svg


def test_saved_for_the_page_at_150_dots_an_inch(tmp_path):
    name = "confusion_matrix"
    for folder in ("first", "second"):
        png, svg = figures.save(figure_of(name)[0], tmp_path / folder, "matrix")
        assert {file.name for file in (tmp_path / folder).iterdir()} == {"matrix.png", "matrix.svg"}
    assert png.read_bytes() == (tmp_path / "first" / "matrix.png").read_bytes()
    assert svg.read_text().endswith(drawn(name)[2])
    with Image.open(png) as image:
        assert image.width == math.floor(150 * 16 / 2.54)


@pytest.mark.parametrize("name", ["densities", "confusion_matrix", "embedding_plane"])
def test_classes_are_called_by_their_names(name):
    """This includes names with characters that are special in XML, mathtext or legends."""
    assert set(NAMES) <= said(drawn(name)[2])


def test_names_of_classes_do_not_cover_few_samples():
    for samples, shown in ((12, False), (80, True)):
        x, y = embedding(samples)
        _, axes = figures.embedding_plane(x[:, :2], y, NAMES)
        assert {text.get_text() for text in axes.texts} == (set(NAMES) if shown else set())


@pytest.mark.parametrize("classes", [2, 3, 30])
def test_a_confusion_matrix_fills_the_width(classes):
    figure, axes = figures.confusion_matrix(np.eye(classes), [f"class {c}" for c in range(classes)])
    figures.svg(figure)
    assert axes.get_tightbbox().x0 < 0.1 * figure.bbox.width
    assert axes.get_window_extent().width > 0.6 * figure.bbox.width


def test_dimensions_are_called_by_what_they_separate():
    x, y = embedding()
    x[:, 1] = np.random.default_rng(0).normal(size=80) + 20 * (y == 2)
    x[:, 3] = 0.1
    assert {"dimension 2: $5 <bill>", "dimension 4", "the same for every sample"} <= texts(
        figures.densities(x, y, NAMES)[0]
    )
    assert "2: dog & wolf" in texts(figures.dimension_power([1, 2], [0.5, 0.6], NAMES[:2])[0])


def test_the_number_of_dimensions_not_shown_is_stated():
    x, y = embedding(d=15)
    figure, axes = figures.densities(x, y, NAMES)
    assert sum(one is not None for one in axes.flat) == 12
    assert any("3 not shown" in text.get_text() for text in figure.findobj(Text))
    assert not any("not shown" in text for text in said(drawn("densities")[2]))


def test_the_number_of_mistakes_shown_is_stated():
    figure, axes = figures.worst_mistakes(images(30), ["cat"] * 30, ["dog"] * 30, [0.9] * 30)
    assert sum(one is not None for one in axes.flat) == 24
    assert "the first 24 of 30 mistakes" in [text.get_text() for text in figure.findobj(Text)]


def test_nothing_is_left_behind():
    """pyplot, which keeps figures and needs a screen, is not imported, and matplotlib's settings stay as they were."""
    before = dict(matplotlib.rcParams)
    figures.svg(figure_of("densities")[0])
    assert dict(matplotlib.rcParams) == before
    code = "import sys, deeplda.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Data that leads to division by zero in careless code; warnings are errors here.
POOR = {
    "dead dimensions": lambda: figures.densities(np.zeros((9, 3)), np.arange(9) % 3, NAMES[:3]),
    "one sample a class": lambda: figures.densities(embedding(4)[0], np.arange(4), NAMES),
    "one class": lambda: figures.densities(embedding(6)[0], np.zeros(6, int), NAMES[:1]),
    "a class without samples": lambda: figures.densities(embedding(6, classes=3)[0], np.arange(6) % 3, NAMES),
    "one point": lambda: figures.embedding_plane(np.zeros((1, 2)), np.zeros(1, int), NAMES),
    "points in one place": lambda: figures.embedding_plane(np.ones((4, 2)), np.arange(4), NAMES),
    "no mistakes": lambda: figures.worst_mistakes(images(0), [], [], []),
    "nothing predicted": lambda: figures.confusion_matrix(np.zeros((4, 4), int), NAMES),
    "no power": lambda: figures.dimension_power(np.zeros(3), np.zeros(3)),
    "infinite power": lambda: figures.dimension_power(np.array([np.inf, np.inf]), np.ones(2)),
    "infinite power of runs": lambda: figures.dimension_power({"a": np.array([np.inf, 1])}, {"a": np.ones(2)}),
    "one seed": lambda: figures.accuracy_against_alpha([0, 1], [[0.5], [0.5]], {"cce": [0.5]}),
    "no seed": lambda: figures.accuracy_against_alpha([0, 1], [[], []], {"cce": []}),
    "eigenvalues of 0": lambda: figures.eigenvalue_spectrum([1, 2], [[0, 0], [0, 0]]),
    "eigenvalues not finite": lambda: figures.eigenvalue_spectrum([1, 2], [[math.nan, math.inf], [1, 2, 3]]),
    "one eigenvalue": lambda: figures.eigenvalue_spectrum([1], [[3.0]]),
    "no epoch": lambda: figures.eigenvalue_spectrum([], []),
    "no rows": lambda: figures.learning_curves([]),
    "loss not finite": lambda: figures.learning_curves(
        [EpochRow(epoch=1, loss=math.nan, learning_rate=0.1, validation=None, seconds=1.0)]
    ),
    "grey images": lambda: figures.worst_mistakes(images(2, 1), ["cat"] * 2, ["dog"] * 2, [0.5, 1.0]),
    "letters without a font": lambda: figures.confusion_matrix(np.eye(2), ["猫", "犬"]),
}  # fmt: skip


@pytest.mark.parametrize("name", POOR)
def test_poor_data_is_drawn_without_a_warning(name):
    figures.svg(POOR[name]()[0])


def test_panels_of_ours_and_the_published_have_one_scale_and_end_at_100_percent():
    _, (above, below) = figures.accuracy_against_alpha([0, 1], [[0.3], [0.7]], {}, {0: 0.91, 1: 0.92})
    lengths = [high - low for low, high in (above.get_ylim(), below.get_ylim())]
    assert lengths[0] == pytest.approx(lengths[1])
    assert above.get_ylim()[1] <= 1.01
    assert above.get_ylim()[0] < 0.9


def test_learning_curves_show_every_predictor_the_kept_epoch_and_the_test_accuracy():
    assert {"hyperplanes", "classic LDA", "selected epoch", "test: 87.50 %"} <= said(drawn("learning_curves")[2])


def test_no_mistakes_is_said():
    assert "no mistakes" in texts(POOR["no mistakes"]()[0])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.accuracy_against_alpha([0], [[92.1]], {}), "accuracy is 92.1, need 0 to 1"),
        (lambda: figures.accuracy_against_alpha([0], [[0.9]], {}, {0: 91.86}), "accuracy is 91.86"),
        (lambda: figures.dimension_power({"a": np.ones(2)}, np.ones(2)), "only one of fisher and accuracy"),
        (lambda: figures.reconstructions(images(2), images(3)), r"reconstructions has shape \(3, 3, 6, 6\)"),
        (lambda: figures.reconstructions(images(2) / 255, images(2) / 255), "float64, need n x C x H x W and uint8"),
    ],
)
def test_wrong_arguments_are_rejected(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


OKABE_ITO = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"}
# Machado, Oliveira and Fernandes (2009), full deficiency, on linear RGB.
SIGHT = {
    "all cones": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}


def lab(colour, sight):
    """Return a colour as perceived, in CIE L*a*b*, where a distance of about 2 is just noticeable."""
    rgb = np.array(to_rgb(colour))
    linear = np.clip(sight @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(to_xyz @ linear / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_eight_classes_have_the_colours_of_okabe_and_ito():
    assert {style.colour for style in figures.class_styles(8)} == OKABE_ITO


@pytest.mark.parametrize("sight", SIGHT)
def test_everybody_can_distinguish_the_colours_of_ten_classes(sight):
    colours = [lab(style.colour, np.array(SIGHT[sight])) for style in figures.class_styles(10)]
    assert min(np.linalg.norm(a - b) for a, b in combinations(colours, 2)) > 15


def test_beyond_ten_classes_lines_and_markers_tell_colours_apart():
    styles = figures.class_styles(32)
    assert len({(style.colour, str(style.line)) for style in styles}) == 32
    assert len({(style.colour, style.marker) for style in styles}) == 32
    assert styles[:10] == figures.class_styles(10)
