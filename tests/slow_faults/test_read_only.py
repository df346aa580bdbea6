"""A folder that may not be written: what reads goes on, what writes says so."""

import re

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
    reason = "Read-only file system" if disk.mounted else "Permission denied"
    for arguments in (
        ("train", "--run", "new", *RUN),
        ("train", "--run", "half", "--resume"),
        SWEEP,
        ("report", "run"),
    ):
        command = start(disk.folder, *arguments)
        assert command.wait() in (1, 2)
        assert re.fullmatch(rf"deeplda: .*(cannot (be )?writ|not writable).*{reason}.*", command.sentence())
