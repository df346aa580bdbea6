"""The disk is full at every stage of a run: it says so in a sentence, and goes on when there is space."""

import pytest

COMMON = ("--epochs", "2", "--width", "0.25", "--batch-size", "400", "--checkpoint-seconds", "0.02", "--quiet")
TRAIN = ("train", "--run", "run", *COMMON)
SUBCLASSES = (*TRAIN, "--subclasses", "2", "--autoencoder-epochs", "1", "--cluster-starts", "2")
SWEEP = ("sweep", "--sweep", "sweep", "--objectives", "rdlda", "--alphas", "0", "--seeds", "0", *COMMON)


def pages_used(folder):
    """Of 4 KiB, by all files of a folder."""
    return sum(-(-path.stat().st_size // 4096) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("command", "resume", "tries"),
    [(TRAIN, "--resume", 40), (SUBCLASSES, "--resume", 30), (SWEEP, "--retry", 30)],
    ids=["train", "subclasses", "sweep"],
)
def test_disk_full(start, done, disk, weights, tmp_path, command, resume, tries):
    whole = tmp_path / "whole"
    whole.mkdir()
    done(whole, *command)
    # From none on, each of the first pages: small files come first.
    most = pages_used(whole)
    pages = sorted({*range(tries // 2), *(most * step // tries for step in range(tries))})
    said = set()
    full = 0
    for free in pages:
        folder = disk.folder / f"free-{free}"
        folder.mkdir()
        first = disk.leave(free)
        command_started = start(folder, *command, first=first)
        code = command_started.wait()
        disk.make_space()
        if code:
            full += 1
            assert code in (1, 2)
            sentence = command_started.sentence()
            assert sentence.startswith("deeplda: ")
            assert "No space left" in sentence or "File too large" in sentence
            said.add(sentence.replace(str(folder), "").replace(f"free-{free}", ""))
            done(folder, *command, resume)
        assert weights(folder) == weights(whole)
        assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    print(f"full {full} times of {len(pages)}, between 0 and {most} free pages; said:", *sorted(said), sep="\n  ")
    assert full > tries // 2
