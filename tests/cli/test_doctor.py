"""`deeplda doctor` on a real run, and on incomplete ones."""

import json
import shutil

import pytest
from command import QUICK, deeplda

from deeplda.cli import main
from deeplda.training.config import AutoencoderConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a healthy run on digits."""
    home = tmp_path_factory.mktemp("home")
    deeplda("train", "--quiet", *QUICK, "--run", "sound", cwd=home, check=0)
    return home / "sound"


def test_a_healthy_run_is_reported_as_healthy(run):
    done = deeplda("doctor", "sound", cwd=run.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("good: Nothing is wrong with this run.\n  ")
    assert "after 2 of 2 epochs" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_findings_as_json_and_no_failure(run, tmp_path, capsys):
    """The same metrics under batches of 12."""
    shutil.copy(run / "metrics.jsonl", tmp_path)
    settings = (run / "run.toml").read_text().replace("batch_size = 200", "batch_size = 12")
    (tmp_path / "run.toml").write_text(settings)
    main(["doctor", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == str(tmp_path)
    (finding,) = found["findings"]
    assert set(finding) == {"severity", "what", "why", "do"}
    assert finding["severity"] == "problem"
    assert "do not suit the 10 classes" in finding["what"]
    assert "--batch-size" in finding["do"]


def test_a_run_that_failed_in_its_first_epoch(run, tmp_path, capsys):
    shutil.copy(run / "run.toml", tmp_path)
    main(["doctor", str(tmp_path)])
    assert capsys.readouterr().out.startswith("problem: The run is not finished: 0 of 2 epochs are done.\n")


def test_a_cut_last_line_of_the_metrics_does_not_matter(run, tmp_path, capsys):
    shutil.copy(run / "run.toml", tmp_path)
    first, second, _ = (run / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text(f"{first}\n{second[:50]}")
    main(["doctor", str(tmp_path)])
    assert "not finished: 1 of 2 epochs are done" in capsys.readouterr().out


def test_the_autoencoder_of_a_run_is_rejected(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(AutoencoderConfig().to_toml())
    row = {"kind": "epoch", "epoch": 1, "loss": 0.1, "learning_rate": 0.1, "seconds": 1.0}
    row["validation"] = {"n": 3, "error": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SystemExit) as left:
        main(["doctor", str(tmp_path)])
    assert left.value.code == 2
    assert "is the autoencoder of a run" in capsys.readouterr().err


def test_no_run(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["doctor", str(tmp_path)])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"deeplda: {tmp_path} is not a run")
    assert len(err.splitlines()) == 1
