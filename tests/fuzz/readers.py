"""Every reader of files, with a small valid folder for it to read and the lies that may be told there."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch
from hypothesis import strategies as st
from lies import as_json, as_toml, bytes_changed, values_changed
from PIL import Image
from safetensors.numpy import save as save_arrays
from torch import nn

from deeplda.cli import main
from deeplda.data import Data, Part, check_data, load_data, pack_data, read_images
from deeplda.data.corrections import corrected
from deeplda.data.data_frames import fit_encoder
from deeplda.data.download import unpack
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.layouts import read_idx
from deeplda.data.npz import read_npz
from deeplda.data.stored_split import read_split
from deeplda.data.table_source import encoded_blocks
from deeplda.errors import InputError
from deeplda.estimators import DeepLDAClassifier
from deeplda.experiments.recipes import read_recipe
from deeplda.experiments.results import TrialResult, read_results
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_display import sweep_status
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.loading import load
from deeplda.model import Model
from deeplda.model_card import ModelCard
from deeplda.networks import build_network
from deeplda.output_folder import OutputFolder
from deeplda.predictors import FeatureStatistics
from deeplda.report.diagnosis import diagnose
from deeplda.report.record import read_record
from deeplda.report.training_section import epoch_table
from deeplda.report.wording import effort, environment_table
from deeplda.training.autoencoder_stage import SampleAutoencoder
from deeplda.training.checkpoint import Counters, Snapshot, read_checkpoint, write_checkpoint
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.run_folder import read_margins, read_metrics
from deeplda.training.start_from import StartingWeights, inherited_settings
from deeplda.training.subclass_stage import read_clusters


@dataclass(frozen=True)
class Reader:
    """Files of a folder by name; one of them changed, by name and content; what reads the folder.

    Instead of content, a lie may have a function that puts something else in the file's place. A reader that takes
    long gets every `one_in`th number of lies. A reader that `reserves` memory may be refused what a file declares:
    Arrow reserves the declared size of a compressed buffer, and uses only what the buffer contains.
    """

    valid: dict[str, bytes]
    lies: st.SearchStrategy[tuple[str, bytes | Callable[[Path], object]]]
    read: Callable[[Path], object]
    one_in: int = 1
    reserves: bool = False


def in_file(name, *strategies):
    """Strategy: the name with content of one of these."""
    return st.one_of(*strategies).map(lambda content: (name, content))


def json_lies(content):
    return st.one_of(values_changed(json.loads(content)).map(as_json), bytes_changed(content))


def tensor_lies(content):
    """Bytes anywhere, or a header that lies about what follows."""
    size = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    return st.one_of(bytes_changed(content), values_changed(header).map(lambda lie: _with_header(as_json(lie), rest)))


def _with_header(header, rest):
    return len(header).to_bytes(8, "little") + header + rest


def files_of(write):
    """The files that `write` puts into a folder, by name."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return {str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}


def _into(write):
    """A function of a path from one of an OutputFolder."""

    def at(path):
        with OutputFolder.open(path) as folder:
            write(folder)

    return at


# ---------------------------------------------------------------- data


def archive():
    def packed(tar):
        return gzip.compress(tar, 1)

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("set/a.bin", b"a" * 700), ("set/b.bin", b"b"), ("set/é.txt", b"long")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    raw = buffer.getvalue()
    lies = in_file("a.tar.gz", bytes_changed(raw).map(packed), bytes_changed(packed(raw)))
    wanted = frozenset({"a.bin", "b.bin"})

    def read(at):
        file = at / "a.tar.gz"
        with file.open("rb") as stream, OutputFolder.open(at / "out") as folder:
            unpack(stream, file, folder, wanted, 10_000)

    return Reader({"a.tar.gz": packed(raw)}, lies, read)


def cifar10():
    content = b"".join(bytes([label]) + bytes(3072) for label in (3, 9))
    lies = in_file("x.bin", bytes_changed(content))
    return Reader({"x.bin": content}, lies, lambda at: KNOWN_SETS["cifar10"].describe(at / "x.bin"))


def mnist():
    raw = bytes.fromhex("00000803 00000002 00000003 00000003") + bytes(range(18))
    lies = st.one_of(
        in_file("idx", bytes_changed(raw)),
        in_file("idx.gz", bytes_changed(raw).map(gzip.compress), bytes_changed(gzip.compress(raw))),
    )

    def read(at):
        read_idx(at / "idx", 3)
        read_idx(at / "idx.gz", 3)

    return Reader({"idx": raw, "idx.gz": gzip.compress(raw)}, lies, read)


def stl10():
    valid = {"train_X.bin": bytes(2 * 27_648), "train_y.bin": bytes([1, 10])}
    lies = st.one_of(*(in_file(name, bytes_changed(content)) for name, content in valid.items()))
    valid |= {"test_X.bin": bytes(27_648), "test_y.bin": b"\1"}
    return Reader(valid, lies, KNOWN_SETS["stl10"].read)


def npz():
    arrays = {"x_train": np.eye(4), "y_train": np.array(["a", "b", "a", "b"]), "class_names": np.array(["a", "b"])}
    content, lies = _npz_with_lies("x.npz", arrays)
    return Reader({"x.npz": content}, lies, lambda at: read_npz(at / "x.npz"))


def pack():
    def write(folder):
        images = np.arange(12 * 4, dtype=np.uint8).reshape(12, 1, 2, 2)
        np.savez(folder / "x.npz", x_train=images, y_train=np.arange(12) % 2, x_test=images[:2], y_test=[0, 1])
        pack_data(folder / "x.npz", folder / "x.pack")
        (folder / "x.npz").unlink()

    def with_sums(lines):
        """The lines of an index with right checksums, so that readers see what the lines say."""
        written, checksum = b"", ""
        for line in lines if isinstance(lines, list) else [lines]:
            text = as_json(line)
            checksum = hashlib.sha256(checksum.encode() + text).hexdigest()
            written += b"%s %s\n" % (checksum.encode(), text)
        return written

    def read(at):
        check_data(at / "x.pack")
        data = load_data(at / "x.pack")
        for part in (data.train, data.val, data.test):
            np.asarray(part.inputs)

    valid = files_of(write)
    index, pixels = valid["x.pack/pack-index.txt"], valid["x.pack/images.bin"]
    lines = [json.loads(line.partition(b" ")[2]) for line in index.splitlines()]
    lies = st.one_of(
        in_file("x.pack/pack-index.txt", values_changed(lines).map(with_sums), bytes_changed(index)),
        in_file("x.pack/pack-index.txt", values_changed(lines).map(with_sums)),
        in_file("x.pack/images.bin", bytes_changed(pixels)),
    )
    return Reader(valid, lies, read)


def cifar10n():
    arrays = {"clean_label": np.array([3, 9], np.uint8), "worse_label": np.array([3, 8], np.uint8)}
    content, lies = _npz_with_lies("cifar10n_labels.npz", arrays)
    known = KNOWN_SETS["cifar10n-worst"]
    return Reader({"cifar10n_labels.npz": content}, lies, lambda at: known.describe(at / "cifar10n_labels.npz"))


def _npz_with_lies(file, arrays):
    def with_member(lie):
        """The archive with one member changed and all its sums right again."""
        name, content = lie
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for member, good in members.items():
                archive.writestr(member, content if member == name else good)
        return buffer.getvalue()

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getvalue()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inside = st.one_of(*(in_file(name, bytes_changed(good)) for name, good in members.items()))
    return content, in_file(file, inside.map(with_member), bytes_changed(content))


def images():
    def encoded(suffix):
        buffer = io.BytesIO()
        pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, {"jpg": "jpeg"}.get(suffix, suffix))
        return buffer.getvalue()

    contents = [encoded(suffix) for suffix in ("png", "jpg", "bmp", "webp", "gif", "tiff")]
    contents.append((Path(__file__).parents[1] / "data" / "gradient.heic").read_bytes())
    lies = in_file("image", *map(bytes_changed, contents))
    return Reader({"image": contents[0]}, lies, lambda at: read_images([at / "image"], channels=1, image_size=(4, 4)))


# ---------------------------------------------------------------- tables

_ROWS = 40
_TABLE = pa.table(
    {
        "number": pa.array([None, *range(1, _ROWS)], pa.float64()),
        "text": [("red", "green, or", 'a "b"', None)[row % 4] for row in range(_ROWS)],
        "day": [datetime(2020, 1, 1 + row % 28, 12) for row in range(_ROWS)],
        "flag": [row % 3 == 0 for row in range(_ROWS)],
        "kind": ["a" if row % 4 < 2 else "b" for row in range(_ROWS)],
    }
)
# What a table may be made of, besides changes of a valid one.
_CELLS = st.text(st.sampled_from(list("a1-.,;\t|\"'\n\r\0 é\ufeff")), max_size=6)
_LINES = st.lists(st.lists(_CELLS, max_size=6).map(",".join), max_size=8).map("\n".join)


def _as_csv():
    buffer = io.BytesIO()
    pa.csv.write_csv(_TABLE, buffer)
    return buffer.getvalue()


def _with_footer_lies(content, size):
    """Bytes anywhere, or in the last `size` bytes, which say what the others mean."""
    body, footer = content[:-size], content[-size:]
    return st.one_of(bytes_changed(content), bytes_changed(footer).map(lambda lie: body + lie))


def _table_reader(name, valid, lies, *, reserves=False):
    """Reads a table to train on it, and to predict its rows with the encoding of the valid table."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(valid)
        encoder = load_data(Path(folder) / name).table

    def read(at):
        refused = None
        for use in (load_data, lambda path: list(encoded_blocks(path, encoder))):
            try:
                use(at / name)
            except InputError as error:
                refused = error
        if refused is not None:
            raise refused

    return Reader({name: valid}, in_file(name, lies), read, reserves=reserves)


def csv_table():
    content = _as_csv()
    return _table_reader("t.csv", content, st.one_of(bytes_changed(content), _LINES.map(str.encode)))


def packed_csv_table():
    content = _as_csv()
    packed = gzip.compress(content, 1)
    return _table_reader(
        "t.csv.gz", packed, st.one_of(bytes_changed(packed), bytes_changed(content).map(gzip.compress))
    )


def parquet_table():
    def written(**options):
        buffer = io.BytesIO()
        pa.parquet.write_table(_TABLE, buffer, row_group_size=25, **options)
        return buffer.getvalue()

    contents = [written(), written(compression="none", use_dictionary=False), written(compression="zstd")]
    lies = st.one_of(*(_with_footer_lies(content, 2_000) for content in contents))
    return _table_reader("t.parquet", contents[0], lies)


def arrow_table():
    def written(compression):
        buffer = io.BytesIO()
        pa.feather.write_feather(_TABLE, buffer, compression=compression)
        return buffer.getvalue()

    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _TABLE.schema) as writer:
        writer.write_table(_TABLE)
    contents = [written("lz4"), written("uncompressed"), written("zstd"), stream.getvalue()]
    lies = st.one_of(*(_with_footer_lies(content, 1_000) for content in contents))
    return _table_reader("t.arrow", contents[0], lies, reserves=True)


# ---------------------------------------------------------------- models


def _model_files():
    card = ModelCard(
        network="mlp",
        width=0.5,
        hidden_layer_sizes=(6, 4),
        dropout=0.25,
        embedding_dim=3,
        sample_shape=(4,),
        class_names=("a", "b", "c"),
        predictors=("hyperplanes", "nearest_mean"),
        parents=(0, 1, 1, 2),
        subclass_decision="sum",
    )
    torch.manual_seed(0)
    model = Model(card, build_network(**card._architecture()))
    labels = torch.arange(12) % 4
    statistics = FeatureStatistics.for_labels(labels)
    statistics.update(torch.randn(12, 3), labels)
    model._fit_statistics(statistics)
    return files_of(_into(model._write))


def _use(at):
    model = load(at)
    if model.card.sample_shape == (4,):
        model.predict_proba(np.zeros((2, 4)))
        model.predict_subclasses(np.zeros((2, 4)))
        model.mahalanobis(np.zeros((2, 4)))
        if (np.abs(model.transform(np.zeros((2, 4)))) < 1e30).all():
            model.add_class(np.zeros((2, 4)), "one that no file has")


def model_card():
    valid = _model_files()
    return Reader(valid, in_file("model.json", json_lies(valid["model.json"])), _use)


def table_card():
    """A model card with the encoding of a table, as it is used to predict rows."""
    encoder = fit_encoder(_TABLE.drop_columns(["kind"]))
    width = len(encoder.outputs)
    card = ModelCard(
        network="mlp",
        width=0.02,
        embedding_dim=2,
        sample_shape=(width,),
        class_names=("a", "b"),
        predictors=("nearest_mean",),
        table=encoder,
    )
    model = Model(card, build_network("mlp", (width,), 2, width=0.02))
    labels = torch.arange(12) % 2
    statistics = FeatureStatistics.for_labels(labels)
    statistics.update(torch.randn(12, 2, generator=torch.Generator().manual_seed(0)), labels)
    model._fit_statistics(statistics)
    valid = files_of(_into(model._write))
    lies = in_file("model.json", json_lies(valid["model.json"]))
    return Reader(valid, lies, lambda at: load(at).predict_proba(_TABLE))


def model_weights():
    valid = _model_files()
    return Reader(valid, in_file("weights.safetensors", tensor_lies(valid["weights.safetensors"])), _use)


def weights_to_start_from():
    """A run whose weights another one starts from, and the file of weights alone."""
    model = _model_files()
    valid = {f"model/{name}": content for name, content in model.items()}
    valid["run.toml"] = RunConfig(data="digits", network="mlp", width=0.02).to_toml().encode()
    lies = st.one_of(
        in_file("model/model.json", json_lies(model["model.json"])),
        in_file("model/weights.safetensors", tensor_lies(model["weights.safetensors"])),
        in_file("run.toml", bytes_changed(valid["run.toml"])),
    )
    card = ModelCard.model_validate_json(model["model.json"])

    def read(at):
        for path in (at, at / "model", at / "model" / "weights.safetensors"):
            inherited_settings(path, {})
            start = StartingWeights.read(path, None)
            assert len(start.digest) == 32
            start.require_fit(card)

    return Reader(valid, lies, read)


def autoencoder():
    valid = files_of(_into(SampleAutoencoder((4,), 0.05)._write))
    lies = st.one_of(
        in_file("model.json", json_lies(valid["model.json"])),
        in_file("weights.safetensors", tensor_lies(valid["weights.safetensors"])),
    )
    return Reader(valid, lies, SampleAutoencoder.load)


def classifier():
    rows, labels = np.random.default_rng(0).normal(size=(20, 2)), np.array(["x", "y"] * 10)
    fitted = DeepLDAClassifier(max_epochs=1, random_state=0, embedding_dim=1).fit(rows, labels)
    valid = files_of(lambda folder: fitted.save(folder / "c"))
    lies = st.one_of(
        in_file("c/classifier.json", json_lies(valid["c/classifier.json"])),
        in_file("c/coordinates.safetensors", tensor_lies(valid["c/coordinates.safetensors"])),
    )

    def read(at):
        found = DeepLDAClassifier.load(at / "c")
        found.predict(rows)
        found.transform(rows)

    return Reader(valid, lies, read)


# ---------------------------------------------------------------- runs

_SETTINGS = RunConfig(epochs=2, alpha=0.5, data="digits").model_dump(mode="json", exclude_none=True)


def run_toml():
    lies = in_file("run.toml", values_changed(_SETTINGS).map(as_toml), bytes_changed(as_toml(_SETTINGS)))
    return Reader({"run.toml": as_toml(_SETTINGS)}, lies, lambda at: RunConfig.read(at / "run.toml"))


def recipe():
    settings = {"data": "cifar10", "epochs": 3, "alpha": 0.5, "network": "mlp"}
    lies = in_file("own.toml", values_changed(settings).map(as_toml), bytes_changed(as_toml(settings)))
    return Reader({"own.toml": as_toml(settings)}, lies, lambda at: read_recipe(str(at / "own.toml")))


def _rows():
    scores = {"n": 4, "accuracy": 0.75, "confusion": [[2, 0], [1, 1]]}
    scores["predictors"] = {"hyperplanes": {"accuracy": 0.75, "balanced_accuracy": 0.75}}
    rows = [
        {"kind": "epoch", "epoch": epoch, "loss": -1.5, "learning_rate": 0.1, "eigenvalues": [2.5], "selected": 1,
         "dead_dims": 0, "validation": scores, "seconds": 1.5 * epoch}
        for epoch in (1, 2, 3)
    ]  # fmt: skip
    summary = {"kind": "summary", "epochs": 3, "best_epoch": 3, "seconds": 4.5, "validation": scores, "test": scores}
    return [*rows, summary | {"class_names": ["a", "b"]}]


def stored_split():
    """The split of a folder of images, as it is read to evaluate a run."""

    def write(folder):
        for place in range(12):
            file = folder / "photos" / "ab"[place % 2] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((2, 2), place, dtype=np.uint8)).save(file)
        split = load_data(folder / "photos", group_by=r"\d").split
        (folder / "split.jsonl").write_text(split.to_jsonl())

    valid = files_of(write)
    lines = [json.loads(line) for line in valid["split.jsonl"].splitlines()]
    lies = in_file("split.jsonl", values_changed(lines).map(_as_lines), bytes_changed(valid["split.jsonl"]))

    def read(at):
        split = read_split(at / "split.jsonl")
        for exact in (False, True):
            load_data(at / "photos", split=split, exact=exact, group_by=r"\d")

    return Reader(valid, lies, read)


def decisions():
    """The decisions of an audit, as a training applies them."""
    rows = [("train 3", "1", "2", "accepted"), ("val 0", "7", "9", "rejected"), ("test 1", "4", "5", "accepted")]
    digits = load_data("digits")
    given = digits.class_names[digits.train.labels[3]]
    rows[0] = ("train 3", given, "2" if given != "2" else "3", "accepted")
    valid = "\n".join(",".join(row) for row in (("sample", "given", "suggested", "decision"), *rows)).encode()

    def read(at):
        corrected(digits, drop=[at / "decisions.csv"])
        corrected(digits, relabel=[at / "decisions.csv"])

    return Reader({"decisions.csv": valid}, in_file("decisions.csv", bytes_changed(valid)), read)


def margins():
    valid = save_arrays({"margins": np.linspace(-1, 1, 12, dtype=np.float32)})
    lies = in_file("margins.safetensors", tensor_lies(valid))
    return Reader({"margins.safetensors": valid}, lies, lambda at: read_margins(at, 12))


def _as_lines(rows):
    return b"".join(as_json(row) + b"\n" for row in (rows if isinstance(rows, list) else [rows]))


def metrics():
    valid = {"metrics.jsonl": _as_lines(_rows()), "run.toml": as_toml(_SETTINGS)}
    valid |= {"model/model.json": b"{}", "environment.json": b'{"threads": 2, "versions": {"torch": "2"}}'}
    lies = st.one_of(
        in_file("metrics.jsonl", values_changed(_rows()).map(_as_lines), bytes_changed(valid["metrics.jsonl"])),
        in_file("environment.json", json_lies(valid["environment.json"])),
    )

    def read(at):
        rows = read_metrics(at)
        diagnose(rows, RunConfig.read(at / "run.toml"))
        record = read_record(at)
        environment_table(record.environment)
        effort(record.summary, record.environment)
        epoch_table(record)
        assert len(record.class_names) == len(record.scores.confusion)

    return Reader(valid, lies, read)


def run_folder():
    """A whole run, as the commands that only read it do; pipes, links and sparse files take the place of its files."""
    settings = RunConfig(data="digits", epochs=2, width=0.1, tta="mirror", device="cpu")

    def write(folder):
        run_to_end(settings, folder / "run", Progress())

    def read(at):
        for command in ("doctor", "evaluate", "report"):
            code, shown, errors = _run(command, str(at / "run"))
            assert code in (0, 2), errors
            assert (shown + errors).replace("\n", "").isprintable()
            if code:
                raise InputError(errors.splitlines()[-1])

    valid = {name: content for name, content in files_of(write).items() if "checkpoints" not in name}
    rows = [json.loads(line) for line in valid["run/metrics.jsonl"].splitlines()]
    plants = st.sampled_from([os.mkfifo, _sparse, _link_outside, _link_to_nothing, Path.mkdir])
    lies = st.one_of(
        in_file("run/metrics.jsonl", values_changed(rows).map(_as_lines)),
        in_file("run/metrics.jsonl", values_changed(rows[-1]).map(lambda last: _as_lines([*rows[:-1], last]))),
        in_file("run/environment.json", json_lies(valid["run/environment.json"])),
        in_file("run/model/model.json", json_lies(valid["run/model/model.json"])),
        st.tuples(st.sampled_from(sorted(valid)), plants),
    )
    return Reader(valid, lies, read, one_in=10)


def _run(*command):
    """Run a command; return its exit code and what it prints."""
    shown, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(shown), redirect_stderr(errors):
        try:
            main(command)
        except SystemExit as error:
            return error.code, shown.getvalue(), errors.getvalue()
    return 0, shown.getvalue(), errors.getvalue()


def _sparse(path):
    with path.open("wb") as stream:
        stream.truncate(2**41)


def _link_outside(path):
    path.symlink_to("/etc/passwd")


def _link_to_nothing(path):
    path.symlink_to(path.parent / "nothing")


def _checkpoint(lie_in):
    def network():
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    def write(folder):
        torch.manual_seed(0)
        trained = network()
        optimizer = torch.optim.SGD(trained.parameters(), 0.1, 0.9, nesterov=True)
        trained(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        taken = Snapshot.of(trained, optimizer, Counters(epoch=1))
        with OutputFolder.open(folder) as output:
            write_checkpoint(taken, output, "last", "run", keep="previous")

    def read(at):
        found = network()
        optimizer = torch.optim.SGD(found.parameters(), 0.1, 0.9, nesterov=True)
        if lie_in == "state.safetensors":
            # The manifest lies too: it says that these are the tensors that were written.
            digest = hashlib.blake2b((at / "last" / lie_in).read_bytes(), digest_size=16).hexdigest()
            manifest = at / "last" / "checkpoint.json"
            manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"digest": digest}))
        read_checkpoint(at / "last", "run").restore(found, optimizer)
        found(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()

    valid = files_of(write)
    content = valid[f"last/{lie_in}"]
    lies = tensor_lies(content) if lie_in == "state.safetensors" else json_lies(content)
    return Reader(valid, in_file(f"last/{lie_in}", lies), read)


def checkpoint_manifest():
    return _checkpoint("checkpoint.json")


def checkpoint_tensors():
    return _checkpoint("state.safetensors")


def subclasses():
    labels = np.array([0, 1, 2, 0, 1, 2])
    part = Part(np.zeros((6, 2), dtype=np.float32), np.array([0, 0, 1, 0, 0, 1]))
    data = Data("rows", part, part, part, ("a", "b"))
    manifest = json.dumps({"identity": "x", "parents": [0, 0, 1], "notes": ["two"]}).encode()
    valid = {
        "subclasses.json": manifest,
        "subclasses.safetensors": save_arrays({"labels": labels, "centres": np.zeros((3, 2), dtype=np.float32)}),
    }
    lies = st.one_of(
        in_file("subclasses.json", json_lies(manifest)),
        in_file("subclasses.safetensors", tensor_lies(valid["subclasses.safetensors"])),
    )
    return Reader(valid, lies, lambda at: read_clusters(at, "x", data))


# ---------------------------------------------------------------- sweeps

_SWEEP = {
    "table": 2,
    "scale": "quick",
    "recipe": "quick",
    "settings": {"data": "digits", "epochs": 1},
    "grid": {"objective": ["rdlda", "cce"], "alpha": [0.0, 0.5], "seed": [0, 1]},
}


def sweep_toml():
    def read(at):
        definition = SweepDefinition.read(at / "sweep.toml")
        for own in definition.trials().values():
            definition.config(own)

    lies = in_file("sweep.toml", values_changed(_SWEEP).map(as_toml), bytes_changed(as_toml(_SWEEP)))
    return Reader({"sweep.toml": as_toml(_SWEEP)}, lies, read)


def sweep_journal():
    definition = SweepDefinition(settings={"epochs": 1}, grid={"alpha": [0.0, 1.0], "seed": [0]})

    def write(folder):
        sweep = open_sweep(folder / "sweep", definition)
        done = sweep.queue.claim("me", "here", lambda _: False)
        sweep.queue.report(done, 1, 0.5)
        sweep.queue.finish(done, TrialResult(validation=0.5, seconds=1.0))
        sweep.queue.claim("me", "here", lambda _: False)

    def read(at):
        sweep_status(open_sweep(at / "sweep"))

    valid = files_of(write)
    content = valid["sweep/journal.jsonl"]
    rows = [json.loads(line) for line in content.splitlines()]
    lies = in_file("sweep/journal.jsonl", values_changed(rows).map(_as_lines), bytes_changed(content))
    return Reader(valid, lies, read)


def sweep_results():
    """A finished sweep's folder, as `deeplda table` reads it."""
    definition = {"settings": {"data": "digits", "epochs": 3}, "grid": {"alpha": [0.5], "seed": [0]}}
    run = "trials/lda-alpha0.5-seed0"
    valid = {"sweep.toml": as_toml(definition), f"{run}/model/model.json": b"{}"}
    valid |= {f"{run}/metrics.jsonl": _as_lines(_rows()), f"{run}/run.toml": as_toml(_SETTINGS)}
    lies = st.one_of(
        in_file("sweep.toml", values_changed(definition).map(as_toml)),
        in_file(f"{run}/metrics.jsonl", values_changed(_rows()).map(_as_lines)),
        in_file(f"{run}/run.toml", values_changed(_SETTINGS).map(as_toml)),
    )
    return Reader(valid, lies, read_results)


def sweep_scores():
    """The published scores of a sweep's trials, without their runs, as `deeplda table` reads them."""
    definition = {"settings": {"data": "digits", "epochs": 3}, "grid": {"alpha": [0.5], "seed": [0]}}
    content = (
        b"trial,validation,test auc,test hyperplanes,test ece,seconds,eigenvalues\nlda-alpha0.5-seed0,50,0.9,60.5,"
    )
    content += b"0.1,12,0.5 1.5\n"
    lies = in_file("trials.csv", bytes_changed(content))
    return Reader({"sweep.toml": as_toml(definition), "trials.csv": content}, lies, read_results)


OF_DATA_AND_MODELS = (
    archive, cifar10, cifar10n, mnist, stl10, npz, pack, images,
    csv_table, packed_csv_table, parquet_table, arrow_table,
    model_card, table_card, model_weights, weights_to_start_from, autoencoder, classifier,
)  # fmt: skip
OF_RUNS_AND_SWEEPS = (
    run_toml, recipe, stored_split, decisions, margins, metrics, run_folder,
    checkpoint_manifest, checkpoint_tensors, subclasses,
    sweep_toml, sweep_journal, sweep_results, sweep_scores,
)  # fmt: skip
