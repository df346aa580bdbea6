"""Encode data frames of pandas, polars and other libraries whose frames export Arrow streams.

This file imports none of these libraries, and pyarrow only for frames that have to be encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplda.data.table_encoding import TableEncoder
from deeplda.errors import InputError
from deeplda.extras import require

if TYPE_CHECKING:
    import pyarrow as pa


def is_frame(X: object) -> bool:
    """Return whether X is a data frame."""
    return hasattr(X, "__arrow_c_stream__") and hasattr(X, "shape")


def needs_encoding(X: Any) -> bool:
    """Return whether X is a data frame with categories, strings, dates or missing values, not only with numbers."""
    if not is_frame(X):
        return False
    if any(getattr(dtype, "kind", "") in ("M", "m") or str(dtype) == "category" for dtype in getattr(X, "dtypes", ())):
        return True
    try:
        return bool(np.isnan(np.asarray(X, dtype=np.float64)).any())
    except (TypeError, ValueError):
        return True


def fit_encoder(X: object) -> TableEncoder:
    """Return an encoding that is fitted on all rows of a data frame. Strings are dates if all of them are.

    Raises InputError if no column can be used, or if a column has values of different types.
    """
    columns = _columns(X)

    from deeplda.data.table_columns import kind_in_frame, values_of
    from deeplda.data.table_statistics import TableStatistics

    kinds = {name: kind_in_frame(array) for name, array in columns.items()}
    statistics = TableStatistics(kinds)
    statistics.update({name: values_of(columns[name], kind, name) for name, kind in kinds.items() if kind is not None})
    return statistics.encoder()


def encoded_frame(X: object, encoder: TableEncoder) -> NDArray[np.float32]:
    """Return the encoded rows of a data frame, (n, outputs); its columns are found by their names.

    Raises InputError if it has no column of that name or the column has values of another kind.
    """
    columns = _columns(X)

    from deeplda.data.table_columns import values_of

    if missing := [name for name in encoder.kinds if name not in columns]:
        raise InputError(f"the data frame has no column {missing[0]!r}; its columns are {', '.join([*columns][:20])}")
    return encoder.transform({name: values_of(columns[name], kind, name) for name, kind in encoder.kinds.items()})


def _columns(X: object) -> dict[str, pa.Array]:
    """Return the columns of a data frame as Arrow arrays, without its index."""
    require("table", "a data frame with categories, strings, dates or missing values")
    import pyarrow as pa

    try:
        table = pa.table(X)
    except (pa.ArrowException, ValueError) as error:
        do = "convert columns of mixed values with astype(str)"
        raise InputError(f"the data frame cannot be read ({' '.join(map(str, error.args))}): {do}") from None
    index = {name for name in (table.schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
    return {name: table[name].combine_chunks() for name in table.schema.names if name not in index}
