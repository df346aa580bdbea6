"""Line charts as inline SVG: plain shapes whose colours the page's style sheet gives, for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deeplda.report.elements import Html, element

_WIDTH, _HEIGHT = 340, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 12, 30
# With more points than this a line goes without dots.
_MOST_DOTS = 40


@dataclass(frozen=True)
class Line:
    """Values over epochs 1, 2, ..., a style class of the page and what the line is."""

    values: Sequence[float]
    style: str
    name: str


def line_chart(lines: Sequence[Line], *, words: str, percent: bool = False, marked: int | None = None) -> Html:
    """Lines over epochs, with `words` for those who cannot see it, and a rule at the epoch `marked`.

    Values that are not finite are gaps.
    """
    scale = _Scale.of([value for line in lines for value in line.values], max(len(line.values) for line in lines))
    return element(
        "svg",
        _grid(scale, percent),
        _rule(scale, marked) if marked and scale.epochs > 1 else (),
        [_drawn(line, scale, percent) for line in lines],
        class_="chart",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=words,
    )


def nice_steps(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers within [low, high]."""
    span = (high - low) / count
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Scale:
    """From epochs and values to places in the drawing."""

    low: float
    high: float
    epochs: int

    @classmethod
    def of(cls, values: Sequence[float], epochs: int) -> _Scale:
        finite = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        return cls(low - margin, high + margin, epochs)

    def x(self, epoch: float) -> float:
        share = (epoch - 1) / (self.epochs - 1) if self.epochs > 1 else 0.5
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _grid(scale: _Scale, percent: bool) -> list[Html]:
    found = []
    for value in nice_steps(scale.low, scale.high):
        y = scale.y(value)
        found.append(element("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        found.append(element("text", _short(value, percent), class_="tick end", x=_LEFT - 6, y=y + 4))
    steps = {round(step) for step in nice_steps(1, scale.epochs)}
    found += [
        element("text", epoch, class_="tick middle", x=scale.x(epoch), y=_HEIGHT - _BOTTOM + 16)
        for epoch in sorted(steps | {1, scale.epochs} if scale.epochs <= 5 else steps)
    ]
    found.append(element("text", "epoch", class_="tick end", x=_WIDTH - _RIGHT, y=_HEIGHT - 2))
    return found


def _rule(scale: _Scale, epoch: int) -> Html:
    title = element("title", f"epoch {epoch} was kept")
    x = scale.x(epoch)
    return element("line", title, class_="kept", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM)


def _drawn(line: Line, scale: _Scale, percent: bool) -> Html:
    path, dots, pen = [], [], "M"
    for epoch, value in enumerate(line.values, 1):
        if not math.isfinite(value):
            pen = "M"
            continue
        x, y = scale.x(epoch), scale.y(value)
        path.append(f"{pen}{x} {y}")
        pen = "L"
        title = element("title", f"{line.name}, epoch {epoch}: {_short(value, percent, digits=4)}")
        dots.append(element("circle", title, cx=x, cy=y, r=2.5))
    shown = dots if len(line.values) <= _MOST_DOTS else []
    return element("g", element("path", d="".join(path)), shown, class_=f"line {line.style}")


def _short(value: float, percent: bool, digits: int = 3) -> str:
    number = 100 * value if percent else value
    text = f"{number:,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.{digits}g}"
    return f"{text} %" if percent else text
