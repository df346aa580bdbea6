"""Files of runs and sweeps that were tampered with are read, or refused in one sentence."""

import pytest
from campaign import campaign
from readers import OF_RUNS_AND_SWEEPS


@pytest.mark.parametrize("make", OF_RUNS_AND_SWEEPS, ids=lambda make: make.__name__)
def test_a_file_that_lies_is_read_or_refused(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    campaign(make(), tmp_path)
