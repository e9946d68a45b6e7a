"""Windows of consecutive steps: checks, limits that the past leaves, and exact sums in billionths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budgets.nano import allowed
from deltahist.errors import NANO, InputError, positive, whole

#: Numbers that a cache holds.
_IN_CACHE = 1 << 16


def check_weights(weights: ArrayLike, name: str = "weights") -> NDArray[np.float64]:
    """Weights (n,) as floats; InputError unless all are finite and none is negative."""
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
    limit = allowed(epsilon=epsilon)
    if limit < length:
        raise InputError(
            f"epsilon is {epsilon!r}: it must be at least a billionth for each of {length:,} steps"
        )
    return length, limit


def check_past(past: ArrayLike, length: int, limit: int) -> NDArray[np.int64]:
    """The last length − 1 committed amounts in billionths; InputError if they break a window already."""
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
    spent = sums(units, length)
    if len(spent) and spent.max() > limit:
        at = int(np.argmax(spent > limit))
        raise InputError(
            f"past spends {spent[at] / NANO:.9g} in the window that ends at step {at + 1}: more than its limit, "
            f"{limit / NANO:.9g}"
        )
    return units[max(0, len(units) - (length - 1)) :] if length > 1 else units[:0]


def sums(units: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Sum of the window that ends at each step; the first ones are shorter."""
    total = np.concatenate([[0], np.cumsum(units)])
    start = np.maximum(np.arange(1, len(total)) - length, 0)
    return np.asarray(total[1:] - total[start], dtype=np.int64)


def rounded_down(
    amounts: NDArray[np.float64], past: NDArray[np.int64], length: int, limit: int
) -> NDArray[np.int64]:
    """Billionths (n,), rounded down, so that no window exceeds its limit; checked in whole numbers."""
    # A hundredth of a unit is the solver's rounding; where it was none, what is too much is taken away again.
    units = np.floor(np.maximum(amounts, 0.0) * NANO + 0.01).astype(np.int64)
    while True:
        over = sums(np.concatenate([past, units]), length)[len(past) :] - limit
        at = int(np.argmax(over)) if len(over) else 0
        if not len(over) or over[at] <= 0:
            return units
        first = max(0, at + 1 - length)
        largest = first + int(np.argmax(units[first : at + 1]))
        units[largest] = max(0, int(units[largest]) - int(over[at]))


@dataclass(frozen=True)
class Constraints:
    """Windows over the steps with a positive weight, without those that others imply.

    Window k limits the sum over positions first[k] to last[k] by limit[k]; both ends do not fall, and every step is in
    one.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    limit: NDArray[np.float64]

    @classmethod
    def of(cls, steps: NDArray[np.int64], past: NDArray[np.int64], length: int, limit: int) -> Constraints:
        """For rising step numbers (m,) from 0, after the last amounts `past` (billionths); limits as fractions of
        the whole one.
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

    def total(self, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum in each window, added up term by term: amounts and prices differ by many orders of magnitude."""
        return self._in_windows(np.add, amounts, 0.0)

    def spread(self, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the windows that hold each step."""
        return self._around_steps(np.add, prices, 0.0)

    def shares(self, demand: NDArray[np.float64]) -> NDArray[np.float64]:
        """The least share, in proportion to demand, of any window that holds a step: together they are feasible."""
        return demand * self._around_steps(np.minimum, self.limit / self.total(demand), np.inf)

    def largest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest value in each window."""
        return self._in_windows(np.maximum, values, 0.0)

    def _in_windows(self, ufunc: np.ufunc, values: NDArray[np.float64], none: float) -> NDArray[np.float64]:
        if self._even:
            return _slid(ufunc, values, self._even)
        return _over(ufunc, np.append(values, none), self._held)

    def _around_steps(self, ufunc: np.ufunc, values: NDArray[np.float64], none: float) -> NDArray[np.float64]:
        if self._even:
            return _slid(ufunc, np.pad(values, self._even - 1, constant_values=none), self._even)
        return _over(ufunc, np.append(values, none), self._holding)

    @cached_property
    def _even(self) -> int:
        """Steps of a window where one begins at each step and all are as long, as without weights of 0; else 0."""
        number, length = len(self.first), int(self.last[0] - self.first[0] + 1)
        alike = (self.first == np.arange(number)).all() and (
            self.last == np.arange(number) + length - 1
        ).all()
        return length if alike else 0

    def coupled(self, stiffness: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Fill `out` (width, number), in Fortran's order: lower bands of Cᵀ diag(stiffness) C, C the 0/1 matrix of
        windows and steps.

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

    def overlaps(self, windows: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Lower bands (width, m), in Fortran's order: entry [d, k] sums the values (number,) of the steps that the
        k-th and (k + d)-th of some windows (m,) both hold."""
        first, end = self.first[windows], self.last[windows] + 1
        width = int((np.searchsorted(first, end) - np.arange(len(windows))).max())
        bands = np.zeros((width, len(windows)), order="F")
        padded = np.append(values, 0.0)
        for d in range(width):
            low, high = first[d:], end[: len(end) - d]
            both = np.flatnonzero(low < high)
            bands[d, both] = _over(np.add, padded, _pairs(low[both], high[both]))
        return bands

    @cached_property
    def _held(self) -> NDArray[np.int64]:
        """Steps that each window holds."""
        return _pairs(self.first, self.last + 1)

    @cached_property
    def _holding(self) -> NDArray[np.int64]:
        """Windows that hold each step."""
        place = np.arange(self.last[-1] + 1)
        return _pairs(np.searchsorted(self.last, place), np.searchsorted(self.first, place, side="right"))


def _pairs(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranges low .. high (excluded, above low), one after the other, as `_over` takes them."""
    return np.column_stack([low, high]).ravel()


def _slid(ufunc: np.ufunc, values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Reduce every `length` values that follow each other: 2, 4, 8 ... of them, put together.

    >>> _slid(np.add, np.arange(6.0), 5).tolist()
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


def _over(ufunc: np.ufunc, values: NDArray[np.float64], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Reduce values[low:high] for each of `_pairs`; `values` has one entry more than `high` can name."""
    return np.asarray(ufunc.reduceat(values, pairs)[::2], dtype=np.float64)
