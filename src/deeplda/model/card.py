"""model.json: all that is needed to rebuild a model, its weights apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deeplda.errors import InputError, got
from deeplda.files import read_small
from deeplda.objective.discriminant import check_regularisation
from deeplda.subclasses import SubclassMap

# Names that take more than this as an array, in which each has the room of the longest, are no names.
_LARGEST_NAMES = 2**26


class ModelCard(BaseModel):
    """Contents of model.json: all that is needed to rebuild a model, its weights apart.

    Attributes:
        parents: the class of each subclass, where the model was trained on subclasses.
        subclass_decision: a class is that of the best subclass, or the one whose subclasses sum highest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    network: str
    width: float = Field(gt=0)
    embedding_dim: int = Field(ge=1)
    sample_shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, max_length=3)
    class_names: tuple[str, ...] = Field(min_length=2)
    predictors: tuple[Literal["hyperplanes", "nearest_mean", "classic_lda", "softmax"], ...] = Field(min_length=1)
    alpha: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False)
    scatter: Literal["pooled", "sum", "dorfer"] = "pooled"
    class_weight: Literal["balanced"] | None = None
    parents: tuple[int, ...] | None = None
    subclass_decision: Literal["argmax", "sum"] = "argmax"

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.parents is not None and SubclassMap(self.parents).classes != len(self.class_names):
            raise ValueError("parents are of another number of classes")
        if 4 * max(map(len, self.class_names)) * len(self.class_names) > _LARGEST_NAMES:
            raise ValueError("class names are too long")
        if "softmax" in self.predictors and len(self.predictors) > 1:
            raise ValueError("softmax goes with no other predictor")
        check_regularisation(self.alpha, self.lam, self.scatter, self.class_weight)
        return self

    @property
    def subclass_map(self) -> SubclassMap:
        """The way from what the predictors decide between to classes; without subclasses each class is its own."""
        return SubclassMap(self.parents or tuple(range(len(self.class_names))))


def read_card(file: Path) -> ModelCard:
    """Read model.json. Raises InputError where it is missing or not a model's."""
    if not file.is_file():
        what = f"{file.parent} holds no model" if file.parent.is_dir() else f"there is no folder {file.parent}"
        raise InputError(
            got(what, need="model.json and weights.safetensors", do="give the folder of a finished run or of its model")
        )
    try:
        return ModelCard.model_validate_json(read_small(file))
    except OSError as error:
        raise InputError(
            got(f"{file} cannot be read ({error.strerror})", need="it as saved", do="train again")
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{file} is not a model's: {where}: {first['msg']}") from None
