"""Exactly rounded noise for every user at every level, computed from a secret key alone.

V_ε = √(2S)/ε · N(0, I) with S ~ Gamma((n + 1)/2). As ε falls, V_ε makes independent jumps √(2W)/ε · N(0, I) with
W ~ Exp(1), at a rate of n + 1 per unit of ln ε. As ε rises, V_ε jumps from a value x at a rate of 1 + ε|x|
(docs/internals/processes.md). The formulas use w = εx, whose law is the same at every level.

A path follows this process down and up from a fixed base, ε = 1, as far as needed. A keyed cipher generates the uniform
reals, so responses can be computed at any time and in any order, without stored state. Paths rounded to whole numbers
are piecewise constant over whole levels. Paths are evaluated in float64 for all users at once, with a bound on the
rounding error of every number. If the bound is too wide for a decision that affects a response, the user's path is
evaluated again in Decimal, with more bits of the same uniform reals. So no response has a floating-point error.
"""

from __future__ import annotations

import abc
import decimal
import functools
import hmac
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import NANO, InputError, check_whole

#: Array of float64, or of Decimal objects.
Reals = NDArray[Any]
#: Number of planes that float64 uses (a plane is 64 bits of every real). Decimal uses more, with 20 digits per plane.
_FLOAT_PLANES = 2
#: Upper bound on values and levels.
_FARTHEST = 1 << 62


# --- uniform reals, in two precisions -----------------------------------------------------------------------

# The functions below, and formulas that use `Uniforms`, run on float64 arrays for all rows at once, and on arrays of
# Decimal objects for the few rows that floats cannot decide. Both precisions use the first bits of the same reals.


def keyed_words(
    key: bytes, label: str, purpose: int, users: NDArray[np.int64], *, first: int, number: int, planes: int
) -> NDArray[np.uint64]:
    """Return an array (users, number, planes) of pseudorandom words for a secret key, from an even index `first` on.

    Each pair of words is a distinct block, encrypted with AES-256. Words for other labels or keys are independent.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    pairs = -(-number // 2)
    fields = [("user", "<u8"), ("purpose", "<u2"), ("plane", "<u2"), ("pair", "<u4")]
    blocks = np.zeros((len(users), planes, pairs), dtype=fields)
    blocks["user"], blocks["purpose"] = users[:, None, None], purpose
    blocks["plane"], blocks["pair"] = np.arange(planes)[:, None], first // 2 + np.arange(pairs)
    # ECB allows random access, and is safe because all blocks are distinct.
    cipher = Cipher(algorithms.AES(hmac.digest(key, label.encode(), "sha256")), modes.ECB()).encryptor()
    words = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").astype(np.uint64, copy=False)
    return words.reshape(len(users), planes, 2 * pairs)[:, :, :number].swapaxes(1, 2)


class Uniforms:
    """Independent uniform reals in (0, 1), known only by their first bits.

    words : uint64 array (rows, slots, planes), in which plane p contains bits 64 p to 64 p + 63 of every real.
    exact : whether to calculate in Decimal, in the caller's decimal context, instead of float64.
    """

    def __init__(self, words: NDArray[np.uint64], exact: bool = False) -> None:
        self._words = words
        self.value: Reals
        self.rest: Reals
        if exact:
            whole = np.zeros(words.shape[:2], dtype=object)
            for plane in range(words.shape[2]):
                whole = whole * (1 << 64) + words[..., plane].astype(object)
            size = 1 << (64 * words.shape[2] + 1)  # one more bit, for midpoints
            quotient = np.frompyfunc(lambda number: Decimal(number) / size, 1, 1)
            self.value, self.rest = quotient(2 * whole + 1), quotient(size - 1 - 2 * whole)
        else:
            # Complementing the bits gives the distance from 1 without cancellation.
            self.value, self.rest = _read_floats(words), _read_floats(~words)

    def are_extreme(self) -> NDArray[np.bool_]:
        """Return, for each row, whether any real is so close to 0 or 1 that its unread bits matter too much."""
        edge = 2.0 ** (-19 * self._words.shape[2])
        return np.asarray(((self.value < edge) | (self.rest < edge)).astype(bool).any(axis=1))

    def exponential(self, slot: int) -> Reals:
        """Return −ln U for each row, with the relative precision of the reals even if U is near 1."""
        value, rest = self.value[:, slot], self.rest[:, slot]
        if value.dtype == object:
            return -log(value)
        return np.where(rest > 0.5, -np.log(value), -np.log1p(-np.minimum(rest, 0.5)))

    def coin(self, slot: int) -> NDArray[np.bool_]:
        """Return the first bit of each row's real, which is True if the real is at least ½."""
        return self._words[:, slot, 0] >= 1 << 63

    def normals(self, slot: int, number: int) -> tuple[Reals, Reals]:
        """Return `number` Box–Muller normals per row, in pairs from `slot`, and √(sum of squared radii) per row."""
        parts, length = [], np.zeros(len(self.value), dtype=self.value.dtype)
        for first in range(slot, slot + number, 2):
            square = 2 * self.exponential(first)
            cosine, sine = cos_and_sin(self.value[:, first + 1])
            parts += [sqrt(square) * cosine, sqrt(square) * sine]
            length = length + square
        return np.stack(parts[:number], axis=1), sqrt(length)


def _read_floats(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the midpoints of the intervals that the known bits define, with full relative precision."""
    out = np.full(words.shape[:2], 0.5)
    for plane in reversed(range(words.shape[2])):
        out = (out + words[..., plane]) * 2.0**-64
    return out


def _in_both(floats: Callable[..., Any], decimals: Callable[[Decimal], Decimal]) -> Callable[[Reals], Any]:
    """Return a function that accepts arrays of either precision."""
    each = np.frompyfunc(decimals, 1, 1)
    return lambda x: each(x) if x.dtype == object else floats(x)


# In Decimal, extra digits make up for cancellation.
log, exp, sqrt = _in_both(np.log, Decimal.ln), _in_both(np.exp, Decimal.exp), _in_both(np.sqrt, Decimal.sqrt)
expm1, log1p = _in_both(np.expm1, lambda x: x.exp() - 1), _in_both(np.log1p, lambda x: (1 + x).ln())


def vector_lengths(x: Reals) -> Reals:
    """Return the Euclidean length of each row of an array (rows, n)."""
    return sqrt((x * x).sum(axis=1))


def cos_and_sin(turns: Reals) -> tuple[Reals, Reals]:
    """Return the cosine and sine of 2π · turns, for turns in [0, 1]."""
    if turns.dtype != object:
        return np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    both = [_sum_series(turn) for turn in turns]
    return tuple(np.array([b[i] for b in both], dtype=object) for i in (0, 1))  # type: ignore[return-value]


def _sum_series(turn: Decimal) -> tuple[Decimal, Decimal]:
    """Return the cosine and sine from their series at the opposite point of the circle, for an angle of at most π."""
    angle = (2 * turn - 1) * _pi(decimal.getcontext().prec)
    sums, term, power = [Decimal(0), Decimal(0)], Decimal(1), 0
    end = Decimal(10) ** -(decimal.getcontext().prec + 2)
    while abs(term) > end or power < 4:
        sums[power % 2] += -term if power % 4 < 2 else term
        power += 1
        term = term * angle / power
    return sums[0], sums[1]


@functools.cache
def _pi(digits: int) -> Decimal:
    """Return π from the Gauss–Legendre algorithm, which doubles the number of digits in each iteration."""
    with decimal.localcontext(prec=digits + 10):
        a, b, rest, power = Decimal(1), Decimal(2).sqrt() / 2, Decimal(1) / 4, 1
        for _ in range(digits.bit_length()):
            a, b, rest, power = (a + b) / 2, (a * b).sqrt(), rest - power * ((a - b) / 2) ** 2, 2 * power
        return a * a / rest


class Jump(NamedTuple):
    """A new value times its level, with the quantities that bound its rounding error."""

    value: Reals  # The new value times its level (rows, n).
    scale: Reals  # Factor of the normal vector (rows,).
    normal: Reals  # The normal vector (rows, n).
    radius: Reals  # Root of the sum of the normal pairs' squared radii (rows,).
    spread: Reals  # Squared radius of the normals that the scale uses (rows,).


class JumpUp(NamedTuple):
    """A jump upwards, with the quantities that determine it."""

    jump: Jump
    size: Reals  # z = |w| before the jump.
    roots: tuple[Reals, Reals]  # The smaller and the larger root of the inverse Gaussian law.
    coin: Reals  # The uniform real that selects a root.
    smaller: NDArray[np.bool_]  # Whether it selects the smaller root.
    total: Reals  # T = W + S.
    share: Reals  # S / T.


#: Numbers of uniform reals that a step down and a step up use, excluding the normal vector.
DOWN_SLOTS, UP_SLOTS = 2, 7
#: Purposes for which uniform reals are drawn; each purpose has its own random words.
_BASE, _DOWN, _UP, _RESET = range(4)


def first_value_slots(dimension: int) -> int:
    """Return the number of uniform reals that `first_value` uses, excluding its normal vector."""
    return (dimension + 1) // 2 + (0 if dimension % 2 else 2)


def normal_slots(dimension: int) -> int:
    """Return the number of uniform reals that a normal vector uses."""
    return dimension + dimension % 2


def first_value(dimension: int, uniforms: Uniforms) -> Jump:
    """Draw √(2S) · N(0, I) with S ~ Gamma((n + 1)/2): a Gamma(n) radius in a random direction, density ∝ e^(−|v|).

    Source: 2018, Definition 3, Algorithm 1 (before its loop).
    """
    mixing, slot = uniforms.exponential(0), (dimension + 1) // 2
    for i in range(1, slot):
        mixing = mixing + uniforms.exponential(i)
    spread = 0 * mixing
    if dimension % 2 == 0:  # Gamma(½) is half of a squared normal
        half, radius = uniforms.normals(slot, 1)
        mixing, spread = mixing + half[:, 0] ** 2 / 2, radius**2
    normal, radius = uniforms.normals(first_value_slots(dimension), dimension)
    scale = sqrt(2 * mixing)
    return Jump(scale[:, None] * normal, scale, normal, radius, spread)


def next_level_below(dimension: int, uniforms: Uniforms) -> Reals:
    """Return each row's level of the next jump down, relative to the current level: e^(−T), T ~ Exponential(n + 1).

    Therefore the number of jumps from ε₂ down to ε₁ is Poisson, with mean (n + 1) ln(ε₂/ε₁).
    Source: 2018, Algorithm 1 (its loop), Proposition 5, Corollary 6, eq. (10).
    """
    return exp(-uniforms.exponential(0) / (dimension + 1))


def jump_down(dimension: int, uniforms: Uniforms) -> Jump:
    """Draw what a jump down adds to the value: √(2W) · N(0, I) with W ~ Exp(1).

    The density is (2π)^(−n/2) r^(1 − n/2) K(r), where r = |v| and K is the Bessel function of order n/2 − 1.
    Source: 2018, Definition 3, eq. (8), Algorithm 1 (its loop), Table I.
    """
    scale = sqrt(2 * uniforms.exponential(1))
    normal, radius = uniforms.normals(DOWN_SLOTS, dimension)
    return Jump(scale[:, None] * normal, scale, normal, radius, 0 * scale)


def next_level_above(size: Reals, uniforms: Uniforms) -> tuple[Reals, Reals]:
    """Return the levels, relative to the current one, where two clocks ring: at rate 1 in ln ε and `size`/ε in ε."""
    with np.errstate(divide="ignore", over="ignore"):  # if the value is 0, the second clock never rings
        return 1 / uniforms.value[:, 0], 1 + uniforms.exponential(1) / size


def jump_up(value: Reals, by_size: NDArray[np.bool_], uniforms: Uniforms) -> JumpUp:
    """Draw a jump up. `value`, of shape (rows, n), is the old value times the level of the jump.

    T is an inverse Gaussian variable plus a Gamma variable of shape 1 where the second clock rang (`by_size`), or 3/2
    elsewhere. The inverse Gaussian is drawn as in Michael, Schucany and Haas (1976), without cancellation in its roots.
    """
    dimension, size, coin = value.shape[1], vector_lengths(value), uniforms.value[:, 4]
    two, spread = uniforms.normals(2, 2)
    square = two[:, 0] ** 2
    larger = size / 2 + square / 4 + sqrt(size * square + square * square / 4) / 2
    roots = size * size / 4 / larger, larger
    smaller = (coin * (size / 2 + roots[0]) <= size / 2).astype(bool)
    total = np.where(smaller, *roots) + uniforms.exponential(5) + np.where(by_size, 0, two[:, 1] ** 2 / 2)
    exponent = 2 * uniforms.exponential(6) / (dimension + 1)
    share = exp(-exponent)
    width = sqrt(-2 * share * expm1(-exponent) * total)
    normal, radius = uniforms.normals(UP_SLOTS, dimension)
    new = share[:, None] * value + width[:, None] * normal
    return JumpUp(Jump(new, width, normal, radius, spread**2), size, roots, coin, smaller, total, share)


class _Path(NamedTuple):
    """The evaluated part of one user's path at whole levels, as K values, one after each jump."""

    span: tuple[int, int]  # The evaluated levels.
    perhaps: NDArray[np.int64]  # First level at which each value may apply, ascending (K,).
    surely: NDArray[np.int64]  # First level at which each value certainly applies (K,).
    values: NDArray[np.int64]  # The values themselves (K, n).
    open: NDArray[np.bool_]  # Whether each value is undecided (K,).

    def decided(self, first: int, end: int) -> bool:
        """Return whether the values with indices first ≤ i < end, and the levels of their jumps, are certain."""
        return not (self.open[first:end].any() or (self.perhaps < self.surely)[first : end + 1].any())


class PathSteps:
    """A builder of paths, which collects values and jumps of many users in any order."""

    def __init__(self, users: int) -> None:
        self.undecided = np.zeros(users, dtype=bool)
        self._starts: list[tuple[Any, ...]] = [(np.arange(users), -_FARTHEST, *2 * [np.zeros(users, np.int64)])]
        self._values: list[tuple[Any, ...]] = []

    def add_jump(self, rows: NDArray[np.int64], place: int, level: Reals, blur: Reals) -> None:
        """Add the jumps between `place` and the next place towards 0. `blur` is the relative error of the levels."""
        billionths = level * NANO
        self._starts.append((rows, place, *(f + 1 for f in _floor_bounds(billionths, _as_floats(billionths) * blur))))

    def add_value(self, rows: NDArray[np.int64], place: int, value: Reals, error: Reals) -> None:
        """Add the values between two jumps, of shape (rows, n), with an error for each row."""
        low, high = _floor_bounds((2 * value + 1) / 2, np.broadcast_to(error[:, None], value.shape))
        self._values.append((rows, place, high, (low != high).any(axis=1)))

    def build_paths(self, span: tuple[int, int]) -> Iterator[_Path | None]:
        """Yield the paths in the order of users, with None for a path that needs more precision."""
        _, perhaps, surely = _sort_parts(self._starts)
        rows, values, unsure = _sort_parts(self._values)
        ends = np.searchsorted(rows, np.arange(1, len(self.undecided)))
        parts = (np.split(of, ends) for of in (perhaps, surely, values, unsure))
        for undecided, first, last, value, unknown in zip(self.undecided, *parts, strict=True):
            # Bounds on nearly coinciding jumps may cross. Widen such bounds so that they ascend.
            first = np.minimum.accumulate(first[::-1])[::-1]
            yield None if undecided else _Path(span, first, np.maximum.accumulate(last), value, unknown)


def _sort_parts(parts: Sequence[tuple[Any, ...]]) -> list[NDArray[Any]]:
    """Concatenate the parts, sort them by row and place, and return all columns except the place."""
    rows = np.concatenate([part[0] for part in parts])
    place = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    order = np.lexsort((place, rows))
    columns = [np.concatenate([part[i] for part in parts]) for i in range(2, len(parts[0]))]
    return [column[order] for column in (rows, *columns)]


class KeyedPaths(abc.ABC):
    """Base class of keyed paths. It draws the reals, and caches and searches evaluated paths.

    key : 32 secret bytes.
    label : name of the noise. Different labels give independent noise under the same key.
    dimension : dimension of the values.
    least : lowest level, in billionths, at which values certainly fit in 64 bits.
    """

    def __init__(self, key: bytes, label: str, dimension: int, least: int) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise InputError("key must be 32 secret bytes, such as os.urandom(32)")
        self._key, self._label, self.dimension, self._least = key, label, dimension, least
        self._known: dict[int, _Path] = {}

    @abc.abstractmethod
    def _walk(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        """Evaluate the paths of some users over a span of levels ε, in Decimal if `planes` exceeds _FLOAT_PLANES."""

    def _read_uniforms(
        self, purpose: int, users: NDArray[np.int64], step: int, slots: int, planes: int
    ) -> tuple[Uniforms, NDArray[np.bool_]]:
        """Return the reals for one step of each user's path, and whether any of them is too close to 0 or 1."""
        first = step * (slots + slots % 2)
        words = keyed_words(self._key, self._label, purpose, users, first=first, number=slots, planes=planes)
        reals = Uniforms(words, exact=planes > _FLOAT_PLANES)
        return reals, reals.are_extreme()

    def _evaluate(self, users: NDArray[np.int64], span: tuple[int, int], planes: int) -> list[_Path | None]:
        with decimal.localcontext(decimal.Context(prec=20 * planes, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
            # Widen the span by more than the error of any level.
            wider = span[0] / NANO * (1 - 2.0**-8), span[1] / NANO * (1 + 2.0**-8)
            return list(self._walk(users, wider, planes).build_paths(span))

    def _evaluate_exactly(self, user: int, span: tuple[int, int]) -> _Path:
        """Evaluate a path with enough precision for every decision, and cache it."""
        planes = _FLOAT_PLANES
        while True:
            planes = 2 * planes - 1
            (path,) = self._evaluate(np.array([user]), span, planes)
            if path is not None and path.decided(0, len(path.open)):
                self._known[user] = path
                return path

    def _load_paths(self, users: NDArray[np.int64], least: int, most: int) -> list[_Path]:
        """Return the paths of distinct users, evaluated at least from level `least` to `most`, in billionths."""
        if not self._least <= least <= most < _FARTHEST:
            raise InputError(f"levels are {least} to {most} billionths: they must ascend and be at least {self._least}")
        known = [self._known.get(user) for user in users.tolist()]
        stale = [path is None or least < path.span[0] or path.span[1] < most for path in known]
        # Extend the span to powers of two and to all known spans, so that later requests rarely evaluate paths again.
        spans = [(1 << (least.bit_length() - 1), 1 << most.bit_length())]
        spans += [path.span for path, old in zip(known, stale, strict=True) if path and old]
        span = min(low for low, _ in spans), max(high for _, high in spans)
        for first in range(0, sum(stale), 4096):
            some = users[stale][first : first + 4096]
            for user, path in zip(some.tolist(), self._evaluate(some, span, _FLOAT_PLANES), strict=True):
                self._known[user] = path or self._evaluate_exactly(user, span)
        return [self._known[user] for user in users.tolist()]

    def _find_values(self, users: NDArray[np.int64], levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values of the users' paths at the users' levels, of shape (m, n)."""
        if not len(users):
            return np.zeros((0, self.dimension), dtype=np.int64)
        distinct, row = _number_users(users)
        paths = self._load_paths(distinct, int(levels.min()), int(levels.max()))
        ends = np.cumsum([len(path.open) for path in paths])
        perhaps, surely, values, unsure = (np.concatenate(parts) for parts in [*zip(*paths, strict=True)][1:])
        # Find the last value that certainly applies, by bisecting each user's part of the array.
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
                self._evaluate_exactly(int(distinct[i]), paths[i].span)
            out[bad] = self._find_values(users[bad], levels[bad])
        return out

    def _find_pieces(self, user: int, least: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first level and the value of each of a path's K pieces from `least` to `most`, in order."""
        (path,) = self._load_paths(np.array([user]), least, most)
        first, end = (int(np.searchsorted(path.surely, level, side="right")) for level in (least, most))
        if not path.decided(first - 1, end):
            path = self._evaluate_exactly(user, path.span)
            first, end = (int(np.searchsorted(path.surely, level, side="right")) for level in (least, most))
        levels, values = np.maximum(path.surely[first - 1 : end], least), path.values[first - 1 : end]
        # Of the jumps between two whole levels, keep only the last, and only if it changes the rounded value.
        last = np.append(levels[1:] > levels[:-1], True)
        levels, values = levels[last], values[last]
        new = np.append(True, (values[1:] != values[:-1]).any(axis=1))
        return levels[new], values[new]


def _number_users(users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted distinct users, and each request's index among them. Dense user numbers need no sorting."""
    if int(users.max()) > 4 * len(users):
        return np.unique(users, return_inverse=True)
    there = np.zeros(int(users.max()) + 1, dtype=bool)
    there[users] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[users]


def _step_error(planes: int) -> float:
    """Return a bound on the error of a step, relative to its terms. Rounding and unread bits cause at most 2% of it."""
    return 2.0 ** (-44 * (planes - 1))


def _as_floats(x: Any) -> NDArray[np.float64]:
    """Return an array as float64, which is precise enough for bounds."""
    return np.asarray(x, dtype=np.float64)


def _float_lengths(x: Reals) -> NDArray[np.float64]:
    return _as_floats(vector_lengths(x))


def _floor_bounds(x: Reals, error: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ⌊x − 2 error⌋ and ⌊x + 2 error⌋, clipped to int64. The factor 2 covers second-order terms."""
    error = 2 * error
    if x.dtype == object:
        ends = [np.frompyfunc(lambda v, e, s=sign: math.floor(v + s * Decimal(e)), 2, 1)(x, error) for sign in (-1, 1)]
    else:
        ends = [np.floor(x - error), np.floor(x + error)]
    return tuple(np.clip(end, -_FARTHEST, _FARTHEST).astype(np.int64) for end in ends)


class _State(NamedTuple):
    """The current state of some users' paths, after a jump at `level`."""

    rows: NDArray[np.int64]
    level: Reals  # The level of each path (rows,).
    value: Reals  # Each value times its level (rows, n).
    blur: NDArray[np.float64]  # Bound on the relative error of the level (rows,).
    drift: NDArray[np.float64]  # Bound on the length of the value's error (rows,).
    undecided: NDArray[np.bool_]  # Whether the last step left a decision open (rows,).


def _is_open(difference: Reals, error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether the sign of a difference is uncertain. The factor 2 covers second-order terms."""
    return ~(np.abs(_as_floats(difference)) > 2 * error)


class VectorPaths(KeyedPaths):
    """Noise for every user at every level ε, in whole lattice steps, with density ∝ e^(−ε|v|/reach) before rounding.

    For whole-number vectors u, u + noise is the whole-number vector nearest to u + V_ε (docs/internals/processes.md).
    Source: 2018, Theorem 2 (α is reach), Definition 3.

    Parameters
    ----------
    key : 32 secret bytes. Anyone who has the key can remove all noise. Use each key for one data set only, because two
        different vectors of one user under the same key reveal their difference.
    dimension : n, the dimension of the vectors.
    reach : distance, in whole lattice steps, over which probabilities at level ε change by a factor of at most e^ε. The
        same key gives independent noise for other dimensions and reaches.

    >>> paths = VectorPaths(bytes(32), dimension=2, reach=1000)
    >>> users, levels = np.array([7, 7, 8]), np.array([500_000_000, 2_000_000_000, 2_000_000_000])
    >>> paths.at(users, levels)
    array([[  -56, -1500],
           [  -56, -1500],
           [  121,   652]])
    >>> levels, noise = paths.signal(7, 500_000_000, 2_600_000_000)
    >>> levels.tolist(), noise.tolist()
    ([500000000, 2253708730, 2576572291], [[-56, -1500], [512, -1218], [478, -1656]])
    """

    def __init__(self, key: bytes, dimension: int, reach: int) -> None:
        # Convert to Python integers, because the label, and so the noise, depends on how they print.
        dimension, self.reach = check_whole(dimension=dimension), check_whole(reach=reach)
        # The probability that n-dimensional noise exceeds 48 (n + 1) reach / ε is below 2^−64.
        least = -(-48 * (dimension + 1) * self.reach * NANO // _FARTHEST)
        super().__init__(key, f"vectors of dimension {dimension}, reach {self.reach}", dimension, least)

    def at(self, users: NDArray[np.int64], levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noise, of shape (m, n), of m users at m levels in whole billionths of ε."""
        return self._find_values(users, levels)

    def signal(self, user: int, least: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the K levels from `least` to `most` where pieces of a user's path begin, and the noise of each piece.

        Piece k contains the whole levels from levels[k] to levels[k + 1] − 1, and the last piece ends at `most`.
        The result does not depend on the path above `most`.
        """
        return self._find_pieces(user, least, most)

    def _walk(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        steps, base = PathSteps(len(users)), self._start_paths(users, planes)
        self._record_value(steps, base, 0, planes)
        steps.undecided |= base.undecided
        for sign, moved in ((-1, self._move_down), (1, self._move_up)):
            state = base
            for place in itertools.count():
                state = moved(users[state.rows], state, place, planes)
                steps.undecided[state.rows] |= state.undecided
                inside = (state.level > span[0] if sign < 0 else state.level < span[1]).astype(bool)
                state = _State(*(part[inside] for part in state))
                if not len(state.rows):
                    break
                steps.add_jump(state.rows, sign * (place + 1), state.level, state.blur)
                self._record_value(steps, state, sign * (place + 1), planes)
        return steps

    def _record_value(self, steps: PathSteps, state: _State, place: int, planes: int) -> None:
        """Record the values of a state, in lattice steps."""
        value = self.reach * state.value / state.level[:, None]
        error = state.drift + (state.blur + _step_error(planes)) * _float_lengths(state.value)
        steps.add_value(state.rows, place, value, self.reach * error / _as_floats(state.level))

    # Steps propagate errors to first order, and add `unit` times the sizes of terms (docs/internals/processes.md).

    def _start_paths(self, users: NDArray[np.int64], planes: int) -> _State:
        slots = first_value_slots(self.dimension) + normal_slots(self.dimension)
        uniforms, edge = self._read_uniforms(_BASE, users, 0, slots, planes)
        drawn, unit = first_value(self.dimension, uniforms), _step_error(planes)
        scale, normal = _as_floats(drawn.scale), _float_lengths(drawn.normal)
        drift = unit * (scale * _as_floats(drawn.radius) + normal * (scale + _as_floats(drawn.spread) / scale))
        level = 0 * uniforms.value[:, 0] + 1
        return _State(np.arange(len(users)), level, drawn.value, 0 * drift, drift, edge)

    def _move_down(self, users: NDArray[np.int64], state: _State, step: int, planes: int) -> _State:
        uniforms, edge = self._read_uniforms(_DOWN, users, step, DOWN_SLOTS + normal_slots(self.dimension), planes)
        ratio, unit = next_level_below(self.dimension, uniforms), _step_error(planes)
        kept, jump = ratio[:, None] * state.value, jump_down(self.dimension, uniforms)
        sizes = _float_lengths(kept) + _as_floats(jump.scale) * (_as_floats(jump.radius) + _float_lengths(jump.normal))
        drift = _as_floats(ratio) * state.drift + unit * sizes
        return _State(state.rows, state.level * ratio, kept + jump.value, state.blur + unit, drift, edge)

    def _move_up(self, users: NDArray[np.int64], state: _State, step: int, planes: int) -> _State:
        uniforms, edge = self._read_uniforms(_UP, users, step, UP_SLOTS + normal_slots(self.dimension), planes)
        unit, size = _step_error(planes), vector_lengths(state.value)
        clocks = next_level_above(size, uniforms)
        by_size = (clocks[1] < clocks[0]).astype(bool)
        ratio = np.where(by_size, clocks[1], clocks[0])
        vague = state.drift / _as_floats(size)
        blurs = np.full(len(users), unit), unit + (1 - _as_floats(1 / clocks[1])) * vague
        error = _as_floats(clocks[0]) * blurs[0] + _as_floats(clocks[1]) * blurs[1]
        undecided = edge | _is_open(clocks[0] - clocks[1], error)
        step_up = jump_up(ratio[:, None] * state.value, by_size, uniforms)
        jump = step_up.jump
        parts = (step_up.size, step_up.total, step_up.share, jump.scale, jump.spread)
        z, total, share, width, spread = (_as_floats(part) for part in parts)
        # Errors before the jump: `carried` is the vector's, `bend` its length's (the second clock adds a real to it).
        carried = _as_floats(ratio) * state.drift + unit * z
        bend = np.where(by_size, state.drift + unit * z, carried)
        rounding = unit * (z + total + spread + np.sqrt(spread * z))
        coin = step_up.coin * (step_up.size / 2 + step_up.roots[0]) - step_up.size / 2
        undecided |= _is_open(coin, 2 * bend + rounding)
        # The derivatives of the roots in z are (1 ± √(ν / (4z + ν))) / 2, where ν ≤ spread is `square` in `jump_up`.
        slope = np.where(step_up.smaller, 0.5, (1 + np.sqrt(spread / (4 * z + spread))) / 2)
        loose = (slope * bend + rounding) / total
        steep = unit * (1 - np.log(share))
        normal = _float_lengths(jump.normal) * (loose / 2 + steep) + unit * _as_floats(jump.radius)
        drift = np.minimum(share * (carried + z * steep) + width * normal, 1)
        blur = np.minimum(state.blur + np.where(by_size, blurs[1], blurs[0]), 1)
        # First-order bounds are valid only for small errors.
        undecided |= np.maximum(np.maximum(vague, loose), blur) > 2.0**-10
        return _State(state.rows, state.level * ratio, jump.value, blur, drift, undecided)


class BitPaths(KeyedPaths):
    """Randomised response for one bit of every user. At level ε, the bit is flipped with probability 1/(1 + e^ε).

    On the scale τ = tanh(ε/2), resets occur at rate 1 in ln τ, each with a fair random bit. The response at ε is the
    bit of the lowest reset above τ, or else the true bit (docs/internals/processes.md). For `key`, see `VectorPaths`.

    >>> paths = BitPaths(bytes(32))
    >>> users, levels = np.arange(8), np.full(8, 1_000_000_000)
    >>> paths.at(users, levels, np.ones(8, dtype=int))
    array([1, 1, 0, 0, 1, 0, 1, 0], dtype=uint8)
    >>> levels, responses = paths.signal(3, 1, 30_000_000, 5_000_000_000)
    >>> levels.tolist(), responses.tolist()
    ([30000000, 32825073, 34848819, 119813967, 1267739197], [1, 0, 1, 0, 1])
    """

    def __init__(self, key: bytes) -> None:
        super().__init__(key, "bits", 1, 1)

    def at(self, users: NDArray[np.int64], levels: NDArray[np.int64], bits: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the responses for m users with these true bits, at m levels in whole billionths of ε."""
        found = self._find_values(users, levels)[:, 0]
        return np.where(found < 0, bits, found).astype(np.uint8)

    def signal(self, user: int, bit: int, least: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the K levels where pieces begin, as in `VectorPaths.signal`, and the response of each piece."""
        levels, values = self._find_pieces(user, least, most)
        responses = np.where(values[:, 0] < 0, bit, values[:, 0]).astype(np.uint8)
        # The true bit must look the same as an equal bit from a reset.
        new = np.append(True, responses[1:] != responses[:-1])
        return levels[new], responses[new]

    def _walk(self, users: NDArray[np.int64], span: tuple[float, float], planes: int) -> PathSteps:
        """Find the resets from τ = 1 downwards."""
        steps, unit, rows = PathSteps(len(users)), _step_error(planes), np.arange(len(users))
        steps.add_value(rows, 0, np.full((len(users), 1), -1.0), np.zeros(len(users)))
        depth: Any = 0  # −ln τ
        place = 0
        while len(rows):
            uniforms, edge = self._read_uniforms(_RESET, users[rows], place, 2, planes)
            steps.undecided[rows] |= edge
            depth = depth + uniforms.exponential(0)
            level = log1p(-2 * exp(-depth) / expm1(-depth))  # 2 artanh τ
            inside = (level > span[0]).astype(bool)
            rows, depth, level, place = rows[inside], depth[inside], level[inside], place + 1
            steps.add_jump(rows, -place, level, unit * (1 + _as_floats(depth)))
            steps.add_value(rows, -place, uniforms.coin(1)[inside, None].astype(np.float64), np.zeros(len(rows)))
        return steps
