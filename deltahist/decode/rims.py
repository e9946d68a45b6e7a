"""Errors of flows at explicit queries, such as regions: worked out from their rims, for many queries at once.

Noise on a border enters an answer by how much the query differs on both sides of the border: only borders at a rim
have some. Sums along a line spread what crosses the line over all of its borders; that part is a sum over few waves,
and is never written out. Hubs are few, and enter by the waves of their sums.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.hubs import HubVariance
from deltahist.strategies.lines import DIAGONAL, STRAIGHT, Lines

Field = NDArray[np.float64]
Index = NDArray[np.int64]
#: Variance and fourth cumulant.
Cumulants: TypeAlias = tuple[float, float]
#: Numbers of the boxes around queries that are dense at a time: what is gathered for them stays near the processor.
_AT_A_TIME = 1 << 19


def near(rows: scipy.sparse.csr_array, shape: tuple[int, ...]) -> Iterator[Around]:
    """Queries (m, cells of `shape`), some at a time, each with its surroundings."""
    first, number = 0, rows.shape[0]
    while first < number:
        most = rows.indptr[first] + _AT_A_TIME
        last = max(first + 1, int(np.searchsorted(rows.indptr, most, side="right")) - 1)
        yield from _near(rows, first, last, shape)
        first = last


def _near(rows: scipy.sparse.csr_array, first: int, last: int, shape: tuple[int, ...]) -> Iterator[Around]:
    """Queries from the first up to the last: as many at a time as have room for the boxes around them."""
    ends = rows.indptr[first : last + 1]
    sizes, part = np.diff(ends), slice(ends[0], ends[-1])
    x, y = np.divmod(rows.indices[part], shape[1])
    share, owner = rows.data[part], np.repeat(np.arange(last - first), sizes)
    corners = np.zeros((2, last - first, 2), dtype=np.int64)
    if len(some := np.flatnonzero(sizes)):
        begins = ends[some] - ends[0]
        for axis, place in enumerate((x, y)):
            corners[0, some, axis] = np.minimum.reduceat(place, begins)
            corners[1, some, axis] = np.maximum.reduceat(place, begins) + 1
    low, high = corners
    wide = np.cumsum((high - low + 2).prod(axis=1))
    here = 0
    while here < last - first:
        most = (wide[here - 1] if here else 0) + _AT_A_TIME
        there = max(here + 1, int(np.searchsorted(wide, most, side="right")))
        own, those = slice(here, there), slice(ends[here] - ends[0], ends[there] - ends[0])
        queries = slice(first + here, first + there)
        yield Around(queries, owner[those] - here, x[those], y[those], share[those], low[own], high[own], shape)
        here = there


@dataclass(frozen=True, eq=False)
class Around:
    """Some queries on a grid of `shape`, by the shares of cells that they hold and the boxes around them.

    Parameters
    ----------
    some : which queries. owner, x, y, share : query and place of each share (k,), with the share.
    low, high : box around each query (queries, 2), in cells.
    """

    some: slice
    owner: Index
    x: Index
    y: Index
    share: Field
    low: Index
    high: Index
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.low)

    @functools.cached_property
    def _layout(self) -> tuple[Index, Index]:
        """Where the box of each query begins in `_dense`, and numbers of a column of each.

        A box has a rim of nothing, one cell wide, so that every neighbour of a cell is there.
        """
        side = self.high - self.low + 2
        return np.concatenate([[0], np.cumsum(side.prod(axis=1))]), side[:, 1]

    @functools.cached_property
    def _dense(self) -> Field:
        start, stride = self._layout
        at = start[self.owner] + (self.x - self.low[self.owner, 0] + 1) * stride[self.owner]
        out = np.zeros(start[-1] + int(stride.max(initial=0)) + 2)
        out[at + self.y - self.low[self.owner, 1] + 1] = self.share
        return out

    @functools.cached_property
    def _columns(self) -> Index:
        """How far the next column is from each number of `_dense`."""
        start, stride = self._layout
        return np.repeat(stride, np.diff(start))

    def differences(self, ahead: tuple[int, int], behind: tuple[int, int]) -> Places:
        """q(place + ahead) − q(place + behind), with both places on the grid, wherever it is not nothing."""
        start, stride = self._layout
        value = self._dense
        across, along = ahead[0] - behind[0], ahead[1] - behind[1]
        if across:
            here = np.arange(behind[1], start[-1] + behind[1])
            found = value[here + self._columns + along] - value[here]
        else:
            found = value[along : start[-1] + along] - value[: start[-1]]
        at = np.flatnonzero(found != 0)
        owner = np.searchsorted(start, at, side="right") - 1
        x, y = np.divmod(at - start[owner], stride[owner])
        x, y = x + self.low[owner, 0] - 1, y + self.low[owner, 1] - 1
        reach = (max(ahead[0], behind[0]), max(ahead[1], behind[1]))
        # Behind the last column of a box stands another box, which is none of its neighbours.
        beyond = np.minimum(self.high[owner], np.array(self.shape) - reach)
        inside = (x >= 0) & (x < beyond[:, 0]) & (y >= 0) & (y < beyond[:, 1])
        return Places(*(column[inside] for column in (owner, x, y, found[at])))

    def between(self, left: Field, right: Field) -> Field:
        """leftᵀ Q right (queries, a, b) of each query Q as a matrix, for left (nx, a) and right (ny, b)."""
        wide = self.high[:, 0] - self.low[:, 0]
        start = np.concatenate([[0], np.cumsum(wide)])
        row = start[self.owner] + self.x - self.low[self.owner, 0]
        held = scipy.sparse.csr_array((self.share, (row, self.y)), shape=(start[-1], len(right))) @ right
        owner = np.repeat(np.arange(len(self)), wide)
        x = np.arange(start[-1]) - start[owner] + self.low[owner, 0]
        return _contracted(owner, left[x], held, len(self))

    def sums(self, values: Field, owner: Index) -> Field:
        """Sums of values (k,) over each query's own."""
        return np.bincount(owner, values, len(self)).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Places:
    """Values (k,) at places of queries."""

    owner: Index
    x: Index
    y: Index
    value: Field


def _contracted(owner: Index, left: Field, right: Field, number: int) -> Field:
    """Σ over the rows of each owner of left ⊗ right: (number, a, b) of (rows, a) and (rows, b)."""
    size = left.shape[1]
    row, column = np.nonzero(left)
    turned = scipy.sparse.csr_array(
        (left[row, column], (owner[row] * size + column, row)), shape=(number * size, len(left))
    )
    return np.asarray(turned @ right).reshape(number, size, right.shape[1])


def _fourth(values: Field) -> Field:
    """Fourth powers; a general power takes ten times as long."""
    squares = values * values
    return np.asarray(squares * squares)


class _Across:
    """What crosses the lines of one direction: weights w of queries at the borders of lines (k,), and waves C ᵀw.

    Parameters
    ----------
    lines : the lines' borders and sums. around : the queries. axis : along which the lines stand side by side.
    found : the weights.
    """

    def __init__(self, lines: Lines, around: Around, axis: int, found: Places) -> None:
        self.lines, self.found = lines, found
        wide = around.high[:, axis] - around.low[:, axis] + 2
        self._start = np.concatenate([[0], np.cumsum(wide)])
        self._offset = self._start[:-1] - around.low[:, axis] + 1
        self.owner = np.repeat(np.arange(len(around)), wide)
        #: The line that a row is about; rows beyond the grid hold nothing.
        self.line = np.arange(self._start[-1]) - self._offset[self.owner]
        self.waves = self.of(found, axis) @ lines.gain
        self._axis = axis

    def row(self, places: Places) -> Index:
        """Rows of places."""
        return np.asarray((places.x if self._axis == 0 else places.y) + self._offset[places.owner])

    def of(self, places: Places, axis: int, shift: int = 0, sign: float = 1.0) -> scipy.sparse.csr_array:
        """Values as rows over the borders of each line."""
        across, along = (places.x, places.y) if axis == 0 else (places.y, places.x)
        return scipy.sparse.csr_array(
            (sign * places.value, (across + self._offset[places.owner], along + shift)),
            shape=(self._start[-1], self.lines.n),
        )

    def spread(self, row: Index, border: Index) -> Field:
        """Θᵀ Cᵀ w at borders of rows."""
        which, weight = _held(self.lines)
        out = np.zeros(len(row))
        for one, share in zip(which.T, weight.T, strict=True):
            out += self.waves[row, one[border]] * share[border]
        return out


def _held(lines: Lines) -> tuple[Index, Field]:
    """The sums that hold each border, and their weights (n, most); where there are fewer, weights of nothing."""
    most = int((lines.theta > 0).sum(axis=0).max(initial=0))
    which = np.argsort(lines.theta <= 0, axis=0, kind="stable")[:most].T
    return which, np.take_along_axis(lines.theta.T, which, axis=1)


@dataclass(frozen=True, eq=False)
class RimErrors:
    """Variance and fourth cumulant of flows between the blocks of a grid.

    Parameters
    ----------
    lines : of the flow, the ones along y first.
    draws : variance and fourth cumulant of draws in points, by the name of their kind. sums : of each level of sums.
    """

    lines: tuple[Lines, ...]
    draws: Mapping[str, Cumulants]
    sums: tuple[Cumulants, ...]

    def of(self, around: Around) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of the draws at rims and of all sums."""
        (straight, straight_fourth), (diagonal, diagonal_fourth) = self.draws[STRAIGHT], self.draws[DIAGONAL]
        sums = np.array(self.sums).reshape(-1, 2).T
        rising, falling = around.differences((1, 1), (0, 0)), around.differences((1, 0), (0, 1))
        total, fourth = np.zeros(len(around)), np.zeros(len(around))
        both = []
        for axis, line in enumerate(self.lines):
            found = around.differences((1, 0) if axis == 0 else (0, 1), (0, 0))
            across = _Across(line, around, axis, found)
            both.append(across)
            waves, own = across.waves, across.of(found, axis)
            # A falling move counts at the left, respectively lower, end: its row above, or its column to the right.
            slanted = across.of(rising, axis) + across.of(falling, axis, 1, 1.0 if axis == 0 else -1.0)
            within = line.theta * (straight + diagonal * line.diagonals) @ line.theta.T
            if line.widths:
                within += np.diag(sums[0, line.level])
                outer = 2 * ((straight * own + diagonal * slanted) @ line.theta.T)
                total += around.sums(np.einsum("ri,ri->r", waves @ within - outer, waves), across.owner)
                fourth += around.sums(_fourth(waves) @ sums[1, line.level], across.owner)
            total += around.sums(straight * found.value**2, found.owner)
            place = found.y if axis == 0 else found.x
            left = found.value - across.spread(across.row(found), place)
            fourth += around.sums(straight_fourth * _fourth(left), found.owner)
        over, up = both
        for places, shift, sign in ((rising, 0, 1.0), (falling, 1, -1.0)):
            total += around.sums(diagonal * places.value**2, places.owner)
            left = places.value - over.spread(over.row(places), places.y + shift)
            left -= sign * up.spread(up.row(places), places.x + shift)
            fourth += around.sums(diagonal_fourth * _fourth(left), places.owner)
            if over.lines.widths:
                total += 2 * sign * diagonal * self._crossing(around, over, up, shift)
        return total, fourth

    @staticmethod
    def _crossing(around: Around, over: _Across, up: _Across, shift: int) -> Field:
        """Σ over diagonal moves of what both of its lines spread there: u(x, y + shift) v(y, x + shift)."""

        def met(one: _Across, other: Lines) -> Field:
            at = np.clip(one.line + shift, 0, other.n - 1)
            return _contracted(one.owner, other.theta.T[at], one.waves, len(around))

        return np.einsum("kts,kst->k", met(over, up.lines), met(up, over.lines))


@dataclass(frozen=True, eq=False)
class HubErrors:
    """Variance and fourth cumulant of hubs.

    Parameters
    ----------
    known : their covariance. draws, sums : fourth cumulant of the draws, in points; sums None if there are none.
    total_known : of the release.
    """

    known: HubVariance
    draws: float
    sums: float | None
    total_known: bool

    def of(self, around: Around) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of the hubs inside queries and of all sums."""
        hubs, lines = self.known.hubs, self.known.hubs.grid.axes
        number = [np.full(n, -1) for n in around.shape]
        for each, line in zip(number, lines, strict=True):
            each[line.places] = np.arange(len(line.places))
        hub_x, hub_y = number[0][around.x], number[1][around.y]
        at = (hub_x >= 0) & (hub_y >= 0)
        owner, share, hub_x, hub_y = around.owner[at], around.share[at], hub_x[at], hub_y[at]
        variance = self.known.own * around.sums(share**2, owner)
        width = len(lines[0].places)
        key, row = np.unique(owner * width + hub_x, return_inverse=True)
        held = scipy.sparse.csr_array((share, (row, hub_y)), shape=(len(key), len(lines[1].places)))
        waves = [line.waves.T for line in lines]
        found = _contracted(key // width, waves[0][key % width], np.asarray(held @ waves[1]), len(around))
        variance -= np.einsum("kij,ij,kij->k", found, self.known.lost, found)
        core, ones = self.known.onto_total
        # What a query holds of the total is taken off all hubs alike; without noise there is nothing to take off.
        if self.total_known and ones > 0:
            entering = np.einsum("kij,ij->k", found, core)
            variance -= entering**2 / ones
            alike = entering / ones
            share = share - alike[owner]
            found = found - alike[:, None, None] * np.multiply.outer(*(w.sum(axis=0) for w in waves))
        if self.sums is None:
            return variance, self.draws * around.sums(_fourth(share), owner)
        spread = hubs.gain * found
        left = share - self._at(spread, key, row, hub_y, waves)
        x, y = lines
        on_sums = x.turn @ spread @ y.turn.T
        fourth = self.draws * around.sums(_fourth(left), owner) + self.sums * _fourth(on_sums).sum(axis=(1, 2))
        return variance, fourth

    @staticmethod
    def _at(spread: Field, key: Index, row: Index, y: Index, waves: list[Field]) -> Field:
        """waves spread wavesᵀ at hubs, which stand in the rows of `key`."""
        owner, x = np.divmod(key, len(waves[0]))
        along = np.einsum("ri,rij->rj", waves[0][x], spread[owner])
        return np.einsum("kj,kj->k", along[row], waves[1][y])
