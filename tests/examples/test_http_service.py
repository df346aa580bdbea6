"""The HTTP service classifies uploads as `deeplda predict` does, and refuses what is too large or not an image."""

import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from deeplda.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "http_service.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of images and a run on it."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for number in range(24):
        file = home / "photos" / ("dark", "light")[number % 2] / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal((80, 130)[number % 2], 30, (12, 10, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    main(["train", str(home / "photos"), "--image-size", "8", "--epochs", "1", "--width", "0.1", "--quiet",
          "--run", str(home / "run")])  # fmt: skip
    return home


@pytest.fixture(scope="module")
def client(home):
    spec = importlib.util.spec_from_file_location("http_service", EXAMPLE)
    service = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(service)
    with TestClient(service.make_app(str(home / "run"), most_bytes=100_000)) as client:
        yield client


def test_health(client):
    assert client.get("/health").json() == {"status": "ok", "classes": ["dark", "light"]}


def test_uploads_are_classified_as_files_are(home, client, capsys):
    main(["predict", str(home / "run"), str(home / "photos"), "--json"])
    expected = json.loads(capsys.readouterr().out)["predictions"]
    uploads = [("files", (row["file"], Path(row["file"]).read_bytes())) for row in expected]
    found = client.post("/predict", files=[*uploads, ("files", ("text.jpg", b"not an image"))]).json()["predictions"]
    assert found.pop() == {"file": "text.jpg", "error": "not a readable image"}
    assert [row["class"] for row in found] == [row["class"] for row in expected]
    np.testing.assert_allclose(
        [row["probability"] for row in found], [row["probability"] for row in expected], atol=1e-5
    )


def test_uploads_that_are_too_large_are_refused_even_if_they_lie(client):
    large = io.BytesIO(bytes(200_000))
    assert client.post("/predict", files={"files": ("large.png", large)}).status_code == 413
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'

    def chunks():  # without a declared length
        yield head
        for _ in range(20):
            yield bytes(10_000)
        yield b"\r\n--x--\r\n"

    answer = client.post("/predict", content=chunks(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status_code == 413


def test_requests_without_files_and_bombs(client):
    assert client.post("/predict").status_code == 422
    heic = Path(__file__).parents[1] / "data" / "gradient.heic"
    assert "class" in client.post("/predict", files={"files": ("a.heic", heic.read_bytes())}).json()["predictions"][0]
    gif = b"GIF89a\xff\xff\xff\xff\x80\x00\x00" + bytes(6) + b",\x00\x00\x00\x00\xff\xff\xff\xff\x00\x02\x01\x00\x00;"
    (found,) = client.post("/predict", files={"files": ("bomb.gif", gif)}).json()["predictions"]
    assert found["error"] == "not a readable image"
