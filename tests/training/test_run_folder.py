"""What is on disk is whole, or the one before it is used."""

import fcntl
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from deeplda import output_folder
from deeplda.errors import InputError, TrainingError
from deeplda.output_folder import OutputFolder, write_file
from deeplda.training import run_folder
from deeplda.training.checkpoint import Counters, Snapshot, read_checkpoint, write_checkpoint
from deeplda.training.config import RunConfig
from deeplda.training.metrics import EpochRow, SummaryRow
from deeplda.training.run_folder import find_run, open_run, read_metrics, summary_row
from small_model import small_model


def trained(steps=3):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(8, 1, 4, 4)).square().sum().backward()
        optimizer.step()
    return network, optimizer


def row(epoch):
    return EpochRow(epoch=epoch, loss=1.0, learning_rate=0.1, seconds=1.0, validation=None)


def snapshot(epoch=1):
    return Snapshot.of(*trained(), Counters(epoch=epoch))


def test_a_checkpoint_holds_everything(tmp_path):
    network, optimizer = trained()
    with OutputFolder.open(tmp_path) as folder:
        taken = Snapshot.of(network, optimizer, Counters(epoch=4, step=2))
        write_checkpoint(taken, folder, "last", "run", keep="previous")
    found = read_checkpoint(tmp_path / "last", "run")
    assert found.counters == Counters(epoch=4, step=2)
    twin, twin_optimizer = trained(steps=0)
    found.restore(twin, twin_optimizer)
    for model, opt in ((network, optimizer), (twin, twin_optimizer)):
        torch.manual_seed(1)
        opt.zero_grad()
        model(torch.randn(8, 1, 4, 4)).square().sum().backward()
        opt.step()
    for name, value in network.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name]), name


def test_a_snapshot_does_not_follow_the_training():
    network, optimizer = trained()
    taken = Snapshot.of(network, optimizer, Counters())
    before = taken.tensors["network.0.weight"].clone()
    with torch.no_grad():
        network[0].weight.zero_()
    assert torch.equal(taken.tensors["network.0.weight"], before)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("state.safetensors", lambda b: b[: len(b) // 2], "damaged"),
        ("state.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "damaged"),
        ("state.safetensors", None, "not a complete checkpoint"),
        ("checkpoint.json", lambda b: b[:40], "not a complete checkpoint"),
        ("checkpoint.json", lambda b: b.replace(b'"epoch": 1', b'"epoch": -1'), "not a complete checkpoint"),
        ("checkpoint.json", lambda b: b.replace(b'"run": "', b'"run": "x'), "of a different run"),
        ("checkpoint.json", None, "not a complete checkpoint"),
    ],
)
def test_broken_checkpoints_are_refused_and_the_one_before_is_used(tmp_path, file, damage, message):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot(epoch=1))
        run.save("last", snapshot(epoch=1))
        path = run.path / "checkpoints" / "last" / file
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage(path.read_bytes()))
        assert run.latest().counters.epoch == 1
        assert message in run.notes[0]
        assert "\n" not in run.notes[0]


def plant_sparse_file(path):
    path.touch()
    os.truncate(path, 2**41)


@pytest.mark.parametrize("plant", [os.mkfifo, plant_sparse_file])
@pytest.mark.parametrize("file", ["state.safetensors", "checkpoint.json"])
def test_a_checkpoint_that_would_take_forever_to_read_is_refused_at_once(tmp_path, file, plant):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot(epoch=1))
        run.save("last", snapshot(epoch=1))
        path = run.path / "checkpoints" / "last" / file
        path.unlink()
        plant(path)
        assert run.latest().counters.epoch == 1
        assert len(run.notes) == 1


def test_last_and_previous(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        for epoch in (1, 2, 3):
            run.save("last", snapshot(epoch))
        checkpoints = run.path / "checkpoints"
        assert sorted(p.name for p in checkpoints.iterdir()) == ["last", "previous"]
        assert read_checkpoint(checkpoints / "previous", run.identity).counters.epoch == 2


def test_the_best_is_found_where_a_kill_left_it(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("best", snapshot(3))
        (run.path / "checkpoints" / "best").rename(run.path / "checkpoints" / ".best.old")
        assert run.best().counters.epoch == 3


@pytest.mark.parametrize("moment", range(8))
def test_a_crash_between_any_two_steps_of_the_exchange_leaves_a_whole_checkpoint(tmp_path, monkeypatch, moment):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot(1))
        run.save("last", snapshot(2))
        calls = 0

        class CrashError(BaseException):
            pass

        def crash(real):
            def step(*args, **kwargs):
                nonlocal calls
                calls += 1
                if calls > moment:
                    raise CrashError
                return real(*args, **kwargs)

            return step

        for name in ("_rename", "_sync", "remove"):
            monkeypatch.setattr(OutputFolder, name, crash(getattr(OutputFolder, name)))
        with pytest.raises(CrashError):
            run.save("last", snapshot(3))
        monkeypatch.undo()
        assert run.latest().counters.epoch >= 2
        run.save("last", snapshot(4))
        assert run.latest().counters.epoch == 4


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot(1))

        def full(*_args, **_kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("deeplda.output_folder._write_all", full)
        with pytest.raises(OSError, match="No space"):
            run.save("last", snapshot(2))
        monkeypatch.undo()
        assert run.latest().counters.epoch == 1
        assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == ["last"]


def test_other_data_or_settings_make_another_run(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot())
    with (
        pytest.raises(InputError, match="different settings"),
        open_run(tmp_path / "run", RunConfig(alpha=0.1), "data"),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"the data used by .* has changed since"),
        open_run(tmp_path / "run", RunConfig(), "other data"),
    ):
        pass
    (tmp_path / "run" / "environment.json").write_text("gone")
    with (
        open_run(tmp_path / "run", RunConfig(), "other data") as run,
        pytest.raises(InputError, match="of different data"),
    ):
        run.latest()


def test_an_extended_run_keeps_its_checkpoints_and_the_text_of_its_settings(tmp_path):
    path, config = tmp_path / "run", RunConfig(epochs=3)
    with open_run(path, config, "data") as run:
        run.save("last", snapshot(3))
        run.save("best", snapshot(2))
        run.save_model(small_model())
        run.log(SummaryRow(epochs=3, best_epoch=2, seconds=1.0, validation=None, test=None))
    (path / "report.html").write_text("of 3 epochs")
    before = (path / "run.toml").read_text()
    longer = config.extended(5)
    assert summary_row(path, config) is not None
    assert summary_row(path, longer) is None
    with open_run(path, longer, "data") as run:
        assert (run.latest().counters.epoch, run.best().counters.epoch, run.notes) == (3, 2, [])
        run.keep_rows(3)
        assert not (path / "report.html").exists()
    assert (path / "run.toml").read_text() == "extended_to = [5]\n" + before
    assert RunConfig.of(path) == longer
    with open_run(path, longer.extended(9), "data") as run:
        assert run.latest().counters.epoch == 3
    assert (path / "run.toml").read_text() == "extended_to = [5, 9]\n" + before
    for shorter in (config, longer, config.extended(7), longer.extended(9).model_copy(update={"alpha": 0.5})):
        with pytest.raises(InputError, match="different settings"), open_run(path, shorter, "data"):
            pass


def test_a_run_without_checkpoints_starts_anew(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        assert run.latest() is None


def test_a_second_process_is_refused(tmp_path):
    with (
        open_run(tmp_path, RunConfig(), "data"),
        pytest.raises(InputError, match="in use by another process"),
        open_run(tmp_path, RunConfig(), "data"),
    ):
        pass
    with open_run(tmp_path, RunConfig(), "data"):
        pass


def test_who_only_looks_at_a_lock_keeps_nobody_out(tmp_path, monkeypatch):
    with open_run(tmp_path / "run", RunConfig(), "data"):
        pass
    looking = (tmp_path / "run" / ".lock").open("a")
    fcntl.flock(looking, fcntl.LOCK_EX)
    monkeypatch.setattr(output_folder.time, "sleep", lambda _: looking.close())
    with open_run(tmp_path / "run", RunConfig(), "data"):
        assert looking.closed


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), open_run(tmp_path / "file" / "run", RunConfig(), "data"):
        pass


def test_metrics_of_later_epochs_and_cut_lines_are_dropped(tmp_path):
    with open_run(tmp_path, RunConfig(), "data") as run:
        for epoch in (1, 2, 3):
            run.log(row(epoch))
        with (tmp_path / "metrics.jsonl").open("a") as stream:
            stream.write('{"kind": "epo')
        run.keep_rows(2)
        assert [found.epoch for found in read_metrics(tmp_path)] == [1, 2]


def test_rows_that_were_lost_are_noted_and_the_run_goes_on(tmp_path):
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.log(row(1))
        run.keep_rows(3)
        assert len(run.notes) == 1
        assert "2 of 3 rows" in run.notes[0]
        run.log(row(4))
        run.log(SummaryRow(epochs=4, best_epoch=1, seconds=1.0, validation=None, test=None))
        assert [type(found) for found in read_metrics(tmp_path)] == [EpochRow, EpochRow, SummaryRow]


def test_passwords_are_not_written_down(tmp_path, monkeypatch):
    urls = ["postgresql+psycopg://me:SECRET@db/x", "--storage=mysql://me:SEC/RET@a@db:5/x?password=SECRET"]
    monkeypatch.setattr("sys.argv", ["bin/deeplda", "sweep", "--storage", *urls])
    with open_run(tmp_path, RunConfig(), "data"):
        command = json.loads((tmp_path / "environment.json").read_text())["command"]
    assert command == ["deeplda", "sweep", "--storage", "postgresql+psycopg://db/x", "--storage=mysql://db:5/x"]


def test_environment(tmp_path):
    with open_run(tmp_path, RunConfig(seed=4), "fingerprint"):
        environment = json.loads((tmp_path / "environment.json").read_text())
        assert environment["data_fingerprint"] == "fingerprint"
        # A package's version can lack the part after "+", which names the build.
        assert torch.__version__.startswith(environment["versions"]["torch"])
        assert RunConfig.read(tmp_path / "run.toml") == RunConfig(seed=4)


@pytest.mark.parametrize(
    "change",
    [
        {"network.0.weight": None},
        {"network.0.weight": torch.zeros(4, 1, 3, 2)},
        {"network.0.weight": torch.zeros(4, 1, 3, 3).int()},
        {"network.9.weight": torch.zeros(1)},
        {"optimizer.0.momentum_buffer": torch.zeros(3)},
        {"optimizer.0.surprise": torch.zeros(4, 1, 3, 3)},
        {"optimizer.x.momentum_buffer": torch.zeros(4, 1, 3, 3)},
        {"optimizer.99999999999999999999.momentum_buffer": torch.zeros(4, 1, 3, 3)},
        {"optimizer.0.step": torch.zeros(())},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_checkpoint_of_another_network_is_not_restored(change):
    network, optimizer = trained()
    taken = Snapshot.of(network, optimizer, Counters())
    lying = {name: value for name, value in (taken.tensors | change).items() if value is not None}
    with pytest.raises(InputError, match="does not match this run"):
        Snapshot(lying, Counters()).restore(network, optimizer)


def test_the_state_of_adam_is_restored_whole_or_not_at_all():
    network, _ = trained()
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(8, 1, 4, 4)).square().sum().backward()
    optimizer.step()
    taken = Snapshot.of(network, optimizer, Counters())
    taken.restore(network, optimizer)
    del taken.tensors["optimizer.0.exp_avg_sq"]
    with pytest.raises(InputError, match=r"optimizer\.0 .*does not match"):
        taken.restore(network, optimizer)


def test_several_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    wholes = [letter * size for letter, size in (("a", 10), ("b", 70_000), ("c", 300_000))]
    file, found, done = tmp_path / "file", set(), threading.Event()

    def read():
        while not done.is_set():
            found.add(file.read_text())

    write_file(file, wholes[0])
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        writing = [pool.submit(write_file, file, whole) for _ in range(30) for whole in wholes]
        for one in writing:
            one.result()
        done.set()
        reading.result()
    assert found <= set(wholes)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def precious(folder):
    """A folder of somebody's, in place of one that a run would replace."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text("precious")
    return folder


def test_a_folder_in_use_is_not_taken_for_a_run(tmp_path):
    precious(tmp_path / "model")
    (tmp_path / "metrics.jsonl").write_text("precious")
    with (
        pytest.raises(InputError, match=r"contains 'metrics\.jsonl' but no run"),
        open_run(tmp_path, RunConfig(), "data"),
    ):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["metrics.jsonl", "model", "net.py"]
    assert (tmp_path / "metrics.jsonl").read_text() == "precious"


@pytest.mark.parametrize("name", ["model", "checkpoints/last", "checkpoints/previous", "checkpoints/best"])
def test_foreign_files_in_a_run_are_not_replaced(tmp_path, name):
    with open_run(tmp_path, RunConfig(), "data"):
        pass
    precious(tmp_path / name)
    with pytest.raises(InputError, match=r"contains 'net\.py'"), open_run(tmp_path, RunConfig(), "data"):
        pass
    assert (tmp_path / name / "net.py").read_text() == "precious"


@pytest.mark.parametrize(("saved", "kept"), [("last", "previous"), ("best", ".best.old")])
def test_foreign_files_that_appear_during_a_run_are_not_removed(tmp_path, saved, kept):
    with open_run(tmp_path, RunConfig(), "data") as run:
        for epoch in (1, 2):
            run.save(saved, snapshot(epoch))
        folder = precious(tmp_path / "checkpoints" / kept)
        with pytest.raises(InputError, match=rf"{kept} contains 'net\.py', which deeplda did not write"):
            run.save(saved, snapshot(3))
        assert (folder / "net.py").read_text() == "precious"
        assert (run.latest() if saved == "last" else run.best()).counters.epoch == 2


@pytest.mark.parametrize(
    "name", ["model", "checkpoints", "checkpoints/last", "checkpoints/best", ".lock", "metrics.jsonl"]
)
def test_links_in_a_run_are_not_followed(tmp_path, name):
    run = tmp_path / "run"
    with open_run(run, RunConfig(), "data"):
        pass
    outside = precious(tmp_path / "documents")
    place = run / name
    if place.is_dir():
        place.rmdir()
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(outside if name not in (".lock", "metrics.jsonl") else outside / "net.py")
    with (
        pytest.raises(InputError, match=r"is a link|not an ordinary file"),
        open_run(run, RunConfig(), "data") as opened,
    ):
        opened.log(row(1))
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("net.py", "precious")]


def test_a_folder_that_is_moved_during_a_run_is_noticed_and_keeps_the_state(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        run.save("last", snapshot(1))
        (tmp_path / "run").rename(tmp_path / "moved")
        with pytest.raises(TrainingError, match="was moved or replaced"):
            run.save("last", snapshot(2))
        with pytest.raises(TrainingError, match="was moved or replaced"):
            run.save_model(small_model())
        assert not (tmp_path / "run").exists()
    with open_run(tmp_path / "moved", RunConfig(), "data") as run:
        assert run.latest().counters.epoch == 2


def test_a_folder_that_is_deleted_during_a_run_is_one_sentence(tmp_path):
    with open_run(tmp_path / "run", RunConfig(), "data") as run:
        shutil.rmtree(tmp_path / "run")
        for write in (lambda: run.save("last", snapshot(1)), lambda: run.log(row(1)), lambda: run.save_model(None)):
            with pytest.raises(TrainingError, match="was deleted"):
                write()


def test_a_run_has_an_id_that_it_keeps_when_it_is_moved(tmp_path):
    for name in ("a", "b"):
        with open_run(tmp_path / name, RunConfig(), "data", new_id=f"id of {name}"):
            pass
    (tmp_path / "a").rename(tmp_path / "c")
    assert find_run("id of a", tmp_path) == tmp_path / "c"
    assert find_run("id of c", tmp_path) is None


def test_a_checkpoint_of_another_run_with_the_same_settings_is_refused(tmp_path):
    for name in ("a", "b"):
        with open_run(tmp_path / name, RunConfig(), "data") as run:
            run.save("last", snapshot())
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    (tmp_path / "b" / "checkpoints").rename(tmp_path / "a" / "checkpoints")
    with open_run(tmp_path / "a", RunConfig(), "data") as run, pytest.raises(InputError, match="of a different run"):
        run.latest()


def test_metrics_without_checkpoints_are_not_overwritten(tmp_path):
    with open_run(tmp_path, RunConfig(), "data"):
        (tmp_path / "metrics.jsonl").write_text("somebody's notes")
    with open_run(tmp_path, RunConfig(), "data") as run, pytest.raises(InputError, match="metrics but no checkpoints"):
        run.latest()
    assert (tmp_path / "metrics.jsonl").read_text() == "somebody's notes"


@pytest.mark.parametrize("left", ["an empty folder", "a damaged checkpoint", "a later checkpoint", "more rows"])
def test_metrics_are_not_overwritten_because_of_what_is_left_of_the_checkpoints(tmp_path, left):
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.save("best", snapshot(2 if left == "a later checkpoint" else 1))
        run.log(row(1))
        if left == "more rows":
            run.log(row(2))
    best = tmp_path / "checkpoints" / "best"
    if left == "an empty folder":
        shutil.rmtree(best)
        best.mkdir()
    elif left == "a damaged checkpoint":
        (best / "checkpoint.json").write_text("{}")
    with open_run(tmp_path, RunConfig(), "data") as run, pytest.raises(InputError, match="metrics but no checkpoints"):
        run.latest()
    assert run_folder.read_metrics(tmp_path)[0].epoch == 1


def test_a_run_killed_before_its_first_checkpoint_was_complete_starts_anew(tmp_path):
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.save("best", snapshot(1))
        run.log(row(1))
    with open_run(tmp_path, RunConfig(), "data") as run:
        assert run.latest() is None
        assert run.notes == []


def test_a_kill_before_the_environment_is_written_is_made_up_for(tmp_path):
    with open_run(tmp_path, RunConfig(), "data"):
        (tmp_path / "environment.json").unlink()
    with open_run(tmp_path, RunConfig(), "data"):
        assert run_folder.started_on(tmp_path) == "data"


def test_a_run_keeps_copies_of_its_decision_files(tmp_path):
    first, second, third = (tmp_path / name for name in ("1.csv", "2.csv", "3.csv"))
    for file in (first, second, third):
        file.write_text(f"this is {file.name}")
    config, run = RunConfig(relabel=(first, second), drop=(third,)), tmp_path / "run"
    assert run_folder.with_stored_decisions(config, run) == config
    with open_run(run, config, "data"):
        pass
    first.unlink()
    second.write_text("another round")
    found = run_folder.with_stored_decisions(RunConfig.of(run), run)
    assert found.relabel == (run / "relabel-1.csv", run / "relabel-2.csv")
    texts = [file.read_text() for file in (*found.relabel, *found.drop)]
    assert texts == ["this is 1.csv", "this is 2.csv", "this is 3.csv"]
    # The settings themselves stay as they were given, so that the same command can resume the run.
    with open_run(run, config, "data"):
        assert RunConfig.of(run) == config
    assert (run / "relabel-2.csv").read_text() == "this is 2.csv"
    with pytest.raises(InputError, match=r"1\.csv cannot be read \(No such file or directory\): restore it"):
        open_run(tmp_path / "other", config, "data").__enter__()


def test_another_number_of_threads_is_noted(tmp_path):
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.save("last", snapshot())
    environment = json.loads((tmp_path / "environment.json").read_text())
    environment["threads"] += 1
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.latest()
        assert [note for note in run.notes if "threads instead of" in note]


@pytest.mark.parametrize(
    "lie", [{"best_epoch": 2}, {"risen_epoch": 9}, {"seconds": 1e300}, {"seconds": -1.0}, {"epoch": 10**30}]
)
def test_counters_that_no_run_has_are_refused(tmp_path, lie):
    with open_run(tmp_path, RunConfig(), "data") as run:
        run.save("last", snapshot(epoch=1))
        file = tmp_path / "checkpoints" / "last" / "checkpoint.json"
        found = json.loads(file.read_text())
        found["counters"] |= lie
        file.write_text(json.dumps(found))
        with pytest.raises(InputError, match="not a complete checkpoint"):
            run.latest()
