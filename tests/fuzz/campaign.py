"""A campaign of lies against one reader."""

import os
import shutil

from guard import watched
from hypothesis import HealthCheck, given, settings

from deeplda.errors import InputError

# For each reader. `make fuzz` runs a longer campaign, with new lies each time.
EXAMPLES = int(os.environ.get("DEEPLDA_FUZZ_EXAMPLES", "500"))
TRAP = "from pathlib import Path\nPath('ran').touch()\ndef make(*_): Path('ran').touch()\n"


def campaign(reader, home):
    """Tell the reader lies, in folders under `home`: each is read, or refused in one sentence. Nothing else happens."""
    folder, outside = home / "folder", home / "outside"
    outside.mkdir()
    (outside / "trap.py").write_text(TRAP)
    os.chdir(outside)
    _write(folder, reader.valid)
    reader.read(folder)

    @settings(
        max_examples=EXAMPLES // reader.one_in,
        derandomize="DEEPLDA_FUZZ_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.lies)
    def lie(changed):
        name, content = changed
        _write(folder, reader.valid | {name: content})
        sentence = _refusal(reader, folder)
        assert sentence is None or (sentence.isprintable() and 10 < len(sentence) < 2_100)

    lie()
    assert sorted(path.name for path in home.iterdir()) == ["folder", "outside"]
    assert [path.name for path in outside.iterdir()] == ["trap.py"]


def _refusal(reader, folder):
    """What the reader says against a folder; None where it reads it."""
    try:
        with watched(folder):
            reader.read(folder)
    except InputError as error:
        if isinstance(error.__context__, MemoryError) and not reader.reserves:
            raise AssertionError("it asked for more memory than the file can need") from error
        return str(error)
    return None


def _write(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            content(folder / name)
