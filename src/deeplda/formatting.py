"""Format numbers for people to read, with one function for each kind of number."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean, stdev

_FLOP_UNITS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))


def percent(share: float, digits: int = 2) -> str:
    """Format a fraction as a percentage, such as "93.43 %"."""
    return f"{100 * share:.{digits}f} %"


def points(difference: float) -> str:
    """Format the difference between two fractions in percentage points, such as "+0.83 points"."""
    return f"{100 * difference:+.2f} points"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 trial" or "1,200 trials"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: "48 s", "3 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def flops(operations: int) -> str:
    """Format a number of floating-point operations in the largest unit in which it is at least 0.1: "0.283 PFLOP"."""
    unit, size = next(((unit, size) for unit, size in _FLOP_UNITS if operations >= size / 10), _FLOP_UNITS[-1])
    return f"{operations / size:.3g} {unit}"


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % confidence interval for the fraction `right` / `n`."""
    z = 1.959963984540054
    share = right / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; `std` is None for one seed."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Collection[float]) -> Spread:
        """Summarise the results of all seeds."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    def plain(self) -> str:
        """Return the mean and standard deviation as plain numbers instead of percentages."""
        return f"{self.mean:.4f}" + ("" if self.std is None else f" ± {self.std:.4f}")

    def __str__(self) -> str:
        """Format fractions in percent without the percent sign, such as "93.43 ± 0.21"."""
        return f"{100 * self.mean:.2f}" + ("" if self.std is None else f" ± {100 * self.std:.2f}")
