"""The solver of allocation: windows of steps with limits, and a banded interior-point method with certificates.

Problem (2014, section 7, Problems 1 and 2): minimise Σ_i w_i x_i^−a over the amounts x_i > 0 of the steps of weight
w_i > 0, so that C x ≤ b. C is the 0/1 matrix of windows and steps, b what the past has left of each window; all
amounts are in units of the limit.

*Conditions.* Let z = b − C x be the slacks of the windows, λ ≥ 0 their prices, and s = Cᵀλ the prices of the steps.
Amounts within the limits are the best iff

    s_i x_i^(a+1) = a w_i  for every step i,      λ_t z_t = 0  for every window t.

*Lower bound.* For any λ ≥ 0 and all amounts within the limits s·x = λ·C x ≤ λ·b, so that
Σ w x^−a ≥ Σ (w x^−a + s x) − λ·b. The least of w x^−a + s x over x > 0 is `_least_cost`.

*The way there.* Windows are held at λ z = μ while μ falls to nothing. The first condition is taken in its logarithm,
r = (a + 1) ln x + ln s − ln(a w) = 0, which is nearly linear whatever the size of x. To first order

    (a + 1) dx/x + ds/s = −r,    λ dz + z dλ = μ − λ z,    dz = −C dx,    ds = Cᵀdλ,

and therefore, with the stiffness λ/z of each window,

    (Cᵀ diag(λ/z) C + diag((a + 1) s/x)) dx = −s r − Cᵀ(μ/z − λ),      dλ = (μ/z − λ) − (λ/z) dz.

Two of these directions make one step (Mehrotra's predictor and corrector). The first aims at μ = 0; how far λ z falls
on the way to the boundary says how low the second may aim. The second also takes off dz dλ, the product that the linear
condition left out, as the first direction has it.

*Shared amounts.* Futures that share the present amount e add it to the windows that hold the present: a border of the
banded matrix, which is eliminated first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import fits_memory

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

#: Relative gap between the error and its lower bound at which the solver stops.
_GAP = 1e-11
_ITERATIONS = 300
#: Iterations from the one that reaches the gap on.
_POLISH = 4
#: Gap from which on it is tried to fill the windows that look full, and by how much smaller it is at the next trial.
_TRIED, _AGAIN = 1e-3, 3e-2
#: Part of the way to the boundary that a step goes.
_FAR = 0.98
#: Windows of a piece that is solved by itself, and of the margin at its ends, in lengths of a window; iterations after
#: which it is given up.
_PIECE, _MARGIN, _ROUNDS = 1 << 14, 16, 16
#: Steps of Newton's method at most, and how much of the limit a window may be above it at the end.
_NEWTON_STEPS, _ABOVE = 12, 1e-13
#: Stiffness of a window whose price is settled, over the largest one.
_FIXED = 1e12
#: Numbers that a cache holds.
_IN_CACHE = 1 << 16


# ---------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class Constraints:
    """Windows over the steps with a positive weight, without those that others imply.

    Window k limits the sum over positions first[k] to last[k] by limit[k]; both ends do not fall, and every step is in
    one.
    """

    first: Whole
    last: Whole
    limit: Array

    @classmethod
    def of(cls, steps: Whole, past: Whole, length: int, limit: int) -> Constraints:
        """Build the windows of rising steps (m,) from 0, after the last amounts `past` (billionths).

        Limits are fractions of the whole one.
        """
        # Windows that reach back i steps: they hold the steps before length − i.
        back = np.arange(min(length - 1, len(past)), 0, -1)
        spent = np.cumsum(past[::-1])[back - 1] if len(back) else back
        held = np.searchsorted(steps, length - back)
        # The one that reaches back furthest is the tightest of those that hold the same steps.
        keep = (held > 0) & (held != np.concatenate([[-1], held[:-1]])) if len(back) else back.astype(bool)
        # Windows that begin at a step with weight; those that end no later than the one before are part of it.
        last = np.searchsorted(steps, steps + length) - 1
        fresh = np.concatenate([[True], last[1:] > last[:-1]])
        return cls(
            np.concatenate([np.zeros(int(keep.sum()), np.int64), np.flatnonzero(fresh)]),
            np.concatenate([held[keep] - 1, last[fresh]]),
            np.concatenate([1 - spent[keep] / limit, np.ones(int(fresh.sum()))]),
        )

    @property
    def width(self) -> int:
        """The most steps in a window."""
        return int((self.last - self.first + 1).max())

    def total(self, amounts: Array) -> Array:
        """Sum the amounts in each window (C x), term by term: amounts differ by many orders of magnitude."""
        return self.in_windows(np.add, amounts, 0.0)

    def spread(self, prices: Array) -> Array:
        """Sum the prices of the windows that hold each step (Cᵀλ)."""
        return self.around_steps(np.add, prices, 0.0)

    def in_windows(self, ufunc: np.ufunc, values: Array, none: float) -> Array:
        """Reduce the values of the steps in each window; `none` changes nothing."""
        if self._even:
            return _slide(ufunc, values, self._even)
        return _reduce_ranges(ufunc, np.append(values, none), self._step_ranges)

    def around_steps(self, ufunc: np.ufunc, values: Array, none: float) -> Array:
        """Reduce the values of the windows that hold each step; `none` changes nothing."""
        if self._even:
            return _slide(ufunc, np.pad(values, self._even - 1, constant_values=none), self._even)
        return _reduce_ranges(ufunc, np.append(values, none), self._window_ranges)

    @cached_property
    def _even(self) -> int:
        """The common number of steps, if a window begins at each step and all are as long; else 0."""
        number, length = len(self.first), int(self.last[0] - self.first[0] + 1)
        alike = (self.first == np.arange(number)).all() and (
            self.last == np.arange(number) + length - 1
        ).all()
        return length if alike else 0

    def fill_bands(self, stiffness: Array, out: Array) -> None:
        """Fill `out` (width, number), in Fortran's order, with the lower bands of Cᵀ diag(stiffness) C.

        Entry [d, i] adds up the windows that hold steps i and i + d: those that hold i − 1 and i + d, and those that
        begin at i and reach so far. Nothing is subtracted, so that no digits are lost.
        """
        width, number = out.shape
        back = int(np.searchsorted(self.first, 0, side="right"))
        sizes = self.last - self.first + 1
        begun, reach = np.zeros(number), np.zeros(number, dtype=np.int64)
        begun[self.first[back:]], reach[self.first[back:]] = stiffness[back:], sizes[back:]
        # Some steps at a time, which a cache holds, and those before them whose windows reach so far.
        many = max(_IN_CACHE // width, 4 * width)
        room = np.empty((width, many + width))
        for first in range(0, number, many):
            start = max(0, first - width + 1)
            here = slice(start, min(first + many, number))
            bands = room[:, : here.stop - start]
            bands[:] = 0.0
            np.copyto(bands, begun[here], where=reach[here] > np.arange(width)[:, None])
            if not first:
                bands[:, 0] = [stiffness[:back][sizes[:back] > d].sum() for d in range(width)]
            for d in range(width - 2, -1, -1):
                bands[d, 1:] += bands[d + 1, :-1]
            out[:, first : here.stop] = bands[:, first - start :]

    def overlap_bands(self, windows: Whole, values: Array) -> Array:
        """Return lower bands (width, m), in Fortran's order, for some windows (m,).

        Entry [d, k] sums the values (number,) of the steps that the k-th and (k + d)-th of these windows both hold.
        """
        first, end = self.first[windows], self.last[windows] + 1
        width = int((np.searchsorted(first, end) - np.arange(len(windows))).max())
        bands = np.zeros((width, len(windows)), order="F")
        padded = np.append(values, 0.0)
        for d in range(width):
            low, high = first[d:], end[: len(end) - d]
            both = np.flatnonzero(low < high)
            bands[d, both] = _reduce_ranges(np.add, padded, _interleave(low[both], high[both]))
        return bands

    @cached_property
    def _step_ranges(self) -> Whole:
        """Ranges of the steps that each window holds."""
        return _interleave(self.first, self.last + 1)

    @cached_property
    def _window_ranges(self) -> Whole:
        """Ranges of the windows that hold each step."""
        place = np.arange(self.last[-1] + 1)
        return _interleave(np.searchsorted(self.last, place), np.searchsorted(self.first, place, side="right"))


def _interleave(low: Whole, high: Whole) -> Whole:
    """Interleave the ends low and high (excluded, above low) of ranges, as `_reduce_ranges` takes them."""
    return np.column_stack([low, high]).ravel()


def _slide(ufunc: np.ufunc, values: Array, length: int) -> Array:
    """Reduce every run of `length` values, from runs of 2, 4, 8 … values.

    >>> _slide(np.add, np.arange(6.0), 5).tolist()
    [10.0, 15.0]
    """
    number, power = len(values) - length + 1, values[:]
    out, start, size = None, 0, 1
    while True:
        if length & size:
            part = power[start : start + number]
            out = part if out is None else ufunc(out, part)
            start += size
        if 2 * size > length:
            return np.array(out)
        power, size = ufunc(power[:-size], power[size:]), 2 * size


def _reduce_ranges(ufunc: np.ufunc, values: Array, pairs: Whole) -> Array:
    """Reduce values[low:high] for each range; `values` has one entry more than any `high`."""
    return np.asarray(ufunc.reduceat(values, pairs)[::2], dtype=np.float64)

# ---------------------------------------------------------------------------------- the method


def interior_point(weights: Array, limits: Constraints, power: float) -> tuple[Array, float]:
    """Return amounts (m,) of least Σ w x^−a within the windows' limits, and the certified relative gap.

    Parameters
    ----------
    weights : (m,) above zero. limits : windows over the m steps. power : a.
    """
    fits_memory(8 * (limits.width + 20) * len(weights), f"an allocation of {len(weights):,} steps")
    # Weights in units of their largest: prices then are of a size that floats hold.
    weights = weights / weights.max()
    pieces = _prices_by_pieces(weights, limits, power, _MARGIN * limits.width)
    if pieces is not None:
        found = _fill_and_certify(weights, limits, power, pieces)
        if found is not None and found[2] < _GAP:
            return found[0], found[2]
    best, gap, _ = _solve(weights, limits, power)
    return best, gap


def _prices_by_pieces(weights: Array, limits: Constraints, power: float, margin: int) -> Array | None:
    """Return prices of windows near the best ones, from pieces that a cache holds.

    None for few windows, or unless all pieces end with prices of full windows.

    A window matters less the further away it is: windows in the margins at a piece's ends serve the others alone.
    The result is near the best, and counts only with a certificate.
    """
    number = len(limits.first)
    if number < 2 * (_PIECE + 2 * margin):
        return None
    out = np.zeros(number)
    for begin in range(0, number, _PIECE):
        end = min(begin + _PIECE, number)
        low, high = max(0, begin - margin), min(end + margin, number)
        first = int(limits.first[low])
        own = weights[first : limits.last[high - 1] + 1]
        part = Constraints(limits.first[low:high] - first, limits.last[low:high] - first, limits.limit[low:high])
        _, _, prices = _solve(own / own.max(), part, power, _ROUNDS)
        if prices is None:
            return None
        out[begin:end] = own.max() * prices[begin - low : end - low]
    return out


def _solve(
    weights: Array, limits: Constraints, power: float, rounds: int = _ITERATIONS
) -> tuple[Array, float, Array | None]:
    """Return amounts, the gap, and prices of full windows (None where the method did not end with those)."""
    point = Point(weights, limits, power)
    best, gap, tried, polish = point.x, np.inf, _TRIED, _POLISH
    for _ in range(rounds):
        now = point.gap()
        if now < max(gap, _GAP):
            best, gap = point.x, max(0.0, now)
        if gap < tried:
            tried = _AGAIN * gap
            full = point.fill_windows()
            if full is not None and full[2] < _GAP:
                return full[0], full[2], full[1]
        # The error is flat at its least: a few more steps settle the amounts as well.
        polish -= gap < _GAP
        if not polish or not point.improve():
            break
    return best, gap, None


def _fill_and_certify(
    weights: Array, limits: Constraints, power: float, prices: Array
) -> tuple[Array, Array, float] | None:
    """Return amounts, prices and the gap with those windows full whose prices are positive."""
    found = fill_windows(limits, weights, power, prices)
    if found is None:
        return None
    amounts, prices = found
    return amounts, prices, max(0.0, _gap(weights, limits, power, amounts, prices, limits.spread(prices)))


def _gap(
    weights: Array, limits: Constraints, power: float, amounts: Array, prices: Array, step_prices: Array
) -> float:
    """Return how far the error may be above the least, as a share of it."""
    error = float((weights * amounts**-power).sum())
    lowest = _least_cost(weights, step_prices, power).sum() - limits.limit @ prices
    return 1 - float(lowest) / error


def _least_cost(weights: Array, step_prices: Array, power: float) -> Array:
    """Return the least of w x^−a + s x over x > 0: c_a w^(1/(a+1)) s^(a/(a+1)), at x = (a w / s)^(1/(a+1)).

    c_a = a^(1/(a+1)) + a^(−a/(a+1)), the first for s x, the second for w x^−a.
    """
    a = power
    factor = a ** (1 / (a + 1)) + a ** (-a / (a + 1))
    return np.asarray(factor * weights ** (1 / (a + 1)) * step_prices ** (a / (a + 1)))


@dataclass(frozen=True)
class Shared:
    """Amounts that futures share: each problem has one, in those windows of its futures that hold the present.

    Parameters
    ----------
    weights : (R,) above zero, of the shared amounts. windows : (k,) numbers of the windows that hold one.
    owners : (k,) whose these windows are. steps : (m,) whose each step is.
    """

    weights: Array
    windows: Whole
    owners: Whole
    steps: Whole

    @classmethod
    def none(cls) -> Shared:
        """Return no shared amounts."""
        nobody = np.zeros(0, np.int64)
        return cls(np.zeros(0), nobody, nobody, nobody)

    def gather(self, prices: Array) -> Array:
        """Sum the prices of the windows that hold each shared amount."""
        return np.bincount(self.owners, prices[self.windows], len(self.weights)).astype(np.float64)


class Point:
    """A point of the method: amounts x (m,) of the steps, shared amounts e, slacks z and prices λ of the windows.

    Windows couple only steps that lie close: the matrix of the directions is banded, as wide as the most steps in a
    window. Its border, the shared amounts, couples steps of one problem only.
    """

    def __init__(self, weights: Array, limits: Constraints, power: float, shared: Shared | None = None) -> None:
        self.limits, self.power, self.w = limits, power, weights
        self.shared = shared = Shared.none() if shared is None else shared
        # A little less than each window would give if it were alone.
        demand, demand_shared = weights ** (1 / (power + 1)), shared.weights ** (1 / (power + 1))
        share = limits.limit / self._total(demand, demand_shared)
        self.x = 0.97 * demand * limits.around_steps(np.minimum, share, np.inf)
        least = np.full(len(demand_shared), np.inf)
        np.minimum.at(least, shared.owners, share[shared.windows])
        self.e = 0.97 * demand_shared * least
        self.z = limits.limit - self._total(self.x, self.e)
        # Prices that fall with slack: about half of what the dearest of a window's steps should pay, divided among all
        # windows that hold that step.
        due = power * weights * self.x ** (-power - 1) / limits.spread(1 / self.z)
        due_shared = power * shared.weights * self.e ** (-power - 1) / shared.gather(1 / self.z)
        dearest = limits.in_windows(np.maximum, due, 0.0)
        dearest[shared.windows] = np.maximum(dearest[shared.windows], due_shared[shared.owners])
        self.price = 0.5 * dearest / self.z
        self.band = np.empty((limits.width, len(weights)), order="F")

    def _total(self, x: Array, e: Array) -> Array:
        total = self.limits.total(x)
        total[self.shared.windows] += e[self.shared.owners]
        return total

    def gap(self) -> float:
        """Work out step prices and imbalances; return how far the error may be above the least, as a share of it."""
        a, shared = self.power, self.shared
        self.step_price, self.shared_price = self.limits.spread(self.price), shared.gather(self.price)
        self.off = (a + 1) * np.log(self.x) + np.log(self.step_price) - np.log(a * self.w)
        self.off_shared = (a + 1) * np.log(self.e) + np.log(self.shared_price) - np.log(a * shared.weights)
        return _gap(
            np.append(self.w, shared.weights),
            self.limits,
            a,
            np.append(self.x, self.e),
            self.price,
            np.append(self.step_price, self.shared_price),
        )

    def fill_windows(self) -> tuple[Array, Array, float] | None:
        """Fill the windows that look full at the point where `gap` was worked out."""
        gives = self.limits.total(self.x / ((self.power + 1) * self.step_price))
        prices = np.where(self.price * gives > self.z, self.price, 0.0)
        return _fill_and_certify(self.w, self.limits, self.power, prices)

    def improve(self) -> bool:
        """Take one step from the point where `gap` was worked out; False where floats carry no further."""
        if not self._factor():
            return False
        dx, de, dz, dl = self._direction(np.zeros(len(self.z)))
        near, far = min(_reach(self.z, dz), _reach(self.x, dx), _reach(self.e, de)), _reach(self.price, dl)
        now = float(self.price @ self.z) / len(self.z)
        reached = float((self.price + far * dl) @ (self.z + near * dz)) / len(self.z)
        dx, de, dz, dl = self._direction((reached / now) ** 3 * now - dz * dl)
        near = min(1.0, _FAR * min(_reach(self.z, dz), _reach(self.x, dx), _reach(self.e, de)))
        far = min(1.0, _FAR * _reach(self.price, dl))
        self.x, self.e, self.z = self.x + near * dx, self.e + near * de, self.z + near * dz
        self.price = self.price + far * dl
        inside = all((each > 0).all() for each in (self.x, self.e, self.z, self.price))
        return bool(np.isfinite(self.x).all() and inside)

    def _factor(self) -> bool:
        """Factor Cᵀ diag(λ/z) C + diag((a + 1) s/x), and its border; False unless it is positive definite in floats."""
        from scipy.linalg.lapack import dpbtrf

        self.stiffness = self.price / self.z
        self.limits.fill_bands(self.stiffness, self.band)
        self.band[0] += (self.power + 1) * self.step_price / self.x
        _, failed = dpbtrf(self.band, lower=1, overwrite_ab=1)
        if failed or not len(self.e):
            return not failed
        held = np.zeros(len(self.z))
        held[self.shared.windows] = self.stiffness[self.shared.windows]
        self.border = self.limits.spread(held)
        self.solved_border = self._solve_band(self.border)
        own = self.shared.gather(self.stiffness) + (self.power + 1) * self.shared_price / self.e
        self.pivot = own - self._by_owner(self.border * self.solved_border)
        return bool((self.pivot > 0).all())

    def _by_owner(self, values: Array) -> Array:
        return np.bincount(self.shared.steps, values, len(self.e)).astype(np.float64)

    def _solve_band(self, side: Array) -> Array:
        from scipy.linalg.lapack import dpbtrs

        out, _ = dpbtrs(self.band, side, lower=1)
        return np.asarray(out)

    def _direction(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return the direction (dx, de, dz, dλ) towards λ z = target."""
        change = target / self.z - self.price
        dx = self._solve_band(-self.step_price * self.off - self.limits.spread(change))
        de = np.zeros(0)
        if len(self.e):
            side = -self.shared_price * self.off_shared - self.shared.gather(change)
            de = (side - self._by_owner(self.border * dx)) / self.pivot
            dx = dx - self.solved_border * de[self.shared.steps]
        dz = -self._total(dx, de)
        return dx, de, dz, change - self.stiffness * dz


def _reach(value: Array, change: Array) -> float:
    """Return how far a positive value can go along a change before an entry is zero; at most 1."""
    return 1 / max(1.0, -float((change / value).min(initial=0.0)))


def fill_windows(
    limits: Constraints, weights: Array, power: float, prices: Array
) -> tuple[Array, Array] | None:
    """Return best amounts (m,) and prices of the windows, from prices near the best ones; None without convergence.

    Few windows are full at the best amounts: of 30 steps with random weights, about one in six. The prices λ of those
    alone decide the amounts, x = (a w / s)^(1/(a+1)) with s = Cᵀλ. Newton's method moves them until C x = b:

        (C diag(x/((a + 1) s)) Cᵀ) dλ = C x − b    for the full windows.

    A window that is above its limit becomes full. One whose price would fall below zero is full no more: its price
    becomes zero, and the step of the others is worked out anew, with that change in it.

    Parameters
    ----------
    weights : (m,) above zero. prices : of each window, 0 where it is not full, to begin with.
    """
    prices = prices.copy()
    for _ in range(_NEWTON_STEPS):
        step_price = limits.spread(prices)
        if not (step_price > 0).all():
            return None
        amounts = (power * weights / step_price) ** (1 / (power + 1))
        above = limits.total(amounts) - limits.limit
        most = float((above / limits.limit).max())
        if most <= _ABOVE:
            return amounts / (1 + max(0.0, most)), prices
        full = np.flatnonzero((prices > 0) | (above > 0))
        band = limits.overlap_bands(full, amounts / ((power + 1) * step_price))
        shifted = _shift_prices(band, above[full], prices[full])
        if shifted is None:
            return None
        prices[full] = shifted
    return None


def _shift_prices(band: Array, above: Array, prices: Array) -> Array | None:
    """Return prices (k,), none below zero, after a Newton step that brings windows back to their limits; or None."""
    from scipy.linalg.lapack import dpbsv

    out = np.zeros(len(prices), dtype=bool)
    fixed = _FIXED * band[0].max(initial=0.0)
    for _ in range(_NEWTON_STEPS):
        # So stiff that nothing else moves them.
        matrix, side = band.copy(order="F"), np.where(out, -fixed * prices, above)
        matrix[0, out] += fixed
        _, change, failed = dpbsv(matrix, side, lower=1, overwrite_ab=1, overwrite_b=1)
        if failed or not np.isfinite(change).all():
            return None
        below = (prices + change < 0) & ~out
        if not below.any():
            return np.where(out, 0.0, prices + change)
        out |= below
    return None
