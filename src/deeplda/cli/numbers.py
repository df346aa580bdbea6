"""Numbers as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token


def _whole(_kind: object, tokens: Sequence[Token]) -> int:
    return int(tokens[0].value)


# cyclopts itself would round 1.5.
WholeNumber = Annotated[int, Parameter(converter=_whole)]
