"""Coordinates from columns: numbers, texts that hold numbers, geometries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counts.inputs import short
from deltahist.errors import InputError


def numbers(column: Any, name: str, *, some: bool = False, decimal: str = ".") -> NDArray[np.float64]:
    """A float column from an Arrow column of numbers or text; NaN where there is none.

    With a decimal comma, text with a point is no number: whether 1.234 is little or much could only be guessed.

    Raises InputError if the column's type holds no numbers, or, when `some` are expected, no row of it does.
    """
    import pyarrow as pa

    kind = column.type
    if kind == pa.float64():
        return _floats(column)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        out = column.cast(pa.float64(), safe=False)
        return _floats(out)
    if not is_text(kind):
        raise InputError(f"column {name!r} has the type {kind}: coordinates must be numbers")
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    if decimal == ",":
        pointed = pc.match_substring(text, ".")
        text = pc.if_else(pointed, "", pc.replace_substring(text, ",", "."))
    try:
        out = text.cast(pa.float64())
    except pa.ArrowInvalid:
        import pandas as pd

        out = pd.to_numeric(text.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
        if some and np.isnan(out).all():
            shown = next((str(v)[:40] for v in column.to_pylist() if v), "")
            raise InputError(
                f"column {name!r} holds no numbers (it starts with {shown!r}): coordinates must be numbers "
                f"({_cause(shown, decimal)})"
            ) from None
        return out
    return _floats(out)


def _floats(column: Any) -> NDArray[np.float64]:
    """Return an Arrow column of floats as an array, with NaN where there is none."""
    import pyarrow as pa

    if column.null_count:
        column = column.fill_null(np.nan)
    # Arrow's own way to NumPy would import pandas first.
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(np.from_dlpack(whole), dtype=np.float64)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cause(shown: str, decimal: str) -> str:
    from deltahist.domain.geometries import reads_as_number

    other = "," if decimal == "." else "."
    if other in shown and reads_as_number(shown.replace(other, ".")):
        return f"written with a decimal {'comma' if other == ',' else 'point'}? then decimal={other!r}"
    return "is it the right column?"


def from_wkb(column: Any, axes: int, name: str) -> list[NDArray[np.float64]]:
    """Float columns from an Arrow column of points as WKB; NaN where there is none.

    Raises InputError if it cannot be read, or holds other geometries; `name` is what messages call the file.
    """
    import shapely

    try:
        points = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    except (shapely.errors.GEOSException, TypeError) as problem:
        raise InputError(f"input {name!r} has an unreadable geometry: {short(problem)}") from None
    kinds = shapely.get_type_id(points)
    if not np.isin(kinds, (0, -1)).all():  # -1: missing, a bad row
        raise InputError(f"input {name!r} has geometries that are not points: each row must be one point")
    points[shapely.is_empty(points)] = None  # a point without coordinates: a bad row as well
    return [shapely.get_x(points), shapely.get_y(points)][:axes]
