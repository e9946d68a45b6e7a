"""Counting points of arrays, in chunks, with memory in proportion to the grid."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.counting.outside import Outside, check_outside, finite_rows
from deltahist.counting.private import Private
from deltahist.errors import InputError, fits_memory, whole
from deltahist.preprocessing import Preprocessing
from deltahist.space.domain import Domain
from deltahist.space.operations import Operation

#: Points that are located at a time: few enough for the processor's cache, enough to keep it busy.
CHUNK = 1 << 16
#: Points whose cells are held at a time, so that memory does not grow with their number.
_BLOCK = 1 << 20
_THREADS = 2
#: Rows kept beyond this many times the bound's need are thinned out again.
_SLACK = 1 << 20


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
    how = Preprocessing(max_per_user or 1, user is not None, dropped, projection)
    return Private.of(tally.counts(), how, domain)


def locate_cells(columns: Sequence[NDArray[np.float64]], domain: Domain) -> NDArray[np.int64]:
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
        """Return the flat cells of points given as finite columns."""
        return locate_cells(columns, self.domain)

    def add(self, cells: NDArray[np.int64]) -> None:
        """Count points by their flat cells."""
        np.add.at(self._flat, cells, 1)

    def add_counts(self, cells: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Add numbers of points of flat cells, each cell once."""
        self._flat[cells] += number

    def counts(self) -> NDArray[np.int64]:
        """Return the counts so far (domain.shape)."""
        return self._flat.reshape(self.domain.shape)


class PointPlaces:
    """Places of points, kept one by one, that grow by batches of points.

    Parameters
    ----------
    locate : from finite columns to places, whole numbers; those below 0 are not kept.
    """

    def __init__(self, locate: Callable[[Sequence[NDArray[np.float64]]], NDArray[np.int64]]) -> None:
        self.locate = locate
        self._parts: list[NDArray[np.int64]] = []

    def add(self, places: NDArray[np.int64]) -> None:
        """Keep places of points."""
        self._parts.append(places)

    def places(self) -> NDArray[np.int64]:
        """Return the places (m,) so far."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)


def _aligned(user: Any, points: Any) -> Any:
    """Return the user of each point: a column of the points by name, or plain values with the points' index."""
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
    """Return the user of each point as an Arrow array."""
    import pyarrow as pa

    ids = pa.array(np.asarray(user).ravel())
    if len(ids) != number:
        raise InputError(f"user has {len(ids):,} entries: there must be one for each of {number:,} points")
    missing = int((~named_rows(ids)).sum())
    if missing:
        raise InputError(f"{missing:,} of {number:,} points have no user: each must have one")
    return ids


def named_rows(users: Any) -> NDArray[np.bool_]:
    """Return which rows of an Arrow array of users name one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A NaN is a missing user too: NaNs differ from each other, so that K would not bound them.
    named = pc.invert(pc.is_null(users, nan_is_null=True))
    if pa.types.is_string(users.type) or pa.types.is_large_string(users.type):
        named = pc.and_kleene(named, pc.not_equal(users, ""))
    return np.asarray(named.fill_null(False).to_numpy(zero_copy_only=False))


def user_bound(users: bool, most: int | None, key: bytes | None) -> UserBound | None:
    """Return the bound on each user's points; None if users are not told apart.

    Raises InputError if only one of users and their bound is given.
    """
    if users != (most is not None):
        raise InputError(
            f"max_per_user is {most!r} and users are {'' if users else 'not '}given: give both or neither, since a "
            "user's cost is the number of points that may move at once"
        )
    return UserBound(whole(max_per_user=most), key) if users else None


def _columns(points: Any, domain: Domain) -> tuple[list[NDArray[np.float64]], Operation | None]:
    """Return the coordinates as given, one column per axis, and the operation that brings them to the map."""
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


# --- users --------------------------------------------------------------------------------------------------


class UserBound:
    """Keeps at most `most` points of each user.

    A row's score is AES under a random key of (hash of the user id, number of the row among the user's rows);
    the smallest scores stay. The choice depends on no coordinate and on no other user, so that moving points
    chooses the same rows: that is what makes K points of one user cost K times one point. Rows must be given
    before any are left out for where they are.

    Parameters
    ----------
    most : K. key : 32 bytes; drawn at random when None.

    Raises
    ------
    InputError
        If the key is not 32 bytes.

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
        self._cipher = Cipher(
            algorithms.AES(hashlib.blake2b(b"rows", key=key, digest_size=32).digest()), modes.ECB()
        )
        self._codes: dict[Any, int] = {}
        self._hashes = np.zeros(0, dtype=np.uint64)  # of the user ids
        self._seen = np.zeros(0, dtype=np.int64)  # rows so far, per user
        self._kept: list[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]] = []
        self._held = 0

    @property
    def users(self) -> int:
        """Number of different users so far."""
        return len(self._codes)

    def add(self, users: Any, cells: NDArray[np.int64]) -> None:
        """Take a batch: an Arrow array of user ids without nulls, and the rows' flat cells."""
        code = self._code(users)
        score = self._score(code, self._ordinal(code))
        self._kept.append((code, score, cells))
        self._held += len(code)
        if self._held > 2 * self.most * self.users + _SLACK:
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
        fresh = [u for u, code in zip(ids, known.tolist(), strict=True) if code >= before]
        self._hashes = _room(self._hashes, self.users)
        self._hashes[before : self.users] = np.frombuffer(b"".join(map(self._hash, fresh)), dtype="<u8")
        return known[encoded.indices.to_numpy(zero_copy_only=False)]

    def _hash(self, user: Any) -> bytes:
        # Of the text: user 7 is the same in a CSV file and in a Parquet file.
        text = str(user).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._name_key, digest_size=8).digest()

    def _ordinal(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each row among its user's rows, over all batches."""
        self._seen = _room(self._seen, self.users)
        order = np.argsort(code, kind="stable")
        ranked = code[order]
        first = (
            np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(code) else np.zeros(0, np.int64)
        )
        sizes = np.diff(first, append=len(code))
        within = np.arange(len(code)) - np.repeat(first, sizes)
        out = np.empty(len(code), dtype=np.int64)
        out[order] = within + self._seen[ranked]
        self._seen[ranked[first]] += sizes
        return out

    def _score(self, code: NDArray[np.int64], ordinal: NDArray[np.int64]) -> NDArray[np.uint64]:
        blocks = np.empty((len(code), 2), dtype="<u8")
        blocks[:, 0] = self._hashes[code]
        blocks[:, 1] = ordinal
        hashed = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(hashed, dtype="<u8").reshape(-1, 2)[:, 0].astype(np.uint64)

    def _thin(self) -> None:
        """Keep each user's smallest scores only."""
        if not self._kept:
            empty = np.zeros(0, dtype=np.int64)
            self._kept = [(empty, empty.astype(np.uint64), empty)]
        code, score, cells = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((score, code))
        ranked = code[order]
        first = np.searchsorted(ranked, ranked, side="left")
        stay = order[np.arange(len(code)) - first < self.most]
        self._kept = [(code[stay], score[stay], cells[stay])]
        self._held = len(stay)


def _room(array: NDArray[Any], size: int) -> NDArray[Any]:
    """`array` if it has `size` elements, else a longer one that starts with it, zero after that."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
