"""The settings of a run, as named in run.toml and on the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from deeplda.batch_rule import SamplerName
from deeplda.core.options import (
    STATISTICS,
    ClassWeight,
    Scatter,
    check_regularisation,
    check_statistic,
    checked_parents,
)
from deeplda.errors import InputError
from deeplda.io import expanded, is_text, read_toml
from deeplda.user_code import is_code

Objective = Literal["lda", "rdlda", "dlda", "cce", "gce", "joint"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
SubclassBetween = Literal["all", "classes"]
# The objectives with an LDA loss, and those whose outputs are class scores for softmax; joint has both.
LDA_OBJECTIVES: tuple[Objective, ...] = ("lda", "rdlda", "dlda", "joint")
SOFTMAX_OBJECTIVES: tuple[Objective, ...] = ("joint", "cce", "gce")
# The default alpha and statistic of the paper's objectives.
OBJECTIVE_DEFAULTS: dict[str, dict[str, float | str]] = {
    "rdlda": {"alpha": 0.6, "statistic": "smallest"},
    "dlda": {"alpha": 1.0, "statistic": "smallest"},
}

# Settings that determine where and how a run is trained, but not its result.
HOW_TO_RUN = {"data_dir", "device", "checkpoint_seconds", "skip_unreadable", "strict"}

# The upper bound is far above any useful value and keeps integers within the 64 bits of TOML and torch.
Whole = Annotated[int, Field(lt=2**31)]
Rate = Annotated[float, Field(gt=0, le=1e6)]


def _named(choices: tuple[str, ...]) -> AfterValidator:
    """Return a check that a setting is one of these names or "module.path:name"."""

    def check(name: str) -> str:
        if name not in choices and not is_code(name):
            raise ValueError(f"need one of {', '.join(choices)}, or your own as module.path:name")
        return name

    return AfterValidator(check)


def _in_tuple(found: object) -> object:
    """Return one path as a tuple; the run.toml of earlier versions has a string."""
    return (found,) if isinstance(found, str | Path) else found


DecisionFiles = Annotated[tuple[Path, ...] | None, BeforeValidator(_in_tuple)]
# The settings that name files with decisions, in the order in which they are applied.
DECISION_SETTINGS = ("relabel", "drop")


class Settings(BaseModel):
    """Settings of which each has a known name and a valid value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, settings: Mapping[str, object], origin: str, *, strict: bool = False) -> Self:
        """Validate a mapping. Raises an InputError that names `origin` if it is invalid.

        With `strict`, a number has to be a number, not text such as "1".
        """
        try:
            return cls.model_validate(settings, strict=strict)
        except ValidationError as error:
            raise InputError(f"{origin}: {first_mistake(error)}") from None


class ObjectiveSettings(Settings):
    """The settings of the objective."""

    objective: Annotated[str, _named(OBJECTIVES)] = Field(
        "lda",
        description="lda: the general objective; rdlda, dlda: the paper's, with its defaults; cce: cross-entropy; "
        "gce: generalised cross-entropy; joint: cross-entropy plus the general objective; or your own loss of "
        "(outputs, labels) as module.path:name.",
    )
    alpha: float = Field(
        1.0, ge=0, le=1, description="Factor applied to the off-diagonal entries of S_W. rdlda defaults to 0.6."
    )
    lam: float = Field(1e-3, ge=0, allow_inf_nan=False, description="Ridge added to S_W.")
    epsilon: float = Field(1.0, ge=0, description="Include eigenvalues up to the smallest one plus this margin.")
    statistic: Annotated[str, _named(STATISTICS)] = Field(
        "wilks",
        description=f"Statistic of the eigenvalues: {', '.join(STATISTICS)}, or your own function as module.path:name. "
        "rdlda and dlda default to smallest.",
    )
    scatter: Scatter = Field("pooled", description="Definition of the scatter matrices.")
    class_weight: ClassWeight = Field(None, description="balanced: give rare classes the same weight as common ones.")
    priors: Literal["empirical"] | None = Field(
        None, description="empirical: use the class frequencies as priors of the hyperplanes. [default: equal priors]"
    )
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Label smoothing for cross-entropy: "
        "fraction of the target probability spread uniformly over all classes.",
    )
    lda_weight: float = Field(
        1.0, ge=0, le=1e6, description="Weight of the LDA loss in objective joint, beside cross-entropy with weight 1."
    )
    gce_q: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Exponent q of generalised cross-entropy (1 - p^q) / q, near 0 cross-entropy.",
    )


class NetworkSettings(Settings):
    """The settings of the network."""

    network: str | None = Field(
        None,
        description="dorfernet, fastnet, convnet-small, mlp, identity (no layers, for --epochs 0), or "
        "module.path:callable. [default: depends on the data]",
    )
    width: float = Field(1.0, gt=0, allow_inf_nan=False, description="Multiplier for the channels of hidden layers.")
    embedding_dim: Annotated[Whole, Field(ge=1)] | Literal["subclasses"] | None = Field(
        None,
        description="Output dimension: a number, or subclasses for one per subclass. "
        "[default: number of classes; for LDA objectives, at most half the batch size]",
    )
    head: Literal["normalised", "plain"] | None = Field(
        None,
        description="Output of a built-in network: normalised over the batch, or plain, a linear layer. "
        "[default: normalised for dorfernet and fastnet, which have both, plain for convnet-small and mlp]",
    )
    logit_scale: Rate = Field(1.0, description="Factor for the outputs of a plain head.")
    outputs: Literal["whitened"] | None = Field(
        None,
        description="whitened: decorrelate the outputs of a built-in network over each batch, so that none of them can "
        "copy another one, which alpha below 1 would reward. [default: the outputs of the head]",
    )
    hidden_layer_sizes: str | None = Field(
        None,
        description="Units in each hidden layer of mlp, such as 128,64, or none for a linear map. [default: 128,128]",
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="Fraction of the hidden values of mlp dropped during training. [default: 0.2]"
    )

    @field_validator("hidden_layer_sizes")
    @classmethod
    def _are_layer_sizes(cls, text: str | None) -> str | None:
        if text is not None:
            layer_sizes(text)
        return text


class OptimizerSettings(Settings):
    """The settings of each training step."""

    optimizer: Literal["sgd", "muon"] = Field(
        "sgd",
        description="sgd, or muon, which orthogonalises the updates of convolution filters; "
        "use muon only with batch norm.",
    )
    filter_learning_rate: Rate = Field(0.24, description="Peak learning rate for convolution filters under muon.")
    head_learning_rate: Rate | None = Field(
        None, description="Peak learning rate for the output layer of a built-in network. [default: learning_rate]"
    )
    bias_learning_rate: Rate | None = Field(
        None, description="Peak learning rate for all biases except the output layer's. [default: learning_rate]"
    )
    chunk_size: Whole | None = Field(
        None,
        ge=2,
        description="Process each batch in chunks of this many samples: the same gradient (unless the network has "
        "batch normalisation), less memory.",
    )
    precision: Literal["float32", "bfloat16"] | None = Field(
        None,
        description="Network precision during training. [default: bfloat16 on GPUs that support it, else float32]",
    )


class SubclassSettings(Settings):
    """The settings for splitting classes into subclasses."""

    subclasses: Annotated[Whole, Field(ge=1)] | Literal["auto"] = Field(
        1, description="Split each class into this many subclasses by k-means; auto: 1 to 4, chosen by silhouette."
    )
    cluster_on: Literal["autoencoder", "inputs"] | None = Field(
        None,
        description="Run k-means on the autoencoder's embedding or on the inputs. "
        "[default: autoencoder for images, inputs for feature vectors]",
    )
    cluster_starts: Whole = Field(10, ge=1, description="Number of k-means runs; the best one is used.")
    smallest_cluster: Whole = Field(
        10, ge=1, description="Merge clusters smaller than this into their nearest sibling."
    )
    subclass_between: SubclassBetween = Field(
        "all",
        description="all: separate all subclasses from each other, as in the paper; classes: separate only the classes "
        "(S_B from the class means, S_W within subclasses), so that the parts of a class may lie anywhere.",
    )
    recluster: Whole | None = Field(
        None,
        ge=1,
        description="Find the subclasses again, in the embedding learnt so far, after this many epochs each time. "
        "[default: never]",
    )
    subclass_decision: Literal["argmax", "sum"] = Field(
        "argmax",
        description="argmax: predict the class of the best subclass; "
        "sum: predict the class with the highest summed probability.",
    )
    autoencoder_epochs: Whole = Field(20, ge=1, description="Number of epochs to train the autoencoder.")
    autoencoder_optimizer: Literal["adam", "sgd"] = Field("adam", description="Optimiser for the autoencoder.")
    autoencoder_learning_rate: Rate = Field(3e-3, description="Peak learning rate for the autoencoder.")


class LoopConfig(Settings):
    """The settings of the training loop, which apply to any `Trainee`."""

    epochs: Whole = Field(30, ge=0, description="Number of passes over the training set; 0: only fit the predictors.")
    batch_size: Whole = Field(200, ge=2, description="Number of samples per step.")
    learning_rate: Rate = Field(0.03, description="Peak learning rate.")
    momentum: float = Field(0.9, gt=0, lt=1, description="Nesterov momentum for SGD.")
    weight_decay: float = Field(
        1e-4,
        ge=0,
        le=1e6,
        description="Weight decay: a step shrinks parameters by learning_rate times this, including those with a "
        "learning rate of their own; muon does not apply it to filters.",
    )
    schedule: Literal["halving", "one-cycle", "linear"] = Field(
        "one-cycle",
        description="Learning-rate schedule. halving: halve at intervals; one-cycle: raise, then lower; "
        "linear: decrease to 0.",
    )
    halve_every: Whole = Field(25, ge=1, description="Number of epochs between halvings of the learning rate.")
    sampler: SamplerName = Field(
        "auto",
        description="stratified: put every class with enough samples into every batch; shuffle: ignore the classes; "
        "auto: stratified, with a subset of the classes in each batch if an LDA objective needs it.",
    )
    flip: bool = Field(False, description="Flip training images horizontally.")
    flip_order: Literal["random", "alternating"] = Field(
        "random", description="Flip at random, or flip each image in every second epoch."
    )
    translate: Whole = Field(0, ge=0, description="Shift images randomly by up to this many pixels.")
    tta: Literal["mirror", "views"] | None = Field(
        None,
        description="mirror: also score with embeddings averaged over each image and its mirror image; "
        "views: also over both, shifted by a pixel.",
    )
    evaluate_every: Whole = Field(
        1,
        ge=1,
        description="Number of epochs between scorings of the validation set; the last one is always scored. The best "
        "epoch is one of these, and patience is checked only then.",
    )
    patience: Whole | None = Field(
        None,
        ge=1,
        description="Stop after this many epochs without an improvement in validation accuracy. Schedules one-cycle "
        "and linear count only epochs after the learning rate has fallen to half its peak.",
    )
    seed: Whole = Field(0, ge=0, description="Seed for weights, batch order, augmentation and dropout.")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ..., or auto, which uses cuda if it is available.")
    checkpoint_seconds: float = Field(60.0, gt=0, description="Maximum number of seconds between checkpoints.")

    @property
    def stretches(self) -> tuple[int, ...]:
        """The epoch in which each learning-rate schedule ends, one after the other; the last one ends the run."""
        return (self.epochs,)

    def evaluates(self, epoch: int) -> bool:
        """Return whether the validation set is scored after this epoch, counted from 1."""
        return epoch % self.evaluate_every == 0 or epoch == self.stretches[-1]


class DataSettings(Settings):
    """The settings for reading and splitting the data."""

    data_dir: Path | None = Field(
        None, description="Folder with the known data sets. [default: $DEEPLDA_DATA or the user's cache]"
    )
    image_size: Whole | None = Field(None, ge=1, description="Resize images to this many pixels per side.")
    split_seed: Whole = Field(
        0, ge=0, description="Seed for splitting the data into training, validation and test sets, and for label noise."
    )
    train_on_all: bool = Field(
        False, description="Also train on the validation set. Enable this only after all settings have been chosen."
    )
    group_by: str | None = Field(
        None,
        description="Regular expression for file names: images with the same first capture group (or match), such as "
        "those of one patient, stay in one part of the split. For a table, a column: rows with the same value stay in "
        "one part.",
    )
    target: str | None = Field(None, description="Column of a table with the classes. [default: the last column]")
    relabel: DecisionFiles = Field(
        None,
        description="Apply the decisions in this CSV file, which the page of deeplda audit wrote, to the training and "
        "validation sets: give accepted samples the suggested labels, and leave out dropped ones. For several files, "
        "repeat the option; they are applied in this order.",
    )
    drop: DecisionFiles = Field(
        None,
        description="Leave out the accepted and dropped samples of this CSV file from the training and validation "
        "sets. For several files, repeat the option; they are applied after those of --relabel.",
    )
    skip_unreadable: bool = Field(
        False, description="Skip any number of broken image files. [default: at most 5 % of a class]"
    )
    strict: bool = Field(False, description="Stop at the first broken image file.")

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        if self.strict and self.skip_unreadable:
            raise ValueError("strict and skip_unreadable were both given: omit one of them")
        return self


class LabelNoiseSettings(Settings):
    """The settings for wrong labels in the training and validation sets."""

    label_noise: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Fraction of labels to make wrong in the training and validation sets, for studies.",
    )
    noise_kind: Literal["symmetric", "pairs"] = Field(
        "symmetric",
        description="What wrong labels become: any other class, or pairs: the next class (on CIFAR-10, a similar one).",
    )


# Runs with the same values of these settings have the same samples and labels.
DATA_SETTINGS = ("data", *DataSettings.model_fields, *LabelNoiseSettings.model_fields)


class FitConfig(LoopConfig, SubclassSettings, OptimizerSettings, NetworkSettings, ObjectiveSettings):
    """All training settings except those for the data. The defaults suit small images such as digits."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        for name, value in OBJECTIVE_DEFAULTS.get(self.objective, {}).items():
            if name not in self.model_fields_set:
                object.__setattr__(self, name, value)
        if self.objective == "dlda" and self.alpha != 1:
            raise ValueError("objective dlda has no alpha: omit alpha, or use objective rdlda")
        check_regularisation(self.alpha, self.lam, self.scatter, self.class_weight)
        if is_code(self.objective) and self.class_weight is not None:
            what = f"objective {self.objective} is called without weights, so class_weight would have no effect"
            raise ValueError(f"{what}: omit class_weight, and weight the classes in your own code")
        if not is_code(self.statistic):
            check_statistic(self.statistic, self.epsilon, self.scatter)
        if self.subclasses != 1:
            self._check_subclasses()
        if self.outputs == "whitened":
            self._check_whitened()
        return self

    def _check_whitened(self) -> None:
        if self.objective in SOFTMAX_OBJECTIVES:
            what = f"outputs is whitened, but objective {self.objective} needs outputs of any scale"
            raise ValueError(f"{what}: omit outputs, or use objective lda, rdlda or dlda")
        if self.chunk_size is not None:
            what = f"outputs is whitened over the whole batch, but chunk_size is {self.chunk_size}"
            raise ValueError(f"{what}: omit one of them")

    def _check_subclasses(self) -> None:
        if self.subclass_between == "classes":
            checked_parents((0, 0), self.scatter)
        if self.recluster is not None and self.objective in SOFTMAX_OBJECTIVES:
            what = f"recluster is {self.recluster}, but objective {self.objective} has an output for each subclass"
            raise ValueError(f"{what}, which cannot change during training: omit recluster")


class TrainConfig(LabelNoiseSettings, DataSettings, FitConfig):
    """The options of `deeplda train`: all settings except the name of the data."""

    start_from: Path | None = Field(
        None,
        description="Start with the weights of this run, model folder or .safetensors file. A run also provides the "
        "settings that are not given here, and its images keep their parts of the split.",
    )

    @model_validator(mode="after")
    def _has_validation_part(self) -> Self:
        if self.train_on_all and self.patience is not None:
            raise ValueError("patience needs the validation set, which train_on_all trains on: omit one of them")
        return self


class _TomlFile(Settings):
    """The contents of a TOML file: settings and the name of the data."""

    data: str = Field(
        "digits",
        description="A known data set, a folder of images, a pack, a table, an .npz file, or your own function as "
        "module.path:name.",
    )

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a TOML file. Raises InputError if it is invalid."""
        return cls.parse(settings_in(file), str(file))

    def to_toml(self) -> str:
        """Return the settings as TOML, in the order of their definition, without those that are None."""
        settings = self.model_dump(mode="json", exclude_none=True)
        settings = {"data": settings.pop("data"), **settings}
        return "".join(f"{name} = {as_toml(value)}\n" for name, value in settings.items())


class RunConfig(_TomlFile, TrainConfig):
    """The contents of run.toml.

    Attributes:
        start_hash: the digest of the weights that `start_from` had when the run was started.
        extended_to: the total numbers of epochs to which the run was extended after it was started with `epochs`.
    """

    start_hash: str | None = None
    extended_to: tuple[Whole, ...] | None = None

    @model_validator(mode="after")
    def _becomes_longer(self) -> Self:
        if any(later <= before for before, later in pairwise(self.stretches)):
            raise ValueError(f"extended_to is {list(self.stretches[1:])}: need ascending numbers above epochs")
        return self

    @property
    def stretches(self) -> tuple[int, ...]:
        return (self.epochs, *(self.extended_to or ()))

    def extended(self, epochs: int) -> Self:
        """Return the settings of this run with more epochs."""
        return self.model_copy(update={"extended_to": (*self.stretches[1:], epochs)})

    @classmethod
    def of(cls, run: Path) -> Self:
        """Read the settings from a run folder. Raises InputError if `run` is not a run folder."""
        if not (run / "run.toml").is_file():
            reason = "there is no such folder"
            if run.is_dir():
                reason = "it contains only a model" if (run / "model.json").exists() else "it has no run.toml"
            raise InputError(f"{run} is not a run folder ({reason}), need a folder written by deeplda train")
        return cls.read(run / "run.toml")


class AutoencoderConfig(_TomlFile, DataSettings, LoopConfig):
    """The contents of an autoencoder's run.toml."""

    width: float = Field(1.0, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    # Many small steps lead to better reconstructions than a few large ones.
    batch_size: Whole = Field(100, ge=2)
    sampler: SamplerName = "stratified"

    @classmethod
    def of(cls, config: FitConfig) -> Self:
        """Return the settings for the autoencoder of a training run.

        Settings that do not affect it keep their defaults, so that runs with different objectives can share it. It has
        no settings for label noise: labels only determine its batches, and the fingerprint of the data covers them.
        """
        same = ("data", *DataSettings.model_fields, "device", "seed", "width")
        return cls(
            epochs=config.autoencoder_epochs,
            optimizer=config.autoencoder_optimizer,
            learning_rate=config.autoencoder_learning_rate,
            weight_decay=0.0,
            **{name: getattr(config, name) for name in same if hasattr(config, name)},
        )


def layer_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of hidden layers given as "128,64", or () for "none". Raises ValueError for any other text."""
    if text == "none":
        return ()
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and 0 < len(size) < 10 and int(size) > 0 for size in sizes):
        raise ValueError("need positive integers separated by commas, such as 128,64, or none")
    return tuple(map(int, sizes))


def settings_in(file: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, without the table `run`, which identifies a run but does not describe it.

    Raises InputError if the file cannot be read.
    """
    found = read_toml(file)
    found.pop("run", None)
    return found


def merged(base: Mapping[str, object], chosen: Mapping[str, object]) -> dict[str, object]:
    """Return `base` updated with `chosen`.

    If `chosen` changes the objective, alpha and statistic in `base` are dropped, so that the new objective's defaults
    apply. Objectives lda and joint have the same LDA loss, so a change between these two keeps them. Likewise, an
    extension belongs to the epochs in `base`, and a hash to its starting weights.
    """
    before = base.get("objective", "lda")
    now = chosen.get("objective", before)
    if now != before and {now, before} != {"lda", "joint"}:
        base = {name: value for name, value in base.items() if name not in ("alpha", "statistic")}
    dropped = {own for name, own in (("epochs", "extended_to"), ("start_from", "start_hash")) if name in chosen}
    return {**{name: value for name, value in base.items() if name not in dropped}, **chosen}


def with_absolute_paths(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with paths made absolute, so that the run can be used from any folder."""
    from deeplda.data import KNOWN

    absolute = dict(settings)
    for name in ("data", "data_dir", "start_from"):
        given = settings.get(name)
        # A resumed run does not need `start_from`, so it may be gone.
        if isinstance(given, str | Path) and not (name == "data" and given in KNOWN):
            absolute[name] = _absolute(given, missing=name == "start_from")
    for name in DECISION_SETTINGS:
        if isinstance(given := _in_tuple(settings.get(name)), list | tuple):
            absolute[name] = [_absolute(file) if isinstance(file, str | Path) else file for file in given]
    return absolute


def _absolute(given: str | Path, *, missing: bool = False) -> str | Path:
    """Return a path in full, unless there is no such file. With `missing`, one that does not exist as well."""
    if not (path := expanded(given)).exists() and not missing:
        return given
    full = str(path.resolve())
    if not is_text(full):
        raise InputError(f"the path {full} is not valid UTF-8: rename the file or folder")
    return full


def first_mistake(error: ValidationError) -> str:
    """Return a pydantic error as one sentence that names the setting, its value and the requirement."""
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
    except ValueError:  # Python refuses to print numbers with thousands of digits
        return "a huge number"


def as_toml(value: Any) -> str:
    """Return a string, number, boolean, or a list of these, as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if value == math.inf:
        return "inf"
    # JSON strings are valid TOML once DEL is escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
