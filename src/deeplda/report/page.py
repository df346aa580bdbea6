"""The report page for one run: the verdict and the mistakes first, the settings last."""

from __future__ import annotations

from deeplda.formatting import counted
from deeplda.report import plot_data, wording
from deeplda.report.components import definitions, folded_list, header, section
from deeplda.report.embedding_section import embedding, outputs
from deeplda.report.markup import Html, document, element
from deeplda.report.mistake_section import mistakes
from deeplda.report.record import InspectedRun
from deeplda.report.reliability import probability_section
from deeplda.report.score_sections import classes, scores
from deeplda.report.training_section import training
from deeplda.report.verdict_section import verdict

# With more skipped files than this, the others are folded away.
_MOST_FILES = 20


def run_page(run: InspectedRun) -> str:
    """Return the report on one run as HTML. The same run always gives the same page, byte for byte."""
    name, objective = wording.data_name(run.config), wording.objective_name(run.config)
    data = {
        "classes": list(run.class_names),
        "runs": [plot_data.pack_points(run)],
        "samples": [plot_data.pack_samples(run)],
        "densities": plot_data.pack_densities(run),
    }
    return document(
        f"{name}: {objective}",
        data,
        header(name, objective[0].upper() + objective[1:], element("p", _what(run), class_="lead")),
        element("p", " ".join(f"{note[0].upper()}{note[1:]}." for note in run.notes)) if run.rescored else (),
        verdict(run),
        mistakes(run),
        embedding(run),
        training(run),
        classes(run),
        scores(run),
        probability_section(run),
        outputs(run),
        _skipped(run.left_out) if run.left_out else (),
        _repeat(run),
    )


def _what(run: InspectedRun) -> str:
    """Describe the network and the data in a sentence."""
    card = run.card
    kind = f"{'images' if run.images else 'feature vectors'} of size {' x '.join(map(str, card.sample_shape))}"
    if card.table is not None:
        kind = f"rows of {counted(len(card.table.columns), 'column')}, encoded as {card.sample_shape[0]} numbers"
    sizes = ", ".join(f"{n:,} {part}" for part, n in run.sizes.items())
    return (
        f"{card.network} with {counted(card.embedding_dim, 'output')}; {len(run.class_names)} classes; "
        f"{kind} ({sizes})."
    )


def _skipped(files: tuple[str, ...]) -> Html:
    """Return the list of files that could not be read."""
    them = "it" if len(files) == 1 else "them"
    lead = f"{counted(len(files), 'file')} could not be read, so the model was neither trained nor tested on {them}."
    items = [element("li", file) for file in files]
    return section("skipped", "Skipped files", lead, folded_list(items, _MOST_FILES, "files"))


def _repeat(run: InspectedRun) -> Html:
    chosen = {
        name.replace("_", " "): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in wording.chosen_settings(run.config).items()
    }
    lists = {
        "Settings that differ from the defaults": chosen,
        "Environment": wording.environment_table(run.environment),
    }
    columns = [element("div", element("h3", title), definitions(pairs)) for title, pairs in lists.items()]
    settings = element("summary", "All settings (run.toml)"), element("pre", run.config.to_toml(), tabindex=0)
    return section(
        "again",
        "Repeat this run",
        "With the same data, this command reproduces the run:",
        element("pre", element("code", wording.command(run.config, run.path)), class_="command", tabindex=0),
        element("div", columns, class_="columns"),
        element("details", settings),
    )
