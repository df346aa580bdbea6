"""A finished run that the tests of several commands share."""

import pytest
from command import QUICK, in_a_process
from PIL import Image

from deeplda.data import load_data


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with a finished run on digits, what the training printed, and some images."""
    home = tmp_path_factory.mktemp("home")
    done = in_a_process("train", *QUICK, "--json", "--run", "runs/digits", cwd=home, check=0)
    (home / "train.json").write_text(done.stdout)
    part = load_data("digits").test
    (home / "images" / "deep").mkdir(parents=True)
    for place in range(6):
        folder = home / "images" / ("deep" if place % 2 else "")
        Image.fromarray(part.inputs[place, 0]).save(folder / f"{place}-{part.labels[place]}.png")
    return home
