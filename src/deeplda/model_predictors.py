"""The predictors of a model: which ones its card names, and the priors that they are fitted with."""

from __future__ import annotations

import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.model_card import ModelCard, PredictorName
from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, LinearPredictor, NearestMean, Softmax
from deeplda.predictors.balanced_ridge import BalancedRidge
from deeplda.predictors.linear import Priors

_PREDICTORS: dict[PredictorName, type[LinearPredictor]] = {
    "hyperplanes": Hyperplanes,
    "nearest_mean": NearestMean,
    "classic_lda": ClassicLDA,
    "softmax": Softmax,
    "balanced_ridge": BalancedRidge,
}


def build_predictors(card: ModelCard) -> nn.ModuleDict:
    """Return the predictors that a card names, which are not fitted yet."""
    predictors = nn.ModuleDict({name: _PREDICTORS[name]() for name in card.predictors})
    if "hyperplanes" in card.predictors:
        predictors["hyperplanes"] = Hyperplanes(
            alpha=card.alpha,
            lam=card.lam,
            scatter=card.scatter,
            class_weight=card.class_weight,
            priors=card.priors,
        )
    if "classic_lda" in card.predictors and card.class_weight == "balanced":
        predictors["classic_lda"] = ClassicLDA(priors=None)
    return predictors


def predictor_name(predictor: LinearPredictor) -> PredictorName:
    """Return the name of a predictor for the card. Raises InputError if a model cannot use the predictor."""
    name = next((name for name, kind in _PREDICTORS.items() if type(predictor) is kind), None)
    if name is None or name == "balanced_ridge":
        kind = type(predictor).__name__
        need, do = "Hyperplanes, NearestMean, ClassicLDA or Softmax", "use Hyperplanes, for example"
        raise InputError(f"the predictor is a {kind}", need=need, do=do)
    if len(predictor.classes) == 0:
        raise InputError("the predictor is not fitted: call fit first")
    for option, needed in (("normalize", "within"), ("probability", "softmax")):
        if getattr(predictor, option, needed) != needed:
            what = f"the predictor has {option}={getattr(predictor, option)!r}, which a saved model cannot record"
            raise InputError(f"{what}: fit one with {option}={needed!r}")
    return name


def priors_of(predictor: LinearPredictor, card: ModelCard, statistics: FeatureStatistics) -> Priors:
    """Return the priors with which a predictor of a model is fitted.

    Priors belong to classes: if they are equal, each subclass has its share of its class's prior, so that splitting a
    class does not make it more likely.
    """
    if card.parents is None or predictor.priors == "empirical":
        return predictor.priors
    parents = torch.tensor(card.parents)
    sizes = torch.zeros(len(card.class_names), dtype=torch.float64).index_add_(0, parents, statistics.counts)
    return (statistics.counts / sizes[parents]).tolist()
