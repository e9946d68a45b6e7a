"""One row of a table for each user: what they own and may share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deltahist.counts.arrays import named_rows
from deltahist.counts.conditions import Condition
from deltahist.counts.files import operation_of
from deltahist.counts.readers import open_source
from deltahist.counts.tables import TableRequest
from deltahist.domain import Domain
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_owners(
    path: str | Path,
    *,
    user: str,
    x: str | None = None,
    y: str | None = None,
    area: Domain | None = None,
    crs: str | None = None,
    where: str | None = None,
    layer: str | None = None,
    decimal: str = ".",
    format: str | None = None,
) -> pd.DataFrame:
    """What each user of a table owns: a frame with the users as index, and a column for each of x and y. Private.

    Parameters
    ----------
    path, x, y, crs, where, layer, decimal, format : as for `count_file`; without y there is one column of numbers.
    user : column of user names.
    area : a domain whose map positions are brought to; None for plain numbers.

    Raises
    ------
    InputError
        If the file is missing, empty, damaged or of an unknown kind, lacks a column, or its CRS does not go with the
        area's; or rows have no user, or no finite number.
    """
    import pandas as pd

    # Points of a file with geometry need no columns.
    axes = 1 if x is not None and y is None else 2
    condition = None if where is None else Condition.of(where)
    asked = () if condition is None else tuple(condition.kinds)
    request = TableRequest(x, y, user, layer, axes, None, asked, decimal)
    source = open_source(Path(path), request, condition, format)
    operation = operation_of(crs, source.crs, area, source.name)
    frames, bad, rows = [], 0, 0
    for batch in source.batches:
        columns = batch.columns if operation is None else operation(*batch.columns)
        good = np.isfinite(np.stack(columns)).all(axis=0) & named_rows(batch.users)
        bad += int((~good).sum()) + batch.malformed + len(batch.unread)
        rows += batch.read
        # As text: user 7 is the same in a CSV file and in a Parquet file.
        index = pd.Index([str(name) for name in batch.users.to_pylist()], dtype=object)
        frames.append(pd.DataFrame(dict(enumerate(columns)), index=index))
    if bad:
        raise InputError(
            f"{bad:,} of {rows:,} rows of {source.name!r} have no user, or missing, unreadable, NaN or infinite "
            f"numbers{'' if operation is None else ', or places that the CRS of the points does not know'}: mend them, "
            "or take them out"
        )
    if not rows:
        raise InputError(f"input {source.name!r} is empty: it has no rows")
    return pd.concat(frames)
