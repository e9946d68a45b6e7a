"""Counting points of arrays, in chunks, with memory in proportion to the grid."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._validate import InputError, fits_memory, one_of
from deltahist.domain import Domain

#: Points that are located at a time: few enough for the processor's cache, enough to keep it busy.
_CHUNK = 1 << 17
#: Points whose cells are held at a time, so that memory does not grow with their number.
_BLOCK = 1 << 20
_THREADS = 2


def count(points: ArrayLike | Any, domain: Domain, *, outside: str = "clamp") -> NDArray[np.int64]:
    """Number of points in each cell.

    Parameters
    ----------
    points : (m, 2) x and y, or (m,) in 1-D, in the domain's coordinates; or a GeoSeries or GeoDataFrame of
        points in the domain's CRS. Private.
    domain : Domain
    outside : "clamp" counts points outside in the nearest cell, which never lengthens a move; "drop" leaves
        them out, which is right only if the boundary is declared as a source.

    Returns
    -------
    int64 array of domain.shape, axis 0 is x.

    Raises
    ------
    InputError
        On NaN or infinite coordinates (with how many), points of another dimension or CRS, or a grid too
        large for memory.

    >>> count([[0.1, 0.1], [0.1, 0.2], [5.0, 0.9]], Domain((0, 0, 1, 1), (2, 2))).tolist()
    [[2, 0], [0, 1]]
    """
    one_of(("clamp", "drop"), outside=outside)
    tally = Tally(domain)
    columns = _columns(points, domain)
    bad = int((~finite_rows(columns)).sum())
    if bad:
        raise InputError(
            f"{bad:,} of {len(columns[0]):,} points have NaN or infinite coordinates: all must be finite"
        )
    for start in range(0, len(columns[0]), _BLOCK):
        block = [c[start : start + _BLOCK] for c in columns]
        if outside == "drop":
            inside = inside_rows(block, domain)
            block = [c[inside] for c in block]
        tally.add(tally.locate(block))
    return tally.counts()


class Tally:
    """Counts that grow by batches of points.

    Raises InputError if the grid does not fit into memory, before it is allocated.
    """

    def __init__(self, domain: Domain) -> None:
        # The counts, a batch's counts, and what publishing needs later.
        fits_memory(40 * domain.size, f"a grid of {' × '.join(f'{n:,}' for n in domain.shape)} cells")
        self.domain = domain
        self._flat = np.zeros(domain.size, dtype=np.int64)

    def locate(self, columns: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
        """Flat cells of points given as finite columns."""
        number = len(columns[0])
        if number <= _CHUNK:
            return self.domain.flat_cells(columns)
        out = np.empty(number, dtype=np.int64)

        def part(start: int) -> None:
            stop = start + _CHUNK
            out[start:stop] = self.domain.flat_cells([c[start:stop] for c in columns])

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(part, range(0, number, _CHUNK)))
        return out

    def add(self, cells: NDArray[np.int64]) -> None:
        """Count points by their flat cells."""
        if len(cells) * 8 < self.domain.size:
            np.add.at(self._flat, cells, 1)
            return
        step = max(_CHUNK, self.domain.size)
        for start in range(0, len(cells), step):
            self._flat += np.bincount(cells[start : start + step], minlength=self.domain.size)

    def counts(self) -> NDArray[np.int64]:
        """The counts so far (domain.shape)."""
        return self._flat.reshape(self.domain.shape)


class Places:
    """Points on a line that grow by batches, as lattice steps; what Tally is for counts."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._parts: list[NDArray[np.int64]] = []

    def locate(self, columns: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
        """Lattice steps of points given as one finite column."""
        return self.domain.lattice(columns[0])[:, 0]

    def add(self, steps: NDArray[np.int64]) -> None:
        """Take points by their lattice steps."""
        self._parts.append(steps)

    def points(self) -> NDArray[np.float64]:
        """Coordinates (m,) of the points so far; `Domain.lattice` gives back their steps."""
        steps = np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)
        return np.asarray(self.domain.low[0] + steps * self.domain.step[0], dtype=np.float64)


def finite_rows(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Rows whose coordinates are all finite."""
    good = np.isfinite(columns[0])
    for column in columns[1:]:
        good &= np.isfinite(column)
    return good


def inside_rows(columns: Sequence[NDArray[np.float64]], domain: Domain) -> NDArray[np.bool_]:
    """Rows inside the domain's bounds, the bounds included."""
    inside = np.ones(len(columns[0]), dtype=bool)
    for column, low, high in zip(columns, domain.low, domain.high, strict=True):
        inside &= (column >= low) & (column <= high)
    return inside


def _columns(points: Any, domain: Domain) -> list[NDArray[np.float64]]:
    geometry = getattr(points, "geometry", None)
    if geometry is not None:
        return _geometry_columns(geometry, domain)
    try:
        array = np.asarray(points)
    except ValueError:
        raise InputError(f"points are rows of different lengths: they must be (m, {domain.ndim})") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"points are of type {array.dtype}: coordinates must be numbers")
    if domain.ndim == 1 and array.ndim == 1:
        array = array[:, None]
    if array.size == 0 and array.ndim < 2:
        array = array.reshape(0, domain.ndim)
    if array.ndim != 2 or array.shape[1] != domain.ndim:
        raise InputError(f"points have shape {array.shape}: it must be (m, {domain.ndim})")
    return [np.asarray(array[:, axis], dtype=np.float64) for axis in range(domain.ndim)]


def _geometry_columns(geometry: Any, domain: Domain) -> list[NDArray[np.float64]]:
    crs = geometry.crs
    if crs is not None and (domain.crs is None or not crs.equals(domain.crs, ignore_axis_order=True)):
        raise InputError(
            f"points are in {crs.to_string()}, the domain in {domain.crs}: "
            "project them first, with points.to_crs(domain.crs)"
        )
    if not (geometry.geom_type == "Point").all():
        raise InputError("geometries are not all points: take their centroids, or one point each")
    return [geometry.x.to_numpy(np.float64), geometry.y.to_numpy(np.float64)][: domain.ndim]
