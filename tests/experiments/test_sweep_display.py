"""The progress of a sweep, and how it is shown."""

import io

import numpy as np
import pytest
from rich.console import Console

from deeplda.experiments.results import TrialResult
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_display import SweepDisplay, news, status_table, summary_lines, sweep_status
from deeplda.experiments.sweep_folder import open_sweep

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def test_the_best_is_chosen_by_validation_over_its_seeds(finished):
    best = sweep_status(finished).best
    results = {name: attempt.result.validation for name, attempt in finished.current_attempts().items()}
    means = {
        name: np.mean([results[f"{name}-seed{seed}"] for seed in (0, 1)])
        for name in ("rdlda-alpha0", "rdlda-alpha1", "cce")
    }
    assert best.name == max(means, key=means.get)
    assert best.validation == pytest.approx(max(means.values()))
    assert best.seeds == 2
    assert "seed" not in best.settings


def test_a_number_in_quotes_is_a_number(tmp_path):
    sweep = open_sweep(tmp_path / "s", SweepDefinition(settings=TINY | {"epochs": "3"}, grid={"seed": [0]}))
    sweep.queue.claim("w", "m", lambda _: False)
    (running,) = sweep_status(sweep).running
    assert running.epochs == 3


def test_the_display_shows_the_running_trials_and_the_best(tmp_path, capsys):
    sweep = open_sweep(
        tmp_path / "s",
        SweepDefinition(
            table=2, scale="quick", settings=TINY | {"epochs": 4}, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0]}
        ),
    )
    start = sweep_status(sweep)
    done, running = sweep.queue.claim("w", "m", lambda _: False), sweep.queue.claim("w", "m", lambda _: False)
    sweep.queue.finish(done, TrialResult(validation=0.875, seconds=100.0))
    sweep.queue.report(running, 1, 0.5)
    status = sweep_status(sweep)
    assert status.seconds_left == pytest.approx((1 + 3 / 4) * 100)
    lines = "\n".join(summary_lines(status))
    assert "1 of 3 done, 1 running, 1 waiting" in lines
    assert "best by validation: lda-alpha0, 87.50 % (1 seed)" in lines
    assert "about 2 min 55 s left" in lines
    assert "lda-alpha0.5-seed0: epoch 1/4, validation 50.00 %" in news(start, status)
    sweep.queue.fail(running, "no [good]")
    assert "lda-alpha0.5-seed0: failed: no [good]" in news(status, sweep_status(sweep))
    assert status_table(status, quick=True).renderables[0].row_count == 1
    with SweepDisplay(sweep):
        pass
    shown = capsys.readouterr().err
    assert "(quick scale): 3 trials" in shown
    assert "failed: lda-alpha0.5-seed0: no [good]" in shown


def test_text_from_the_storage_cannot_control_the_terminal(tmp_path, capsys):
    evil = "\x1b]0;gotcha\x07\x1b[2J\u202e\nsecond line"
    sweep = open_sweep(tmp_path / "s", SweepDefinition(settings=TINY, grid={"alpha": [0.0, 1.0], "seed": [0]}))
    start = sweep_status(sweep)
    sweep.queue.fail(sweep.queue.claim("w", "m", lambda _: False), f"note {evil}")
    sweep.queue.claim(f"worker {evil}", "m", lambda _: False)
    status = sweep_status(sweep)
    console = Console(file=io.StringIO(), force_terminal=True, width=400, no_color=True, highlight=False, markup=False)
    console.print(status_table(status, quick=False), *news(start, status))
    with SweepDisplay(sweep):
        pass
    shown = [console.file.getvalue(), capsys.readouterr().err]
    assert "worker" in shown[0]
    for text in shown:
        assert "note \\x1b]0;gotcha" in text
        assert not [part for part in ("\x1b]", "\x1b[2J", "\x07", "\u202e") if part in text]
        assert "\nsecond line" not in text
