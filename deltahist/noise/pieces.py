"""Piecewise constant paths of whole numbers on a scale of whole levels, for many users: bounds, search, memory.

Paths are evaluated in float64 for all users at once, with a bound of the rounding error beside every number. Where it
leaves a decision open that matters to a request, the user's path is evaluated again in Decimal, from more bits of the
same uniform reals, until nothing is open. What paths there are stands in `noise/paths.py`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import NANO, InputError
from deltahist.noise.entropy import Keyed
from deltahist.noise.reals import Reals, Uniforms

#: Planes of the uniform reals (64 bits of each) that floats are made of. Decimal takes more, and 20 digits for each.
_FLOAT = 2
#: −log2 of the error that a step of a formula may add, relative to its parts, for each plane beyond the first. The
#: roundings of a step, and the bits that are not read, come to a fiftieth of that at most.
_PRECISION = 44
#: Reals nearer to 0 or to 1 than 2 to minus this, for each plane, are left open: the bits unread would matter more.
_EDGE = 19
#: Bounds of first order are not relied on where something is known less well than this, relatively.
VAGUE = 2.0**-10
#: Paths are evaluated so far beyond the levels that are asked for, relatively: more than any error of a level.
_BEYOND = 2.0**-8
#: Users whose paths are evaluated together.
_TOGETHER = 4096
MOST = 1 << 62


class _Path(NamedTuple):
    """The known part of one user's path on whole levels: K values, of which the next one holds from a jump on."""

    span: tuple[int, int]  # the levels for which it was evaluated
    perhaps: NDArray[np.int64]  # (K,) the first level from which each value may hold, rising; 0 for the first
    surely: NDArray[np.int64]  # (K,) the first level from which it certainly does
    values: NDArray[np.int64]  # (K, n)
    open: NDArray[np.bool_]  # (K,) values that the error bound leaves open

    def decided(self, first: int, end: int) -> bool:
        """Whether the values from `first` to before `end` are certain, and the levels where they change."""
        return not (self.open[first:end].any() or (self.perhaps < self.surely)[first : end + 1].any())


class PathSteps:
    """Values and jumps of many users, in any order, to be put together as paths."""

    def __init__(self, users: int) -> None:
        self.undecided = np.zeros(users, dtype=bool)
        self._starts: list[tuple[Any, ...]] = [(np.arange(users), -MOST, *2 * [np.zeros(users, np.int64)])]
        self._values: list[tuple[Any, ...]] = []

    def jump(self, rows: NDArray[np.int64], place: int, level: Reals, blur: Reals) -> None:
        """Jumps between the values of this place and the one before it, at real levels with relative errors."""
        billionths = level * NANO
        self._starts.append((rows, place, *(f + 1 for f in _floors(billionths, real(billionths) * blur))))

    def value(self, rows: NDArray[np.int64], place: int, value: Reals, error: Reals) -> None:
        """Values (rows, n) that hold between two jumps, with their errors (rows,)."""
        low, high = _floors((2 * value + 1) / 2, np.broadcast_to(error[:, None], value.shape))
        self._values.append((rows, place, high, (low != high).any(axis=1)))

    def paths(self, span: tuple[int, int]) -> Iterator[_Path | None]:
        """One path for each user, in order; None where something is undecided."""
        _, perhaps, surely = _sorted(self._starts)
        rows, values, unsure = _sorted(self._values)
        ends = np.searchsorted(rows, np.arange(1, len(self.undecided)))
        parts = (np.split(of, ends) for of in (perhaps, surely, values, unsure))
        for undecided, first, last, value, unknown in zip(self.undecided, *parts, strict=True):
            # Bounds of jumps that nearly coincide may cross: what is certain of the later holds for the earlier one.
            first = np.minimum.accumulate(first[::-1])[::-1]
            yield None if undecided else _Path(span, first, np.maximum.accumulate(last), value, unknown)


def _sorted(parts: Sequence[tuple[Any, ...]]) -> list[NDArray[Any]]:
    """Return the columns of all parts by row and place, without the place."""
    rows = np.concatenate([part[0] for part in parts])
    place = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    order = np.lexsort((place, rows))
    columns = [np.concatenate([part[i] for part in parts]) for i in range(2, len(parts[0]))]
    return [column[order] for column in (rows, *columns)]


@dataclass(frozen=True)
class KeyedPaths:
    """Base of paths of every kind: their reals, the search in them, their memory."""

    key: bytes = field(repr=False)
    _known: dict[int, _Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != 32:
            size = f"{len(self.key)} bytes" if isinstance(self.key, bytes) else f"a {type(self.key).__name__}"
            raise InputError(f"key is {size}: it must be 32 secret bytes (os.urandom(32) makes such a key)")

    def _label(self) -> str:
        raise NotImplementedError

    def _steps(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        """Evaluate the paths of some users on a span of levels, in ε; in Decimal for more planes than floats take."""
        raise NotImplementedError

    def _uniforms(
        self, purpose: int, users: NDArray[np.int64], step: int, slots: int, planes: int
    ) -> tuple[Uniforms, NDArray[np.bool_]]:
        """Return the reals of one step of each user, and where one is too near to 0 or 1."""
        words = Keyed(self.key, self._label()).words(
            purpose, users, first=step * (slots + slots % 2), number=slots, planes=planes
        )
        reals, edge = Uniforms(words, exact=planes > _FLOAT), 2.0 ** (-_EDGE * planes)
        near = (reals.value < edge) | (reals.rest < edge)
        return reals, np.asarray(near.astype(bool).any(axis=1))

    def _evaluated(self, users: NDArray[np.int64], span: tuple[int, int], planes: int) -> list[_Path | None]:
        with decimal.localcontext(
            decimal.Context(prec=20 * planes, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
        ):
            wider = span[0] / NANO * (1 - _BEYOND), span[1] / NANO * (1 + _BEYOND)
            return list(self._steps(users, wider, planes).paths(span))

    def _exact(self, user: int, span: tuple[int, int]) -> _Path:
        """Find a path with nothing left open, and keep it."""
        planes = _FLOAT
        while True:
            planes = 2 * planes - 1
            (path,) = self._evaluated(np.array([user]), span, planes)
            if path is not None and path.decided(0, len(path.open)):
                self._known[user] = path
                return path

    def _paths(self, users: NDArray[np.int64], least: int, most: int) -> list[_Path]:
        """Paths of distinct users that are known at least from `least` to `most`."""
        known = [self._known.get(user) for user in users.tolist()]
        stale = [path is None or least < path.span[0] or path.span[1] < most for path in known]
        # To the next power of two, and what was known stays known, so that growing requests soon need nothing new.
        spans = [(1 << (least.bit_length() - 1), 1 << most.bit_length())]
        spans += [path.span for path, old in zip(known, stale, strict=True) if path and old]
        span = min(low for low, _ in spans), max(high for _, high in spans)
        for first in range(0, sum(stale), _TOGETHER):
            some = users[stale][first : first + _TOGETHER]
            for user, path in zip(some.tolist(), self._evaluated(some, span, _FLOAT), strict=True):
                self._known[user] = path or self._exact(user, span)
        return [self._known[user] for user in users.tolist()]

    def _found(self, users: NDArray[np.int64], levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """(m, n) values of the users' paths at the levels."""
        distinct, row = _numbered(users)
        paths = self._paths(distinct, int(levels.min()), int(levels.max()))
        ends = np.cumsum([len(path.open) for path in paths])
        perhaps, surely, values, unsure = (
            np.concatenate([path[i] for path in paths]) for i in range(1, len(_Path._fields))
        )
        # The last value that surely holds, by bisection of all users' stretches of the one array.
        low, end = np.concatenate([[0], ends[:-1]])[row], ends[row]
        high = end
        while (high - low > 1).any():
            middle = (low + high) // 2
            holds = surely[middle] <= levels
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        out = values[low]
        following = np.minimum(low + 1, len(perhaps) - 1)
        bad = unsure[low] | (low + 1 < end) & (perhaps[following] <= levels)
        if bad.any():
            for i in np.unique(row[bad]).tolist():
                self._exact(int(distinct[i]), paths[i].span)
            out[bad] = self._found(users[bad], levels[bad])
        return out  # type: ignore[no-any-return]

    def _pieces(self, user: int, least: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First levels (K,), rising from `least`, and values (K, n) of what a path is from there to `most`."""
        (user, _), (least, most) = (part.tolist() for part in checked([user, user], [least, most]))
        if most < least:
            raise InputError(
                f"most is {most}: it must be at least {least}, the least level (are they swapped?)"
            )
        (path,) = self._paths(np.array([user]), least, most)
        first, end = (int(np.searchsorted(path.surely, level, side="right")) for level in (least, most))
        if not path.decided(first - 1, end):
            path = self._exact(user, path.span)
            first, end = (int(np.searchsorted(path.surely, level, side="right")) for level in (least, most))
        levels, values = np.maximum(path.surely[first - 1 : end], least), path.values[first - 1 : end]
        # Of jumps between the same two whole levels the last one counts; then only what changes the rounded value.
        last = np.append(levels[1:] > levels[:-1], True)
        levels, values = levels[last], values[last]
        new = np.append(True, (values[1:] != values[:-1]).any(axis=1))
        return levels[new], values[new]


def _numbered(users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different users, rising, and which of them each one is; without sorting where numbers lie close."""
    if int(users.max()) > 4 * len(users):
        return np.unique(users, return_inverse=True)
    there = np.zeros(int(users.max()) + 1, dtype=bool)
    there[users] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[users]


def checked(users: Any, levels: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and levels of requests, as int64."""
    users, levels = _wholes(0, users=users), _wholes(1, levels=levels)
    if users.shape != levels.shape:
        raise InputError(
            f"users have the shape {users.shape} and levels {levels.shape}: there is one level to each user"
        )
    return users, levels


def _wholes(least: int, **parameter: Any) -> NDArray[np.int64]:
    ((name, value),) = parameter.items()
    out = np.asarray(value)
    if out.ndim != 1 or (len(out) and not np.issubdtype(out.dtype, np.integer)):
        raise InputError(
            f"{name} are an array of shape {out.shape} and type {out.dtype}: they must be (m,) whole numbers"
        )
    if len(out) and not least <= int(out.min()) <= int(out.max()) < MOST:
        culprit = int(out.min() if int(out.min()) < least else out.max())
        raise InputError(f"{name} hold {culprit}: they must be whole numbers from {least} to 2^62")
    return out.astype(np.int64)


def precision(planes: int) -> float:
    """Bound the relative error of a step of a formula, for a number of planes of its reals."""
    return 2.0 ** (-_PRECISION * (planes - 1))


def real(x: Any) -> NDArray[np.float64]:
    """Return an array as float64: bounds need no more, whatever the precision of the bounded numbers."""
    return np.asarray(x, dtype=np.float64)


def _floors(x: Reals, error: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """⌊x − 2 error⌋ and ⌊x + 2 error⌋, cut to what int64 holds; twice, for terms of second order."""
    error = 2 * error
    if x.dtype == object:
        ends = [
            np.frompyfunc(lambda v, e, s=sign: math.floor(v + s * Decimal(e)), 2, 1)(x, error)
            for sign in (-1, 1)
        ]
    else:
        ends = [np.floor(x - error), np.floor(x + error)]
    return tuple(np.clip(end, -MOST, MOST).astype(np.int64) for end in ends)  # type: ignore[return-value]
