"""The base class of the predictors, each of which computes a linear score for every class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args

import torch
from torch import Tensor, nn

from deeplda.core.moments import check_batch
from deeplda.core.options import check_choice, check_number
from deeplda.predictors.calibration import Calibration
from deeplda.predictors.feature_statistics import FeatureStatistics, Numbers, as_tensor

Probability = Literal["softmax", "sigmoid"]
Priors = Literal["empirical"] | Sequence[float] | None


class LinearPredictor(nn.Module):
    """A predictor with linear scores h W' + b, one per class; the predicted class has the highest score.

    Features and labels may be tensors or NumPy arrays; results are always tensors. Scores are float64. The fitted state
    consists of buffers, so it is saved with a model and moves with `.to()`.

    Args:
        probability: "softmax" applies softmax to the scores; "sigmoid" normalises the sigmoids of the scores, as in the
            paper. Only softmax can be calibrated.
        priors: None for equal priors, "empirical" for the class frequencies, or one number per class. The logarithms of
            the priors are added to the scores.

    Raises ValueError if an option is invalid.

    Attributes:
        calibration: the map from scores to probabilities, which `calibrate` fits.

    Buffers after fitting: classes (C,), the class ids; weight (C, d); bias (C,); prior_shift (C,), see `shift_priors`.
    """

    _fit_method: ClassVar[str] = "fit"

    classes: Tensor
    weight: Tensor
    bias: Tensor
    prior_shift: Tensor

    def __init__(self, *, probability: Probability = "softmax", priors: Priors = None) -> None:
        super().__init__()
        check_choice("probability", probability, get_args(Probability))
        if isinstance(priors, str):
            check_choice("priors", priors, ("empirical",), or_else="None")
        elif priors is not None:
            _class_numbers("priors", priors)
        self.probability, self.priors = probability, priors
        # The statistics of the last fit. `deeplda.loading` sets them when it restores a saved model.
        self._statistics: FeatureStatistics | None = None
        self.calibration = Calibration()
        self._set(torch.empty(0, dtype=torch.long), torch.empty(0, 0).double(), torch.empty(0).double())

    def fit(self, features: Numbers, labels: Numbers, sample_weight: Numbers | None = None) -> Self:
        """Fit on features (n, d) with labels (n,) and weights (n,), by default 1."""
        features, labels = as_tensor(features, "features"), as_tensor(labels, "labels")
        check_batch(features, labels)
        statistics = self.statistics(labels, sample_weight)
        statistics.update(features, labels, sample_weight)
        return self.fit_statistics(statistics)

    def statistics(self, labels: Numbers, sample_weight: Numbers | None = None) -> FeatureStatistics:
        """Create empty statistics, of the kind that this predictor is fitted from, for a set with these labels (n,).

        If samples have weights, pass them all, (n,).
        """
        return FeatureStatistics.for_labels(labels, sample_weight)

    def fit_statistics(self, statistics: FeatureStatistics) -> Self:
        """Fit from statistics that have seen every batch. An earlier calibration and shift of the priors are lost."""
        device = self.weight.device
        weight, bias = self._solve(statistics)
        self._set(statistics.classes, weight, bias + log_priors(self.priors, statistics.counts))
        self._statistics = statistics
        return self.to(device)

    def calibrate(self, features: Numbers, labels: Numbers, sample_weight: Numbers | None = None) -> Self:
        """Fit the probabilities to features (n, d) with labels (n,) that the predictor was not fitted on.

        The features must come from samples that the network was not trained on either: on its own training samples, a
        network is far too confident. Decisions do not change, unless the priors are shifted. With `sample_weight` (n,),
        a sample of weight 2 counts as two samples. `Calibration` has the details.
        Raises ValueError if a label is not among `classes`, or if `probability` is "sigmoid".
        """
        if self.probability == "sigmoid":
            raise ValueError('probability is "sigmoid", need "softmax" to calibrate: create the predictor with it')
        features, labels = as_tensor(features, "features"), as_tensor(labels, "labels").to(self.classes.device).long()
        check_batch(features, labels)
        if not (known := torch.isin(labels, self.classes)).all():
            wrong = int(labels[~known][0])
            raise ValueError(f"labels contains {wrong}, need one of the {len(self.classes)} classes: omit its samples")
        shift, self.prior_shift = self.prior_shift, torch.zeros_like(self.prior_shift)
        scores = self.decision_function(features)
        self.prior_shift = shift
        places = torch.searchsorted(self.classes, labels.contiguous())
        weights = None if sample_weight is None else as_tensor(sample_weight, "sample_weight").double().cpu().numpy()
        self.calibration.fit(scores.detach().cpu().numpy(), places.cpu().numpy(), weights)
        return self

    def shift_priors(self, factors: Sequence[float]) -> Self:
        """Multiply the odds of each class by a positive factor, as if its frequency or cost had changed; factors (C,).

        The logarithm of the factors is added to beta times the scores, where beta is the inverse temperature, so it
        counts the same however large the scores are. Call it after `calibrate`, which looks at the given frequencies.
        """
        self.prior_shift = _class_numbers("factors", factors, len(self.classes)).log().to(self.prior_shift)
        return self

    def decision_function(self, features: Numbers) -> Tensor:
        """Return the scores, (n, C) float64; calibration does not change them, unless the priors are shifted.

        Raises NotFittedError if the predictor is not fitted, and ValueError if features has the wrong width or is not
        finite.
        """
        scores = self._scores(features)
        if not scores.isfinite().all():
            _check_finite(as_tensor(features, "features"))
            raise ValueError("the scores are not finite, because features or weights are too large: scale the features")
        return scores

    def predict(self, features: Numbers) -> Tensor:
        """Return the class id with the highest score for each sample, (n,)."""
        return self.classes[self.decision_function(features).argmax(1)]

    def predict_proba(self, features: Numbers) -> Tensor:
        """Return the probability of each class, (n, C) float64, computed from logarithms to avoid overflow."""
        scores = self.decision_function(features)
        if self.probability == "sigmoid":
            return nn.functional.logsigmoid(scores).softmax(1)
        probabilities: Tensor = self.calibration(scores)
        return probabilities

    def mahalanobis(self, features: Numbers) -> Tensor:
        """Return the Mahalanobis distance from each sample to the nearest class mean, (n,) float64.

        It is measured with the pooled covariance. A large distance flags a sample that belongs to none of the classes.
        A difference along a direction in which the training set does not vary counts far more than along others, unless
        it is small beside the constant value there; `FeatureStatistics.distance_map` has the details. If there are
        fewer training samples than dimensions, there are such directions, so almost all new samples are far away.
        """
        features, statistics = self._checked(features), self._fitted_statistics()
        _check_finite(features)
        distance_map = statistics.distance_map().to(features.device)
        means = statistics.means.to(features.device)
        # Centre first, and avoid the formula based on products, so that an offset of the features costs no precision.
        rows, centres = ((values - means.mean(0)) @ distance_map for values in (features.double(), means))
        return torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").amin(1)

    def add_class(self, features: Numbers, label: int, *, prior: float | None = None) -> Self:
        """Add a class from a few examples, features (k, d), without retraining: its mean and scatter are added.

        The calibration is kept, and so are shifted priors; the prior of the new class is not shifted. If `priors` are
        numbers, pass the `prior` of the new class, between 0 and 1; the others keep their proportions.
        Raises ValueError if the class already exists, or if `prior` is missing or not needed.
        """
        statistics = self._fitted_statistics().with_class(features, label)
        self.priors = self._extended_priors(int((statistics.classes < label).sum()), prior)
        return self._refit(statistics)

    def forward(self, features: Numbers) -> Tensor:
        return self.decision_function(features)

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        """Compute weight (C, d) and bias (C,) for equal priors."""
        raise NotImplementedError

    def _refit(self, statistics: FeatureStatistics) -> Self:
        """Fit from statistics with additional classes, and keep the calibration and the shifted priors."""
        calibration, shift, classes = self.calibration, self.prior_shift, self.classes
        self.fit_statistics(statistics)
        self.calibration = calibration
        self.prior_shift[torch.searchsorted(self.classes, classes)] = shift
        return self

    def _reserve(self, classes: int, dimensions: int) -> Self:
        """Create buffers of the right shapes, so that a state can be loaded into them."""
        weight = torch.zeros(classes, dimensions, dtype=torch.float64)
        self._set(torch.arange(classes), weight, weight.new_zeros(classes))
        return self

    def _extended_priors(self, place: int, prior: float | None) -> Priors:
        """Return the priors with that of a new class inserted at `place`, or unchanged if they are not numbers."""
        if self.priors is None or isinstance(self.priors, str):
            if prior is not None:
                raise ValueError(f"prior is {prior}, but priors is {self.priors!r}: omit prior")
            return self.priors
        if prior is not None:
            check_number("prior", prior)
        if prior is None or not 0 < prior < 1:
            needed = "a number between 0 and 1, because priors were given as numbers"
            raise ValueError(f"the prior of the new class is {prior}, need {needed}: pass prior=0.1, for example")
        shares = _class_numbers("priors", self.priors).log().softmax(0) * (1 - prior)
        return (*shares[:place].tolist(), float(prior), *shares[place:].tolist())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        """Load as torch does, after resizing the buffers of an unfitted predictor to match the state."""
        complete_predictor_state(state_dict, prefix)
        weight = state_dict.get(f"{prefix}weight")
        if len(self.classes) == 0 and weight is not None and weight.ndim == 2:
            device = self.weight.device
            self._reserve(*weight.shape).to(device)
        before = [buffer.clone() for buffer in self.buffers()]
        super()._load_from_state_dict(state_dict, prefix, *others)
        if not all(map(torch.equal, before, self.buffers())):
            # The statistics of the previous fit do not belong to the loaded state.
            self._statistics = None

    def _scores(self, features: Numbers) -> Tensor:
        """Return the scores without a check that they are finite, which cannot be part of an exported graph."""
        bias = self.bias.double() + self.prior_shift / self.calibration.inverse_temperature
        return self._checked(features).double() @ self.weight.double().T + bias

    def _checked(self, features: Numbers) -> Tensor:
        """Return the features as a tensor, on the predictor's device if they are an array."""
        if len(self.classes) == 0:
            self._raise_not_fitted()
        given = as_tensor(features, "features")
        width = self.weight.shape[1]
        if given.ndim != 2 or given.shape[1] != width:
            shape = tuple(given.shape)
            do = "pass features from the network that the predictor was fitted on"
            raise ValueError(f"features has shape {shape}, need (n, {width}): {do}")
        return given if given is features else given.to(self.weight.device)

    def _fitted_statistics(self) -> FeatureStatistics:
        if len(self.classes) == 0:
            self._raise_not_fitted()
        if self._statistics is None:
            raise RuntimeError("this predictor has no statistics: fit it, or use it through a loaded model")
        return self._statistics

    def _raise_not_fitted(self) -> NoReturn:
        # Importing scikit-learn takes a second, and predictors do not otherwise need it.
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(self).__name__} is not fitted: call {self._fit_method} first")

    def _set(self, classes: Tensor, weight: Tensor, bias: Tensor) -> None:
        # Copy the classes, because predictors that are fitted from the same statistics must not share a buffer.
        self.register_buffer("classes", classes.clone())
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("prior_shift", torch.zeros_like(bias))
        self.calibration = Calibration().to(bias.device)


def complete_predictor_state(state: dict[str, Tensor], prefix: str) -> None:
    """Add the values that a predictor's state from before version 0.2 lacks: it was not calibrated."""
    if (bias := state.get(f"{prefix}bias")) is not None and f"{prefix}prior_shift" not in state:
        state[f"{prefix}prior_shift"] = torch.zeros_like(bias)
        state |= {f"{prefix}calibration.{name}": value for name, value in Calibration().state_dict().items()}


def _check_finite(features: Tensor) -> None:
    """Raise ValueError if a value is NaN or infinite."""
    if not features.isfinite().all():
        nan, inf = int(features.isnan().sum()), int(features.isinf().sum())
        what = f"features has {nan} NaN and {inf} infinite values among {features.numel()}"
        raise ValueError(f"{what}, need finite numbers: fill in missing values, or omit these samples")


def linear_rule(means: Tensor, middle: Tensor, factor: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return weight (C, d) and bias (C,) of the scores -|(h - mu_c) A|^2 / 2, up to a number common to all classes.

    The arguments are the class means (C, d), a point in their midst (d,), and A (d, r), by default the identity. The
    scores are computed as (h - (mu_c + m) / 2) A A' (mu_c - m) with m = `middle`, so that an offset of the features
    costs little precision.
    """
    normals = means - middle
    if factor is not None:
        # Chooses the cheapest order, which depends on the numbers of classes and dimensions.
        normals = torch.linalg.multi_dot([normals, factor, factor.T])
    return normals, -((means + middle) * normals).sum(1) / 2


def log_priors(priors: Priors, counts: Tensor) -> Tensor:
    """Return the logarithms of the priors, (C,), given the number of samples of each class; 0 for None.

    Raises ValueError unless `priors` is None, "empirical" or a positive number for each class.
    """
    if priors is None:
        return torch.zeros(len(counts), dtype=torch.float64)
    if isinstance(priors, str):
        return (counts / counts.sum()).log()
    return _class_numbers("priors", priors, len(counts)).log().log_softmax(0)


def _class_numbers(name: str, values: object, classes: int | None = None) -> Tensor:
    """Return positive finite numbers, one per class, (C,) float64. Raises ValueError if `values` has anything else."""
    try:
        found = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(())
    fits = found.ndim == 1 and classes in (None, len(found))
    if not (fits and ((found > 0) & found.isfinite()).all()):
        count = "" if classes is None else f"{classes} "
        needed = f"{count}positive finite numbers, one per class in ascending order of class ids"
        raise ValueError(f"{name} is {values!r}, need {needed}")
    return found
