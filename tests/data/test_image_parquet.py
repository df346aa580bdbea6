"""Parquet files of images, as Hugging Face writes them, are packed like a folder of the same files."""

import io
import json

import numpy as np
import pyarrow
import pytest
from image_folders import photos
from PIL import Image
from pyarrow import parquet

from deeplda.data import load_data, open_pack, pack_data
from deeplda.errors import InputError

CLASS_LABEL = {"names": ["cat", "dog"], "_type": "ClassLabel"}


def write(file, contents, labels, *, features=None, group=3, image="image", label="label"):
    """Write images and labels in the schema of Hugging Face."""
    rows = [{"bytes": content, "path": f"{place}.png"} for place, content in enumerate(contents)]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"id": list(range(len(rows))), image: pyarrow.array(rows, kind), label: labels})
    if features is not None:
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, file, row_group_size=group)


def of_folder(folder, file, **options):
    """Write the images of a folder in the order in which it is read."""
    files = sorted(folder.rglob("*.png"))
    labels = [("cat", "dog").index(path.parent.name) for path in files]
    features = {"image": {"_type": "Image"}, "label": CLASS_LABEL}
    write(file, [path.read_bytes() for path in files], labels, **{"features": features} | options)


def test_the_same_pixels_and_split_as_those_of_a_folder(tmp_path):
    folder = photos(tmp_path / "photos", range(40))
    of_folder(folder, tmp_path / "data" / "train-00000-of-00001.parquet")
    pack_data(tmp_path / "data", tmp_path / "out")
    packed, read = load_data(tmp_path / "out"), load_data(folder)
    for name in ("train", "val", "test"):
        one, other = getattr(packed, name), getattr(read, name)
        np.testing.assert_array_equal(np.asarray(one.inputs), other.inputs)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.digests, other.digests)
    assert open_pack(tmp_path / "out").files[21] == "train/dog/train-00000-of-00001.parquet/21"
    assert pack_data(tmp_path / "data" / "train-00000-of-00001.parquet", tmp_path / "one", image_size=3).images == 40
    assert open_pack(tmp_path / "one").images.shape == (40, 3, 3, 3)


def test_splits_are_known_by_file_names_and_files_can_be_added(tmp_path):
    for place, part in enumerate(("train", "validation", "test")):
        of_folder(photos(tmp_path / part, range(10 * place, 10 * place + 8)), tmp_path / "data" / f"{part}-0.parquet")
    assert pack_data(tmp_path / "data", tmp_path / "out").images == 24
    assert [len(part) for part in (lambda d: (d.train, d.val, d.test))(load_data(tmp_path / "out"))] == [8, 8, 8]
    of_folder(photos(tmp_path / "more", range(50, 60)), tmp_path / "data" / "train-1.parquet")
    assert pack_data(tmp_path / "data", tmp_path / "out").added == 10
    of_folder(photos(tmp_path / "other", range(70, 80)), tmp_path / "data" / "train-1.parquet")
    with pytest.raises(InputError, match=r"10 images .* have changed"):
        pack_data(tmp_path / "data", tmp_path / "out")


def encoded(seed, shape=(4, 5, 3)):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(stream, "png")
    return stream.getvalue()


def test_without_a_schema_columns_are_called_image_and_label(tmp_path):
    write(tmp_path / "x.parquet", [encoded(seed) for seed in range(20)], ["b", "a"] * 10)
    pack_data(tmp_path / "x.parquet", tmp_path / "out")
    pack = open_pack(tmp_path / "out")
    assert (pack.class_names, pack.labels[:2].tolist()) == (("a", "b"), [1, 0])
    other = pyarrow.table({"image": [encoded(seed) for seed in range(4)], "label": [0, 1, 0, 1]})
    parquet.write_table(other, tmp_path / "plain.parquet")
    assert pack_data(tmp_path / "plain.parquet", tmp_path / "plain").images == 4


def test_broken_images_are_skipped_and_named(tmp_path):
    contents = [encoded(seed) for seed in range(8)]
    write(tmp_path / "x.parquet", [*contents, None, b"broken"], ["a", "b"] * 5)
    notes = pack_data(tmp_path / "x.parquet", tmp_path / "out", skip_unreadable=True).notes
    assert ["x.parquet/8" in notes[0], "x.parquet/9" in notes[1]] == [True, True]
    assert len(open_pack(tmp_path / "out").files) == 8


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"image": "photo"}, "has no column 'image'; its columns are id, photo, label, need images and labels"),
        ({"label": "kind"}, "has no column 'label'"),
        ({"features": {"label": CLASS_LABEL}}, "has the unknown label '-1': leave out unlabelled files"),
    ],
)
def test_files_without_images_or_labels_are_rejected(tmp_path, options, complaint):
    write(tmp_path / "x.parquet", [encoded(seed) for seed in range(4)], [0, 1, -1, 1], **options)
    with pytest.raises(InputError, match=complaint):
        pack_data(tmp_path / "x.parquet", tmp_path / "out")


def test_a_column_that_holds_no_images_and_a_broken_file_are_rejected(tmp_path):
    parquet.write_table(pyarrow.table({"image": [1, 2], "label": [0, 1]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"the column 'image' of x\.parquet is of type int64, need encoded images"):
        pack_data(tmp_path / "x.parquet", tmp_path / "out")
    (tmp_path / "x.parquet").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"x.parquet cannot be read .*, need an intact Parquet file"):
        pack_data(tmp_path / "x.parquet", tmp_path / "out")


def test_images_of_several_sizes_need_a_size(tmp_path):
    write(tmp_path / "x.parquet", [encoded(seed, (4 + seed % 2, 5, 3)) for seed in range(8)], [0, 1] * 4)
    with pytest.raises(InputError, match="need the same size for all images: pass --image-size"):
        pack_data(tmp_path / "x.parquet", tmp_path / "out")
    assert pack_data(tmp_path / "x.parquet", tmp_path / "out", image_size=4).images == 8
