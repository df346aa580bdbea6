"""A statistic, an objective and data of the user on the command line: accepted, rejected, or not run at all."""

import json
import sys

import numpy as np
import pytest
from command import in_this_process

from deeplda.data import load_data
from deeplda.data.npz import read_npz
from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.loading import load
from deeplda.training.config import RunConfig
from deeplda.user_code import code_options, is_code, require_named, short_name

CODE = """
import os
import signal
import numpy as np
import torch
from PIL import Image
from torch import nn
from deeplda.data import Data, Part, load_data
from deeplda.losses import DeepLDALoss

def log(v):
    return torch.log1p(v).mean()

def pair(v, w):
    return v.mean()

def number(v):
    return 1.0

def wilks(outputs, labels):
    return DeepLDALoss(alpha=1.0)(outputs, labels)

def vector(outputs, labels):
    return outputs.mean(1)

def constant(outputs, labels):
    return outputs.detach().mean()

def undefined(outputs, labels):
    return outputs.mean() * float("nan")

class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, outputs, labels):
        return self.scale * outputs.mean()

class Sized:
    def __init__(self, size): ...

def digits():
    return load_data("digits")

def rows():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=5) + 3 * (i % 3), "abc"[i % 3]) for i in range(90)]

def floats():
    found = load_data("digits")
    return Data("x", *(Part(part.inputs / 255, part.labels) for part in (found.train, found.val, found.test)), ("x",))

def outside():
    found = load_data("digits")
    return Data("x", found.train, found.val, found.test, ("0", "1"))

def ragged():
    return [(np.zeros(3), 0), (np.zeros(4), 1)]

def single():
    return [np.zeros(3), np.zeros(3)]

def seventeen():
    return 17

def needs(path): ...

def channels_last():
    found = load_data("digits")
    parts = (Part(part.inputs.transpose(0, 2, 3, 1), part.labels) for part in (found.train, found.val, found.test))
    return Data("x", *parts, found.class_names)

def transparent():
    return [(Image.new("RGBA", (8, 8)), place % 2) for place in range(40)]

def colours():
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 40, (8, 8, 3), np.uint8) + np.uint8(70 * (i % 3)), i % 3) for i in range(90)]

class Interrupting:
    def __init__(self, folder, settings): ...
    def on_epoch(self, row):
        os.kill(os.getpid(), signal.SIGINT)
"""
# Each line that fails has its kind as a comment.
FAILING = """
import torch
calls = []

def statistic(eigenvalues):
    return eigenvalues.reshape(2, 1000).mean()  # statistic

def objective(outputs, labels):
    return torch.nn.functional.mse_loss(outputs, labels.reshape(3, -1))  # objective

def late(outputs, labels):
    calls.append(1)
    return outputs.square().mean() / (1 // (len(calls) < 4))  # late

class Made:
    def __init__(self):
        raise KeyError("size")  # made

def data():
    return open("no-such-file")  # data

def samples():
    return Samples()

class Samples:
    def __len__(self):
        return 40
    def __getitem__(self, place):
        return [0.0] * 3, [0, 1][place]  # samples

class Logger:
    def __init__(self, folder, settings): ...
    def on_epoch(self, row):
        row.accuracy  # logger

def network(sample_shape, embedding_dim):
    return torch.nn.Linear(sample_shape, embedding_dim)  # network
"""
TINY = ("--epochs", "2", "--width", "0.1", "--batch-size", "400", "--quiet", "--json")


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Run `deeplda train` in a folder with own_code.py, and return its exit code, summary and messages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code.py").write_text(CODE)
    for module in ("failing", "own_code"):  # those of an earlier test, in its folder
        monkeypatch.delitem(sys.modules, module, raising=False)

    def run(*arguments):
        code, out, said = in_this_process(capsys, *arguments)
        return code, json.loads(out) if out.startswith("{") else out, said

    return run


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["kind"] == "epoch"]


def test_a_statistic_equals_the_built_in_one(train, tmp_path):
    assert train("train", *TINY, "--statistic", "own_code:log", "--run", "own")[0] == 0
    assert train("train", *TINY, "--run", "built-in")[0] == 0
    assert losses(tmp_path / "own") == pytest.approx(losses(tmp_path / "built-in"), rel=1e-4)


def test_an_objective_equals_the_built_in_one(train, tmp_path):
    code, summary, _ = train("train", *TINY, "--objective", "own_code:wilks", "--sampler", "stratified", "--run", "own")
    assert code == 0
    assert list(summary["test"]["predictors"]) == ["hyperplanes", "nearest_mean", "classic_lda"]
    assert train("train", *TINY, "--sampler", "stratified", "--run", "built-in")[0] == 0
    assert losses(tmp_path / "own") == losses(tmp_path / "built-in")
    assert "objective own_code:wilks" in (tmp_path / "own" / "report.html").read_text()
    assert train("doctor", "own")[0] == 0
    # The model itself needs no code.
    assert load(tmp_path / "own").predict(load_data("digits").test.inputs[:3]).shape == (3,)


def test_a_class_of_torch_is_an_objective(train, tmp_path):
    code, summary, _ = train("train", *TINY, "--objective", "torch.nn:CrossEntropyLoss")
    assert code == 0
    assert summary["run"] == "runs/digits-CrossEntropyLoss"
    first, second = losses(tmp_path / "runs" / "digits-CrossEntropyLoss")
    assert second < first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--statistic", "own_code:pair"), "statistic 'own_code:pair' failed: TypeError: pair() missing 1 required"),
        (("--statistic", "own_code:number"), "statistic returned an object of type float, need a 0-d tensor"),
        (("--statistic", "median"), "need one of smallest, wilks, pillai, hotelling, or your own as module.path:name"),
        (
            ("--objective", "own_code:vector"),
            "deeplda: objective own_code:vector returned a tensor of shape (40,), need a 0-d tensor",
        ),
        (("--objective", "own_code:constant"), "returned a tensor without a gradient"),
        (("--objective", "own_code:undefined"), "returned nan for random outputs, need a finite number"),
        (("--objective", "own_code:Weighted"), "has parameters of its own, which would not be trained"),
        (("--objective", "own_code:Sized"), "cannot be created without arguments"),
        (("--objective", "own_code:np"), "is of type module, need a function of (outputs, labels)"),
        (("--objective", "own_code:wilks", "--class-weight", "balanced"), "omit class_weight"),
        (("--objective", "triplet"), "need one of lda, rdlda, dlda, cce, gce, joint, or your own"),
        (("own_code:seventeen",), "returned an object of type int, need a function without arguments that returns"),
        (("own_code:needs",), "'own_code:needs' takes (path), need a function without arguments"),
        (("own_code:ragged",), "sample 1 of data 'own_code:ragged' has shape (4,), and sample 0 has (3,)"),
        (("own_code:single",), "is a ndarray, need (input, label)"),
        (("own_code:floats",), "train.inputs of dtype float64 and shape (1257, 1, 8, 8), need uint8 (N, C, H, W)"),
        (
            ("own_code:channels_last",),
            "shape (1257, 8, 8, 1), which looks like N x H x W x C, need N x C x H x W: transpose",
        ),
        (("own_code:transparent",), "is a Pillow image of mode RGBA, need L or RGB: return image.convert"),
        (("own_code:outside",), "train.labels from 0 to 9, need indices of the 2 class_names"),
        (("own_code:missing",), "has no 'missing': check the spelling"),
        (("no_such_module:data",), "module 'no_such_module' cannot be imported"),
    ],
)
def test_unsuitable_code_is_rejected_before_anything_is_written(train, tmp_path, options, message):
    code, _, said = train("train", *options, "--epochs", "1")
    assert code == 2
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "kind", "exit_code", "error"),
    [
        (("--statistic", "failing:statistic"), "statistic", 2, "RuntimeError: shape '[2, 1000]' is invalid"),
        (("--objective", "failing:objective"), "objective", 2, "RuntimeError: shape '[3, -1]' is invalid"),
        (("--objective", "failing:Made"), "made", 2, "KeyError: 'size'"),
        (("--objective", "failing:late"), "late", 1, "ZeroDivisionError: integer division or modulo by zero"),
        (("failing:data",), "data", 2, "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file'"),
        (("failing:samples",), "samples", 2, "IndexError: list index out of range"),
        (("--logger", "failing:Logger"), "logger", 1, "AttributeError: 'EpochRow' object has no attribute 'accuracy'"),
        (("--network", "failing:network"), "network", 2, "TypeError: empty()"),
    ],
)
def test_an_error_in_your_code_names_its_line(train, tmp_path, options, kind, exit_code, error):
    (tmp_path / "failing.py").write_text(FAILING)
    line = 1 + next(place for place, text in enumerate(FAILING.splitlines()) if text.endswith(f"# {kind}"))
    code, _, said = train("train", *options, "--epochs", "2", "--batch-size", "400", "--quiet", "--run", "run")
    assert code == exit_code
    assert f"{options[-1]!r} failed in failing.py, line {line}: {error}" in said
    assert len(said.splitlines()) == 1
    assert (tmp_path / "run").exists() == (exit_code == 1)


def test_an_error_while_your_module_is_imported_names_its_line(train, tmp_path):
    (tmp_path / "importing.py").write_text("import imported\n")
    (tmp_path / "imported.py").write_text("\nmissing.name\n")
    code, _, said = train("train", "importing:data")
    assert code == 2
    assert "module 'importing' failed in imported.py, line 2: NameError: name 'missing' is not defined" in said


def test_predict_takes_files_of_the_inputs_of_your_data(train, tmp_path):
    for name, stored in (("rows", "features"), ("colours", "x_test")):
        assert train("train", f"own_code:{name}", *TINY, "--run", name)[0] == 0
        code, _, said = train("predict", name, f"own_code:{name}")
        assert code == 2
        assert f"own_code:{name} is code, need files of samples: write the inputs with np.savez(path, {stored}=" in said
        import own_code

        inputs = np.stack([one for one, _ in getattr(own_code, name)()])
        np.savez(tmp_path / "new.npz", **{stored: inputs})
        code, found, _ = train("predict", name, "new.npz", "--json")
        assert code == 0
        expected = load(tmp_path / name).predict(inputs.transpose(0, 3, 1, 2) if inputs.ndim == 4 else inputs)
        assert [one["class"] for one in found["predictions"]] == expected.tolist()


def test_a_function_that_returns_known_data_equals_the_known_data(train, tmp_path):
    code, summary, _ = train("train", "own_code:digits", *TINY)
    assert code == 0
    assert summary["run"] == "runs/digits-lda"
    assert train("train", *TINY, "--run", "known")[0] == 0
    assert losses(tmp_path / "runs" / "digits-lda") == losses(tmp_path / "known")


def test_a_map_style_data_set_equals_an_npz_file_of_its_samples(train, tmp_path):
    code, summary, _ = train("train", "own_code:rows", *TINY, "--run", "own")
    assert code == 0
    assert summary["class_names"] == ["a", "b", "c"]
    own = load_data("own_code:rows", split_seed=3)
    import own_code

    inputs, labels = zip(*own_code.rows(), strict=True)
    np.savez(tmp_path / "same.npz", x_train=np.stack(inputs), y_train=np.array(labels))
    same = load_data(tmp_path / "same.npz", split_seed=3)
    assert own.fingerprint == same.fingerprint
    assert np.array_equal(read_npz(tmp_path / "same.npz").train.inputs, np.stack(inputs).astype(np.float32))


def test_evaluate_scores_the_split_of_the_run_if_its_code_is_named_again(train):
    _, summary, _ = train("train", "own_code:rows", *TINY, "--run", "own")
    code, _, said = train("evaluate", "own")
    assert code == 2
    assert "the data in this run is the code 'own_code:rows', which is not run without your permission" in said
    code, found, _ = train("evaluate", "own", "own_code:rows", "--json")
    assert code == 0
    assert (found["split"], found["accuracy"]) == ("test", summary["test"]["accuracy"])
    code, found, _ = train("evaluate", "own", "own_code:rows", "--json", "--split", "train")
    assert (found["split"], found["n"]) == ("train", 62)
    assert "pass own_code:rows as DATA or --data" in train("report", "own")[2]
    assert train("report", "own", "--data", "own_code:rows")[0] == 0
    assert "pass own_code:rows as DATA or --data" in train("audit", "own")[2]
    assert train("audit", "own", "--data", "own_code:rows")[0] == 0


def test_an_export_is_verified_on_the_data_of_the_run_if_its_code_is_named_again(train):
    assert train("train", "own_code:rows", *TINY, "--run", "own")[0] == 0
    assert "verified on random feature vectors" in train("export", "own", "--format", "torch")[1]
    found = train("export", "own", "--format", "torch", "--data", "own_code:rows")[1]
    assert "test samples from own_code:rows" in found


def test_the_command_to_resume_names_the_logger(train):
    code, _, said = train("train", "own_code:rows", *TINY, "--run", "own", "--logger", "own_code:Interrupting")
    assert code == 130
    assert said.splitlines()[-1].endswith("--resume --run own own_code:rows --logger own_code:Interrupting")


@pytest.mark.parametrize("setting", ["data", "objective", "statistic", "network"])
def test_code_in_a_folder_is_run_only_if_it_is_named_again(train, tmp_path, setting):
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text(RunConfig(**{setting: "trap:name"}).to_toml())
    SweepDefinition(settings={setting: "trap:name"}, grid={"seed": [0]}).write(tmp_path / "sweep.toml")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep.toml").rename(tmp_path / "sweep" / "sweep.toml")
    refused = f"the {setting} in run is the code 'trap:name', which is not run without your permission"
    named = ("trap:name",) if setting == "data" else (f"--{setting}", "trap:name")
    code, _, said = train("train", "--resume", "--run", "run")
    assert code == 2
    assert refused in said
    for command in (
        ("train", "--recipe", "run/run.toml"),
        ("sweep", "--recipe", "run/run.toml"),
        ("sweep", "--sweep", "sweep"),
    ):
        code, _, said = train(*command)
        assert code == 2
        assert f"the {setting} in" in said
        assert "not run without your permission" in said
    assert train("train", "--resume", "--run", "run", *named)[0] == "the code ran"


def test_names_of_code():
    assert is_code("a.b:c")
    assert not any(map(is_code, ["digits", "/data/photos:2024", "C:\\photos", None, 3]))
    assert (short_name("a.b:c"), short_name("digits")) == ("c", "digits")
    settings = {"data": "d:f", "network": "n:f", "objective": "lda"}
    assert code_options(settings) == " d:f --network n:f"
    require_named("folder", settings, settings)
    require_named("folder", {"data": "digits"}, {})
    with pytest.raises(InputError, match=r"the network in folder .*: pass --network n:f"):
        require_named("folder", settings, settings | {"network": "other:f"})
    message = "the statistic in folder is the code 'm:f', and cannot become 'm:g': pass --statistic m:f"
    with pytest.raises(InputError, match=message):
        require_named("folder", {"statistic": "m:f"}, {"statistic": "m:g"})


def test_an_objective_in_a_sweep(train):
    own = "torch.nn:CrossEntropyLoss"
    arguments = ("--objectives", f"cce,{own}", "--seeds", "0", "--sweep", "both", *TINY)
    code, found, said = train("sweep", *arguments)
    assert code == 0, said
    assert set(found["done"]) == {"cce-seed0", "torch.nn_CrossEntropyLoss-seed0"}
    assert own in train("table", "both")[1]
    assert "repeat the command that started the sweep" in train("sweep", "--sweep", "both")[2]
