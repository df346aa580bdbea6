"""Pictures of a run on subclasses."""

import numpy as np

from deeplda.report.subclass_pictures import nearest_to_centres, write_subclass_pictures
from deeplda.subclasses import split_classes
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress


def test_a_sheet_for_each_class_and_the_reconstructions(tmp_path):
    config = RunConfig(
        data="digits", subclasses=2, epochs=1, width=0.25, autoencoder_epochs=1, cluster_starts=1, embedding_dim=20
    )
    run_to_end(config, tmp_path, Progress())
    files = write_subclass_pictures(tmp_path, Progress())
    assert [file.name for file in files] == ["reconstructions.png"] + [f"subclasses-{d}-{d}.png" for d in range(10)]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert "3/1" in (tmp_path / "figures" / "subclasses-3-3.svg").read_text()


def test_a_plain_run_has_none(tmp_path):
    (tmp_path / "run.toml").write_text(RunConfig(data="digits").to_toml())
    assert write_subclass_pictures(tmp_path, Progress()) == []


def test_nearest_to_centres_against_a_search():
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(120, 3)).astype(np.float32)
    clusters = split_classes(embedding, np.arange(120) % 2, 2, seed=0)
    for subclass, places in enumerate(nearest_to_centres(embedding, clusters)):
        distances = np.linalg.norm(embedding - clusters.centres[subclass], axis=1)
        distances[clusters.labels != subclass] = np.inf
        assert places.tolist() == sorted(range(120), key=lambda place: distances[place])[:10]
