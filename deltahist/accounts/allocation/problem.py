"""The problem of allocation: windows of steps with limits, conditions of the optimum, and exact rounding.

Problem (2014, section 7, Problems 1 and 2): minimise Σ_i w_i x_i^−a over the amounts x_i > 0 of the steps of weight
w_i > 0, so that C x ≤ b. C is the 0/1 matrix of windows and steps, b what the past has left of each window; all
amounts are in units of the limit.

*Conditions.* Let z = b − C x be the slacks of the windows, λ ≥ 0 their prices, and s = Cᵀλ the prices of the steps.
Amounts within the limits are the best iff

    s_i x_i^(a+1) = a w_i  for every step i,      λ_t z_t = 0  for every window t.

*Lower bound.* For any λ ≥ 0 and all amounts within the limits s·x = λ·C x ≤ λ·b, so that
Σ w x^−a ≥ Σ (w x^−a + s x) − λ·b. The least of w x^−a + s x over x > 0 is `least_cost`.

*The way there.* Windows are held at λ z = μ while μ falls to nothing. The first condition is taken in its logarithm,
r = (a + 1) ln x + ln s − ln(a w) = 0 (`imbalance`), which is nearly linear whatever the size of x. To first order

    (a + 1) dx/x + ds/s = −r,    λ dz + z dλ = μ − λ z,    dz = −C dx,    ds = Cᵀdλ,

and therefore, with the stiffness λ/z of each window,

    (Cᵀ diag(λ/z) C + diag((a + 1) s/x)) dx = −s r − Cᵀ(μ/z − λ),      dλ = (μ/z − λ) − (λ/z) dz.

Two of these directions make one step (Mehrotra's predictor and corrector). The first aims at μ = 0; how far λ z falls
on the way to the boundary says how low the second may aim (`next_centre`). The second also takes off dz dλ, the product
that the linear condition left out, as the first direction has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import floor_nano
from deltahist.errors import NANO, InputError, positive, whole

Array = NDArray[np.float64]
Mean = TypeVar("Mean", float, Array)

#: Numbers that a cache holds.
_IN_CACHE = 1 << 16


def check_weights(weights: ArrayLike, name: str = "weights") -> Array:
    """Return weights (n,) as floats; InputError unless all are finite and none is negative."""
    array = np.asarray(weights)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise InputError(f"{name} have shape {array.shape} and type {array.dtype}: they must be (n,) numbers")
    out = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(out) | (out < 0))
    if len(bad):
        raise InputError(
            f"{name} are {out[bad[0]]:g} at step {bad[0] + 1}: they must be finite and not negative (0: no publishing)"
        )
    return out


def check_budget(length: Any, epsilon: Any, power: float) -> tuple[int, int]:
    """Return the length of a window in steps and its limit in billionths."""
    length = whole(length=length)
    positive(epsilon=epsilon)
    positive(power=power)
    limit = floor_nano(epsilon=epsilon)
    if limit < length:
        raise InputError(
            f"epsilon is {epsilon!r}: it must be at least a billionth for each of {length:,} steps"
        )
    return length, limit


def check_past(past: ArrayLike, length: int, limit: int) -> NDArray[np.int64]:
    """Return the last length − 1 committed amounts in billionths; InputError if they exceed a window's limit."""
    array = np.asarray(past, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"past has shape {array.shape}: it must be (m,) amounts that were committed")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if len(bad):
        raise InputError(
            f"past is {array[bad[0]]:g} at step {bad[0] + 1}: amounts are finite and not negative"
        )
    # A hair of binary rounding is forgiven before rounding up.
    units = np.ceil(array * NANO - 1e-6).astype(np.int64)
    spent = window_sums(units, length)
    if len(spent) and spent.max() > limit:
        at = int(np.argmax(spent > limit))
        raise InputError(
            f"past spends {spent[at] / NANO:.9g} in the window that ends at step {at + 1}: more than its limit, "
            f"{limit / NANO:.9g}"
        )
    return units[max(0, len(units) - (length - 1)) :] if length > 1 else units[:0]


def window_sums(units: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the sum of the window that ends at each step; the first windows are shorter."""
    total = np.concatenate([[0], np.cumsum(units)])
    start = np.maximum(np.arange(1, len(total)) - length, 0)
    return np.asarray(total[1:] - total[start], dtype=np.int64)


def round_down(
    amounts: Array, past: NDArray[np.int64], length: int, limit: int
) -> NDArray[np.int64]:
    """Round amounts down to billionths (n,), so that no window exceeds its limit; checked in whole numbers."""
    # A hundredth of a unit is the solver's rounding; where it was none, what is too much is taken away again.
    units = np.floor(np.maximum(amounts, 0.0) * NANO + 0.01).astype(np.int64)
    while True:
        over = window_sums(np.concatenate([past, units]), length)[len(past) :] - limit
        at = int(np.argmax(over)) if len(over) else 0
        if not len(over) or over[at] <= 0:
            return units
        first = max(0, at + 1 - length)
        largest = first + int(np.argmax(units[first : at + 1]))
        units[largest] = max(0, int(units[largest]) - int(over[at]))


def imbalance(amounts: Array, step_prices: Array, weights: Array, power: float) -> Array:
    """Return r = (a + 1) ln x + ln s − ln(a w): zero at the best amounts, positive where an amount is too large."""
    return np.asarray((power + 1) * np.log(amounts) + np.log(step_prices) - np.log(power * weights))


def least_cost(weights: Array, step_prices: Array, power: float) -> Array:
    """Return the least of w x^−a + s x over x > 0: c_a w^(1/(a+1)) s^(a/(a+1)), at x = (a w / s)^(1/(a+1)).

    c_a = a^(1/(a+1)) + a^(−a/(a+1)), the first for s x, the second for w x^−a.
    """
    a = power
    factor = a ** (1 / (a + 1)) + a ** (-a / (a + 1))
    return np.asarray(factor * weights ** (1 / (a + 1)) * step_prices ** (a / (a + 1)))


def next_centre(now: Mean, reached: Mean) -> Mean:
    """Return the μ to aim at, given the mean of λ z now and after the first direction alone."""
    return (reached / now) ** 3 * now


@dataclass(frozen=True)
class Constraints:
    """Windows over the steps with a positive weight, without those that others imply.

    Window k limits the sum over positions first[k] to last[k] by limit[k]; both ends do not fall, and every step is in
    one.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    limit: Array

    @classmethod
    def of(cls, steps: NDArray[np.int64], past: NDArray[np.int64], length: int, limit: int) -> Constraints:
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

    def total(self, amounts: Array) -> Array:
        """Sum the amounts in each window (C x), term by term: amounts differ by many orders of magnitude."""
        return self._in_windows(np.add, amounts, 0.0)

    def spread(self, prices: Array) -> Array:
        """Sum the prices of the windows that hold each step (Cᵀλ)."""
        return self._around_steps(np.add, prices, 0.0)

    def fair_shares(self, demand: Array) -> Array:
        """Return each step's least share of a window that holds it, in proportion to demand: feasible amounts."""
        return demand * self._around_steps(np.minimum, self.limit / self.total(demand), np.inf)

    def largest(self, values: Array) -> Array:
        """Return the largest value in each window."""
        return self._in_windows(np.maximum, values, 0.0)

    def _in_windows(self, ufunc: np.ufunc, values: Array, none: float) -> Array:
        if self._even:
            return _slide(ufunc, values, self._even)
        return _reduce_ranges(ufunc, np.append(values, none), self._step_ranges)

    def _around_steps(self, ufunc: np.ufunc, values: Array, none: float) -> Array:
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

    def overlap_bands(self, windows: NDArray[np.int64], values: Array) -> Array:
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
    def _step_ranges(self) -> NDArray[np.int64]:
        """Ranges of the steps that each window holds."""
        return _interleave(self.first, self.last + 1)

    @cached_property
    def _window_ranges(self) -> NDArray[np.int64]:
        """Ranges of the windows that hold each step."""
        place = np.arange(self.last[-1] + 1)
        return _interleave(np.searchsorted(self.last, place), np.searchsorted(self.first, place, side="right"))


def _interleave(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
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


def _reduce_ranges(ufunc: np.ufunc, values: Array, pairs: NDArray[np.int64]) -> Array:
    """Reduce values[low:high] for each range; `values` has one entry more than any `high`."""
    return np.asarray(ufunc.reduceat(values, pairs)[::2], dtype=np.float64)
