"""Files of data, models and classifiers that were tampered with are read, or refused in one sentence."""

import pytest
from campaign import campaign
from readers import OF_DATA_AND_MODELS


@pytest.mark.parametrize("make", OF_DATA_AND_MODELS, ids=lambda make: make.__name__)
def test_a_file_that_lies_is_read_or_refused(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    campaign(make(), tmp_path)
