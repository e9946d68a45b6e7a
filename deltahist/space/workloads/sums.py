"""Sums of cells over boxes, from prefix sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Intervals along one axis, in cells: starts (m,) and ends (m,), fractions where a cell is cut.
Span: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Cells that are looked at a time: what is worked out on the way stays near the processor.
_AT_A_TIME = 1 << 15


def aligned_spans(spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which boxes (m,) consist of whole cells."""
    out = np.ones(len(spans[0][0]), dtype=bool)
    for span in spans:
        for edge in span:
            out &= edge == np.floor(edge)
    return out


def prefix_sums(*fields: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of k fields of one shape from the low corner up to every cell edge.

    The shape grows by one along each axis; a last axis (k,) holds what belongs to one edge side by side.
    """
    return prefix_sums_of(fields[0].shape, len(fields), lambda rows: [field[rows] for field in fields])


def prefix_sums_of(
    shape: tuple[int, ...], number: int, fields: Callable[[slice], Sequence[NDArray[np.float64]]]
) -> NDArray[np.float64]:
    """Return `prefix_sums` of `number` fields of a shape that are made some rows at a time."""
    out = np.zeros((*(n + 1 for n in shape), number))
    if len(shape) == 1:
        for place, field in enumerate(fields(slice(None))):
            np.cumsum(field, out=out[1:, place])
        return out
    step = max(1, _AT_A_TIME // shape[1])
    along = np.empty((shape[1], number))
    for start in range(0, shape[0], step):
        some = fields(slice(start, start + step))
        # Row by row: NumPy's sums along the first axis go down each column by itself, past the cache.
        for i in range(start, min(start + step, shape[0])):
            for place, field in enumerate(some):
                np.cumsum(field[i - start], out=along[:, place])
            np.add(out[i, 1:], along, out=out[i + 1, 1:])
    return out


def box_sums(cells: NDArray[np.float64], spans: Sequence[Span]) -> NDArray[np.float64]:
    """Return the sums of cells over boxes; a cut cell counts by its share."""
    return sums_between(prefix_sums(cells)[..., 0], spans)


def sums_between(total: NDArray[np.float64], spans: Sequence[Span]) -> NDArray[np.float64]:
    """Return sums over boxes from prefix sums, which are interpolated linearly where a box cuts cells."""
    flat = total.ravel()
    aligned = bool(aligned_spans(spans).all())
    if len(spans) == 1:
        low, high = spans[0]
        return _at(flat, high, len(total)) - _at(flat, low, len(total))
    (west, east), (south, north) = spans
    if aligned:
        row = total.shape[1]
        w, e, s, n = (c.astype(np.int64) for c in (west, east, south, north))
        w *= row
        e *= row
        return flat[e + n] - flat[w + n] - flat[e + s] + flat[w + s]
    return (
        _at_corner(total, east, north)
        - _at_corner(total, west, north)
        - _at_corner(total, east, south)
        + _at_corner(total, west, south)
    )


def _at(flat: NDArray[np.float64], place: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    below = np.minimum(place.astype(np.int64), length - 2)
    share = place - below
    return flat[below] * (1 - share) + flat[below + 1] * share


def _at_corner(
    total: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    row = total.shape[1]
    i = np.minimum(x.astype(np.int64), total.shape[0] - 2)
    j = np.minimum(y.astype(np.int64), row - 2)
    f, g = x - i, y - j
    at = i * row + j
    flat = total.ravel()
    low = flat[at] * (1 - g) + flat[at + 1] * g
    high = flat[at + row] * (1 - g) + flat[at + row + 1] * g
    return low * (1 - f) + high * f
