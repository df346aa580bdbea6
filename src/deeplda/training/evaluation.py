"""Gather the statistics needed to fit predictors, and score a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.data.dataset import Part
from deeplda.model import Model
from deeplda.predictors import Calibration, FeatureStatistics
from deeplda.predictors.calibration import brier_score, calibration_error, log_loss
from deeplda.predictors.feature_moments import LayerStatistics
from deeplda.predictors.unknown_scores import MOST_NEIGHBOURS
from deeplda.sampling import stratified_sample
from deeplda.training.metrics import PredictorScores, Scores
from deeplda.training.parallel import ALONE, World
from deeplda.views import Views

# Yields the batches of a long computation unchanged, and reports progress on this activity over this many samples.
Watch = Callable[[Iterator[Tensor], int, str], Iterator[Tensor]]


def unwatched(batches: Iterator[Tensor], _samples: int, _activity: str) -> Iterator[Tensor]:
    """Return the batches without reporting progress."""
    return batches


def gather_statistics(model: Model, part: Part, watch: Watch = unwatched, world: World = ALONE) -> FeatureStatistics:
    """Return the statistics of the embedding of `part`, computed in one pass in eval mode, without augmentation.

    The samples are split among the processes of a `world`, and all processes return the same statistics of all samples.
    """
    return _gathered(model, part, model, watch, world).outputs


def gather_both_statistics(model: Model, part: Part, watch: Watch = unwatched, world: World = ALONE) -> LayerStatistics:
    """Return what `gather_statistics` does, and the statistics of the last hidden layer, from one pass."""
    return _gathered(model, part, model._with_features, watch, world)


def _gathered(
    model: Model, part: Part, compute: Callable[[Tensor], Tensor], watch: Watch, world: World
) -> LayerStatistics:
    """Return the statistics of the first columns that `compute` returns, the embedding, and of any further columns."""
    embedded = FeatureStatistics.for_labels(
        part.labels, part.weights, scatter=model.card.scatter, class_weight=model.card.class_weight
    )
    hidden, some, width = FeatureStatistics(), list[Tensor](), model.card.layer_width
    inputs, labels, places = world.share(part.inputs), world.share(part.labels), world.share(np.arange(len(part)))
    chosen = np.isin(places, stratified_sample(part.labels, MOST_NEIGHBOURS, seed=0))
    weights, start = None if part.weights is None else world.share(part.weights), 0
    for batch in watch(model._batches(compute, inputs), len(inputs), "fitting the predictors"):
        here = slice(start, start + len(batch))
        own = labels[here], None if weights is None else weights[here]
        embedded.update(batch[:, :width], *own)
        if batch.shape[1] > width:
            hidden.update(batch[:, width:], *own)
            some.append(batch[:, width:].cpu()[chosen[here]])
        start += len(batch)
    gathered = world.gather((embedded, hidden, places[chosen], some))
    first, first_hidden, _, _ = gathered[0]
    for other, other_hidden, _, _ in gathered[1:]:
        first.merge(other)
        first_hidden.merge(other_hidden)
    stored = [rows for *_, parts in gathered for rows in parts]
    if not stored:
        return LayerStatistics(first, None, None)
    # In the order of the samples, whichever process had them.
    order = np.argsort(np.concatenate([own for _, _, own, _ in gathered]))
    return LayerStatistics(first, first_hidden, torch.cat(stored)[order])


def evaluate(
    model: Model,
    part: Part,
    watch: Watch = unwatched,
    world: World = ALONE,
    *,
    tta: Views | None = None,
    calibrate: bool = False,
) -> Scores | None:
    """Score every predictor of the model on `part`; return None if it has no samples.

    The samples are split among the processes of a `world`. With `tta`, embeddings are averaged over views of each
    image. With `calibrate`, the probabilities of every predictor are first calibrated on these samples, which must not
    be training samples. Raises InputError if the model computes NaN or infinity.
    """
    if len(part) == 0:
        return None
    found = gather_scores(model, part, watch, world, tta=tta, to_calibrate=calibrate)
    if calibrate:
        calibrate_model(model, found, world)
    predictors = {name: _predictor_scores(model, name, own, found.labels) for name, own in found.scores.items()}
    decided = found.scores[model.card.deciding].argmax(1)
    table = confusion(found.labels, decided, len(model.class_names))
    scores = Scores(n=len(part), accuracy=_accuracy(table), predictors=predictors, confusion=table.tolist())
    if found.weights is None:
        return scores
    weighted = float(np.average(decided == found.labels, weights=found.weights))
    return scores.model_copy(update={"weighted_accuracy": weighted})


class ScoredSamples(NamedTuple):
    """Samples with the scores that a model gave them.

    Attributes:
        labels: (n,), their classes.
        weights: (n,), their weights, or None if they have none.
        scores: the class scores (n, C) of each predictor, by name.
        features: the class scores (n, C) of the rule on the last hidden layer, or None if the model has none.
        unknown: their unknown scores (n,) by the model's default rule, or None if it follows from the probabilities.
    """

    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    scores: dict[str, NDArray[np.float64]]
    features: NDArray[np.float64] | None = None
    unknown: NDArray[np.float64] | None = None

    @classmethod
    def joined(cls, parts: Sequence[ScoredSamples]) -> ScoredSamples:
        """Concatenate several sets of samples, which all have weights or all have none."""
        names = parts[0].scores
        return cls(
            np.concatenate([part.labels for part in parts]),
            _joined([part.weights for part in parts]),
            {name: np.concatenate([part.scores[name] for part in parts]) for name in names},
            _joined([part.features for part in parts]),
            _joined([part.unknown for part in parts]),
        )


def _joined(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found else None


def gather_scores(
    model: Model,
    part: Part,
    watch: Watch = unwatched,
    world: World = ALONE,
    *,
    tta: Views | None = None,
    to_calibrate: bool = False,
) -> ScoredSamples:
    """Return the scores of `part`, with the samples in the same order in all processes.

    With `to_calibrate`, the result also has everything else that `calibrate_model` needs, from the same pass.
    """
    inputs, width = world.share(part.inputs), model.card.layer_width
    # Filled in place: small results that outlive a batch would keep the allocator from using its memory again.
    shape = len(inputs), len(model.class_names)
    found: dict[str, NDArray[np.float64]] = {name: np.empty(shape) for name in model.card.predictors}
    rule, setting = (model.features_rule, model._default_unknown) if to_calibrate else (None, None)
    distance = None if setting is None or setting.rule == "probability" else setting
    of_features, unknown = np.empty(shape), np.empty(len(inputs))
    start = 0
    batches = model._batches(model if rule is None else model._with_features, inputs, tta=tta)
    for batch in watch(batches, len(inputs), "scoring"):
        embedding, hidden, rows = batch[:, :width], batch[:, width:], slice(start, start + len(batch))
        for name, scores in found.items():
            scores[rows] = model.class_scores(embedding, name).cpu().numpy()
        if rule is not None:
            of_features[rows] = model._combined_scores(rule.decision_function(hidden)).cpu().numpy()
        if distance is not None:
            layer = embedding if distance.layer == model.card.layer else hidden
            unknown[rows] = model._distance_score(distance)(layer).cpu().numpy()
        start = rows.stop
    own = ScoredSamples(
        world.share(part.labels),
        None if part.weights is None else world.share(part.weights),
        found,
        None if rule is None else of_features,
        None if distance is None else unknown,
    )
    return ScoredSamples.joined(world.gather(own))


def calibrate_model(model: Model, samples: ScoredSamples, world: World = ALONE) -> None:
    """Calibrate the predictors on samples outside the training set. All processes get the first one's calibration.

    The quantiles of the unknown score are stored as well.
    """
    calibrations = {name: model._named_predictor(name).calibration for name in samples.scores}
    for name, scores in samples.scores.items():
        _calibrate(calibrations[name], scores, samples, world)
    if model.features_rule is not None and samples.features is not None:
        _calibrate(model.features_rule.calibration, samples.features, samples, world)
    deciding = model.card.deciding
    highest = np.exp(calibrations[deciding].log_probabilities(samples.scores[deciding]).max(1))
    model._set_unknown(1 - highest if samples.unknown is None else samples.unknown)


def _calibrate(calibration: Calibration, scores: NDArray[np.float64], samples: ScoredSamples, world: World) -> None:
    calibration.fit(scores, samples.labels, samples.weights)
    state = {key: value.cpu() for key, value in calibration.state_dict().items()}
    calibration.load_state_dict(world.from_first(state))


def _predictor_scores(
    model: Model, name: str, scores: NDArray[np.float64], labels: NDArray[np.int64]
) -> PredictorScores:
    calibration = model._named_predictor(name).calibration
    decided, logs = scores.argmax(1), calibration.log_probabilities(scores)
    table, probabilities = confusion(labels, decided, scores.shape[1]), np.exp(logs)
    return PredictorScores(
        accuracy=_accuracy(table),
        balanced_accuracy=_balanced_accuracy(table),
        auc=area_under_roc(labels, float(calibration.inverse_temperature) * scores),
        log_loss=log_loss(logs, labels),
        brier=brier_score(probabilities, labels),
        ece=calibration_error(probabilities.max(1), decided == labels),
    )


def subclass_scores(model: Model, part: Part) -> dict[str, dict[str, int]]:
    """Return, for each subclass, how often it had the best score ("decided") and how often its class was then right.

    As in the confusion matrix, there is no test-time augmentation.
    """
    names = model.card.subclass_map.names(model.class_names)
    decided = model.predict_subclasses(part.inputs)
    right = np.asarray(names)[:, None] == decided[None, :]
    parents = np.array(model.card.subclass_map.parents)
    return {
        name: {"decided": int(found.sum()), "right": int((part.labels[found] == parent).sum())}
        for name, found, parent in zip(names, right, parents, strict=True)
    }


def confusion(labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return the confusion matrix (C, C): how often each class (row) was classified as each class (column)."""
    return np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def area_under_roc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float | None:
    """Return the area under the ROC curve of each class against the others, averaged over the classes present.

    For one class, it is the probability that a random sample of the class gets a higher probability for it than a
    random sample of the other classes; ties count half. Probabilities, the softmax of the scores (n, C), are compared
    by their log odds, which do not round to 0 or 1. Returns None if all samples belong to one class.
    """
    present = np.unique(labels)
    if len(present) == 1:
        return None
    odds = _log_odds(scores)
    return float(np.mean([_share_in_order(labels == label, odds[:, label]) for label in present]))


def _log_odds(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(p / (1 - p)) for the softmax p of each row.

    For the highest score, where 1 - p would be lost to rounding, it is the lead over the log-sum-exp of the others.
    """
    rows, best = np.arange(len(scores)), scores.argmax(1)
    others = scores.copy()
    others[rows, best] = -np.inf
    lead = scores[rows, best] - np.logaddexp.reduce(others, axis=1)
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    logs[rows, best] = -1  # replaced below; the others are at most log(1/2)
    odds: NDArray[np.float64] = logs - np.log1p(-np.exp(logs))
    odds[rows, best] = lead
    return odds


def _share_in_order(positive: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    """Return the fraction of (positive, other) pairs in the right order, from the ranks of the positive samples.

    This equals scikit-learn's `roc_auc_score`, but avoids its import, which takes a second.
    """
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    n = positive.sum()
    return float((ranks[positive].mean() - (n + 1) / 2) / (len(positive) - n))


def _accuracy(table: NDArray[np.int64]) -> float:
    return float(table.trace() / table.sum())


def _balanced_accuracy(table: NDArray[np.int64]) -> float:
    """Return the mean recall over the classes present."""
    present = table.sum(1) > 0
    return float((table.diagonal()[present] / table.sum(1)[present]).mean())
