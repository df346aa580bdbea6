"""A campaign against whole run folders: values that contradict each other, and links, pipes and sparse files."""

import contextlib
import io
import json
import os
import random
import shutil
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from guard import watched
from PIL import Image

from deeplda.cli import main

# The names that deeplda reads or writes in a run folder, now or in earlier versions.
NAMES = (
    "run.toml", "environment.json", "split.jsonl", "metrics.jsonl", "report.html", "figures", "tensorboard", ".lock",
    ".report.html.tmp", ".report.html.lock", "figures/confusion.png", "model", "model/model.json",
    "model/weights.safetensors", "model/model.onnx", "model/.model.onnx.tmp", ".model.tmp", ".model.old", "checkpoints",
    "checkpoints/last",
    "checkpoints/last/state.safetensors", "checkpoints/last/checkpoint.json", "checkpoints/previous",
    "checkpoints/best", "checkpoints/.best.old", "checkpoints/.last.tmp", "subclasses", "autoencoder",
)  # fmt: skip
COMMANDS = (
    ("doctor", "{run}"),
    ("evaluate", "{run}", "--json"),
    ("predict", "{run}", "{image}", "--csv", "--distance"),
    ("report", "{run}"),
    ("report", "{run}", "--figures"),
    ("train", "--resume", "--quiet", "--run", "{run}"),
    ("table", "{sweep}"),
)
# Other values of the same type.
LIKE = {
    bool: (True, False),
    int: (0, 1, 2, 3, 9, 10, 255, 10**6, 2**31 - 1, -1),
    float: (0.0, 0.5, 1.0, -1.0, 1e-300, 1e300, 0.3333),
    str: ("", "a", "b", "digits", "hyperplanes", "softmax", "nearest_mean", "../x", "=1+1", "\x1b[2J", "lda", "cce"),
}


@dataclass(frozen=True)
class Example:
    """A finished run, the same run before its end, and an image for its model."""

    finished: Path
    unfinished: Path
    image: Path


def make_example(home):
    """Train a small network on images in an .npz file."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = np.clip(rng.normal(60 + 60 * labels[:, None, None], 20, (60, 8, 8)), 0, 255).astype(np.uint8)
    np.savez(home / "data.npz", x_train=images, y_train=labels)
    Image.fromarray(images[0]).save(home / "image.png")
    options = ("--epochs", "2", "--width", "0.05", "--batch-size", "21", "--network", "convnet-small", "--quiet")
    with contextlib.redirect_stdout(io.StringIO()):
        main(["train", str(home / "data.npz"), *options, "--run", str(home / "finished")])
    shutil.copytree(home / "finished", home / "unfinished")
    rows = (home / "unfinished" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (home / "unfinished" / "metrics.jsonl").write_text("".join(rows[:-1]))
    shutil.rmtree(home / "unfinished" / "model")
    return Example(home / "finished", home / "unfinished", home / "image.png")


def attack(example, home, seed):
    """Change a copy of the run, run a command on it, and return what was done, for the message of a failure.

    The command must end with an exit code of its own, and nothing outside the folder may change.
    """
    chance = random.Random(seed)
    run, outside = home / "work" / "trials" / "lda-seed0", home / "outside"
    shutil.rmtree(home / "work", ignore_errors=True)
    shutil.copytree(chance.choice([example.finished, example.finished, example.unfinished]), run)
    (home / "work" / "sweep.toml").write_text('[settings]\ndata = "digits"\n[grid]\nseed = [0]\n')
    before = precious(outside)
    done = [chance.choice((_change_value, _change_value, _swap_files, _plant))(run, outside, chance) for _ in range(3)]
    places = {"run": run, "sweep": home / "work", "image": example.image}
    command = [part.format(**places) for part in chance.choice(COMMANDS)]
    code = _exit_code(command, home / "work")
    assert code in (0, 1, 2), (seed, done, command, code)
    assert precious(outside) == before, (seed, done, command)


def precious(outside):
    """The files of the user's own, which are written anew if they are missing, with their contents and permissions."""
    if not outside.exists():
        (outside / "documents").mkdir(parents=True)
        for name in ("bashrc", "documents/letter", "documents/model.json", "documents/state.safetensors"):
            (outside / name).write_text("precious")
    return {path: (path.lstat().st_mode, path.is_file() and path.read_bytes()) for path in outside.rglob("*")}


def _exit_code(command, folder):
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as said,
        warnings.catch_warnings(),
        watched(folder),
    ):
        warnings.simplefilter("always")
        try:
            main(command)
            code = 0
        except SystemExit as ended:
            code = 1 if isinstance(ended.code, str) else ended.code
    assert not set("\x1b\x00\x07") & set(printed.getvalue() + said.getvalue()), (command, said.getvalue())
    if "--json" in command and code == 0:
        json.loads(printed.getvalue(), parse_constant=_no_constant)
    return code


def _no_constant(name):
    raise AssertionError(f"{name} is not JSON")


def _change_value(run, _outside, chance):
    """Replace, rename or remove a value of a JSON document or of a line of one; types stay as they are."""
    files = [path for path in run.rglob("*") if path.suffix in (".json", ".jsonl") and _is_own_file(path)]
    if not files:
        return "nothing left to change"
    file = chance.choice(sorted(files))
    try:
        documents = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        lines = True
    except ValueError:
        try:
            documents, lines = [json.loads(file.read_text())], False
        except ValueError:
            return f"{file.name} is no JSON any more"
    slots = [slot for document in documents for slot in _slots(document)]
    if not slots:
        return f"{file.name} is empty"
    holder, key = chance.choice(slots)
    kind = chance.choice(("like", "like", "like", "remove", "rename", "other row"))
    if kind == "remove":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[f"{key}2"] = holder.pop(key)
    elif kind == "other row" and isinstance(holder[key], dict | list):
        others = [value[name] for value, name in slots if type(value[name]) is type(holder[key])]
        holder[key] = json.loads(json.dumps(chance.choice(others)))
    elif type(holder[key]) in LIKE:
        holder[key] = chance.choice(LIKE[type(holder[key])])
    text = "\n".join(map(json.dumps, documents)) if lines else json.dumps(documents[0], indent=2)
    file.write_text(text + "\n")
    return f"{kind} {key!r} in {file.relative_to(run)}"


def _slots(value):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [slot for key, inner in items for slot in ((value, key), *_slots(inner))]


def _swap_files(run, _outside, chance):
    """Exchange two files, or copy one over another."""
    # Only files of the run: a copy over a link would write outside by itself.
    files = sorted(path for path in run.rglob("*") if _is_own_file(path))
    if len(files) < 2:
        return "nothing left to swap"
    one, other = chance.sample(files, 2)
    shutil.copyfile(one, other)
    return f"{one.relative_to(run)} copied over {other.relative_to(run)}"


def _is_own_file(path):
    status = path.lstat()
    # A copy of a sparse file would fill the disk.
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size < 2**20


def _plant(run, outside, chance):
    """Put a link, a pipe, a sparse file or a folder in place of something."""
    name = chance.choice(NAMES)
    place, kind = (
        run / name,
        chance.choice(("link", "folder link", "dangling", "loop", "hard", "pipe", "sparse", "folder")),
    )
    if not place.parent.is_dir() or place.parent.is_symlink():
        return f"no place for {name}"
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if kind == "hard":
        place.hardlink_to(outside / "bashrc")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "sparse":
        with place.open("wb") as stream:
            stream.truncate(2**41)
    elif kind == "folder":
        (place / "documents").mkdir(parents=True)
    else:
        targets = {"link": outside / "bashrc", "folder link": outside / "documents", "dangling": outside / "new"}
        place.symlink_to(targets.get(kind, place))
    return f"{kind} at {name}"
