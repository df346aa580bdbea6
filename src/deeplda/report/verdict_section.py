"""The verdict on a run: the findings of `deeplda doctor` in words, then the figures that sum the run up."""

from __future__ import annotations

import numpy as np

from deeplda.formatting import counted, duration, percent, wilson_interval
from deeplda.report import wording
from deeplda.report.components import key_figure, section
from deeplda.report.diagnosis import Finding, diagnose
from deeplda.report.markup import Html, element
from deeplda.report.record import InspectedRun


def verdict(run: InspectedRun) -> Html:
    """Return what went well or wrong, why, and what to do about it, followed by the run's key figures."""
    scores = run.scores
    right = int(np.trace(scores.confusion))
    lead = f"The model classifies {right:,} of {scores.n:,} test samples correctly ({percent(scores.accuracy)})."
    if run.left_out:
        lead += f" {counted(len(run.left_out), 'file')} could not be read; the list is below, under Skipped files."
    findings = [_finding(finding) for finding in diagnose([*run.epochs, run.summary], run.config)]
    return section("verdict", "Verdict", lead, element("ul", findings, class_="findings"), _figures(run, right))


def _finding(finding: Finding) -> Html:
    # A healthy run needs no advice, least of all to open this report.
    advice = () if finding.severity == "good" else element("p", element("b", "What to do: "), finding.do)
    badge = element("span", finding.severity, class_="badge")
    what = element("p", badge, " ", finding.what, class_="what")
    return element("li", what, element("p", finding.why), advice, class_=finding.severity)


def _figures(run: InspectedRun, right: int) -> Html:
    summary, scores = run.summary, run.scores
    low, high = wilson_interval(right, scores.n)
    interval = f"{right:,} of {scores.n:,} correct; 95 % interval {percent(low, 1)} to {percent(high, 1)}"
    figures = [
        key_figure("test accuracy", percent(scores.accuracy), interval),
        key_figure("balanced accuracy", percent(scores.deciding.balanced_accuracy), "mean recall over the classes"),
        key_figure("selected epoch", f"{summary.best_epoch}", wording.kept_epoch(summary)),
        key_figure("time", duration(summary.seconds), wording.effort(summary, run.environment)),
    ]
    return element("dl", figures, class_="figures")
