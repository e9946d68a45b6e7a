"""Counting points of arrays, in chunks, with memory in proportion to the grid."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counts.outside import Outside, check_outside, finite_rows
from deltahist.counts.private import Private
from deltahist.counts.users import UserBound
from deltahist.domain import Domain
from deltahist.domain.counting import Counting
from deltahist.domain.operations import Operation
from deltahist.errors import InputError, fits_memory, whole

#: Points that are located at a time: few enough for the processor's cache, enough to keep it busy.
CHUNK = 1 << 16
#: Points whose cells are held at a time, so that memory does not grow with their number.
_BLOCK = 1 << 20
_THREADS = 2


def count(
    points: ArrayLike | Any,
    domain: Domain,
    *,
    outside: str | None = None,
    user: ArrayLike | None = None,
    max_per_user: int | None = None,
    key: bytes | None = None,
) -> Private:
    """Number of points in each cell.

    Parameters
    ----------
    points : (m, 2) x and y, or (m,) in 1-D, in the domain's coordinates; or a GeoSeries or GeoDataFrame of
        points, which are projected if they say another CRS. Private.
    domain : Domain
    outside : "clamp" counts points outside in the nearest cell, which never lengthens a move; "drop" leaves
        them out, which is right only if the boundary is declared as a source. None clamps, but refuses more than one
        point in a hundred outside: that is mostly a slip in the coordinates or in the bounds.
    user, max_per_user : (m,) whose each point is, and how many points each user may keep; both or neither.
    key : 32 bytes for the choice of users' points, for tests; random when None.

    Returns
    -------
    Private : acts as an int64 array of domain.shape, axis 0 is x. It knows how it was made (`counting`), and `publish`
    takes from it whose points they are and what was left out.

    Raises
    ------
    InputError
        On NaN or infinite coordinates (with how many), points of another dimension, a CRS that does not go with the
        domain's, missing users, or a grid too large for memory.
    OutsideBounds
        If many points lie outside, unless `outside` says what becomes of them.

    >>> count([[0.1, 0.1], [0.1, 0.2], [5.0, 0.9]], Domain((0, 0, 1, 1), (2, 2)), outside="clamp").tolist()
    [[2, 0], [0, 1]]
    """
    check_outside(outside)
    bound = user_bound(user is not None, max_per_user, key)
    tally = Tally(domain)
    given, operation = _columns(points, domain)
    columns = given if operation is None else operation(*given)
    seen = Outside(domain, operation)
    inside = seen.look(given, columns)
    if outside is None:
        seen.refuse_many()
    bad = int((~finite_rows(columns)).sum())
    if bad:
        raise InputError(
            f"{bad:,} of {len(columns[0]):,} points have NaN or infinite coordinates: all must be finite"
        )
    if bound is not None:
        user = _aligned(user, points)
    users = None if bound is None else _user_ids(user, len(columns[0]))
    for start in range(0, len(columns[0]), _BLOCK):
        cells = tally.locate([c[start : start + _BLOCK] for c in columns])
        if outside == "drop":
            cells[~inside[start : start + _BLOCK]] = -1
        if bound is None or users is None:
            tally.add(cells[cells >= 0])
        else:
            bound.add(users[start : start + _BLOCK], cells)
    if bound is not None:
        cells = bound.cells()
        tally.add(cells[cells >= 0])
    dropped = ("points outside",) if outside == "drop" else ()
    projection = None if operation is None else operation.projection
    how = Counting(max_per_user or 1, user is not None, dropped, projection)
    return Private.of(tally.counts(), how, domain)


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
        if number <= CHUNK:
            return self.domain.flat_cells(columns)
        out = np.empty(number, dtype=np.int64)

        def part(start: int) -> None:
            stop = start + CHUNK
            out[start:stop] = self.domain.flat_cells([c[start:stop] for c in columns])

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(part, range(0, number, CHUNK)))
        return out

    def add(self, cells: NDArray[np.int64]) -> None:
        """Count points by their flat cells."""
        np.add.at(self._flat, cells, 1)

    def add_counts(self, cells: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Add how many points different flat cells have."""
        self._flat[cells] += number

    def counts(self) -> NDArray[np.int64]:
        """The counts so far (domain.shape)."""
        return self._flat.reshape(self.domain.shape)


class LatticePlaces:
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


def _aligned(user: Any, points: Any) -> Any:
    """Whose each point is: a column of the points by name, or as it is given, if its index is that of the points."""
    if isinstance(user, str):
        if user not in getattr(points, "columns", ()):
            raise InputError(
                f"user is {user!r}: it must be a column of the points, or one entry for each of them"
            )
        return points[user]
    given: Any = getattr(user, "index", None)
    own: Any = getattr(points, "index", None)
    if hasattr(given, "equals") and hasattr(own, "equals") and not given.equals(own):
        raise InputError(
            "user has another index than the points: its entries would go to other points; align it, "
            "user.reindex(points.index), or give plain values"
        )
    return user


def _user_ids(user: Any, number: int) -> Any:
    """Whose each point is, as an Arrow array."""
    import pyarrow as pa

    ids = pa.array(np.asarray(user).ravel())
    if len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries: there must be one for each of {number:,} points")
    missing = int((~named_rows(ids)).sum())
    if missing:
        raise InputError(f"{missing:,} of {number:,} points have no user: each must have one")
    return ids


def named_rows(users: Any) -> NDArray[np.bool_]:
    """Rows of an Arrow array of users that name one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A NaN is a missing user too: NaNs differ from each other, so that K would not bound them.
    named = pc.invert(pc.is_null(users, nan_is_null=True))
    if pa.types.is_string(users.type) or pa.types.is_large_string(users.type):
        named = pc.and_kleene(named, pc.not_equal(users, ""))
    return np.asarray(named.fill_null(False).to_numpy(zero_copy_only=False))


def user_bound(users: bool, most: int | None, key: bytes | None) -> UserBound | None:
    """What bounds each user's points; None if users are not told apart.

    Raises InputError if only one of users and their bound is given.
    """
    if users != (most is not None):
        raise InputError(
            f"max_per_user is {most!r} and users are {'' if users else 'not '}given: give both or neither, since a "
            "user's cost is the number of points that may move at once"
        )
    return UserBound(whole(max_per_user=most), key) if users else None


def _columns(points: Any, domain: Domain) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Coordinates as they are given, one column per axis, and what brings them to the map."""
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
    return [np.asarray(array[:, axis], dtype=np.float64) for axis in range(domain.ndim)], None


def _geometry_columns(geometry: Any, domain: Domain) -> tuple[list[NDArray[np.float64]], Operation | None]:
    crs = geometry.crs
    if crs is None and domain.crs is not None:
        raise InputError(
            f"points have no CRS, the domain has {domain.crs}: say which one they are in, frame.set_crs(...), since "
            "degrees are never taken for lengths"
        )
    if crs is not None and domain.crs is None:
        raise InputError(
            f"points are in {crs.to_string()}, the domain has no CRS: give it the one of its bounds"
        )
    if not (geometry.geom_type == "Point").all():
        raise InputError("geometries are not all points: take their centroids, or one point each")
    columns = [geometry.x.to_numpy(np.float64), geometry.y.to_numpy(np.float64)][: domain.ndim]
    return columns, None if crs is None else Operation.onto(domain, crs)
