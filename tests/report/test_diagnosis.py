"""Each finding on metrics that must show it, and on near misses that must not."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda import DeepLDALoss
from deeplda.batch_rule import why_too_small
from deeplda.report.diagnosis import Finding, diagnose
from deeplda.report.run_history import RunHistory
from deeplda.sampling import build_sampler
from deeplda.training.config import RunConfig
from deeplda.training.metrics import EpochRow, SummaryRow

GROWING = [[0.5 * e**2 * (1 + i) for i in range(4)] for e in range(1, 7)]
NAMES = ["ant", "bee", "cow", "doe", "elk"]
ACCURACIES = [0.7, 0.9, 0.97, 0.98, 0.985, 0.985]


def confusion(recalls, samples):
    """Return a confusion matrix in which class c has recall recalls[c] and is otherwise mistaken for the next class."""
    table = [[0] * len(recalls) for _ in recalls]
    for c, (recall, n) in enumerate(zip(recalls, samples, strict=True)):
        table[c][c] = round(recall * n)
        table[c][(c + 1) % len(recalls)] += n - table[c][c]
    return table


def scores(recalls, samples):
    table = confusion(recalls, samples)
    n, right = sum(map(sum, table)), sum(row[c] for c, row in enumerate(table))
    recalls = [row[c] / sum(row) for c, row in enumerate(table) if any(row)]
    balanced = sum(recalls) / len(recalls)
    return {
        "n": n,
        "accuracy": right / n,
        "predictors": {"hyperplanes": {"accuracy": right / n, "balanced_accuracy": balanced}},
        "confusion": table,
    }


def run(
    eigenvalues=GROWING, losses=None, accuracies=ACCURACIES, test=None, samples=(200,) * 5, dead=0, finished=True,
    alike=True,
):  # fmt: skip
    """Return the rows of a run on five classes, healthy except for the given arguments.

    `test` is the recall of each class at the end, on the test part and, if `alike`, also on the validation part.
    """
    count = len(eigenvalues or losses)
    rows = []
    for e in range(count):
        row = {"kind": "epoch", "epoch": e + 1, "loss": losses[e] if losses else -eigenvalues[e][0]}
        if eigenvalues:
            row |= {"eigenvalues": eigenvalues[e], "dead_dims": dead}
        row["validation"] = scores([accuracies[e]] * len(samples), samples) if accuracies and accuracies[e] else None
        rows.append(row)
    last = rows[-1]["validation"]
    end = last if last and not test else scores(test or [0.985] * len(samples), samples)
    summary = {"kind": "summary", "validation": end if alike else last, "test": end, "class_names": NAMES}
    return rows + [summary] * finished


def typed(rows):
    """Return the rows as they are read from metrics.jsonl."""
    epoch = {"learning_rate": 0.1, "seconds": 1.0}
    summary = {"epochs": len(rows) - 1, "best_epoch": 1, "seconds": 1.0}
    return [EpochRow(**epoch, **row) if row["kind"] == "epoch" else SummaryRow(**summary, **row) for row in rows]


def findings(rows, **settings):
    return diagnose(typed(rows), RunConfig.parse({"epochs": 6} | settings, "test"))


def only(rows, **settings):
    (finding,) = findings(rows, **settings)
    return finding


def test_a_healthy_run_is_reported_as_healthy():
    finding = only(run())
    assert finding.severity == "good"
    assert finding.what == "Nothing is wrong with this run."
    assert (
        "the 4 eigenvalues of the last batch range from 18 to 72; the best validation accuracy is 98.5 %" in finding.why
    )


def test_a_healthy_run_of_cross_entropy():
    assert only(run(None, [1.2, 0.8, 0.5, 0.3, 0.2, 0.15]), objective="cce").severity == "good"


def test_two_epochs_are_too_short_to_judge():
    finding = only(run(GROWING[:2]), epochs=2)
    assert finding.severity == "good"
    assert "too short to judge" in finding.why


def with_steps(rows, steps):
    return [row | {"steps": steps} if row["kind"] == "epoch" else row for row in rows]


def test_a_few_steps_do_not_train_a_network():
    poor = run(accuracies=[0.2, 0.21, 0.2, 0.2, 0.21, 0.21], test=[0.2] * 5)
    finding = only(with_steps(poor, 2), batch_size=2000)
    assert finding.severity == "problem"
    assert "12 steps in 6 epochs" in finding.what
    assert "an epoch on this data has 2 steps" in finding.why
    assert "smaller --batch-size (2000 here)" in finding.do
    assert "guessing" in only(with_steps(poor, 15)).what
    assert only(with_steps(run(), 2)).severity == "good"


FLAT = [[0.01, 0.1, 0.2, 0.9], [0.012, 0.11, 0.19, 0.92], [0.009, 0.1, 0.2, 0.88]]


@pytest.mark.parametrize(
    "rows",
    [
        run(FLAT, accuracies=[0.55, 0.56, 0.54]),  # no progress
        run(accuracies=[0.2, 0.21, 0.2, 0.19, 0.21, 0.2]),  # no better than guessing
        run([[0.02, 1, 2, 3 + e] for e in range(6)], accuracies=[0.6] * 6),  # an eigenvalue is stuck
    ],
)
def test_after_few_steps_the_advice_is_more_steps_and_not_another_learning_rate(rows):
    found = {finding.what: finding.do for finding in findings(with_steps(rows, 20), learning_rate=0.1)}
    assert all("--epochs" in do for do in found.values())
    assert not any("different learning rate" in do or "learning rates below" in do for do in found.values())
    assert not any("--learning-rate" in do for do in found.values())
    many = [finding.do for finding in findings(with_steps(rows, 200), learning_rate=0.1)]
    assert any("learning rate" in do or "--learning-rate" in do for do in many)


def test_a_few_steps_do_not_excuse_an_unusual_learning_rate():
    finding = only(with_steps(run(FLAT, accuracies=[0.55, 0.56, 0.54]), 40), learning_rate=1e-6)
    assert "--learning-rate 0.03 (1e-06 here)" in finding.do


def test_a_run_with_good_accuracy_made_progress_whatever_its_eigenvalues():
    """With 100 classes, most eigenvalues stay small, and 93.6 % are reached within the first epoch."""
    assert not any("no progress" in finding.what for finding in findings(run(FLAT, accuracies=[0.93, 0.93, 0.94])))


@pytest.mark.parametrize("subclasses", [1, 2])
def test_batch_too_small_for_the_classes(subclasses):
    """Five equal classes, one embedding dimension for each of them or of their subclasses."""
    groups = 5 * subclasses
    setting = {"subclasses": subclasses, "embedding_dim": "subclasses", "sampler": "stratified"}
    few = only(run(), batch_size=2 * groups, **setting)
    assert few.severity == "warning"
    assert f"{groups} {'subclasses' if subclasses > 1 else 'classes'} and the embedding of {groups}" in few.what
    assert why_too_small([2] * groups, groups) in few.why
    assert only(run(), batch_size=groups, **setting).severity == "problem"
    enough = int(re.search(r"--batch-size (\d+)", few.do)[1])
    assert only(run(), batch_size=enough, **setting).severity == "good"


@settings(max_examples=50, deadline=None)
@given(
    batch_size=st.integers(2, 400),
    dims=st.integers(1, 300),
    counts=st.lists(st.integers(20, 900), min_size=5, max_size=5),
    sampler=st.sampled_from(["auto", "stratified", "shuffle"]),
)
def test_doctor_and_loss_agree(batch_size, dims, counts, sampler):
    """The doctor reports a batch exactly if the loss warns about the first batch of the training."""
    rows = run()
    rows[-1]["train_counts"] = counts
    found = findings(rows, batch_size=batch_size, embedding_dim=dims, sampler=sampler)
    labels = np.repeat(np.arange(5), counts)
    batch = next(iter(build_sampler(sampler, labels, batch_size, seed=0, lda_width=dims)))
    if len(set(labels[batch])) < 2 or len(batch) == len(labels):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DeepLDALoss()(torch.randn(len(batch), dims), torch.from_numpy(labels[batch]))
    assert any("do not suit" in finding.what for finding in found) == bool(caught)


def test_following_the_advice_ends_the_finding():
    rows = run()
    for batch_size, dims in ((60, 128), (200, 3), (4, 1), (4, 300)):
        settings_of_run = {"batch_size": batch_size, "embedding_dim": dims}
        for advice in only(rows, **settings_of_run).do.split(", or with "):
            changed = re.findall(r"--(batch-size|embedding-dim) (\d+)", advice)
            assert changed
            better = settings_of_run | {name.replace("-", "_"): int(value) for name, value in changed}
            assert not any("do not suit" in finding.what for finding in findings(rows, **better))


def test_the_whole_training_set_as_a_batch_cannot_be_larger():
    rows = run()
    rows[-1]["train_counts"] = [2] * 5
    assert not any("do not suit" in finding.what for finding in findings(rows, batch_size=10))


def test_batch_size_does_not_matter_to_cross_entropy():
    rows = run(None, [1.2, 0.8, 0.5, 0.3, 0.2, 0.15])
    assert only(rows, objective="cce", batch_size=4).severity == "good"


def test_unbalanced_classes_need_larger_batches():
    rows = run()
    rows[-1]["train_counts"] = [5000, 50, 50, 50, 50]
    found = only(rows, batch_size=104, sampler="stratified")
    assert "classes this unbalanced" in found.why
    assert "--batch-size" in found.do
    rows[-1]["train_counts"] = [1000] * 5
    assert only(rows, batch_size=104, sampler="stratified").severity == "good"


def test_embedding_too_narrow_for_the_classes():
    narrow = only(run([values[:3] for values in GROWING]), embedding_dim=3)
    assert "5 classes differ in up to 4 directions, and 3 dimensions" in narrow.why
    assert "--embedding-dim 4" in narrow.do
    assert only(run(), embedding_dim=4).severity == "good"
    assert only(run(), embedding_dim="subclasses", subclasses=2).severity == "good"


def test_a_small_batch_is_not_reported_for_objective_joint():
    assert not any("do not suit" in found.what for found in findings(run(), objective="joint", batch_size=8))


@pytest.mark.parametrize(("dead", "what"), [(1, "1 output dimension is dead"), (2, "2 output dimensions are dead")])
def test_dead_dimensions(dead, what):
    finding = only(run(dead=dead))
    assert finding.severity == "problem"
    assert what in finding.what


def smallest(values):
    """A spectrum that grows but for its smallest eigenvalue."""
    return [[value, *rest[1:]] for value, rest in zip(values, GROWING, strict=True)]


def test_smallest_eigenvalue_stuck():
    """Random labels give about (5 - 1) / (200 - 5) = 0.0205."""
    record = run(smallest([0.001, 0.002, 0.001, 0.003, 0.002, 0.02]))
    finding = only(record, alpha=0.6, statistic="smallest")
    assert finding.severity == "problem"
    assert "1 of 4 eigenvalues is stuck: the smallest is 0.02." in finding.what
    assert "about 0.021 in batches of 200" in finding.why
    assert "--statistic pillai or wilks" in finding.do
    assert "raise --alpha (0.6 here)" in finding.do
    assert "lower the learning rate" not in finding.do


@pytest.mark.parametrize("values", [[0.001] * 5 + [0.03], [0.001] * 4 + [0.03, 0.001], [0.03] * 6])
def test_an_eigenvalue_that_was_above_chance_lately_is_not_stuck(values):
    assert only(run(smallest(values))).severity == "good"


def test_one_epoch_is_too_few_to_call_an_eigenvalue_stuck():
    assert only(run([[0.001, 1, 2, 3]]), epochs=1).severity == "good"


def test_advice_for_a_stuck_eigenvalue_fits_the_settings():
    rows = run(smallest([0.001] * 6))
    smooth = only(rows, statistic="pillai", alpha=1.0).do
    assert "--statistic" not in smooth
    assert "--alpha" not in smooth
    assert "lower the learning rate: --learning-rate 0.03 (30 here)" in only(rows, learning_rate=30).do
    assert "lower the learning rate" in only(rows, learning_rate=3).do
    assert "lower the learning rate" not in only(rows, learning_rate=3, optimizer="muon").do
    both = "--learning-rate 3 --filter-learning-rate 0.024 (30 and 0.24 here)"
    assert both in only(rows, learning_rate=30, optimizer="muon").do
    own = "--learning-rate 3 --head-learning-rate 0.5 (30 and 5 here)"
    assert own in only(rows, learning_rate=30, head_learning_rate=5).do


def test_eigenvalues_of_zero_are_a_flat_output():
    finding = only(run(smallest([1e-16, -1e-16, 1e-16, 3e-17, -1e-15, 2e-16])), width=0.05)
    assert "1 of 4 eigenvalues is 0" in finding.what
    assert "lies in 3 dimensions" in finding.why
    assert "--width, 0.05 here" in finding.do
    assert "--alpha" not in finding.do
    loosened = only(run(smallest([1e-16] * 6)), alpha=0.5).do
    assert loosened.startswith("Raise --alpha (0.5 here) to 1")
    assert "make the network wider" in loosened
    assert only(run(smallest([1e-16] * 5 + [0.5]))).severity == "good"


def test_eigenvalues_of_too_small_a_batch_are_not_judged():
    assert "batches do not suit" in only(run(smallest([0.001] * 6)), batch_size=10, sampler="stratified").what


def test_one_class_not_learnt():
    finding = only(run(test=[0.98, 0.98, 0.15, 0.98, 0.98]))
    assert finding.severity == "problem"
    assert 'Class "cow" was not learnt: only 15.0 %' in finding.what
    assert '170 of the 200 samples of this class are mistaken for "doe"' in finding.why
    assert '"cow" and "doe"' in finding.do


@pytest.mark.parametrize(("recall", "severity"), [(0.2, "problem"), (0.4, "warning"), (0.5, "good")])
def test_how_badly_a_class_must_do(recall, severity):
    assert only(run(test=[0.98, 0.98, recall, 0.98, 0.98])).severity == severity


def test_a_rare_class_not_learnt_is_to_be_weighted():
    rows = run(samples=(200, 200, 100, 200, 200), test=[0.98, 0.98, 0.1, 0.98, 0.98])
    assert "--class-weight balanced" in only(rows).do
    assert "--class-weight" not in only(rows, class_weight="balanced").do


def test_what_is_rare_is_told_by_the_training_part_not_by_a_validation_part_of_another_kind():
    rows = run(test=[0.98, 0.98, 0.1, 0.98, 0.98])
    assert "--class-weight" not in only(rows).do
    rows[-1]["train_counts"] = [1000, 1000, 200, 1000, 1000]
    assert "--class-weight balanced" in only(rows).do


def test_a_class_with_a_handful_of_samples_is_not_judged():
    rows = run(samples=(200, 200, 4, 200, 200), test=[0.98, 0.98, 0, 0.98, 0.98])
    assert only(rows, batch_size=1000).severity == "good"


def test_classes_of_an_unfinished_run_go_by_number():
    rows = run(finished=False)
    rows[-1]["validation"] = scores([0.98, 0.98, 0.1, 0.98, 0.98], (200,) * 5)
    assert any("Class number 2 was not learnt" in finding.what for finding in findings(rows))


def test_loss_not_finite():
    finding = only(run(None, [1.0, math.nan, math.inf, 1.0]), objective="cce", learning_rate=0.2)
    assert finding.severity == "problem"
    assert "not finite from epoch 2 on" in finding.what
    assert "--learning-rate 0.02 (0.2 here)" in finding.do


def test_no_better_than_guessing():
    finding = only(run(accuracies=[0.2, 0.21, 0.2, 0.19, 0.21, 0.2]))
    assert "no better than guessing: its balanced accuracy on the test set is 20.0 %" in finding.what
    better = findings(run(accuracies=[0.2, 0.21, 0.2, 0.19, 0.21, 0.3]))
    assert not any("guessing" in finding.what for finding in better)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_few_samples_do_not_show_guessing(n):
    rows = run(test=[1.0] * 5, samples=(n, 0, 0, 0, 0))
    assert not any("guessing" in finding.what for finding in findings(rows))


def test_always_the_commonest_class_is_guessing():
    rows = run(samples=(960, 10, 10, 10, 10), test=[1, 0, 0, 0, 0])
    assert any("no better than guessing" in finding.what for finding in findings(rows, batch_size=1000))


@pytest.mark.parametrize("losses", [[1e9, 1e16, 1e12], [1.6, 1.7, 1.75]])
def test_cross_entropy_worse_than_guessing_is_a_learning_rate_too_large(losses):
    finding = only(run(None, losses, [0.2] * 3), objective="cce", learning_rate=100)
    assert finding.what.startswith("The learning rate is too large")
    assert "--learning-rate 0.03 (100 here)" in finding.do


def test_gce_is_judged_on_its_own_scale():
    """With 5 classes and q = 0.7, guessing has a loss of (1 - 5^-0.7) / 0.7 = 0.966, and no loss exceeds 1.43."""
    finding = only(run(None, [1.0, 1.02, 1.03], [0.2] * 3), objective="gce", learning_rate=100)
    assert finding.what.startswith("The learning rate is too large")
    assert "gives a loss of 0.97" in finding.why
    flat = only(run(None, [0.96, 0.96, 0.96], [0.2] * 3), objective="gce", learning_rate=1e-4)
    assert flat.what.startswith("Training made no progress")
    # (1 - 0.7 x 0.2)^(1 / 0.7) = 0.81
    fits = run(None, [0.9, 0.6, 0.3, 0.2, 0.2, 0.2], [0.5, 0.6, 0.75, 0.75, 0.75, 0.75])
    assert "overfits" not in only(fits, objective="gce").what
    overfits = run(None, [0.9, 0.6, 0.3, 0.2, 0.2, 0.2], [0.5, 0.6, 0.7, 0.7, 0.7, 0.7])
    assert only(overfits, objective="gce").what == "The network overfits."


def test_nothing_moves_with_a_learning_rate_too_small():
    finding = only(run(FLAT, accuracies=[0.55, 0.56, 0.54]), learning_rate=1e-6)
    assert "the loss went from -0.01 to -0.009" in finding.what
    assert "--learning-rate 0.03 (1e-06 here)" in finding.do
    died = only(run(None, [1.61, 1.61, 1.61], [0.2] * 3), objective="cce", learning_rate=50)
    assert "so large that the network died" in died.why
    assert "--learning-rate 0.03 (50 here)" in died.do


def test_a_run_that_has_only_begun_may_still_make_progress():
    rows = run(FLAT, accuracies=[0.55, 0.56, 0.54], finished=False)
    assert [finding.what for finding in findings(rows, epochs=7)] == [
        "The run is not finished: 3 of 7 epochs are done."
    ]
    assert "made no progress" in findings(rows, epochs=6)[0].what


@pytest.mark.parametrize(
    "rows",
    [
        run([[5, 6, 7, 8], [5.1, 6, 7, 8], [5, 6, 7, 8.2]], accuracies=[0.98] * 3),  # good from the start
        run([[0.03, 0.1, 0.2, 0.9]] * 3, accuracies=[0.5, 0.6, 0.7]),  # validation moves
        run([[0.03, 0.1, 0.2, 0.9], [0.1, 0.3, 0.5, 1.2], [0.2, 0.5, 0.8, 2]], accuracies=[0.55] * 3),  # batches move
    ],
)
def test_what_moves_or_is_good_already_is_not_called_flat(rows):
    assert not any("made no progress" in finding.what for finding in findings(rows))


UP_AND_DOWN = [[0.5, 1, 2, 3], [2, 3, 4, 5], [0.4, 1, 2, 3], [3, 4, 5, 6], [0.5, 1, 2, 3], [3, 4, 5, 7]]


def test_back_and_forth_is_a_learning_rate_too_large():
    finding = only(run(UP_AND_DOWN, accuracies=[0.6, 0.9, 0.6, 0.9, 0.7, 0.985]), learning_rate=0.5)
    assert finding.severity == "warning"
    assert "unstable: the learning rate is too large" in finding.what
    assert "fell from 90.0 % to 60.0 % in epoch 3" in finding.why
    assert "--learning-rate 0.03 (0.5 here)" in finding.do


def test_batches_alone_or_validation_alone_may_waver():
    assert only(run(UP_AND_DOWN)).severity == "good"
    assert only(run(accuracies=[0.6, 0.9, 0.6, 0.9, 0.7, 0.985])).severity == "good"


def test_overfitting_by_the_training_batches():
    """Eigenvalues of 18 leave no doubt about the training samples."""
    finding = only(run(accuracies=[0.5, 0.6, 0.7, 0.7, 0.7, 0.7]))
    assert finding.what == "The network overfits."
    assert "smallest eigenvalue of the training batches is 15.2" in finding.why
    assert "only 70.0 %" in finding.why
    assert "--flip" in finding.do
    assert "--flip" not in only(run(accuracies=[0.7] * 6), flip=True).do


def test_few_images_that_are_known_by_heart_need_more_to_learn_from():
    """The photos of a first user: 81 % of the validation images, and a network that separates all training images."""
    summary_of_70 = {"train_counts": [70, 68, 70, 72, 70]}
    *epochs, summary = run(accuracies=[None, None, 0.8, None, None, 0.81])
    automatic = {"network": "fastnet", "optimizer": "muon", "flip": True, "translate": 6, "image_size": 48}
    finding = only([*epochs, summary | summary_of_70], evaluate_every=3, data="/home/me/photos", **automatic)
    assert (finding.severity, finding.what) == ("warning", "The network overfits.")
    assert "more training images (a class has 68 to 72 here)" in finding.do
    assert "docs/pretrained-features.md" in finding.do
    for without_effect in ("--patience", "--weight-decay", "--width", "--flip"):
        assert without_effect not in finding.do


def test_a_table_is_not_flipped():
    finding = only(run(accuracies=[0.7] * 6), data="rows.csv", network="mlp")
    assert "more training samples" in finding.do
    assert "a larger --dropout" in finding.do
    assert "images" not in finding.do


def test_fit_of_runs_that_score_only_some_epochs():
    """Runs with automatic settings on few images score every few epochs."""
    scored = {"accuracies": [None, 0.6, None, 0.7, None, 0.7]}
    assert only(run(**scored), evaluate_every=2).what == "The network overfits."
    weak = [[0.1 * e, 0.5 * e, e, 2 * e] for e in range(1, 11)]
    late = [None, 0.6, None, 0.8, None, 0.7, None, 0.7, None, 0.7]
    finding = only(run(weak, accuracies=late), evaluate_every=2, epochs=10)
    assert "best in epoch 4 (80.0 %) and averaged 70.0 %" in finding.why
    rising = [None, 0.4, None, 0.5, None, 0.6, None, 0.7, None, 0.8]
    finding = only(run(weak, accuracies=rising), evaluate_every=2, epochs=10)
    assert "Before the last third of the 10 epochs, the highest was 60.0 %" in finding.why


def test_overfitting_of_cross_entropy():
    finding = only(run(None, [1.5, 1, 0.5, 0.2, 0.05, 0.02], [0.5, 0.6, 0.7, 0.7, 0.7, 0.7]), objective="cce")
    assert finding.what == "The network overfits."
    assert "training loss is 0.035" in finding.why


def test_overfitting_by_validation_past_its_best():
    weak = [[0.1 * e, 0.5 * e, e, 2 * e] for e in range(1, 7)]
    finding = only(run(weak, accuracies=[0.6, 0.8, 0.75, 0.72, 0.7, 0.7]))
    assert finding.what == "The network overfits."
    assert "best in epoch 2 (80.0 %) and averaged 70.7 %" in finding.why
    steady = findings(run(weak, accuracies=[0.6, 0.8, 0.79, 0.79, 0.79, 0.79]))
    assert not any("overfits" in finding.what for finding in steady)


def test_ended_too_early():
    rows = run([[0.1 * e, 0.5 * e, e, 2 * e] for e in range(1, 7)], accuracies=[0.4, 0.5, 0.6, 0.7, 0.75, 0.8])
    finding = only(rows)
    assert "ended too early: the validation accuracy was still rising and reached 80.0 %" in finding.what
    assert "Before the last third of the 6 epochs, the highest was 70.0 %" in finding.why
    assert "--epochs 12" in finding.do
    assert [finding.what for finding in findings(rows[:-1])] == ["The run is not finished: 6 of 6 epochs are done."]


def test_underfitting():
    level = [[0.1, 0.5, 1, 2], [0.3, 0.8, 1.4, 3], *[[0.4, 1, 1.5, 3.1]] * 4]
    finding = only(run(level, accuracies=[0.6, 0.8, 0.82, 0.81, 0.82, 0.82]), width=0.5)
    assert "underfits" in finding.what
    assert "levelled off at 82.0 %" in finding.what
    assert "--width 1" in finding.do
    assert only(run(level, accuracies=[0.6, 0.9, 0.92, 0.91, 0.92, 0.92])).severity == "good"


def test_a_test_part_of_another_kind():
    finding = only(run(test=[0.75] * 5, alike=False))
    assert "harder than the validation set: the accuracy is 75.0 %, compared with 98.5 %" in finding.what
    assert only(run(test=[0.94] * 5, alike=False)).severity == "good"


def test_a_few_test_samples_may_well_be_harder():
    rows = run(samples=(6,) * 5, accuracies=[0.7, 0.8, 0.9, 1, 1, 1], test=[0.83] * 5, alike=False)
    assert only(rows).severity == "good"


def test_unfinished():
    finding = only(run(GROWING[:4], finished=False), epochs=10)
    assert finding.severity == "warning"
    assert finding.what == "The run is not finished: 4 of 10 epochs are done."
    assert "deeplda train --resume" in finding.do
    assert "finite" not in finding.do


def test_not_one_epoch():
    finding = only([], learning_rate=10)
    assert finding.severity == "problem"
    assert "0 of 6 epochs" in finding.what
    assert "--learning-rate 0.03 (10 here)" in finding.do


def test_patience_ends_a_run_before_its_epochs():
    assert only(run(), epochs=100, patience=2).severity == "good"


def test_without_validation_what_can_be_told_is_told():
    rows = run(smallest([0.001] * 6), accuracies=None)
    assert [finding.what for finding in findings(rows)] == ["1 of 4 eigenvalues is stuck: the smallest is 0.001."]
    assert RunHistory(typed(rows[:-1]), RunConfig()).classes is None
    assert [finding.what for finding in findings(rows[:-1])] == ["The run is not finished: 6 of 6 epochs are done."]


def test_problems_come_first():
    found = findings(run(smallest([0.001] * 6), dead=1, test=[0.7] * 5, alike=False), learning_rate=30)
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities)
    assert set(severities) == {"problem", "warning"}


def test_every_finding_is_made_of_sentences():
    found = [
        *findings(run(smallest([0.001] * 6), dead=1, test=[0.7, 0.7, 0.1, 0.7, 0.7], alike=False), learning_rate=30),
        *findings(run(UP_AND_DOWN, accuracies=[0.6, 0.9, 0.6, 0.9, 0.7, 0.7], finished=False), batch_size=8),
        *findings([]),
        *findings(run()),
    ]
    for finding in found:
        assert isinstance(finding, Finding)
        for sentence in (finding.what, finding.why, finding.do):
            assert sentence[0].isupper() or sentence[0].isdigit()
            assert sentence.endswith((".", "?"))
            assert "  " not in sentence


EPOCH = st.tuples(
    st.one_of(st.floats(-1e3, 1e3), st.just(math.nan)),
    st.lists(st.floats(-1e-12, 1e3), min_size=4, max_size=4).map(sorted),
    st.floats(0, 1),
)


@given(
    st.lists(EPOCH, min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["rdlda", "joint", "cce", "gce"]),
)
def test_whatever_happened_there_is_something_to_say(epochs, finished, validated, objective):
    losses, eigenvalues, accuracies = zip(*epochs, strict=True)
    rows = run(eigenvalues, losses, accuracies if validated else None, finished=finished)
    found = findings(rows, objective=objective)
    assert found
    assert ([finding.severity for finding in found] == ["good"]) == any(f.severity == "good" for f in found)
