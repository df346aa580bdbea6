"""The page of a run: what was run, how well it does, and its embedding to look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplda.report import payload, words
from deeplda.report.contents import Floats, RunContents
from deeplda.report.document import document
from deeplda.report.elements import Html, element
from deeplda.report.hardest_section import hardest_section
from deeplda.report.sections import (
    class_table,
    confusion_matrix,
    definitions,
    key_figure,
    legend,
    plot_controls,
    scatter,
    scrolling,
    section,
)
from deeplda.report.training_section import training_section


def run_page(contents: RunContents) -> str:
    """The report of one run, as HTML. The same run gives the same page, byte for byte."""
    name, how = words.data_name(contents.config), words.objective(contents.config)
    body = element(
        "main",
        _header(contents, name, how),
        _embedding(contents),
        _dimensions(contents),
        training_section(contents),
        _classes(contents),
        hardest_section(contents),
        _again(contents),
    )
    data = {
        "classes": list(contents.class_names),
        "runs": [payload.points(contents) | {"samples": 0}],
        "samples": [payload.samples(contents)],
        "densities": payload.densities(contents),
    }
    return document(f"{name}: {how}", body, data)


def _header(contents: RunContents, name: str, how: str) -> Html:
    summary, scores, card = contents.summary, contents.scores, contents.card
    right = int(np.trace(scores["confusion"]))
    low, high = words.wilson_interval(right, scores["n"])
    interval = f"{right:,} of {scores['n']:,} right; 95\u00a0% interval {100 * low:.1f} to {100 * high:.1f}\u00a0%"
    balanced = scores["predictors"][card.predictors[0]]["balanced_accuracy"]
    figures = [
        key_figure("test accuracy", words.percent(scores["accuracy"]), interval),
        key_figure("balanced accuracy", words.percent(balanced), "mean recall of the classes"),
        key_figure("epoch kept", f"{summary['best_epoch']}", words.kept_epoch(summary)),
        key_figure("time", words.duration(summary["seconds"]), words.effort(summary, contents.environment)),
    ]
    shape = " x ".join(map(str, card.sample_shape))
    sizes = ", ".join(f"{n:,} for {part}" for part, n in contents.sizes.items())
    what = (
        f"{card.network} with {card.embedding_dim} outputs, {len(contents.class_names)} classes, "
        f"{'images' if contents.images else 'rows'} of {shape}: {sizes}."
    )
    return element(
        "header",
        element("p", "deeplda report", class_="overline"),
        element("h1", name),
        element("p", how[0].upper() + how[1:], class_="subtitle"),
        element("dl", figures, class_="figures"),
        element("p", what, class_="lead"),
        _predictors(scores["predictors"], summary.get("mirrored", {}).get("test")),
    )


def _predictors(plain: dict[str, Any], mirrored: dict[str, Any] | None) -> Html | tuple[()]:
    """How each predictor does, with mirror images too where they were asked for; the first decides."""
    kinds = [plain, mirrored["predictors"]] if mirrored else [plain]
    if len(plain) == len(kinds) == 1:
        return ()
    columns = ["predictor", "accuracy", "balanced", "AUC", *(["mirrored", "balanced", "AUC"] if mirrored else [])]
    head = [element("th", text, scope="col") for text in columns]
    rows = [
        element(
            "tr",
            element(
                "th", words.PREDICTORS[name], element("span", " decides", class_="hint") if not i else (), scope="row"
            ),
            [element("td", cell) for kind in kinds for cell in words.score_cells(kind[name])],
        )
        for i, name in enumerate(plain)
    ]
    table = element("table", element("thead", element("tr", head)), element("tbody", rows), class_="predictors")
    return scrolling("Scores of the predictors", table)


def _embedding(contents: RunContents) -> Html:
    whole, shown = contents.sizes["test"], len(contents.labels)
    sample = f"{shown:,} of the {whole:,} test samples, each class in its share, are shown. "
    lead = (
        f"Each point is a test sample. {words.axes(contents.card)} {sample if shown < whole else ''}"
        "Point at one to see it, or focus the plot and use the arrow keys."
    )
    controls = plot_controls(contents.axes[: payload.MOST_AXES])
    return section("embedding", "Embedding", lead, controls, legend(contents.class_names), scatter(0))


def _dimensions(contents: RunContents) -> Html:
    every = contents.embedding.shape[1]
    count = min(every, payload.MOST_DIMENSIONS)
    lead = (
        "How each class is spread along one output of the network: where curves stand apart, this output alone tells "
        "the classes apart. The bars are the accuracy from each output alone; the dashed line is guessing."
    )
    notes = [
        f"Fisher ratio {ratio:.3g}, accuracy from this output alone {words.percent(accuracy)}"
        for ratio, accuracy in zip(contents.fisher_ratios[:count], contents.single_accuracies[:count], strict=True)
    ]
    label = element("label", "output ", element("output", 1, for_="dimension"), f" of {every}", for_="dimension")
    slider = element(
        "input", type="range", id="dimension", min=1, max=count, value=1, aria_describedby="dimension-figures"
    )
    bars = _power_bars(contents.single_accuracies[:count], 1 / len(contents.class_names))
    return section(
        "dimensions",
        "One output at a time",
        lead,
        legend(contents.class_names),
        element(
            "figure",
            element("svg", class_="densities", viewBox="0 0 720 300", role="img", aria_label="Class densities"),
            element("div", bars, slider, class_="slider"),
            label,
            element("p", notes[0], id="dimension-figures", class_="status", aria_live="polite"),
        ),
        element("ol", [element("li", note) for note in notes], id="dimension-notes", hidden=True),
    )


def _power_bars(accuracies: Floats, chance: float) -> Html:
    """A bar for each output dimension, as high as the accuracy from it alone."""
    heights = np.nan_to_num(accuracies)
    shares = heights / max(heights.max(), chance)
    bars = [
        element("rect", x=f"{i + 0.15:g}", width=0.7, y=f"{1 - share:.4f}", height=f"{share:.4f}")
        for i, share in enumerate(shares)
    ]
    level = f"{1 - chance / max(heights.max(), chance):.4f}"
    guess = element("line", x1=0, x2=len(bars), y1=level, y2=level, class_="chance")
    box = f"0 0 {len(bars)} 1"
    return element("svg", bars, guess, class_="bars", viewBox=box, preserveAspectRatio="none", aria_hidden="true")


def _classes(contents: RunContents) -> Html:
    confusion, names = np.asarray(contents.scores["confusion"]), contents.class_names
    lead = (
        f"All {contents.scores['n']:,} test samples, as decided by "
        f"{words.PREDICTORS[contents.card.predictors[0]]}. Recall: the share of a class that was found. Precision: the "
        "share that is right among what was taken for it."
    )
    heading = element("h3", "Confusion matrix")
    return section(
        "classes", "Classes", lead, class_table(confusion, names), heading, confusion_matrix(confusion, names)
    )


def _again(contents: RunContents) -> Html:
    chosen = [(name.replace("_", " "), str(value)) for name, value in words.chosen_settings(contents.config).items()]
    surroundings = words.surroundings(contents.environment).items()
    return section(
        "again",
        "Run it again",
        "The same settings on the same data give the same run:",
        element("pre", element("code", words.command(contents.config)), class_="command", tabindex=0),
        element(
            "div",
            element("div", element("h3", "Settings that differ from the defaults"), definitions(chosen)),
            element("div", element("h3", "Environment"), definitions(surroundings)),
            class_="columns",
        ),
        element(
            "details",
            element("summary", "All settings (run.toml)"),
            element("pre", contents.config.to_toml(), tabindex=0),
        ),
    )
