"""Users' private data as whole lattice steps, and what a key is bound to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError
from deltahist.kinds.diffusion.mechanism import DiffusionMechanism

#: Data further than so many lattice steps from zero are not taken.
_FARTHEST = 1 << 40


def as_table(data: Any, mechanism: DiffusionMechanism) -> tuple[list[str], NDArray[np.int64]]:
    """Return names (m,) and data (m, n) in whole lattice steps."""
    import pandas as pd

    columns = list(mechanism.columns)
    if isinstance(data, Mapping) and not data:
        data = pd.DataFrame(columns=columns)
    if isinstance(data, Mapping):
        try:
            rows = np.array([np.ravel(value) for value in data.values()], dtype=np.float64).reshape(
                len(data), -1
            )
        except (TypeError, ValueError):
            raise InputError(f"data are no {len(columns)} number(s) for each user: they must be") from None
        data = pd.DataFrame(rows, index=list(data))
    elif isinstance(data, pd.Series):
        data = data.to_frame(columns[0])
    elif isinstance(data, pd.DataFrame):
        lacking = [name for name in columns if name not in data.columns]
        if lacking:
            raise InputError(
                f"data have no column {lacking[0]!r}: they have {', '.join(map(str, data.columns[:20]))}; the users' "
                "names are the index"
            )
        data = data[columns]
    else:
        raise InputError(
            f"data are a {type(data).__name__}: they must be a mapping of users to values, a series or a frame with "
            "the users as index"
        )
    if not len(data) or data.shape[1] != len(columns):
        raise InputError(
            f"data are of {len(data):,} users with {data.shape[1]} number(s) each: there must be users, and "
            f"{len(columns)} number(s) for each ({', '.join(columns)})"
        )
    names = [str(name) for name in data.index]
    twice = data.index[pd.Index(names).duplicated()]
    if len(twice):
        raise InputError(
            f"user {str(twice[0])!r} has several rows ({len(twice):,} rows too many): there must be one for each user, "
            "all that is protected of them"
        )
    try:
        values = data.to_numpy(np.float64)
    except (TypeError, ValueError):
        raise InputError("data are no numbers: each user must have numbers") from None
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise InputError(
            f"{int(bad.sum()):,} of {len(names):,} users have missing, NaN or infinite data (the first is "
            f"{names[int(np.argmax(bad))]!r}): mend them, or leave these users out"
        )
    if mechanism.bits:
        odd = (values != 0) & (values != 1)
        if odd.any():
            raise InputError(
                f"user {names[int(np.argmax(odd))]!r} has the bit {values[odd][0]:g}: it must be 0 or 1; for numbers "
                "state alpha"
            )
        return names, values.astype(np.int64)
    area = mechanism.area
    if area is not None:
        outside = ~((values >= area.low) & (values <= area.high)).all(axis=1)
        if outside.any():
            raise InputError(
                f"{int(outside.sum()):,} of {len(names):,} users are outside the area of {mechanism.crs} "
                f"({', '.join(f'{b:.8g}' for b in area.bounds)}), the first is {names[int(np.argmax(outside))]!r}: are "
                "x and y swapped, or is it another CRS?"
            )
    return names, on_lattice(values, mechanism.lattice)


def on_lattice(values: ArrayLike, step: Fraction) -> NDArray[np.int64]:
    """Return the nearest whole steps, ⌊value/step + ½⌋ exactly; a float stands for its binary number.

    So values within α land at most ⌈α / step⌉ apart along each axis.

    Raises InputError if a value is beyond 2^40 steps.

    >>> on_lattice([0.25, -0.25, 0.75], Fraction(1, 2))
    array([1, 0, 2])
    """
    array = np.asarray(values, dtype=np.float64)
    place = array / float(step) + 0.5
    if array.size and np.abs(place).max() >= _FARTHEST:
        raise InputError(
            f"data have a value beyond {_FARTHEST:,} steps of {float(step):g}: take a longer step, or leave a "
            "constant out"
        )
    out = np.floor(place).astype(np.int64)
    # A float may have been rounded across an edge.
    near = np.flatnonzero(np.abs(place - np.rint(place)).ravel() <= 8 * np.spacing(np.abs(place).ravel() + 1))
    for index in near.tolist():
        out.flat[index] = math.floor(Fraction(float(array.flat[index])) / step + Fraction(1, 2))
    return out


def bound_by(names: list[str], values: NDArray[np.int64], mechanism: DiffusionMechanism) -> bytes:
    """Return all that noise goes with, as bytes of these data and parameters alone; the network and ε(d) are free."""
    head = f"{mechanism.bits} {mechanism.dimension} {mechanism.lattice} {mechanism.reach} {len(names)}"
    return (
        "\n".join([head, *(f"{len(name)} {name}" for name in names)]).encode("utf-8", "surrogatepass")
        + values.astype("<i8").tobytes()
    )
