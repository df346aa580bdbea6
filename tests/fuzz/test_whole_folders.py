"""Commands on run folders of somebody else's: each ends with a result or a sentence, and nothing outside is touched."""

import os
import secrets

import pytest
from campaign import EXAMPLES
from whole_folders import attack, make_example

# The campaign runs whole commands, which take longer than single readers.
SEEDS = EXAMPLES if "DEEPLDA_FUZZ_EXAMPLES" in os.environ else 100


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return make_example(tmp_path_factory.mktemp("example"))


@pytest.mark.parametrize("part", range(4))
def test_a_folder_that_was_tampered_with_is_used_or_refused(example, tmp_path, monkeypatch, part):
    monkeypatch.chdir(tmp_path)
    first = secrets.randbits(64) if "DEEPLDA_FUZZ_EXAMPLES" in os.environ else part * SEEDS
    for seed in range(first, first + SEEDS // 4):
        attack(example, tmp_path, seed)
