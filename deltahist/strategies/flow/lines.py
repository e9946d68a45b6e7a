"""Weighted sums along the lines of a flow, and what they tell of the flow across: least squares, line by line."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.forms import FloatArray, IntArray, cumulate_rows

#: Numbers of either type: whole ones of a release, or floats of its linear part.
Array: TypeAlias = NDArray[Any]


def sums_on(n: int, width: int, centred: bool = False) -> int:
    """Return the number of overlapping sums, a width apart on a line of n places, one more if centred."""
    return max(1, round(n / width)) + centred


def _centres(n: int, width: int, centred: bool) -> IntArray:
    """Return where sums have their centres (sums,), in halves of a place."""
    number = sums_on(n, width, centred)
    return 2 * width * np.arange(number) + (n - 1 - (number - 1) * width if centred else width - 1)


def hats(n: int, width: int, centred: bool = False) -> IntArray:
    """Return weights (sums, n) of the places in each sum, in units of 1 / (2 width).

    Each sum's weight falls linearly from one at its centre to nothing at its neighbours' centres; before the first
    and behind the last centre it stays one. At every place the weights add up to one. Sums over separate blocks
    would be weighted one inside and nothing outside: a range then ends inside a block with nothing between.
    The first sum begins at the line's start; centred sums leave as much at both ends, and reach beyond them.
    """
    centre = _centres(n, width, centred)
    place = np.clip(2 * np.arange(n), centre[0], centre[-1])
    return np.maximum(2 * width - np.abs(place - centre[:, None]), 0)


def bends(n: int, widths: Sequence[int], centred: bool) -> IntArray:
    """Return the places of a line (s,) at which weights of its sums bend, and both ends of the line.

    Weights are straight from each such place to the one before the next.
    """
    centres = [_centres(n, width, centred) for width in widths]
    begins = np.unique(np.concatenate([np.array([0, n]), *(-(-centre // 2) for centre in centres)]))
    return begins[(begins >= 0) & (begins <= n)]


class Sums:
    """Weighted sums of places along a line: whole-number weights (sums, places) for each level, and their units."""

    def __init__(self, n: int, levels: Sequence[IntArray], units: Sequence[int]) -> None:
        numbers = np.array([len(weights) for weights in levels], dtype=np.int64)
        #: Weights of all levels (sums, n); level, and unit of the weights, of each sum (sums,).
        self.weights = np.concatenate([np.zeros((0, n), dtype=np.int64), *levels])
        self.level = np.repeat(np.arange(len(levels)), numbers)
        self.units = np.repeat(np.array(units, dtype=np.float64), numbers)
        #: Number of sums in each level.
        self.numbers = numbers.tolist()
        #: Θ (sums, n), the weights in their units.
        self.theta = self.weights / self.units[:, None]

    def __len__(self) -> int:
        return len(self.level)

    def product(self, values: Array, axis: int = -1) -> Array:
        """Return the sums of values along the last axis, or the last but one, in units; exact in whole numbers.

        In each row of weights few are not zero, and stand together: only these are multiplied.
        """
        shape = list(values.shape)
        shape[axis] = len(self)
        out = np.empty(shape, dtype=np.result_type(values, self.weights))
        for i, row in enumerate(self.weights):
            places = np.flatnonzero(row)
            some = slice(places[0], places[-1] + 1) if places.size else slice(0)
            if axis == -1:
                out[..., i] = values[..., some] @ row[some]
            else:
                out[..., i, :] = row[some] @ values[..., some, :]
        return out

    @functools.cached_property
    def ends(self) -> list[tuple[IntArray, IntArray, int]]:
        """The first and the last sum of each level that hold each place (n,); the level's last sum."""
        out = []
        for level in range(len(self.numbers)):
            members = np.flatnonzero(self.level == level)
            holds = self.weights[members] > 0
            out.append((members[holds.argmax(axis=0)], members[-1] - holds[::-1].argmax(axis=0), int(members[-1])))
        return out

    def holding(self, place: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the sums that hold places, with their weights there; two of each level, with weight 0 for none."""
        for first, last, _ in self.ends:
            one, other = first[place], last[place]
            yield one, self.weights[one, place]
            yield other, np.where(one == other, 0, self.weights[other, place])


class Stretches(NamedTuple):
    """A line's places in stretches on which each place has the same variance, and weights of sums are straight lines.

    On each level two sums hold a stretch; the first loses, and the second gains, `slope` a place.

    cuts : first place of each stretch (s,). leaf : variance of a place (s,).
    levels : first sum, its weight at the stretch's first place, second sum, and slope (s,) of each level. Both are the
    same sum, without a slope, before the first centre and behind the last.
    """

    cuts: IntArray
    leaf: FloatArray
    levels: list[tuple[IntArray, IntArray, IntArray, IntArray]]


@dataclass(frozen=True)
class Lines:
    """Least squares along a line of n borders, the same for all lines of one direction.

    T is the flow through each border as the noise on single moves has it, Θ T its weighted sums (`hats`), s those
    sums with noise of their own. The estimate is T + C (s − Θ T) with C = V Θᵀ (Θ V Θᵀ + W)⁻¹ for
    the variances V of T and W of s. A move shifts s and Θ T alike, so that s − Θ T does not change, and the
    estimate shifts by exactly the move, whatever C is and however C (s − Θ T) is rounded.

    The variances, up to a common factor, are of noise on a straight and on a diagonal move, and on the sums of each
    level, whose centres are `widths` borders apart.
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]
    centred: bool = False

    @functools.cached_property
    def diagonals(self) -> FloatArray:
        """Number of diagonal moves that count at each border (n,)."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def windows(self) -> Sums:
        """Θ, each level's weights in units of 1 / (2 width)."""
        levels = [hats(self.n, w, self.centred) for w in self.widths]
        return Sums(self.n, levels, [2 * w for w in self.widths])

    @functools.cached_property
    def leaf(self) -> FloatArray:
        """V (n,), as planned."""
        return self.straight + self.diagonal * self.diagonals

    @functools.cached_property
    def own(self) -> FloatArray:
        """W (p,), as planned."""
        return np.array(self.sums, dtype=np.float64)[self.windows.level]

    def spread(self, leaf: FloatArray, sums: Sequence[float]) -> FloatArray:
        """Return Θ V Θᵀ + W (p, p) for variances V of borders (n,), and of each level of sums."""
        theta = self.windows.theta
        own = np.array(sums, dtype=np.float64)[self.windows.level]
        return np.asarray((theta * leaf) @ theta.T + np.diag(own))

    @functools.cached_property
    def prefix_gain(self) -> FloatArray:
        """Sums of C over the borders before each edge (n + 1, p)."""
        theta = self.windows.theta
        spread = self.leaf[:, None] * theta.T
        if not self.widths:
            return cumulate_rows(spread)
        gain = np.linalg.solve(theta @ spread + np.diag(self.own), spread.T).T
        return cumulate_rows(np.asarray(gain, dtype=np.float64))

    @functools.cached_property
    def knots(self) -> IntArray:
        """The edges of borders (s,) between which weights beside an edge, and sums before it, are quadratic."""
        bend = np.concatenate([bends(self.n, self.widths, self.centred), [1, self.n - 1]])
        every: IntArray = np.unique(np.add.outer(bend, np.arange(-1, 2)))
        return every[(every >= 0) & (every <= self.n)]

    @functools.cached_property
    def numbers(self) -> list[int]:
        """Number of sums on each level."""
        return [sums_on(self.n, width, self.centred) for width in self.widths]

    @functools.cached_property
    def stretches(self) -> Stretches:
        """The line in stretches; where they begin is where a sum has its centre (`hats`), and beside both ends."""
        centres = [_centres(self.n, width, self.centred) for width in self.widths]
        begins = [-(-centre // 2) for centre in centres]
        cuts: IntArray = np.unique(np.concatenate([np.array([0, 1, self.n - 1]), *begins]))
        cuts = cuts[(cuts >= 0) & (cuts < self.n)]
        levels, start = [], 0
        for width, centre, begin in zip(self.widths, centres, begins, strict=True):
            last, before = len(centre) - 1, np.searchsorted(begin, cuts, side="right") - 1
            between, place = ((before >= 0) & (before < last)).astype(np.int64), np.maximum(before, 0)
            weight = 2 * width - between * (2 * cuts - centre[place])
            levels.append((start + place, weight, start + place + between, 2 * between))
            start += len(centre)
        return Stretches(cuts, self.leaf[cuts], levels)

    @functools.cached_property
    def factors(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """The sums' order along the line, and L (p, b) and D (p,) in that order.

        L D Lᵀ = Θ V Θᵀ + W. L has ones on its diagonal, and b diagonals below: column j is `L[j]`. Products of
        weights are whole numbers, and all else is computed number by number: any BLAS gives the same factors.
        """
        cuts, _, levels = self.stretches
        place = np.arange(self.n)
        which = np.searchsorted(cuts, place, side="right") - 1
        weights = scipy.sparse.csr_array((sum(self.numbers), self.n), dtype=np.int64)
        unit = np.repeat(2.0 * np.array(self.widths), self.numbers)
        for width, level in zip(self.widths, levels, strict=True):
            first, weight, second, slope = (each[which] for each in level)
            left = weight - slope * (place - cuts[which])
            for sums, some in ((first, left), (second, 2 * width - left)):
                weights += scipy.sparse.csr_array((some, (sums, place)), shape=weights.shape)
        order = np.argsort(weights.argmax(axis=1), kind="stable")
        weights, unit = weights[order], unit[order]
        diagonal = (weights * self.diagonals.astype(np.int64)) @ weights.T
        left = self.straight * (weights @ weights.T).toarray() + self.diagonal * diagonal.toarray()
        left /= np.multiply.outer(unit, unit)
        left[np.diag_indices(len(order))] += np.repeat(self.sums, self.numbers)[order]
        band = int(np.abs(np.subtract(*np.nonzero(left))).max(initial=0))
        below, own = np.zeros((len(order), band)), np.zeros(len(order))
        for j in range(len(order)):
            behind, own[j] = slice(j + 1, j + 1 + band), left[j, j]
            column = left[behind, j] / own[j]
            left[behind, behind] -= np.multiply.outer(column, left[behind, j])
            below[j, : len(column)] = column
        return order, below, own

    def solve(self, surplus: Array) -> FloatArray:
        """Return (Θ V Θᵀ + W)⁻¹ of s − Θ T, which is given in units (p, lines).

        Each number is the same whatever lines are solved together.
        """
        order, below, own = self.factors
        out = surplus / np.repeat(2.0 * np.array(self.widths), self.numbers)[:, None]
        out = out[order]
        for j, column in enumerate(below):
            behind = out[j + 1 : j + 1 + len(column)]
            behind -= column[: len(behind), None] * out[j]
        out /= own[:, None]
        for j in range(len(order) - 1, 0, -1):
            before = np.arange(max(0, j - below.shape[1]), j)
            out[before[0] : j] -= below[before, j - 1 - before, None] * out[j]
        solved = np.empty_like(out)
        solved[order] = out
        return solved

    def weigh(self, flow: Array) -> Array:
        """Return what flows (lines, n) add to sums along lines (lines, p), in units; exact in whole numbers."""
        cuts, _, levels = self.stretches
        which = np.repeat(np.arange(len(cuts)), np.diff(cuts, append=self.n))
        plain = np.add.reduceat(flow, cuts, axis=-1)
        moment = np.add.reduceat(flow * (np.arange(self.n) - cuts[which]), cuts, axis=-1)
        out = np.zeros((len(flow), sum(self.numbers)), dtype=flow.dtype)
        for width, (left, weight, right, slope) in zip(self.widths, levels, strict=True):
            falling = weight * plain - slope * moment
            for sums, part in ((left, falling), (right, 2 * width * plain - falling)):
                runs = np.flatnonzero(np.diff(sums, prepend=-1))
                out[:, sums[runs]] += np.add.reduceat(part, runs, axis=-1)
        return out

    def sums_before(self, solved: FloatArray) -> FloatArray:
        """Return sums of C (s − Θ T) over the places before each edge (lines, n + 1), from `solve`'s (p, lines)."""
        cuts, leaf, levels = self.stretches
        # C (s − Θ T) is a straight line on each stretch: `level` at its first place, and `rise` a place, halved.
        level, rise = np.zeros((2, len(cuts), solved.shape[1]))
        for width, (left, weight, right, slope) in zip(self.widths, levels, strict=True):
            one, other = solved[left], solved[right]
            other -= one
            rise += other * (slope[:, None] / (4 * width))
            other *= 1 - weight[:, None] / (2 * width)
            level += one
            level += other
        level *= leaf[:, None]
        rise *= leaf[:, None]
        size = np.diff(cuts)[:, None]
        before = cumulate_rows(size * (level[:-1] + (size - 1) * rise[:-1]))
        number = np.diff(cuts, append=self.n + 1)
        further = (np.arange(self.n + 1) - np.repeat(cuts, number)).astype(np.float64)
        before, level, rise = (np.repeat(each.T, number, axis=1) for each in (before, level, rise))
        rise *= further - 1
        rise += level
        rise *= further
        rise += before
        return rise

    def adjoint(self, weights: FloatArray, sums: Sequence[FloatArray]) -> FloatArray:
        """Return −ΘᵀCᵀw, the weights on T beside w, for w (lines, n) on `correction`; write Cᵀw into `sums`."""
        back = self.solve(self.weigh(weights * self.leaf).T).T
        for level, part in enumerate(sums):
            part[...] = back[:, self.windows.level == level] / (2 * self.widths[level])
        return -back @ self.windows.theta
