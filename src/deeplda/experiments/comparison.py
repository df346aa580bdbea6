"""Paired comparison over seeds: what a difference of means is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

Verdict = Literal["better", "worse", "not to be told apart", "nothing to compare"]
_CONFIDENCE = 0.95
# Less than one sample of any test part: rounding.
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Comparison:
    """Differences of two settings, seed by seed, in the units of what was compared.

    `low` and `high` bound the mean difference with 95 % confidence by Student's t; None with fewer than two seeds, and
    where the difference is the same with each, as accuracies on few samples may give: no spread can be told from that.
    """

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """Better or worse where the interval leaves zero out."""
        if self.low is None or self.high is None:
            return "nothing to compare"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not to be told apart"

    def sentence(self, ours: str, theirs: str) -> str:
        """In words; the differences are shares and are shown as percentage points."""
        if self.mean is None:
            return f"{ours} and {theirs} have no seed in common: nothing to compare."
        if self.low is None or self.high is None:
            seeds = "one common seed: one seed" if self.n == 1 else f"each of {self.n} seeds: without a spread that"
            return f"{ours} is {100 * self.mean:+.2f} points from {theirs} with {seeds} tells nothing."
        interval = f"{100 * self.mean:+.2f} points, 95 % interval {100 * self.low:+.2f} to {100 * self.high:+.2f}"
        if self.verdict == "not to be told apart":
            return f"{ours} and {theirs} are not to be told apart with {self.n} seeds ({interval})."
        return f"{ours} is {self.verdict} than {theirs} with {self.n} seeds ({interval})."


def compare(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison:
    """Compare two settings over the seeds they have in common; each maps a seed to its result."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    n = len(differences)
    if n == 0:
        return Comparison(0, None, None, None)
    mean = fmean(differences)
    if n == 1 or (mean and max(differences) - min(differences) < _NO_SPREAD):
        return Comparison(n, mean, None, None)
    half = _t_quantile((1 + _CONFIDENCE) / 2, n - 1) * stdev(differences) / sqrt(n)
    return Comparison(n, mean, mean - half, mean + half)


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
