"""The settings of a run, as run.toml and the command line name them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deeplda.errors import InputError, got
from deeplda.files import expanded, read_toml

# What decides which samples a run has, and in which part: runs that agree in these share their data.
DATA_SETTINGS = ("data", "data_dir", "image_size", "split_seed", "train_on_all", "skip_unreadable")

# Settings of the discriminant objectives, which cross-entropy is not trained by.
OF_LDA = ("alpha", "lam", "epsilon", "statistic", "scatter")
_OF_AUTOENCODER = ("autoencoder_epochs", "autoencoder_optimizer", "autoencoder_learning_rate")
# Settings that a training does not feel where another one has one of these values.
_IDLE: tuple[tuple[str, tuple[Any, ...], tuple[str, ...]], ...] = (
    ("objective", ("rdlda", "dlda"), ("label_smoothing",)),
    ("statistic", ("wilks", "pillai", "hotelling"), ("epsilon",)),
    ("objective", ("cce",), OF_LDA),
    ("optimizer", ("sgd",), ("filter_learning_rate",)),
    ("schedule", ("one-cycle", "linear"), ("halve_every",)),
    ("flip", (False,), ("flip_order",)),
    ("subclasses", (1,), ("cluster_on", "cluster_starts", "smallest_cluster", "subclass_decision")),
    ("cluster_on", ("inputs",), _OF_AUTOENCODER),
    ("subclasses", (1,), _OF_AUTOENCODER),
)

# More than anything here can be; TOML and torch end at 64 bits.
Whole = Annotated[int, Field(lt=2**31)]
Rate = Annotated[float, Field(gt=0, le=1e6)]


class ObjectiveConfig(BaseModel):
    """What is optimised, and by which network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: Literal["rdlda", "dlda", "cce"] = Field(
        "rdlda", description="rdlda; dlda (rdlda with alpha 1); or cce, cross-entropy."
    )
    alpha: float = Field(1.0, ge=0, le=1, description="Share of the off-diagonal of S_W that is kept.")
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False, description="Ridge added to S_W.")
    epsilon: float = Field(1.0, ge=0, description="Eigenvalues up to the smallest plus this enter the loss.")
    statistic: Literal["smallest", "wilks", "pillai", "hotelling"] = Field(
        "wilks", description="Statistic of the eigenvalues; smallest is the paper's."
    )
    scatter: Literal["pooled", "sum", "dorfer"] = Field("pooled", description="Reading of the scatter matrices.")
    class_weight: Literal["balanced"] | None = Field(None, description="balanced: rare classes count as much.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Of cross-entropy: share given to all classes alike.")

    network: str | None = Field(
        None, description="dorfernet, fastnet, convnet-small, mlp, or module.path:callable. [default: by the data]"
    )
    width: float = Field(1.0, gt=0, allow_inf_nan=False, description="Factor on the channels of hidden layers.")
    embedding_dim: Annotated[Whole, Field(ge=1)] | Literal["subclasses"] | None = Field(
        None, description="Width of the output: a number, or subclasses. [default: number of classes]"
    )

    optimizer: Literal["sgd", "muon"] = Field(
        "sgd", description="sgd; or muon, which orthogonalises the steps of filters: for networks with batch norm."
    )
    filter_learning_rate: Rate = Field(0.24, description="Highest learning rate of filters under muon.")
    chunk_size: Whole | None = Field(
        None, ge=2, description="Run so many samples of a batch at a time: the same gradient in less memory."
    )
    precision: Literal["float32", "bfloat16"] | None = Field(
        None, description="In which the network is trained. [default: bfloat16 on a GPU that has it, else float32]"
    )

    subclasses: Annotated[Whole, Field(ge=1)] | Literal["auto"] = Field(
        1, description="Split each class into so many by k-means and train on those; auto: 1 to 4 by silhouette."
    )
    cluster_on: Literal["autoencoder", "inputs"] | None = Field(
        None, description="Where k-means runs. [default: autoencoder for images, inputs for rows]"
    )
    cluster_starts: Whole = Field(10, ge=1, description="Starts of k-means, of which the best is kept.")
    smallest_cluster: Whole = Field(10, ge=1, description="Smaller clusters join their nearest sibling.")
    subclass_decision: Literal["argmax", "sum"] = Field(
        "argmax", description="A class is that of the best subclass, or the one whose subclasses sum highest."
    )
    autoencoder_epochs: Whole = Field(20, ge=1, description="Passes over the training part by the autoencoder.")
    autoencoder_optimizer: Literal["adam", "sgd"] = Field("adam", description="Optimiser of the autoencoder.")
    autoencoder_learning_rate: Rate = Field(3e-3, description="Highest learning rate of the autoencoder.")


class LoopConfig(BaseModel):
    """How long and on what the loop trains, whatever it trains."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: Whole = Field(30, ge=1, description="Passes over the training part.")
    batch_size: Whole = Field(200, ge=2, description="Samples in a step.")
    learning_rate: Rate = Field(0.03, description="Highest learning rate.")
    momentum: float = Field(0.9, gt=0, lt=1, description="Nesterov momentum of SGD.")
    weight_decay: float = Field(1e-4, ge=0, le=1e6, description="On all parameters, but for the filters under muon.")
    schedule: Literal["halving", "one-cycle", "linear"] = Field(
        "one-cycle", description="Learning rate: halved every so many epochs, up and down once, or down to 0."
    )
    halve_every: Whole = Field(25, ge=1, description="Epochs between halvings.")
    sampler: Literal["shuffle", "stratified"] = Field(
        "stratified", description="stratified: every class in every batch where it can be."
    )
    flip: bool = Field(False, description="Mirror images.")
    flip_order: Literal["random", "alternating"] = Field(
        "random", description="Mirror at random, or each image in every second epoch."
    )
    translate: Whole = Field(0, ge=0, description="Move images by up to so many pixels.")
    tta: Literal["mirror"] | None = Field(
        None, description="Score at the end also with embeddings of images and their mirror images averaged."
    )
    patience: Whole | None = Field(None, ge=1, description="Stop after so many epochs without a better validation.")
    seed: Whole = Field(0, ge=0, description="Of the training: weights, order, augmentation, dropout.")

    data_dir: Path | None = Field(None, description="Where known data is. [default: DEEPLDA_DATA or the cache]")
    image_size: Whole | None = Field(None, ge=1, description="Bring images to this many pixels a side.")
    split_seed: Whole = Field(0, ge=0, description="Moves the split into training, validation and test.")
    train_on_all: bool = Field(False, description="Train on the validation part too, once all settings are chosen.")
    skip_unreadable: bool = Field(False, description="Leave broken image files out instead of stopping.")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ... [auto: cuda where there is one]")
    checkpoint_seconds: float = Field(60.0, gt=0, description="A checkpoint at least this often, within epochs too.")


class TrainConfig(LoopConfig, ObjectiveConfig):
    """Everything but the data's name. Defaults are for small images such as digits; recipes set the rest."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.objective == "dlda":
            if "alpha" in self.model_fields_set and self.alpha != 1:
                raise ValueError("objective dlda is alpha 1: leave alpha out, or use objective rdlda")
            object.__setattr__(self, "alpha", 1.0)
        if self.train_on_all and self.patience is not None:
            raise ValueError(
                "patience needs the validation part that train_on_all trains on: leave it out, or --no-train-on-all"
            )
        if self.scatter == "dorfer" and (self.statistic in ("wilks", "pillai") or self.class_weight):
            raise ValueError("scatter dorfer goes with statistic smallest or hotelling, and without class_weight")
        return self


class _OnData(BaseModel):
    """Settings with the data they are for, as a TOML file has them."""

    data: str = Field("digits", description="A known name, a folder of images, or an .npz file.")

    @classmethod
    def read(cls, file: Path) -> Self:
        """From a TOML file. Raises InputError where it is not one of ours."""
        return cls.parse(read_toml(file), str(file))

    @classmethod
    def parse(cls, settings: dict[str, Any], origin: str) -> Self:
        """From a mapping; `origin` is named in the InputError for a wrong one."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise InputError(f"{origin}: {first_mistake(error)}") from None

    def to_toml(self) -> str:
        """As TOML, with the settings in the order of their definition; those that are None are left out."""
        settings = self.model_dump(mode="json", exclude_none=True)
        lines = [f"data = {as_toml(settings.pop('data'))}"]
        lines += [f"{name} = {as_toml(value)}" for name, value in settings.items()]
        return "\n".join(lines) + "\n"


class RunConfig(_OnData, TrainConfig):
    """The contents of run.toml."""

    @classmethod
    def of(cls, run: Path) -> Self:
        """The settings of a run folder. Raises InputError where it is none."""
        if not (run / "run.toml").is_file():
            reason = "it holds a model alone" if (run / "model.json").exists() else "it has no run.toml"
            what = f"{run} is no run, {reason}" if run.is_dir() else f"{run} is no run, there is no such folder"
            raise InputError(got(what, need="a folder that deeplda train made", do="check the name"))
        return cls.read(run / "run.toml")


class AutoencoderConfig(_OnData, LoopConfig):
    """The contents of run.toml of an autoencoder."""

    width: float = Field(1.0, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    # Many small steps reconstruct better than few large ones.
    batch_size: Whole = Field(100, ge=2)

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """The autoencoder that a run asks for. What it does not depend on is left at its default, so that runs that
        differ in their objective alone can share it."""
        same = (*DATA_SETTINGS, "device", "seed", "width")
        return cls(
            epochs=config.autoencoder_epochs,
            optimizer=config.autoencoder_optimizer,
            learning_rate=config.autoencoder_learning_rate,
            weight_decay=0.0,
            **{name: getattr(config, name) for name in same},
        )


def without_effect(config: TrainConfig, given: Collection[str]) -> dict[str, str]:
    """Of the settings given, those a training does not feel, with the one that makes it so: {"lam": "objective"}."""
    idle = [(names, other) for other, values, names in _IDLE if getattr(config, other) in values]
    return {name: other for names, other in idle for name in names if name in given}


def with_whole_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run with paths that exist made whole, so that it can be read again from anywhere."""
    from deeplda.data import KNOWN

    paths = {name: settings[name] for name in ("data", "data_dir") if isinstance(settings.get(name), str | Path)}
    if paths.get("data") in KNOWN:
        del paths["data"]
    return settings | {name: str(whole.resolve()) for name, path in paths.items() if (whole := expanded(path)).exists()}


def first_mistake(error: ValidationError) -> str:
    """A pydantic error as one sentence: which setting, what came, what is wanted."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"{name} is not a setting"
    return f"{name} is {_shown(first['input'])}: {message[0].lower()}{message[1:]}"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a huge number"


def as_toml(value: Any) -> str:
    """A string, number, boolean or list of these as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if value == math.inf:
        return "inf"
    # JSON's are TOML as well, once DEL is escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
