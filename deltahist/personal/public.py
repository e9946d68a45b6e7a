"""Public tables that queries join with: frames whose keys are unique, taken into the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltahist.counts.kinds import DTYPES, LARGEST, SMALLEST, as_arrow, kind_of
from deltahist.errors import InputError

#: Rows of a public table: it goes to the database with the query.
_MOST = 1_000_000


def public_table(frame: Any, keys: Mapping[str, str]) -> Any:
    """A pandas frame as an Ibis table whose keys, of kinds given, tell its rows apart.

    Raises
    ------
    InputError
        If it is no frame, has no such columns, or its keys repeat, are missing or of another kind.

    >>> import pandas as pd
    >>> public_table(pd.DataFrame({"kind": ["bus", "tram"], "seats": [40, 120]}), {"kind": "text"}).columns
    ('kind', 'seats')
    >>> public_table(pd.DataFrame({"kind": ["bus", "bus"]}), {"kind": "text"})
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: the public table has keys ['kind'] that repeat, in row 1: each record would come...
    """
    import ibis
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"join with {type(frame).__name__}: it must be a pandas frame, which is public; a table of the database "
            "may hold other people's records"
        )
    if not 0 < len(frame) <= _MOST:
        raise InputError(f"the public table has {len(frame):,} rows: it must have 1 to {_MOST:,}")
    if not keys or not set(keys) <= set(frame.columns):
        raise InputError(f"join on {list(keys)}: the public table has the columns {list(frame.columns)}")
    columns = {}
    for name in frame.columns:
        column = as_arrow(frame[name], str(name))
        kind = kind_of(ibis.dtype(column.type)) if not pa.types.is_null(column.type) else None
        if kind is None:
            raise InputError(
                f"the public table has {name!r} of type {column.type}, which queries do not take"
            )
        if name in keys and (kind == "number" or kind != keys[name]):
            raise InputError(
                f"join on {name!r}: it is of the kind {kind!r} in the public table and {keys[name]!r} in the records; "
                "keys are of one kind, and no numbers with a point"
            )
        column = column.cast(ibis.dtype(DTYPES[kind]).to_pyarrow())
        if kind == "number":
            size = np.abs(column.drop_null().to_numpy(zero_copy_only=False))
            if ((size != 0) & ~((size >= SMALLEST) & (size <= LARGEST))).any():
                raise InputError(
                    f"the public table has numbers {name!r} that are not of a size of 1e-100 to 1e100"
                )
        if name in keys and column.null_count:
            raise InputError(f"the public table has keys {name!r} that are missing")
        columns[str(name)] = column
    table = pa.table(columns)
    twice = np.flatnonzero(table.select(list(keys)).to_pandas().duplicated())
    if len(twice):
        raise InputError(
            f"the public table has keys {list(keys)} that repeat, in row {twice[0]}: each record would come once for "
            "each of them; keep one row of each key"
        )
    return ibis.memtable(table)
