"""The ridge of a model that is fitted on features without training, chosen from the data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deeplda.core.oas import oas_shrinkage
from deeplda.data.dataset import Data, Part
from deeplda.predictors import Calibration, FeatureStatistics
from deeplda.predictors.linear import Priors, log_priors
from deeplda.sampling import stratified_sample
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import Watch, gather_statistics, unwatched
from deeplda.training.trainee import build_trainee, moments_suffice, standardised_moments

# The ridges that are compared, in units of the mean variance within the classes: half a decade apart.
_RATIOS = 10.0 ** np.arange(-6, 1.5, 0.5)
_LARGEST_SHRINKAGE = 0.99
# Comparing the ridges takes a few arrays of this many rows, and a calibration for each ridge.
_MOST_COMPARED = 10_000
_DEFAULT: float = RunConfig.model_fields["lam"].default


class Ridge(NamedTuple):
    """A ridge, and a clause that says how it was chosen."""

    lam: float
    reason: str


def with_chosen_ridge(config: RunConfig, data: Data, watch: Watch = unwatched) -> tuple[RunConfig, str]:
    """Return the settings with the ridge that suits the data, and a sentence about it.

    It is the ridge with the lowest log loss of calibrated probabilities on the validation set, or on a stratified
    sample of 10,000 if that has more. Without a validation set, it is the
    ridge of the shrinkage that Chen et al. (2010) estimate from the training set, `oas_shrinkage`.
    """
    model = build_trainee(config, data).model
    statistics = (
        standardised_moments(model, data).outputs
        if moments_suffice(config)
        else gather_statistics(model, data.train, watch)
    )
    if len(data.val):
        part = data.val.take(stratified_sample(data.val.labels, _MOST_COMPARED, seed=0))
        part = part.balanced() if config.class_weight == "balanced" else part
        features = torch.cat(list(watch(model.embeddings(part.inputs), len(part), "choosing the ridge")))
        found = best_ridge(statistics, features.cpu(), part, config.priors)
    else:
        found = estimated_ridge(statistics)
    return config.model_copy(update={"lam": found.lam}), f"ridge lam {found.lam:.3g}, {found.reason}"


def best_ridge(statistics: FeatureStatistics, features: Tensor, part: Part, priors: Priors) -> Ridge:
    """Return the ridge with the lowest log loss of calibrated probabilities on features (n, d) of validation samples.

    With the eigenvalues v and eigenvectors V of the pooled covariance S, (S + lam I)^-1 = V diag(1 / (v + lam)) V', so
    one decomposition serves all ridges.
    """
    values, vectors = torch.linalg.eigh(statistics.pooled())
    variance, middle = float(values.mean()), statistics.means.mean(0)
    if variance <= 0:
        return Ridge(_DEFAULT, "the default, because the features do not vary within the classes")
    means, rows = ((points.double() - middle) @ vectors for points in (statistics.means, features))
    logs = log_priors(priors, statistics.counts)
    losses = []
    for lam in variance * _RATIOS:
        normals = means / (values.clamp(min=0) + lam)
        scores = (rows @ normals.T - (means * normals).sum(1) / 2 + logs).numpy()
        calibration = Calibration().fit(scores, part.labels, part.weights)
        of_labels = calibration.log_probabilities(scores)[np.arange(len(part)), part.labels]
        losses.append(-float(np.average(of_labels, weights=part.weights)))
    # Of equally good ridges, the larger one is the safer choice.
    best = len(losses) - 1 - int(np.argmin(losses[::-1]))
    return Ridge(float(f"{variance * _RATIOS[best]:.6g}"), f"the best of {len(losses)} on the validation set")


def estimated_ridge(statistics: FeatureStatistics) -> Ridge:
    """Return the ridge of the estimated shrinkage: S + lam I is the shrunk covariance, up to a factor."""
    covariance = statistics.pooled()
    shrinkage = min(oas_shrinkage(covariance, float(statistics.counts.sum())), _LARGEST_SHRINKAGE)
    lam = shrinkage / (1 - shrinkage) * float(covariance.diagonal().mean())
    return Ridge(float(f"{lam:.6g}"), "estimated from the training set, because there is no validation set")
