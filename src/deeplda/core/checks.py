"""Rules for batches and options, with the error messages that the loss and the predictors share."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from deeplda.errors import got

Scatter = Literal["pooled", "sum", "dorfer"]
ClassWeight = Literal["balanced"] | None


def check_batch(features: Tensor, labels: Tensor, *, least: int = 1) -> None:
    """Raise unless `features` is an (n, d) batch of real floats, n >= `least`, and `labels` n integers beside it."""
    for name, value in (("features", features), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise TypeError(
                got(f"{name} is a {type(value).__name__}", need="a tensor", do=f"pass torch.as_tensor({name})")
            )
    if not features.is_floating_point():
        raise TypeError(got(f"features is of {features.dtype}", need="floating point", do="pass features.float()"))
    if labels.is_floating_point() or labels.is_complex():
        do = "pass labels.argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else "pass labels.long()"
        raise TypeError(got(f"labels is of {labels.dtype}", need="integer class ids", do=do))
    if features.ndim != 2:
        do = "pass features.flatten(1)" if features.ndim > 2 else "pass features.view(-1, 1)"
        raise ValueError(got(f"features has shape {tuple(features.shape)}", need="(n, d)", do=do))
    n, d = features.shape
    if n < least or d == 0:
        raise ValueError(
            got(
                f"features has shape {(n, d)}",
                need="at least one sample and one dimension",
                do="skip empty batches",
            )
        )
    if labels.shape != (n,):
        do = "pass labels.squeeze(1)" if labels.shape == (n, 1) else "pass one class id for each row of features"
        raise ValueError(got(f"labels has shape {tuple(labels.shape)}", need=f"({n},)", do=do))
    if labels.device != features.device:
        raise ValueError(
            got(
                f"labels is on {labels.device}",
                need=f"{features.device}, where features is",
                do="pass labels.to(features.device)",
            )
        )


def check_regularisation(alpha: float, lam: float, scatter: str, class_weight: str | None) -> None:
    """Raise for an option outside its range, or for two that do not go together."""
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(got(f"alpha is {alpha}", need="0 to 1", do="1 is DLDA, 0 keeps only the diagonal of S_W"))
    if not 0.0 <= lam < float("inf"):
        raise ValueError(got(f"lam is {lam}", need="a finite number of 0 or more", do="the paper has 1e-3"))
    check_word("scatter", scatter, get_args(Scatter))
    if class_weight is not None:
        check_word("class_weight", class_weight, ("balanced",), or_none=True)
    if scatter == "dorfer" and class_weight is not None:
        raise ValueError(
            got(
                f'scatter="dorfer" came with class_weight={class_weight!r}',
                need="no class weights, as its S_W already weighs all classes alike",
                do='use scatter="pooled" for weighted classes',
            )
        )


def check_word(name: str, word: object, known: tuple[str, ...], *, or_none: bool = False) -> None:
    """Raise unless `word` is one of `known`."""
    if word not in known:
        words = ", ".join(repr(k) for k in known) + (", or None" if or_none else "")
        raise ValueError(got(f"{name} is {word!r}", need=f"one of {words}", do="check the spelling"))
