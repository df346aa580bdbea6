import pytest
from small_model import small_model


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "model"
    small_model().save(folder)
    return folder
