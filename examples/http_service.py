"""Classify uploaded images over HTTP with a trained run.

    pip install "deeplda[cli]" fastapi python-multipart uvicorn
    python examples/http_service.py runs/photos-lda
    curl -F files=@one.jpg -F files=@two.png http://127.0.0.1:8000/predict
    curl http://127.0.0.1:8000/health

Uploads are untrusted: a request may have at most 20 MiB, whatever it declares, and images are decoded with the same
bounds as the files of `deeplda predict`. A file that is not a readable image gets an error of its own.
"""

from __future__ import annotations

import argparse
from typing import Annotated, Any

from fastapi import FastAPI, File, HTTPException, UploadFile
from fastapi.responses import JSONResponse

import deeplda
from deeplda.data import read_images
from deeplda.errors import InputError

MOST_BYTES = 20 * 2**20


class UploadLimit:
    """Answer 413 to a request whose body is larger than `most_bytes`, without receiving the rest of it."""

    def __init__(self, app: Any, most_bytes: int) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self.most_bytes:
            await JSONResponse({"detail": "the upload is too large"}, 413)(scope, receive, send)
            return
        received = 0

        async def limited() -> dict[str, Any]:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                raise HTTPException(413, "the upload is too large")
            return message

        await self.app(scope, limited, send)


def make_app(run: str, most_bytes: int = MOST_BYTES) -> FastAPI:
    """Return the service for the model in a run folder, which is loaded once."""
    model = deeplda.load(run)
    channels, *size = model.card.sample_shape
    app = FastAPI(title="deeplda")
    app.add_middleware(UploadLimit, most_bytes=most_bytes)

    @app.get("/health")
    def health() -> dict[str, object]:
        return {"status": "ok", "classes": list(model.class_names)}

    # A plain function, because FastAPI runs it in a thread: other requests are answered while the model computes.
    @app.post("/predict")
    def predict(files: Annotated[list[UploadFile], File()]) -> dict[str, object]:
        predictions: list[dict[str, object]] = []
        for file in files:
            try:
                pixels = read_images(file.file, channels=channels, image_size=(size[0], size[1]))
            except InputError:
                predictions.append({"file": file.filename, "error": "not a readable image"})
                continue
            (probabilities,) = model.predict_proba(pixels)
            best = int(probabilities.argmax())
            found = {"class": model.class_names[best], "probability": float(probabilities[best])}
            predictions.append({"file": file.filename, **found})
        return {"predictions": predictions}

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify uploaded images over HTTP.")
    parser.add_argument("run", help="folder of a finished run or a model")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()

    import uvicorn

    uvicorn.run(make_app(arguments.run), host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()
