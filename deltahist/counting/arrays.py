"""From batches of points to counts: checked, located on the lattice, bounded per user, counted."""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counting.private import Private, Unshown
from deltahist.counting.sparse import SparseTally
from deltahist.errors import InputError, OutsideBounds, one_of, whole
from deltahist.preprocessing import Preprocessing
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain, check_room
from deltahist.space.geometries import LONGITUDE_LATITUDE, looks_like_degrees

if TYPE_CHECKING:
    from deltahist.counting.steps import StepPlaces

#: Points that are located at a time: few enough for the processor's cache, enough to keep it busy.
CHUNK = 1 << 16
#: Points whose cells are held at a time, so that memory does not grow with their number.
_BLOCK = 1 << 20
_THREADS = 2
#: Rows kept beyond this many times the bound's need are thinned out again.
_SLACK = 1 << 20
#: Share of points outside from which on they are refused, and share that a likely cause must explain.
_MANY, _ENOUGH = 0.01, 0.99
#: Share of points outside that a guess must explain to be named.
_SOMEWHAT = 0.3
#: Part of a side of the map that points in another unit must span.
_SOME = 0.1
#: Points outside that are kept to look for the cause.
SAMPLE = 10_000
#: What points are multiplied by to fit bounds in the other one of metres and kilometres.
_SCALES = ((1e3, "large bounds", "small"), (1e-3, "small bounds", "large"))

Columns = Sequence[NDArray[np.float64]]


def count(
    points: ArrayLike | Any,
    domain: Domain,
    *,
    outside: str | None = None,
    user: ArrayLike | None = None,
    max_per_user: int | None = None,
    key: bytes | None = None,
) -> Private:
    """Count the points in each cell.

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
    column = None if user is None else "user"
    reading = Reading(user=column, max_per_user=max_per_user, outside=outside, key=key)
    into = Tally(domain)
    columns, operation = _columns(points, domain)
    number = len(columns[0])
    users = None if user is None else _aligned(user, points, number)
    blocks = (
        Batch([c[start : start + _BLOCK] for c in columns], None if users is None else users[start : start + _BLOCK])
        for start in range(0, number, _BLOCK)
    )
    read = collect(blocks, "points", into, reading, operation)
    return into.private(read.counting)


# --- the one way from batches to counts -----------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The way in which rows are read and used, as `count_file` describes it; `time` is the column of times."""

    x: str | int | None = None
    y: str | int | None = None
    crs: str | None = None
    user: str | int | None = None
    max_per_user: int | None = None
    outside: str | None = None
    drop_bad_rows: bool = False
    layer: str | None = None
    progress: bool | None = None
    key: bytes | None = None
    where: str | None = None
    decimal: str = "."
    format: str | None = None
    table: str | None = None
    time: str | int | None = None

    def __post_init__(self) -> None:
        one_of(("clamp", "drop", None), outside=self.outside)
        one_of((".", ","), decimal=self.decimal)
        for name in ("x", "y", "user", "time"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))
        if (self.user is None) != (self.max_per_user is None):
            raise InputError(
                f"max_per_user is {self.max_per_user!r} and users are {'not ' if self.user is None else ''}given: give "
                "both or neither, since a user's cost is the number of points that may move at once"
            )

    @property
    def coordinates(self) -> list[str]:
        """Names or numbers of the coordinate columns; none for points of a geometry."""
        return [str(c) for c in (self.x, self.y) if c is not None]

    def user_bound(self) -> UserBound | None:
        """Return the bound on each user's points; None if users are not told apart."""
        return None if self.max_per_user is None else UserBound(whole(max_per_user=self.max_per_user), self.key)

    def preprocessing(self, operation: Operation | None = None) -> Preprocessing:
        """Return how rows become counts; it says what may be left out, whether or not anything was."""
        could = ("bad rows", self.drop_bad_rows), ("points outside", self.outside == "drop")
        dropped = tuple(kind for kind, is_left_out in could if is_left_out)
        projection = None if operation is None else operation.projection
        return Preprocessing(self.max_per_user or 1, self.user is not None, dropped, projection, self.where)


@dataclass(frozen=True, repr=False)
class Batch(Unshown):
    """Some rows: a float column per axis (NaN where unusable), user ids and times (Arrow arrays) or None.

    `malformed` counts rows beside these that have no columns at all: lines with too few or too many fields. With a
    condition `chosen` says which of the rows read these are, and `unread` are places of others that could not be asked.
    """

    columns: list[NDArray[np.float64]]
    users: Any
    malformed: int = 0
    times: Any = None
    chosen: NDArray[np.bool_] | None = None
    unread: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def read(self) -> int:
        """Number of rows that were read, chosen or not."""
        return (len(self.columns[0]) if self.chosen is None else len(self.chosen)) + self.malformed

    def row(self, number: int) -> int:
        """Return the place, from 0, of one of these rows among the rows read."""
        return number if self.chosen is None else int(np.flatnonzero(self.chosen)[number])

    def first_bad(self, good: NDArray[np.bool_]) -> int:
        """Return the place of the first unusable row among the rows read; malformed ones are taken to come last."""
        places = [] if good.all() else [self.row(int(np.argmin(good)))]
        return min([*places, *self.unread[:1].tolist()], default=self.read - self.malformed)


@dataclass(frozen=True, eq=False, repr=False)
class CountedRows(Unshown):
    """Numbers of rows by their use. All but `counting` is for the trusted side only.

    Parameters
    ----------
    rows : rows read. bad_rows : of them unusable, and left out. unmatched : of them not chosen by `where`.
    outside : usable rows outside the domain, clamped or left out.
    users : number of users, or None.
    counting : how rows became counts: what a release says of it.
    guess : what would explain most of many points outside, in words; None where nothing is found.
    """

    rows: int
    bad_rows: int
    unmatched: int
    outside: int
    users: int | None
    counting: Preprocessing
    guess: str | None = field(default=None, kw_only=True)


class Tally:
    """Counts that grow by batches of points.

    A grid that does not fit into memory is refused before it is allocated. With `steps` cells are step · cells + cell.
    """

    def __init__(self, domain: Domain, *, steps: bool = False) -> None:
        self.domain = domain
        self._sparse = SparseTally() if steps else None
        check_room(domain)
        if self._sparse is None:
            self._flat = np.zeros(domain.size, dtype=np.int64)

    def locate(self, columns: Columns) -> NDArray[np.int64]:
        """Return the flat cells of points given as finite columns."""
        return locate_cells(columns, self.domain)

    def add(self, cells: NDArray[np.int64], number: NDArray[np.int64] | int = 1) -> None:
        """Count points, or numbers of them, by their flat cells; those below 0 are none."""
        if self._sparse is not None:
            self._sparse.add(cells[cells >= 0], number)
        else:
            np.add.at(self._flat, cells[cells >= 0], number)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return full cells of steps, rising, and the number of points in each."""
        assert self._sparse is not None
        return self._sparse.pairs()

    def private(self, counting: Preprocessing) -> Private:
        """Return the counts so far, which know how they were made."""
        return Private.of(self._flat.reshape(self.domain.shape), counting, self.domain)


class PlaceTally:
    """Places of points, whole numbers that are kept one by one; `locate` gives them for finite columns."""

    def __init__(self, domain: Domain, locate: Callable[[Columns], NDArray[np.int64]]) -> None:
        self.domain, self.locate = domain, locate
        self._parts: list[NDArray[np.int64]] = []

    def add(self, places: NDArray[np.int64]) -> None:
        """Keep places of points; those below 0 are none."""
        self._parts.append(places[places >= 0])

    def places(self) -> NDArray[np.int64]:
        """Return the places (m,) so far."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)


def collect(
    batches: Iterable[Batch],
    rows_of: str,
    into: Tally | PlaceTally,
    reading: Reading,
    operation: Operation | None,
    *,
    steps: StepPlaces | None = None,
    seen: Outside | None = None,
) -> CountedRows:
    """Check, locate and bound the points of batches, and add them to a tally.

    With `steps` places become step · cells + cell, and users are bounded within each step.

    Parameters
    ----------
    rows_of : words for rows in messages.
    operation : brings coordinates to the map; None if they are on it.
    seen : looks at points outside for a caller that judges them; else they are judged here.

    Raises
    ------
    InputError
        On bad rows, unless they are dropped. OutsideBounds on many points outside.
    """
    domain = into.domain
    bound = reading.user_bound()
    judged = seen is None and reading.outside is None
    seen = seen or Outside(domain)
    seen.operation = operation
    rows = bad = off = unmatched = 0
    first = None
    for batch in batches:
        given, users = batch.columns, batch.users
        columns = given if operation is None else operation(*given)
        good = finite_rows(columns)
        if users is not None:
            good &= named_rows(users)
        step = due = None
        if steps is not None and len(good):
            step, timely = steps(batch, rows)
            good &= timely
            due = step >= steps.due
        inside = seen.look(given, columns, due)
        left = batch.malformed + len(batch.unread)
        unusable = left + int((~good).sum())
        if first is None and unusable:
            first = rows + 1 + batch.first_bad(good)
        unmatched += batch.read - left - len(good)
        rows, bad = rows + batch.read, bad + unusable
        # Once rows are to be refused, the rest of them is only looked through for more bad ones.
        if bad and not reading.drop_bad_rows:
            continue
        if not good.all():
            columns, inside = [c[good] for c in columns], inside[good]
            step = None if step is None else step[good]
            users = None if users is None else users.filter(good)
        off += int((~inside).sum())
        cells = into.locate(columns)
        if reading.outside == "drop":
            cells[~inside] = -1
        if step is not None:
            cells = np.where((cells < 0) | (step < 0), -1, step * domain.size + cells)
            users = _by_step(users, step)
        if bound is None:
            into.add(cells)
        else:
            bound.add(users, cells)
    # Before bad rows are: coordinates that are swapped or in another CRS often have no place on the map at all.
    if judged:
        seen.refuse_many()
    refuse_bad_rows(bad, rows, rows_of, reading, steps, first)
    if bound is not None:
        into.add(bound.cells())
    people = None if bound is None else bound.users
    guess = seen.guess() if 2 * off > seen.points else None
    return CountedRows(rows, bad, unmatched, off, people, reading.preprocessing(operation), guess=guess)


def refuse_bad_rows(
    bad: int, rows: int, rows_of: str, reading: Reading, steps: StepPlaces | None, first: int | None = None
) -> None:
    """Raise InputError on bad rows, unless they are dropped and others are left."""
    trouble = "" if steps is None else steps.trouble()
    if bad and not reading.drop_bad_rows:
        which = f"{bad:,} of {rows:,} {rows_of} have missing, unreadable, NaN or infinite coordinates"
        which += " or a missing user" if reading.user is not None else ""
        which += "" if steps is None else " or times"
        # In a database such a condition is not met; no row is bad for it.
        if reading.where is not None and reading.table is None:
            which += " or values that `where` asks for"
            if bad == rows:
                which += (
                    f", all of them: does {reading.where!r} compare a column with another kind of value than it holds?"
                )
        # Rows of a database have no order.
        which += f" (the first is row {first:,}, about)" if first is not None and reading.table is None else ""
        cure = "" if rows_of == "points" else ", or leave them out with drop_bad_rows=True"
        raise InputError(f"{which}{trouble}: mend them{cure}")
    if rows and bad == rows:
        raise InputError(f"none of the {rows:,} {rows_of} can be used{trouble}: are these the right columns?")


def locate_cells(columns: Columns, domain: Domain) -> NDArray[np.int64]:
    """Return the flat cells of points given as finite columns."""
    number = len(columns[0])
    if number <= CHUNK:
        return domain.flat_cells(columns)
    out = np.empty(number, dtype=np.int64)

    def part(start: int) -> None:
        stop = start + CHUNK
        out[start:stop] = domain.flat_cells([c[start:stop] for c in columns])

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(part, range(0, number, CHUNK)))
    return out


def named_rows(users: Any) -> NDArray[np.bool_]:
    """Return which rows of an Arrow array of users name one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A NaN is a missing user too: NaNs differ from each other, so that K would not bound them.
    named = pc.invert(pc.is_null(users, nan_is_null=True))
    if pa.types.is_string(users.type) or pa.types.is_large_string(users.type):
        named = pc.and_kleene(named, pc.not_equal(users, ""))
    return np.asarray(named.fill_null(False).to_numpy(zero_copy_only=False))


def _by_step(users: Any, step: NDArray[np.int64]) -> Any:
    """Return user ids that differ from step to step."""
    if users is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    # The number comes first and has a fixed end, so that no two pairs look alike.
    return pc.binary_join_element_wise(pa.array(step).cast(pa.string()), users.cast(pa.string()), ":")


# --- points outside the bounds ----------------------------------------------------------------------------------
#
# All of it is private, and for whoever holds the data: docs/counting.md says why a refusal that rests on it does no
# harm.


def finite_rows(columns: Columns) -> NDArray[np.bool_]:
    """Return the rows whose coordinates are all finite."""
    good = np.isfinite(columns[0])
    for column in columns[1:]:
        good &= np.isfinite(column)
    return good


def inside_rows(columns: Columns, domain: Domain) -> NDArray[np.bool_]:
    """Return the rows inside the domain's bounds, the bounds included."""
    inside = np.ones(len(columns[0]), dtype=bool)
    for column, low, high in zip(columns, domain.low, domain.high, strict=True):
        inside &= (column >= low) & (column <= high)
    return inside


class Outside:
    """Numbers and a sample of points outside, collected while rows are read; `operation` brings them to the map."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.operation: Operation | None = None
        self.points = self.outside = 0
        self._sample: list[list[NDArray[np.float64]]] = []
        self._room = SAMPLE

    def look(self, given: Columns, columns: Columns, rows: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return which rows are inside; count them, and keep a few of the others.

        Parameters
        ----------
        given : coordinates as they were read; rows without finite ones are no points.
        columns : the same on the map; infinite where they have no place there.
        rows : which of them are to be counted; all when None.
        """
        inside = inside_rows(columns, self.domain)
        points = finite_rows(given)
        if rows is not None:
            points &= rows
        off = np.flatnonzero(points & ~inside)
        self.points += int(points.sum())
        self.outside += len(off)
        if self._room and len(off):
            some = off[: self._room]
            self._room -= len(some)
            self._sample.append([column[some] for column in given])
        return inside

    def refuse_many(self) -> None:
        """Raise OutsideBounds if more than one point in a hundred lies outside, with the likely cause."""
        if self.outside <= _MANY * self.points:
            return
        kind, cause = next(self._causes(), ("unknown", "are they the right ones (W,S,E,N), and is the CRS"))
        if kind == "unknown" and (guess := self.guess()) is not None:
            cause += f" ({guess})"
        if kind != "unknown" and self.outside < _ENOUGH * self.points:
            cause += f" (but {1 - self.outside / self.points:.0%} of all points lie inside as they are)"
        domain, end = self.domain, "?" if kind == "unknown" else "."
        bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" of {domain.crs}" if domain.crs else "")
        raise OutsideBounds(
            f"{self.outside:,} of {self.points:,} points ({self.outside / self.points:.0%}) lie outside the bounds "
            f"{bounds}: {cause}{end} If it is meant, say what becomes of them: outside='clamp' (they count at the "
            "edge) or outside='drop' (with the boundary as a source)",
            kind,
        )

    def guess(self) -> str | None:
        """Return the way to the map that would hold most of the points outside, in words; None if it is few.

        It tells about the data: it is for who holds them.
        """
        if not self._sample or self.domain.ndim != 2:
            return None
        given = [np.concatenate(columns) for columns in zip(*self._sample, strict=True)]
        shares = {"with x and y swapped": self._share(self._onto, given[::-1])}
        for crs in () if self.domain.crs is None else (LONGITUDE_LATITUDE, "EPSG:3857", self.domain.crs):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    onto = Operation.onto(self.domain, crs) or (lambda *columns: list(columns))
            except InputError:
                continue
            shares |= {f"as {crs}": self._share(onto, given), f"as {crs} swapped": self._share(onto, given[::-1])}
        best = max(shares, key=lambda words: shares[words])
        if shares[best] < _SOMEWHAT:
            return None
        return f"the best guess: {best}, {shares[best]:.0%} of the points outside would lie inside"

    @property
    def _onto(self) -> Callable[..., Any]:
        """The way to the map that was stated."""
        return self.operation or (lambda *columns: list(columns))

    def _causes(self) -> Iterator[tuple[str, str]]:
        """Yield kinds of mistakes that would explain the points outside, with words for the message."""
        given = [np.concatenate(columns) for columns in zip(*self._sample, strict=True)]
        domain, operation, onto = self.domain, self.operation, self._onto
        degrees = looks_like_degrees(domain.bounds)
        if domain.ndim == 2:
            if self._fits(onto, given[::-1]):
                yield "swapped", "x and y are swapped, the other way round they would lie inside"
            if operation is not None and self._fits(lambda *columns: columns, given):
                if degrees:
                    yield "bounds", f"the bounds are degrees, but must be in the units of {domain.crs}"
                yield "projected", f"the coordinates are in {domain.crs} already, not in the CRS that is said"
            # A map is never geographic, so that there is an operation.
            if operation is None and domain.crs and self._fits(Operation.onto(domain, LONGITUDE_LATITUDE), given):
                yield "degrees", f"the coordinates are degrees, not in {domain.crs}"
        for scale, kind, as_ in _SCALES:
            scaled = lambda *columns, by=scale: [c * by for c in onto(*columns)]  # noqa: E731
            if self._fits(scaled, given) and self._spans(scaled(*given)):
                yield kind, f"the units differ, with bounds 1,000 times as {as_} they would lie inside (m and km?)"
        if domain.crs is None and domain.ndim == 2 and not degrees:
            x, y = (float(np.abs(c).max()) for c in given)
            if looks_like_degrees((-x, -y, x, y)):
                yield "degrees", "the coordinates look like degrees, the bounds do not"

    def _spans(self, columns: Columns) -> bool:
        """Return whether points take up some of the map: bounds around the origin hold all points divided by 1,000."""
        sides = zip(columns, self.domain.low, self.domain.high, strict=True)
        return any(float(np.ptp(c[np.isfinite(c)], axis=0)) > _SOME * (high - low) for c, low, high in sides)

    def _fits(self, onto: Callable[..., Any] | None, given: Columns) -> bool:
        """Return whether nearly all points that are kept would lie inside on another way to the map."""
        assert onto is not None
        return self._share(onto, given) > _ENOUGH

    def _share(self, onto: Callable[..., Any], given: Columns) -> float:
        """Return the share of the points that are kept which would lie inside on another way to the map."""
        try:
            return float(inside_rows(onto(*given), self.domain).mean())
        except InputError:
            return 0.0


# --- points of arrays -----------------------------------------------------------------------------------------


def _aligned(user: Any, points: Any, number: int) -> Any:
    """Return the user of each point as an Arrow array, from a column's name or from values."""
    import pyarrow as pa

    if isinstance(user, str):
        if user not in getattr(points, "columns", ()):
            raise InputError(f"user is {user!r}: it must be a column of the points, or one entry for each of them")
        user = points[user]
    given: Any = getattr(user, "index", None)
    own: Any = getattr(points, "index", None)
    if hasattr(given, "equals") and hasattr(own, "equals") and not given.equals(own):
        raise InputError(
            "user has another index than the points: its entries would go to other points; align it, "
            "user.reindex(points.index), or give plain values"
        )
    ids = pa.array(np.asarray(user).ravel())
    if len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries: there must be one for each of {number:,} points")
    return ids


def _columns(points: Any, domain: Domain) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Return the coordinates as given, one column per axis, and the operation that brings them to the map."""
    geometry = getattr(points, "geometry", None)
    if geometry is not None:
        crs = geometry.crs
        if (crs is None) != (domain.crs is None):
            raise InputError(
                f"points have the CRS {crs and crs.to_string()}, the domain has {domain.crs}: say which one they are "
                "in, frame.set_crs(...), or give the domain that of its bounds; degrees are never taken for lengths"
            )
        if not (geometry.geom_type == "Point").all():
            raise InputError("geometries are not all points: take their centroids, or one point each")
        columns = [geometry.x.to_numpy(np.float64), geometry.y.to_numpy(np.float64)][: domain.ndim]
        return columns, None if crs is None else Operation.onto(domain, crs)
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


# --- users --------------------------------------------------------------------------------------------------


class UserBound:
    """Keeps at most `most` points of each user.

    A row's score is AES under a random key of (hash of the user id, number of the row among the user's rows);
    the smallest scores stay. The choice depends on no coordinate and on no other user, so that moving points
    chooses the same rows: that is what makes K points of one user cost K times one point. Rows must be given
    before any are left out for where they are.

    >>> import pyarrow as pa
    >>> bound = UserBound(2, bytes(32))
    >>> bound.add(pa.array(["ann", "bob", "ann", "ann"]), np.array([10, 20, 11, 12]))
    >>> bound.users, len(bound.cells()), 20 in bound.cells()
    (2, 3, True)
    """

    def __init__(self, most: int, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.most = most
        # Independent blocks under one key are a keyed hash of 16 bytes, not the encryption of a message.
        key = secrets.token_bytes(32) if key is None else key
        if not isinstance(key, bytes) or len(key) != 32:
            raise InputError("key is unsuitable: it must be 32 secret bytes, or None for fresh ones")
        self._name_key = hashlib.blake2b(b"users", key=key, digest_size=32).digest()
        row_key = hashlib.blake2b(b"rows", key=key, digest_size=32).digest()
        #: In hexadecimal digits, for an engine that bounds users itself.
        self.secret = hashlib.blake2b(b"engine", key=key, digest_size=32).hexdigest()
        self._cipher = Cipher(algorithms.AES(row_key), modes.ECB())
        self._codes: dict[Any, int] = {}
        self._hashes = np.zeros(0, dtype=np.uint64)  # of the user ids
        self._seen = np.zeros(0, dtype=np.int64)  # rows so far, per user
        # Users, scores and cells of the rows kept, in parts.
        self._kept = [(self._seen, self._hashes, self._seen)]
        self._number = 0

    @property
    def users(self) -> int:
        """Number of different users so far."""
        return len(self._codes)

    def add(self, users: Any, cells: NDArray[np.int64]) -> None:
        """Take a batch: an Arrow array of user ids without nulls, and the rows' flat cells."""
        code = self._code(users)
        score = self._score(code, self._ordinal(code))
        self._kept.append((code, score, cells))
        self._number += len(code)
        if self._number > 2 * self.most * self.users + _SLACK:
            self._thin()

    def cells(self) -> NDArray[np.int64]:
        """Return the flat cells of the rows that stay."""
        self._thin()
        return self._kept[0][2]

    def _code(self, users: Any) -> NDArray[np.int64]:
        """Return whole numbers for user ids, the same in every batch."""
        encoded = users.dictionary_encode()
        if hasattr(encoded, "combine_chunks"):
            encoded = encoded.combine_chunks()
        codes, before = self._codes, len(self._codes)
        ids = encoded.dictionary.to_pylist()
        known = np.array([codes.setdefault(u, len(codes)) for u in ids], dtype=np.int64)
        fresh: list[bytes] = []
        for user, code in zip(ids, known.tolist(), strict=True):
            if code == before + len(fresh):  # 0.0 and -0.0 are two ids to Arrow, and one user
                fresh.append(self._hash(user))
        self._hashes = np.append(self._hashes, np.frombuffer(b"".join(fresh), dtype="<u8"))
        self._seen = np.append(self._seen, np.zeros(len(fresh), dtype=np.int64))
        return known[encoded.indices.to_numpy(zero_copy_only=False)]

    def _hash(self, user: Any) -> bytes:
        # Of the text: user 7 is the same in a CSV file and in a Parquet file.
        text = str(user).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._name_key, digest_size=8).digest()

    def _ordinal(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each row among its user's rows, over all batches."""
        order = np.argsort(code, kind="stable")
        ranked = code[order]
        within = np.arange(len(code)) - np.searchsorted(ranked, ranked)
        out = np.empty(len(code), dtype=np.int64)
        out[order] = within + self._seen[ranked]
        np.add.at(self._seen, code, 1)
        return out

    def _score(self, code: NDArray[np.int64], ordinal: NDArray[np.int64]) -> NDArray[np.uint64]:
        blocks = np.empty((len(code), 2), dtype="<u8")
        blocks[:, 0] = self._hashes[code]
        blocks[:, 1] = ordinal
        hashed = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(hashed, dtype="<u8").reshape(-1, 2)[:, 0].astype(np.uint64)

    def _thin(self) -> None:
        """Keep each user's smallest scores only."""
        code, score, cells = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((score, code))
        ranked = code[order]
        first = np.searchsorted(ranked, ranked)
        stay = order[np.arange(len(code)) - first < self.most]
        self._kept = [(code[stay], score[stay], cells[stay])]
        self._number = len(stay)
