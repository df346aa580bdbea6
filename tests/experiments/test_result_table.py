"""Tables of results next to the paper's."""

import csv
import io
import json

import pytest
from scipy.stats import ttest_rel

from deeplda.errors import InputError
from deeplda.experiments.result_table import format_table, result_table
from deeplda.experiments.results import read_results
from deeplda.experiments.sweep_definition import SweepDefinition
from metric_scores import scores_with

LDA = ("hyperplanes", "nearest_mean", "classic_lda")


def finish(sweep, name, validation, test):
    """A finished run of a trial, as its folder shows it; the three predictors differ by a point each."""
    definition = SweepDefinition.read(sweep / "sweep.toml")
    config = definition.config(definition.trials()[name])
    run = sweep / "trials" / name
    (run / "model").mkdir(parents=True)
    (run / "model" / "model.json").write_text("{}")
    (run / "run.toml").write_text(config.to_toml())
    predictors = {"cce": ("softmax",), "gce": ("softmax",), "joint": ("softmax", *LDA)}.get(config.objective, LDA)
    parts = {
        part: scores_with(best, **{predictor: best - place / 100 for place, predictor in enumerate(predictors)})
        for part, best in (("validation", validation), ("test", test))
    }
    row = {"kind": "summary", "epochs": 1, "best_epoch": 1, "seconds": 1.0, "class_names": ["a", "b"], **parts}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def start(folder, **definition):
    folder.mkdir()
    SweepDefinition(**definition).write(folder / "sweep.toml")
    return folder


@pytest.fixture
def quick(tmp_path):
    """CIFAR-10 at quick scale; by test accuracy alpha 0 is best, by validation alpha 0.6."""
    sweep = start(
        tmp_path / "table2-quick",
        table="cifar10",
        scale="quick",
        settings={"data": "cifar10", "epochs": 4},
        grid={"objective": ["rdlda", "cce"], "alpha": [0.0, 0.6, 1.0], "seed": [0, 1, 2]},
    )
    for seed in range(3):
        spread = seed / 1000
        finish(sweep, f"rdlda-alpha0-seed{seed}", 0.80 + spread, 0.90 + 2 * spread)
        finish(sweep, f"rdlda-alpha0.6-seed{seed}", 0.85 + spread, 0.84 + spread * (-1) ** seed)
        finish(sweep, f"rdlda-alpha1-seed{seed}", 0.82 + spread, 0.84 + spread)
        finish(sweep, f"cce-seed{seed}", 0.86 + spread, 0.88 + 1.5 * spread)
    return sweep


def rows(sweep):
    return {row.group.label: row for row in result_table(read_results(sweep)).rows}


def test_means_spreads_and_the_papers_numbers(quick):
    found = rows(quick)
    assert list(found) == ["RDLDA alpha=0", "RDLDA alpha=0.6", "DLDA (alpha=1)", "cross-entropy"]
    row = found["RDLDA alpha=0"]
    assert row.test["hyperplanes"].mean == pytest.approx(0.902)
    assert row.test["hyperplanes"].std == pytest.approx(0.002)
    assert row.test["classic_lda"].mean == pytest.approx(0.882)
    assert row.test["hyperplanes"].n == 3
    assert row.paper == pytest.approx({"hyperplanes": 0.9186, "nearest_mean": 0.9187, "classic_lda": 0.9184})
    assert found["cross-entropy"].paper == {"softmax": pytest.approx(0.9094)}
    assert found["DLDA (alpha=1)"].paper["hyperplanes"] == pytest.approx(0.9112)


def test_validation_chooses_the_alpha_and_test_does_not(quick):
    assert [label for label, row in rows(quick).items() if row.chosen] == ["RDLDA alpha=0.6"]


def test_comparisons_with_dlda_and_cross_entropy(quick):
    found = rows(quick)
    verdicts = {
        label: {name: found.found.verdict for name, found in row.against.items()} for label, row in found.items()
    }
    assert verdicts == {
        "RDLDA alpha=0": {"dlda": "better", "cce": "better"},
        "RDLDA alpha=0.6": {"dlda": "no significant difference", "cce": "worse"},
        "DLDA (alpha=1)": {"cce": "worse"},
        "cross-entropy": {},
    }
    assert "RDLDA alpha=0 is better than DLDA (alpha=1) over 3 seeds" in found["RDLDA alpha=0"].sentences[0]


def test_a_row_with_fewer_seeds_is_not_chosen(tmp_path):
    sweep = start(tmp_path / "s", grid={"objective": ["rdlda"], "alpha": [0.0, 1.0], "seed": [0, 1]})
    finish(sweep, "rdlda-alpha0-seed0", 0.99, 0.9)
    for seed in (0, 1):
        finish(sweep, f"rdlda-alpha1-seed{seed}", 0.5, 0.5)
    table = result_table(read_results(sweep))
    assert [row.chosen for row in table.rows] == [False, True]
    assert table.notes[0].startswith("* the best of the LDA objectives by validation accuracy")
    assert any(note.startswith("1 of 4 trials have no result here") for note in table.notes)
    assert "only common seed" in table.rows[0].sentences[0]
    assert table.rows[0].test["hyperplanes"].std is None
    assert table.rows[0].paper == {}


def test_subclasses_are_compared_with_the_same_number_and_with_none(tmp_path):
    sweep = start(
        tmp_path / "s",
        table="subclasses",
        scale="changed",
        settings={"data": "cifar10"},
        grid={"objective": ["rdlda", "cce"], "subclasses": [1, 2], "alpha": [0.7, 1.0], "seed": [0, 1]},
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        value = 0.5 + 0.1 * ("subclasses2" in name) + 0.01 * ("alpha0.7" in name) + 0.001 * ("seed1" in name)
        finish(sweep, name, value, value + 1e-4 * (name == "rdlda-subclasses2-alpha1-seed1"))
    found = rows(sweep)
    assert found["RDLDA alpha=0.7, k=2"].paper == {"hyperplanes": pytest.approx(0.9287)}
    against = found["RDLDA alpha=0.7, k=2"].against
    assert against["dlda"].found.mean == pytest.approx(0.01, abs=1e-4)
    assert against["unsplit"].found.mean == pytest.approx(0.1)
    assert [baseline.label for baseline in against.values()] == [
        "DLDA (alpha=1), k=2",
        "cross-entropy",
        "RDLDA alpha=0.7",
    ]
    assert set(found["RDLDA alpha=0.7"].against) == {"dlda", "cce"}
    assert set(found["DLDA (alpha=1), k=2"].against) == {"cce", "unsplit"}


def test_a_search_has_a_row_for_each_trial(tmp_path):
    sweep = start(tmp_path / "s", search={"trials": 2})
    finish(sweep, "search-000", 0.5, 0.5)
    (row,) = result_table(read_results(sweep)).rows
    assert row.group.label == "LDA wilks, lam=0.001, learning_rate=0.03"


@pytest.mark.parametrize("style", ["text", "markdown", "json", "csv"])
def test_quick_sweeps_are_marked_in_every_format(quick, style):
    assert "quick" in format_table(result_table(read_results(quick)), style).lower()


def test_text(quick):
    lines = format_table(result_table(read_results(quick)), "text").splitlines()
    assert lines[0] == "the paper's Table 3, cifar10: test accuracy in %, QUICK SCALE"
    assert lines[2].split("  ")[0] == "setting"
    (row,) = (line for line in lines if line.startswith("RDLDA alpha=0.6 *"))
    assert row.split()[3:] == ["3", "85.10", "±", "0.10", "84.03", "±", "0.15", "92.29", *row.split()[11:]]
    assert row.endswith("92.20")
    assert any(
        "the paper used DorferNet, batches of 1000, 400 epochs" in line and "QUICK SCALE" in line for line in lines
    )
    assert any(line.startswith("each of the 5 intervals") for line in lines)


def test_markdown(quick):
    lines = format_table(result_table(read_results(quick)), "markdown").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 6
    assert "| RDLDA alpha=0 | 3 | 80.10 ± 0.10 | **90.20 ± 0.20** | 91.86 |" in table[2]
    assert any(line.startswith("- RDLDA alpha=0 is better than DLDA") for line in lines)


def test_csv(quick):
    found = list(csv.DictReader(io.StringIO(format_table(result_table(read_results(quick)), "csv"))))
    assert len(found) == 3 * 3 + 1
    first = found[0]
    assert (first["setting"], first["predictor"], first["seeds"], first["scale"]) == (
        "RDLDA alpha=0", "hyperplanes", "3", "quick",
    )  # fmt: skip
    assert float(first["test_percent"]) == pytest.approx(90.2)
    assert float(first["paper_percent"]) == pytest.approx(91.86)
    assert first["dlda_verdict"] == "better"
    assert float(first["dlda_low"]) < float(first["dlda_mean"]) < float(first["dlda_high"])
    assert [row["chosen"] for row in found] == ["no"] * 3 + ["yes"] * 3 + ["no"] * 4


def test_json(quick):
    found = json.loads(format_table(result_table(read_results(quick)), "json"))
    assert found["scale"] == "quick"
    first = found["rows"][0]
    assert first["test"]["hyperplanes"]["paper"] == pytest.approx(0.9186)
    assert first["against"]["cce"]["verdict"] == "better"
    assert first["seeds"] == [0, 1, 2]
    assert [row["chosen"] for row in found["rows"]] == [False, True, False, False]


@pytest.mark.parametrize(
    ("scale", "words"),
    [("full", "these runs use the paper's settings"), ("changed", "CHANGED SETTINGS"), (None, "different settings")],
)
def test_a_note_says_how_to_read_the_papers_numbers(tmp_path, scale, words):
    sweep = start(
        tmp_path / "s",
        table="stl10" if scale else None,
        scale=scale,
        settings={"data": "stl10", "objective": "rdlda"},
        grid={"alpha": [0.2]},
    )
    finish(sweep, "rdlda-alpha0.2-seed0", 0.5, 0.5)
    notes = result_table(read_results(sweep)).notes
    assert any(words in note and "81.16 % with batches of 200" in note for note in notes)


def test_folders_without_a_sweep_or_results_are_rejected(tmp_path):
    with pytest.raises(InputError, match="is not a sweep"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="no finished trial"):
        read_results(start(tmp_path / "s", grid={"alpha": [0.0]}))


def test_objectives_each_at_its_own_best_setting_are_compared(tmp_path):
    sweep = start(
        tmp_path / "s",
        grid=[
            {"statistic": ["pillai"], "learning_rate": [5.0], "seed": [0, 1]},
            {"objective": ["dlda"], "learning_rate": [1.5], "seed": [0, 1]},
            {"objective": ["cce"], "learning_rate": [0.5], "seed": [0, 1]},
        ],
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        value = 0.5 + 0.1 * ("pillai" in name) + 0.2 * ("cce" in name) + 0.001 * ("seed1" in name)
        finish(sweep, name, value, value)
    pillai, smallest, cross_entropy = result_table(read_results(sweep)).rows
    assert {name: round(100 * found.found.mean) for name, found in pillai.against.items()} == {
        "cce": -10,
        "smallest": 10,
    }
    assert pillai.against["smallest"].label == "DLDA (alpha=1), learning_rate=1.5"
    assert set(smallest.against) == {"cce"}
    assert cross_entropy.against == {}


def test_the_baseline_has_the_same_values_of_the_axes(tmp_path):
    axes = {"statistic": ["pillai", "smallest"], "learning_rate": [0.1, 0.2]}
    sweep = start(tmp_path / "s", grid={"objective": ["lda", "cce"], **axes, "seed": [0]})
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        finish(sweep, name, 0.5, 0.6 if "learning_rate0.1" in name else 0.7)
    for row in result_table(read_results(sweep)).rows:
        labels = [found.label for found in row.against.values()]
        assert all(f"learning_rate={row.group.other['learning_rate']:g}" in label for label in labels)
        assert set(row.against) == {"cce": set(), "dlda": {"cce"}, "lda": {"cce", "smallest"}}[row.group.objective]


def test_a_baseline_that_shares_an_axis_is_preferred(tmp_path):
    sweep = start(
        tmp_path / "s",
        settings={"statistic": "pillai"},
        grid=[
            {"objective": ["cce"], "label_smoothing": [0.2], "seed": [0]},
            {"objective": ["rdlda", "cce"], "learning_rate": [0.5, 5.0], "seed": [0]},
        ],
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        finish(sweep, name, 0.5, 0.5)
    found = rows(sweep)
    for rate in ("0.5", "5"):
        assert found[f"LDA pillai alpha=0.6, learning_rate={rate}"].against["cce"].label == (
            f"cross-entropy, learning_rate={rate}"
        )


def test_the_note_on_the_paper_follows_the_data(tmp_path):
    sweep = start(
        tmp_path / "s",
        table="cifar10",
        settings={"data": "stl10"},
        grid={"objective": ["rdlda"], "alpha": [0.2], "seed": [0]},
    )
    finish(sweep, "rdlda-alpha0.2-seed0", 0.5, 0.5)
    assert any("150" in note for note in result_table(read_results(sweep)).notes)


@pytest.mark.parametrize(("tta", "name"), [("mirror", "mirrored"), ("views", "views")])
def test_scores_with_augmentation_have_columns_of_their_own(tmp_path, tta, name):
    sweep = start(tmp_path / "s", settings={"tta": tta}, grid={"objective": ["rdlda"], "alpha": [0.5], "seed": [0]})
    finish(sweep, "rdlda-alpha0.5-seed0", 0.5, 0.7)
    file = sweep / "trials" / "rdlda-alpha0.5-seed0" / "metrics.jsonl"
    row = json.loads(file.read_text())
    better = scores_with(0.75, **dict.fromkeys(LDA, 0.75))
    row[name] = {"validation": row["validation"], "test": better}
    file.write_text(json.dumps(row) + "\n")
    text = format_table(result_table(read_results(sweep)), "csv")
    found = {line["predictor"]: line["test_percent"] for line in csv.DictReader(io.StringIO(text))}
    assert found["hyperplanes"] == "70.0000"
    assert found[f"hyperplanes {name}"] == "75.0000"


def test_objectives_are_labelled_by_what_was_optimised(tmp_path):
    """The paper's numbers belong to its statistic, whatever the objective was called."""
    sweep = start(
        tmp_path / "s",
        settings={"data": "cifar10"},
        grid={"objective": ["lda", "rdlda"], "statistic": ["smallest", "wilks"], "alpha": [0.6, 1.0], "seed": [0]},
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        finish(sweep, name, 0.5, 0.5)
    found = rows(sweep)
    assert {label: row.group.objective for label, row in found.items()} == {
        "RDLDA alpha=0.6": "rdlda", "DLDA (alpha=1)": "dlda", "LDA wilks alpha=0.6": "lda", "LDA wilks": "lda",
    }  # fmt: skip
    assert found["RDLDA alpha=0.6"].paper["hyperplanes"] == pytest.approx(0.9229)
    assert found["DLDA (alpha=1)"].paper["hyperplanes"] == pytest.approx(0.9112)
    assert found["LDA wilks alpha=0.6"].paper == found["LDA wilks"].paper == {}
    baselines = {name: found.label for name, found in found["LDA wilks alpha=0.6"].against.items()}
    assert baselines == {"dlda": "LDA wilks", "smallest": "RDLDA alpha=0.6"}


def test_joint_and_gce_have_rows_of_their_own(tmp_path):
    """They are compared with cross-entropy, joint also with itself at alpha 1, and the paper has neither of them."""
    sweep = start(
        tmp_path / "s",
        settings={"data": "cifar10", "statistic": "smallest"},
        grid={"objective": ["lda", "cce", "gce", "joint"], "alpha": [0.6, 1.0], "seed": [0]},
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        finish(sweep, name, 0.9 if name.startswith(("gce", "cce")) else 0.5, 0.5)
    found = rows(sweep)
    baselines = {label: {name: b.label for name, b in row.against.items()} for label, row in found.items()}
    assert baselines == {
        "RDLDA alpha=0.6": {"dlda": "DLDA (alpha=1)", "cce": "cross-entropy"},
        "DLDA (alpha=1)": {"cce": "cross-entropy"},
        "cross-entropy": {},
        "generalised cross-entropy": {"cce": "cross-entropy"},
        "cross-entropy + LDA smallest alpha=0.6": {"dlda": "cross-entropy + LDA smallest", "cce": "cross-entropy"},
        "cross-entropy + LDA smallest": {"cce": "cross-entropy"},
    }
    with_numbers = [label for label, row in found.items() if row.paper]
    assert with_numbers == ["RDLDA alpha=0.6", "DLDA (alpha=1)", "cross-entropy"]
    assert not any(found[label].chosen for label in ("cross-entropy", "generalised cross-entropy"))
    assert found["cross-entropy + LDA smallest"].group.predictor == "softmax"


@pytest.mark.parametrize("style", ["text", "markdown"])
def test_text_from_a_foreign_sweep_cannot_control_the_terminal(tmp_path, style):
    evil = "\x1b[2J\nsecond line"
    sweep = start(
        tmp_path / "s", settings={"data": evil}, grid={"alpha": [0.0, 1.0], "network": [f"m:{evil}"], "seed": [0]}
    )
    for name in SweepDefinition.read(sweep / "sweep.toml").trials():
        finish(sweep, name, 0.5, 0.5)
        metrics = sweep / "trials" / name / "metrics.jsonl"
        metrics.write_text(metrics.read_text().replace("nearest_mean", json.dumps(evil)[1:-1]))
    shown = format_table(result_table(read_results(sweep)), style)
    assert "\x1b" not in shown
    assert "\nsecond line" not in shown
    assert shown.count("\\x1b[2J") > 3


def test_scores_of_the_probabilities_stand_behind_the_accuracies(finished):
    table = result_table(read_results(finished.folder))
    text = format_table(table, "text").splitlines()
    assert text[2].split("  ")[-1].strip() == "ECE"
    row = json.loads(format_table(table, "json"))["rows"][0]
    losses = []
    for seed in (0, 1):
        run = next(group.runs[seed] for group in read_results(finished.folder).groups if group.label == row["setting"])
        summary = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        losses.append(next(iter(summary["test"]["predictors"].values()))["log_loss"])
    assert row["probabilities"]["log_loss"]["mean"] == pytest.approx(sum(losses) / 2)
    assert f"{sum(losses) / 2:.4f} ±" in text[4]
    line = next(csv.DictReader(io.StringIO(format_table(table, "csv"))))
    assert float(line["test_log_loss"]) == pytest.approx(sum(losses) / 2, abs=0.00006)


def test_runs_of_early_versions_have_no_such_scores(quick):
    table = format_table(result_table(read_results(quick)), "text")
    assert "log loss" not in table


def column(sweep, predictor):
    found = result_table(read_results(sweep)).rows
    return {row.group.label: row.group.test[predictor] for row in found if predictor in row.test}


def test_the_winner_is_bold_only_if_every_interval_is_above_zero(quick, tmp_path):
    """SciPy's paired t-test at 5 % gives the same intervals."""
    by_setting = column(quick, "hyperplanes")
    ours = by_setting.pop("RDLDA alpha=0")
    for theirs in by_setting.values():
        interval = ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval(0.95)
        assert interval.low > 0
    shown = format_table(result_table(read_results(quick)), "markdown")
    assert "**90.20 ± 0.20** | 91.86" in shown
    # One bold number for each of the three LDA predictors; softmax has only one row to compare.
    assert shown.count("**") == 2 * 3
    assert format_table(result_table(read_results(quick)), "text").count("*") == 2

    unclear = start(tmp_path / "s", grid={"objective": ["rdlda"], "alpha": [0.0, 0.5, 1.0], "seed": [0, 1, 2]})
    for seed in range(3):
        finish(unclear, f"rdlda-alpha0-seed{seed}", 0.9, 0.50 + 0.01 * seed)
        finish(unclear, f"rdlda-alpha0.5-seed{seed}", 0.9, 0.90 + 0.001 * seed)
        finish(unclear, f"rdlda-alpha1-seed{seed}", 0.9, 0.90 + 0.001 * (2 - seed) - 0.0005)
    by_setting = column(unclear, "hyperplanes")
    best, second = (list(by_setting[name].values()) for name in ("RDLDA alpha=0.5", "DLDA (alpha=1)"))
    assert ttest_rel(best, second).confidence_interval(0.95).low < 0
    assert "**" not in format_table(result_table(read_results(unclear)), "markdown")


def test_latex_has_a_row_for_every_setting(quick):
    shown = format_table(result_table(read_results(quick)), "latex")
    comments = [line for line in shown.splitlines() if line.startswith("%")]
    start, top, heads, middle, *body, bottom, end = [line for line in shown.splitlines() if not line.startswith("%")]
    assert (top, middle, bottom, end) == (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    columns = heads.removesuffix(" \\\\").split(" & ")
    assert start == rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    settings = ["RDLDA alpha=0", "RDLDA alpha=0.6 *", "DLDA (alpha=1)", "cross-entropy"]
    assert [line.split(" & ")[0] for line in body] == settings
    for line in body:
        assert len(line.removesuffix(" \\\\").split(" & ")) == len(columns)
    assert r"\textbf{90.20 $\pm$ 0.20} & 91.86" in body[0]
    assert shown.count(r"\textbf") == 3
    assert any("the paper used DorferNet" in line for line in comments)


def test_latex_escapes_what_has_a_meaning_there(tmp_path):
    axes = {"objective": ["rdlda"], "alpha": [1.0], "network": ["a_b&c%d#{e}~^$:f"], "seed": [0]}
    sweep = start(tmp_path / "s", grid=axes)
    finish(sweep, next(iter(SweepDefinition.read(sweep / "sweep.toml").trials())), 0.9, 0.9)
    shown = format_table(result_table(read_results(sweep)), "latex")
    row = next(line for line in shown.splitlines() if line.startswith("DLDA"))
    assert r"network=a\_b\&c\%d\#\{e\}\textasciitilde{}\textasciicircum{}\$:f *" in row


def test_unsplit_classes_are_the_baseline_of_every_kind_of_subclasses(tmp_path):
    shared = {"objective": ["lda"], "alpha": [1.0], "seed": [0, 1]}
    split = {"subclasses": [2], "subclass_between": ["all", "classes"], "recluster": [1]}
    sweep = start(tmp_path / "s", grid=[shared, shared | split])
    names = list(SweepDefinition.read(sweep / "sweep.toml").trials())
    assert len(names) == 6
    for place, name in enumerate(names):
        finish(sweep, name, 0.9, 0.9 + place / 1000)
    found = {label: row.against["unsplit"].label for label, row in rows(sweep).items() if "unsplit" in row.against}
    between = [f"LDA wilks, k=2, subclass_between={kind}, recluster=1" for kind in ("all", "classes")]
    assert found == dict.fromkeys(between, "LDA wilks")
