"""The page of similar images: each query with its nearest images, as thumbnails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplda.report.components import file_name, header
from deeplda.report.markup import Html, document, element
from deeplda.report.plot_data import image_uri

# With more queries, the page would take tens of megabytes.
MOST_QUERIES = 200
# Smaller images are enlarged with sharp pixels.
_SMALL = 64


class Picture(NamedTuple):
    """An image with the name of its file and its predicted class; the distance is None for a query.

    The pixels, C x H x W, are None if the file can no longer be read.
    """

    name: str
    class_name: str
    pixels: NDArray[np.uint8] | None
    distance: float | None = None


def similar_page(title: str, groups: Sequence[tuple[Picture, Sequence[Picture]]], queries: int) -> str:
    """Return a page with each query followed by its similar images, nearest first; `queries` is their number."""
    lead = (
        "Each row starts with the query, and its most similar images follow, nearest first. The distance is measured "
        "in standard deviations within a class, and the class is the one that the model predicts."
    )
    if len(groups) < queries:
        lead += f" The page shows the first {len(groups)} of {queries:,} queries; --csv prints all of them."
    rows = [_group(query, found) for query, found in groups]
    top = header("Similar images", title, element("p", lead, class_="lead"), kind="similar")
    return document("Similar images", {}, top, rows, scripts=())


def _group(query: Picture, found: Sequence[Picture]) -> Html:
    cards = [_card(picture, picture.class_name != query.class_name) for picture in found]
    sizes = [max(picture.pixels.shape[1:]) for picture in (query, *found) if picture.pixels is not None]
    small = "pixels" if sizes and max(sizes) < _SMALL else ""
    return element(
        "section",
        element("ul", _card(query, False), class_=f"hard query {small}"),
        element("ul", cards, class_=f"hard {small}"),
        class_="similar",
        aria_label=f"Images similar to {query.name}",
    )


def _card(picture: Picture, differs: bool) -> Html:
    """Return an image with its class, which is marked if it differs from that of the query, and its file."""
    if picture.pixels is None:
        shown = element("p", "The file can no longer be read.", class_="hint")
    else:
        shown = element("img", src=image_uri(picture.pixels), alt=f"An image predicted as {picture.class_name}")
    far = "query" if picture.distance is None else f"distance {picture.distance:.2f}"
    lines = [
        element("span", element("strong" if differs else "b", picture.class_name)),
        element("span", far, class_="hint"),
        element("span", file_name(picture.name), class_="hint"),
    ]
    return element("li", shown, element("p", lines))
