"""The files that a report consists of."""

import subprocess
import sys

import numpy as np
from trained_runs import row_set, train_run

from deeplda import load
from deeplda.data import load_data
from deeplda.report.page import run_page
from deeplda.report.record import inspect_run
from deeplda.report.report_files import nearest_to_centres, write_report, write_subclass_figures
from deeplda.subclasses import split_classes
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress


def test_a_sheet_for_each_class_and_the_reconstructions(tmp_path):
    config = RunConfig(
        data="digits", subclasses=2, epochs=1, width=0.25, autoencoder_epochs=1, cluster_starts=1, embedding_dim=20
    )
    run_to_end(config, tmp_path, Progress())
    files = write_subclass_figures(tmp_path, Progress())
    assert [file.name for file in files] == ["reconstructions.png"] + [f"subclasses-{d}-{d}.png" for d in range(10)]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert "3/1" in (tmp_path / "figures" / "subclasses-3-3.svg").read_text()


def test_a_run_without_subclasses_has_no_such_figures(tmp_path):
    (tmp_path / "run.toml").write_text(RunConfig(data="digits").to_toml())
    assert write_subclass_figures(tmp_path, Progress()) == []


def test_nearest_to_centres_against_a_search():
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(120, 3)).astype(np.float32)
    clusters = split_classes(embedding, np.arange(120) % 2, 2, seed=0)
    for subclass, places in enumerate(nearest_to_centres(embedding, clusters)):
        distances = np.linalg.norm(embedding - clusters.centres[subclass], axis=1)
        distances[clusters.labels != subclass] = np.inf
        assert places.tolist() == sorted(range(120), key=lambda place: distances[place])[:10]


def test_the_report_is_written_to_the_run_folder_or_elsewhere(tmp_path):
    run = train_run(tmp_path / "run", row_set(tmp_path / "rows.npz", ("a", "b", "c")))
    page = run_page(inspect_run(run))
    file = write_report(run)
    assert file == run / "report.html"
    assert file.read_text() == page
    assert write_report(run, output=tmp_path / "other.html").read_text() == page


def test_a_report_of_a_model_and_data_in_memory_reads_neither(tmp_path):
    file = row_set(tmp_path / "rows.npz", ("a", "b", "c"))
    run = train_run(tmp_path / "run", file)
    page = run_page(inspect_run(run))
    model, data = load(run), load_data(file)
    file.unlink()
    (run / "model" / "weights.safetensors").unlink()
    assert write_report(run, model=model, data=data).read_text() == page


def test_pages_need_matplotlib_only_for_their_charts():
    code = "import sys, deeplda.report.report_files, deeplda.report.diagnosis; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
