"""A folder that may not be written: what reads goes on, what writes says so."""

SMALL = ("--width", "0.25", "--batch-size", "400", "--quiet")
RUN = ("--epochs", "1", *SMALL)
SWEEP = ("sweep", "--sweep", "sweep", "--objectives", "rdlda", "--alphas", "0", "--seeds", "0", *RUN)


def test_read_only(start, done, disk):
    done(disk.folder, "train", "--run", "run", *RUN)
    done(disk.folder, *SWEEP)
    half = start(disk.folder, "train", "--run", "half", "--epochs", "500", *SMALL)
    while not (disk.folder / "half" / "checkpoints" / "last").exists():
        assert half.running()
    half.kill()
    disk.read_only()
    for arguments in (
        ("evaluate", "run"),
        ("doctor", "run"),
        ("table", "sweep"),
        ("train", "--resume", "--run", "run"),
    ):
        done(disk.folder, *arguments)
    for code, words, arguments in (
        (2, "cannot be written (Read-only file system): choose another --run", ("train", "--run", "new", *RUN)),
        (2, "cannot be written (Read-only file system): choose another --run", ("train", "--run", "half", "--resume")),
        (2, "cannot be written (Read-only file system): choose another --sweep", SWEEP),
        (1, "cannot write: Read-only file system", ("report", "run")),
    ):
        command = start(disk.folder, *arguments)
        assert command.wait() == code
        expected = words if disk.mounted else words.replace("Read-only file system", "Permission denied")
        assert expected in command.sentence()
