"""Which folder a training uses: never one with other files in it, never the run of somebody else."""

import os
import subprocess
import sys

import numpy as np
import pytest
from command import QUICK, deeplda, only_sentence
from PIL import Image


def test_a_folder_in_use_is_left_alone(tmp_path):
    """`--run .` in a project once replaced its model/, metrics.jsonl and environment.json."""
    (tmp_path / "model").mkdir()
    for name in ("model/net.py", "metrics.jsonl", "environment.json"):
        (tmp_path / name).write_text("precious")
    done = deeplda("train", "digits", *QUICK, "--run", ".", cwd=tmp_path)
    assert "but no run, need a new or empty folder" in only_sentence(done)
    files = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == dict.fromkeys(("model/net.py", "metrics.jsonl", "environment.json"), "precious")


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """The shell leaves it in --run=~/x."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    deeplda("train", *QUICK, "--quiet", "--run=~/x", cwd=tmp_path, check=0)
    assert (tmp_path / "home" / "x" / "report.html").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    deeplda("evaluate", "~/x", cwd=tmp_path, check=0)


def test_a_path_that_is_not_text_is_refused_before_the_training(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "deeplda", "train", *QUICK, "--run", b"\xff"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 2
    assert b"is not valid UTF-8" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_trainings_that_start_at_once_choose_different_folders(tmp_path):
    command = [sys.executable, "-m", "deeplda", "train", "--epochs", "1", "--width", "0.1", "--quiet"]
    jobs = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    runs = [tmp_path / "runs" / name for name in ("digits-lda", "digits-lda-2", "digits-lda-3")]
    assert all((run / "report.html").is_file() for run in runs)


@pytest.mark.parametrize("mistake", [("nothing-of-this-name",), ("digits", "--batch-size", "2")])
def test_a_training_that_cannot_start_leaves_no_folder(tmp_path, mistake):
    only_sentence(deeplda("train", *mistake, "--quiet", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_for_runs_is_kept(tmp_path):
    (tmp_path / "runs").mkdir(mode=0o700)
    only_sentence(deeplda("train", "nothing-of-this-name", cwd=tmp_path))
    assert (tmp_path / "runs").is_dir()


def test_resuming_skips_a_folder_without_a_run(tmp_path):
    """A training that is killed before it starts leaves a folder with a lock."""
    deeplda("train", *QUICK, "--quiet", cwd=tmp_path, check=0)
    (tmp_path / "runs" / "digits-lda-2").mkdir()
    (tmp_path / "runs" / "digits-lda-2" / ".lock").touch()
    assert "runs/digits-lda is already finished" in deeplda("train", "--resume", cwd=tmp_path, check=0).stderr


def test_data_whose_path_is_not_text_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / os.fsdecode(b"ph\xffotos")
    folder.mkdir()
    assert "is not valid UTF-8" in only_sentence(deeplda("train", ".", "--run", tmp_path / "run", cwd=folder))
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_runs_inside_the_data_are_not_part_of_it(tmp_path):
    rng = np.random.default_rng(0)
    for name, brightness in (("dark", 60), ("light", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = np.clip(rng.normal(brightness, 20, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    train = ("train", ".", *QUICK, "--batch-size", "8", "--quiet")
    for run in ("photos-lda", "photos-lda-2"):
        deeplda(*train, cwd=tmp_path / "photos", check=0)
        # Figures are images too.
        deeplda("report", f"runs/{run}", "--figures", cwd=tmp_path / "photos", check=0)
    deeplda(*train, "--run", "dark/run", cwd=tmp_path / "photos", check=0)
    done = deeplda("evaluate", "runs/photos-lda", "--json", cwd=tmp_path / "photos", check=0)
    assert "has changed" not in done.stderr
    assert '"class_names": ["dark", "light"]' in done.stdout
