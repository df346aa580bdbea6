"""`deeplda similar`: the nearest images in a folder, and the nearest rows of a table."""

import csv
import json

import numpy as np
import pytest
import torch
from command import in_this_process
from PIL import Image

from deeplda import load
from deeplda.data.table_encoding import NumberEncoding, TableEncoder
from deeplda.model import Model, ModelCard
from deeplda.networks import build_network
from deeplda.predictors import FeatureStatistics
from small_model import digits, small_model


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with a model and 60 of its training images; the last two are copies of the first."""
    folder = tmp_path_factory.mktemp("similar")
    small_model().save(folder / "model")
    images, labels = digits()
    for place, source in enumerate([*range(58), 0, 0]):
        file = folder / "photos" / str(labels[source]) / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[source, 0]).save(file)
    return folder


def expected(model, queries, gallery, count):
    """The nearest samples by a literal search: indices and distances, without exact copies."""
    statistics = model.statistics
    within = statistics.within().numpy() + model.card.lam * np.eye(model.card.embedding_dim)
    # All discriminant coordinates of 4 outputs and 10 classes: the distances are Mahalanobis distances.
    inverse = np.linalg.inv(within)
    found = []
    for query in queries:
        difference = (model.transform(gallery) - model.transform(query[None])).astype(np.float64)
        distances = np.sqrt(np.einsum("nd,de,ne->n", difference, inverse, difference))
        others = [place for place in np.argsort(distances, kind="stable") if (gallery[place] != query).any()]
        found.append([(place, distances[place]) for place in others[:count]])
    return found


def pixels_of(files):
    return np.stack([np.asarray(Image.open(file)) for file in files])[:, None]


def test_images_are_compared_exactly_and_copies_are_left_out(photos, capsys):
    model, files = load(photos / "model"), sorted((photos / "photos").rglob("*.png"))
    gallery, queries = pixels_of(files), [file for file in files if file.name in ("00.png", "07.png")]
    arguments = ("similar", photos / "model", *queries, "--in", photos / "photos", "--count", "3")
    code, shown, errors = in_this_process(capsys, *arguments, "--json")
    found = json.loads(shown)
    assert code == 0
    assert found["copies_left_out"] == 4  # three copies of the first image, and one of the other
    assert "which are left out: 4" in errors
    nearest = expected(model, pixels_of(queries), gallery, 3)
    for entry, query, neighbours in zip(found["queries"], queries, nearest, strict=True):
        assert entry["file"] == str(query)
        assert [row["file"] for row in entry["similar"]] == [str(files[place]) for place, _ in neighbours]
        assert [row["distance"] for row in entry["similar"]] == pytest.approx([far for _, far in neighbours], rel=1e-4)
        assert [row["class"] for row in entry["similar"]] == [
            *model.predict(gallery[[place for place, _ in neighbours]])
        ]
    lines = list(csv.DictReader(in_this_process(capsys, *arguments, "--csv")[1].splitlines()))
    flat = [(entry["file"], row["file"]) for entry in found["queries"] for row in entry["similar"]]
    assert [(row["query"], row["file"]) for row in lines] == flat
    assert [row["rank"] for row in lines] == ["1", "2", "3"] * 2
    assert "distance" in in_this_process(capsys, *arguments)[1]


def test_a_method_of_the_model(photos):
    model, (images, _) = load(photos / "model"), digits()
    found = model.similar(images[:5], images[:100], 4)
    distances = np.linalg.norm(model.coordinates(images[:5])[:, None] - model.coordinates(images[:100]), axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.distances, np.take_along_axis(distances, order, 1), atol=1e-9)
    np.testing.assert_array_equal(found.indices[:, 0], range(5))  # each query is its own nearest image
    assert model.similar(images[:2], images[:3]).indices.shape == (2, 3)


def test_arrays_and_packs_give_the_same_neighbours_as_files(photos, tmp_path, capsys):
    files = sorted((photos / "photos").rglob("*.png"))
    np.savez(tmp_path / "images.npz", x_test=pixels_of(files))
    in_this_process(capsys, "data", "pack", photos / "photos", tmp_path / "images.pack")
    answers = []
    for place in (photos / "photos", tmp_path / "images.npz", tmp_path / "images.pack"):
        code, shown, _ = in_this_process(capsys, "similar", photos / "model", files[7], "--in", place, "--json")
        assert code == 0
        answers.append([row["distance"] for row in json.loads(shown)["queries"][0]["similar"]])
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 10


def test_the_page_has_the_images_and_escapes_names(photos, tmp_path, capsys):
    nasty = tmp_path / "in" / "<script>alert(1).png"
    nasty.parent.mkdir()
    Image.fromarray(digits()[0][3, 0]).save(nasty)
    page = tmp_path / "page.html"
    query = next((photos / "photos").rglob("05.png"))
    code, shown, _ = in_this_process(
        capsys, "similar", photos / "model", query, "--in", tmp_path / "in", "--output", page
    )
    text = page.read_text()
    assert (code, shown) == (0, f"wrote {page}\n")
    assert text.count("<img") == 2
    assert "deeplda similar</p>" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "default-src &#x27;none&#x27;; img-src data:" in text


def test_broken_files_are_listed(photos, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    query = next((photos / "photos").rglob("05.png"))
    arguments = ("similar", photos / "model", query, tmp_path / "broken.png", "--in", photos / "photos", "--json")
    code, shown, errors = in_this_process(capsys, *arguments)
    found = json.loads(shown)
    assert code == 1
    assert [row["file"] for row in found["unreadable"]] == [str(tmp_path / "broken.png")]
    assert len(found["queries"]) == 1
    assert errors.splitlines()[0] == f"not compared: {found['unreadable'][0]['error']}"
    assert errors.splitlines()[-1] == "deeplda: 1 file could not be read"
    assert in_this_process(capsys, *arguments, "--skip-unreadable")[0] == 0
    for files, place in (([tmp_path / "broken.png"], photos / "photos"), ([query], tmp_path)):
        code, shown, errors = in_this_process(capsys, "similar", photos / "model", *files, "--in", place)
        assert (code, shown) == (1, "")
        assert "none of the files could be read" in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--in", "photos", "--count", "0"), "--count must be at least 1, got 0"),
        (("--in", "photos", "--csv", "--json"), "--csv and --json were both given"),
        (("--in", "nowhere"), "nowhere does not exist"),
        (("--in", "photos", "--output", "photos"), "photos is a folder: pass a file as --output"),
    ],
)
def test_mistakes_are_one_sentence(photos, capsys, monkeypatch, options, message):
    monkeypatch.chdir(photos)
    code, shown, errors = in_this_process(capsys, "similar", "model", "photos/0/00.png", *options)
    assert (code, shown) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_rows_of_a_table(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(30, 2)), 3)
    columns = tuple(NumberEncoding(name=name, mean=0, deviation=1, missing=False) for name in "ab")
    card = ModelCard(
        network="mlp",
        width=1,
        embedding_dim=2,
        hidden_layer_sizes=(),
        sample_shape=(2,),
        class_names=("x", "y", "z"),
        predictors=("hyperplanes",),
        table=TableEncoder(columns=columns),
    )
    torch.manual_seed(0)
    model = Model(card, build_network("mlp", (2,), 2, hidden_layer_sizes=()))
    labels = torch.arange(30) % 3
    statistics = FeatureStatistics.for_labels(labels)
    statistics.update(model.transform(rows), labels)
    model._fit_statistics(statistics)
    model.save(tmp_path / "model")
    for name, some in (("all.csv", rows), ("some.csv", rows[4:6])):
        np.savetxt(tmp_path / name, some, delimiter=",", header="a,b", comments="", fmt="%.3f")
    arguments = ("similar", tmp_path / "model", tmp_path / "some.csv", "--in", tmp_path / "all.csv", "--count", "2")
    code, shown, _ = in_this_process(capsys, *arguments, "--json")
    assert code == 0
    coordinates = model.coordinates(rows)
    for entry, query in zip(json.loads(shown)["queries"], (4, 5), strict=True):
        distances = np.linalg.norm(coordinates - coordinates[query], axis=1)
        assert [row["row"] - 1 for row in entry["similar"]] == np.argsort(distances)[1:3].tolist()
    code, _, errors = in_this_process(capsys, *arguments, "--output", tmp_path / "page.html")
    assert code == 2
    assert "--output needs images" in errors
