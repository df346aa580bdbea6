"""The model card: everything needed to rebuild a model, except its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deeplda.core.options import ClassWeight, Scatter, check_regularisation
from deeplda.data.table_encoding import TableEncoder
from deeplda.errors import InputError, unreadable
from deeplda.io import read_small
from deeplda.networks.hidden_layer import MOST_FEATURES
from deeplda.networks.layers import Head
from deeplda.networks.registry import Architecture
from deeplda.networks.whitened_output import Outputs
from deeplda.predictors.unknown_scores import UnknownRule
from deeplda.subclasses import SubclassMap

PredictorName = Literal["hyperplanes", "nearest_mean", "classic_lda", "softmax", "balanced_ridge"]
# The layers of a network on which predictors and scores can work.
Layer = Literal["outputs", "features"]
# The predictors that are fitted on the statistics of the embedding.
LDA_PREDICTORS: tuple[PredictorName, ...] = ("hyperplanes", "nearest_mean", "classic_lda")

# A NumPy array of names pads each of them to the longest, so a broken file could make it huge.
_MAX_NAME_BYTES = 2**26


class UnknownSetting(BaseModel):
    """How unknown inputs are scored: the rule, and the layer that it works on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: UnknownRule
    layer: Layer


class ModelCard(BaseModel):
    """The contents of model.json: everything needed to rebuild a model, except its weights.

    Attributes:
        network: the name of a built-in network, or "module.path:callable" for your own code.
        width: the factor by which the network's hidden channel counts are scaled.
        embedding_dim: the width of the embedding.
        head, logit_scale, outputs: the output layers of a built-in network, as in `build_network`.
        hidden_layer_sizes, dropout: the hidden layers of "mlp", as in `build_network`.
        sample_shape: the shape of one sample, (features,) or (channels, height, width).
        class_names: the class names, in the order of the class numbers.
        predictors: the names of the predictors; the first one makes the decisions.
        priors: the priors of the hyperplanes: None if they are equal, "empirical" for the class frequencies.
        alpha, lam, scatter, class_weight: the options of the loss and of the hyperplanes, as in `RDLDALoss`.
        parents: the class of each subclass, if the model was trained on subclasses.
        subclass_decision: "argmax" picks the class of the best subclass, "sum" the class whose subclasses have the
            highest total probability.
        table: the encoding of raw rows, if the model was trained on a table; its outputs are the samples.
        layer: the layer that is the embedding: the network's outputs or, once samples were added, its last hidden one.
        features_dim: the width of the last hidden layer, if the model has statistics of it.
        unknown: the score that the stored quantiles belong to; None if there are none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    network: str
    width: float = Field(gt=0)
    embedding_dim: int = Field(ge=1)
    head: Head | None = None
    logit_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    outputs: Outputs | None = None
    hidden_layer_sizes: tuple[Annotated[int, Field(ge=1, lt=2**31)], ...] | None = None
    dropout: float | None = Field(None, ge=0, lt=1)
    sample_shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, max_length=3)
    class_names: tuple[str, ...] = Field(min_length=2)
    predictors: tuple[PredictorName, ...] = Field(min_length=1)
    alpha: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False)
    scatter: Scatter = "pooled"
    class_weight: ClassWeight = None
    priors: Literal["empirical"] | None = None
    parents: tuple[int, ...] | None = None
    subclass_decision: Literal["argmax", "sum"] = "argmax"
    table: TableEncoder | None = None
    layer: Layer = "outputs"
    features_dim: int | None = Field(None, ge=1, le=MOST_FEATURES)
    unknown: UnknownSetting | None = None

    @model_validator(mode="after")
    def _check_that_settings_agree(self) -> Self:
        if self.parents is not None and SubclassMap(self.parents).classes != len(self.class_names):
            raise ValueError("parents and class_names have different numbers of classes")
        if 4 * max(map(len, self.class_names)) * len(self.class_names) > _MAX_NAME_BYTES:
            raise ValueError("class names are too long")
        if self.table is not None and self.sample_shape != (len(self.table.outputs),):
            raise ValueError("table and sample_shape have different numbers of values")
        if (self.layer == "features") != (self.predictors == ("balanced_ridge",)):
            raise ValueError("predictor balanced_ridge and layer features require each other")
        if self.layer == "features" and self.features_dim is None:
            raise ValueError("layer is features, but features_dim is missing")
        check_regularisation(self.alpha, self.lam, self.scatter, self.class_weight)
        return self

    def _architecture(self) -> Architecture:
        """Return the arguments with which `build_network` builds the network."""
        return {
            "name": self.network,
            "sample_shape": self.sample_shape,
            "embedding_dim": self.embedding_dim,
            "width": self.width,
            "head": self.head,
            "logit_scale": self.logit_scale,
            "outputs": self.outputs,
            "hidden_layer_sizes": self.hidden_layer_sizes,
            "dropout": self.dropout,
        }

    @property
    def deciding(self) -> PredictorName:
        """The name of the predictor that makes the decisions, the first one."""
        return self.predictors[0]

    @property
    def layer_width(self) -> int:
        """The width of the model's embedding: that of the network's outputs or of its last hidden layer."""
        return self.embedding_dim if self.layer == "outputs" or self.features_dim is None else self.features_dim

    @property
    def subclass_map(self) -> SubclassMap:
        """The map from the predictors' labels to classes; without subclasses, each label is a class."""
        return SubclassMap(self.parents or tuple(range(len(self.class_names))))


def read_card(file: Path) -> ModelCard:
    """Read model.json. Raises InputError if it is missing or does not describe a model."""
    if not file.is_file():
        run = file.parent.parent
        if not file.parent.exists() and (run / "run.toml").exists():
            raise InputError(f"{run} is not finished: resume it with deeplda train --resume --run {run}")
        what = f"{file.parent} contains no model" if file.parent.is_dir() else f"there is no folder {file.parent}"
        raise InputError(f"{what}: pass the folder of a finished run or of its model")
    try:
        return ModelCard.model_validate_json(read_small(file))
    except OSError as error:
        raise unreadable(file, error, "train again") from None
    except ValidationError as error:
        raise InputError(f"{file} does not describe a model: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """Describe the first problem that pydantic found, in one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
