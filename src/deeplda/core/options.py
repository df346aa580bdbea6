"""The options of the discriminant objective: their names, ranges and valid combinations.

Settings and estimators both use these checks, and this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal, get_args

from deeplda.errors import InputError, got

if TYPE_CHECKING:
    from torch import Tensor

StatisticName = Literal["smallest", "wilks", "pillai", "hotelling"]
# A callable maps the ascending valid eigenvalues (m,) to a 0-d tensor, which is maximised.
Statistic = StatisticName | Callable[["Tensor"], "Tensor"]
Scatter = Literal["pooled", "sum", "dorfer"]
ClassWeight = Literal["balanced"] | None

STATISTICS: tuple[StatisticName, ...] = get_args(StatisticName)
# With scatter="dorfer", eigenvalues can be negative, and log(1 + v) and v / (1 + v) need not exist for them.
_STATISTICS_WITH_DORFER: tuple[StatisticName, ...] = ("smallest", "hotelling")


def statistics_for(scatter: Scatter) -> tuple[StatisticName, ...]:
    """Return the names of the statistics that are defined for `scatter`."""
    return _STATISTICS_WITH_DORFER if scatter == "dorfer" else STATISTICS


def check_regularisation(alpha: float, lam: float, scatter: str, class_weight: str | None) -> None:
    """Raise ValueError if a scatter option is out of range, or if two options are mutually exclusive.

    Raises TypeError if alpha or lam is not a number, or is a parameter to be trained.
    """
    check_number("alpha", alpha)
    check_number("lam", lam)
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(
            got(f"alpha is {alpha}", need="0 to 1", do="use 1 for all of S_W (DLDA) or 0 for its diagonal only")
        )
    if not 0.0 <= lam < float("inf"):
        raise ValueError(got(f"lam is {lam}", need="a finite number >= 0", do="use 1e-3 as in the paper"))
    check_choice("scatter", scatter, get_args(Scatter))
    if class_weight is not None:
        check_choice("class_weight", class_weight, ("balanced",), or_else="None")
    if scatter == "dorfer" and class_weight is not None:
        raise ValueError(
            got(
                f"scatter is 'dorfer' but class_weight is {class_weight!r}",
                need="no class weights, because this S_W already weights all classes equally",
                do="use scatter 'pooled' to weight classes",
            )
        )


def check_unweighted(scatter: Scatter) -> None:
    """Raise ValueError if samples cannot have weights with this scatter."""
    if scatter == "dorfer":
        raise ValueError(
            got(
                "scatter is 'dorfer' but samples have weights",
                need="no weights, because unbiased covariances depend on the number of samples",
                do="use scatter 'pooled' to weight samples",
            )
        )


def checked_parents(parents: Iterable[int] | None, scatter: Scatter) -> tuple[int, ...] | None:
    """Return the class of each subclass as integers, or None if labels are classes.

    Raises ValueError unless all are >= 0 and `scatter` has a definition for subclasses, and TypeError unless they are
    integers.
    """
    if parents is None:
        return None
    if scatter == "dorfer":
        raise ValueError(
            got(
                "scatter is 'dorfer' but parents were given",
                need="no parents, because this S_B is the difference of two covariances",
                do="use scatter 'pooled' for classes with subclasses",
            )
        )
    found = tuple(parents)
    if not found or any(isinstance(parent, bool) or not isinstance(parent, Integral) for parent in found):
        raise TypeError(got(f"parents is {parents!r}", need="an integer for each subclass", do="pass (0, 0, 1, 1)"))
    if min(found) < 0:
        raise ValueError(got(f"parents contains {min(found)}", need="class ids >= 0", do="renumber the classes"))
    return tuple(map(int, found))


def check_statistic(statistic: object, epsilon: float, scatter: Scatter) -> None:
    """Raise ValueError unless `statistic` is a callable or a name that is defined for `scatter`, and epsilon >= 0.

    Raises TypeError if epsilon is not a number, or is a parameter to be trained.
    """
    check_number("epsilon", epsilon)
    if not epsilon >= 0:
        raise ValueError(got(f"epsilon is {epsilon}", need="a number >= 0", do="use 1 as in the paper"))
    if callable(statistic):
        return
    check_choice("statistic", statistic, STATISTICS, or_else="a callable")
    if statistic not in (allowed := statistics_for(scatter)):
        raise ValueError(
            got(
                f"scatter is {scatter!r} but statistic is {statistic!r}",
                need=f"{' or '.join(map(repr, allowed))}, because this S_B can be indefinite",
                do="use scatter 'pooled' for this statistic",
            )
        )


def check_number(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a real number, which may be NaN, or an array or tensor that holds one, 0-d.

    Also raises TypeError for a tensor that requires a gradient, which would not be computed.
    """
    if getattr(value, "requires_grad", False):
        raise TypeError(
            got(
                f"{name} is a tensor that requires a gradient",
                need="a number, because the loss has no gradient with respect to it",
                do=f"pass {name}.item()",
            )
        )
    plain = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_integer(name: str, value: object, least: int = 1) -> int:
    """Return a parameter that is an integer of at least `least`, as int. Raises InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def check_choice(name: str, value: object, choices: tuple[str, ...], *, or_else: str | None = None) -> None:
    """Raise ValueError unless `value` is one of `choices`.

    The error message also lists `or_else`, a description of other accepted values.
    """
    if not isinstance(value, str) or value not in choices:
        accepted = [*map(repr, choices)] + ([] if or_else is None else [f"or {or_else}"])
        raise ValueError(got(f"{name} is {value!r}", need=f"one of {', '.join(accepted)}", do="check the spelling"))
