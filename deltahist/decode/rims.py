"""Errors of flows at explicit queries, such as regions: worked out from their rims, for many queries at once.

Noise on a border enters an answer by how much the query differs on both sides of the border: only borders at a rim
have some. Sums along a line spread what crosses the line over all of its borders; that part is a sum over few waves.
Hubs are few, and enter by the waves of their sums. Queries of about one size are worked on together, each as the
dense box around it: what is done to all of its cells alike takes less time than to find those at the rim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.hubs import HubVariance
from deltahist.strategies.doors import joint
from deltahist.strategies.lines import DIAGONAL, STRAIGHT, Lines
from deltahist.workloads.cover import RegionCover, counted

Field = NDArray[np.float64]
Index = NDArray[np.int64]
#: Variance and fourth cumulant.
Cumulants: TypeAlias = tuple[float, float]
#: Cells of the boxes around queries that are looked at a time: what is worked out stays near the processor.
_AT_A_TIME = 1 << 16
#: Boxes whose widths are in one of so many classes, for each doubling, are worked on together.
_CLASSES = 8


def near(work: RegionCover | scipy.sparse.csr_array, shape: tuple[int, ...]) -> Iterator[Around]:
    """Queries on a grid of `shape`, of about one size at a time, each with its surroundings.

    Parameters
    ----------
    work : regions on that grid, or rows (m, cells of `shape`).
    """
    cover = work if isinstance(work, RegionCover) else RegionCover.of_rows(work, shape)
    low, high = np.zeros((2, cover.number, 2), dtype=np.int64)
    low[...] = shape
    place = np.column_stack([cover.x, cover.y])
    for owner, start, end in ((cover.owner, place, place + 1), (cover.whole, cover.low, cover.high)):
        begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        if len(some := owner[begins]):
            low[some] = np.minimum(low[some], np.minimum.reduceat(start, begins))
            high[some] = np.maximum(high[some], np.maximum.reduceat(end, begins))
    low = np.minimum(low, high)
    ends = [np.searchsorted(owner, np.arange(cover.number + 1)) for owner in (cover.owner, cover.whole)]
    # A box has a rim of nothing, one cell wide, so that every neighbour of a cell is there.
    wide, tall = (high - low + 2).T
    order = np.lexsort((tall, np.floor(_CLASSES * np.log2(wide))))
    wide, tall = wide[order], tall[order]
    here = 0
    while here < len(order):
        # As many as there is room for, each in a box as large as the largest needs.
        rest = slice(here, here + max(1, _AT_A_TIME // int(wide[here] * tall[here])))
        sizes = np.maximum.accumulate(wide[rest]) * np.maximum.accumulate(tall[rest])
        fit = max(1, int(np.searchsorted(sizes * np.arange(1, len(sizes) + 1), _AT_A_TIME, side="right")))
        some, own = order[here : here + fit], slice(here, here + fit)
        shares = _dense(cover, some, low[some], ends, wide[own].max(), tall[own].max())
        yield Around(some, shares, low[some], high[some], shape)
        here += fit


def _dense(cover: RegionCover, some: Index, low: Index, ends: Sequence[Index], wide: int, tall: int) -> Field:
    """Shares of the cells in a box around each of some queries (queries, wide, tall)."""
    out = np.zeros((len(some), wide, tall))
    box = out.reshape(-1)
    query, place = _listed(ends[1], some)
    corners = np.hstack([query[:, None], cover.low[place] - low[query] + 1, cover.high[place] - low[query] + 1])
    for each, west, south, east, north in corners.tolist():
        out[each, west:east, south:north] = 1.0
    query, place = _listed(ends[0], some)
    x, y = cover.x[place] - low[query, 0] + 1, cover.y[place] - low[query, 1] + 1
    box[(query * wide + x) * tall + y] = cover.share[place]
    return out


def _listed(ends: Index, some: Index) -> tuple[Index, Index]:
    """What some of the queries own, as numbers among the some and places in the list, which is sorted by owner."""
    number = ends[some + 1] - ends[some]
    query = np.repeat(np.arange(len(some)), number)
    return query, ends[some][query] + counted(number)


class Windows:
    """A table (places, k) whose rows around boxes are looked up, 0 off the grid."""

    def __init__(self, table: Field) -> None:
        self._places = len(table)
        # Before the first cell of a box is its rim; the largest box has another behind all places.
        self._padded = np.pad(table, ((1, len(table) + 2), (0, 0)))

    def __len__(self) -> int:
        return self._places

    def rows(self, low: Index, size: int, first: Index | int, number: int | None) -> Field:
        """Rows from the one before `low` on (queries, size, number), and columns from the first on."""
        (across, along), wide = self._padded.strides, number or self._padded.shape[1]
        shape = (len(self._padded) - size + 1, self._padded.shape[1] - wide + 1, size, wide)
        windows = np.lib.stride_tricks.as_strided(self._padded, shape, (across, along, across, along), writeable=False)
        return np.asarray(windows[low, first])


@dataclass(frozen=True, eq=False)
class Around:
    """Some queries on a grid of `shape`, by the shares of cells that they hold in boxes around them.

    Parameters
    ----------
    some : which queries (queries,). shares : of the cells of each box, with a rim of nothing (queries, wide, tall).
    low, high : the cells of each box within the rim (queries, 2); what is behind makes all boxes one size.
    """

    some: Index
    shares: Field
    low: Index
    high: Index
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.low)

    def differences(self, ahead: tuple[int, int], behind: tuple[int, int]) -> Field:
        """q(place + ahead) − q(place + behind) at the places of each box; 0 off the grid."""
        # One box follows the other, each with a rim of nothing: what lies beyond an end is a rim as well.
        one, other = (across * self.shares.shape[2] + along for across, along in (ahead, behind))
        flat, out = self.shares.ravel(), np.empty_like(self.shares)
        size = len(flat) - max(one, other)
        np.subtract(flat[one : one + size], flat[other : other + size], out=out.ravel()[:size])
        out.ravel()[size:] = 0.0
        return self.inside(out, *(axis for axis in (0, 1) if ahead[axis] != behind[axis]))

    def inside(self, values: Field, *axes: int) -> Field:
        """Values of moves on along axes, without those that begin before the grid, lead behind it, or leave the box."""
        for axis in axes:
            view = values if axis == 0 else values.swapaxes(1, 2)
            view[np.flatnonzero(self.low[:, axis] == 0), 0] = 0.0
            ends = np.flatnonzero(self.high[:, axis] == self.shape[axis])
            size = self.high[:, axis] - self.low[:, axis]
            view[ends, size[ends]] = 0.0
            view[np.arange(len(self)), size + 1] = 0.0
            view[:, -1] = 0.0
        return values

    def window(self, table: Windows, axis: int, first: Index | int = 0, number: int | None = None) -> Field:
        """Rows of a table of places along an axis for each box (queries, wide or tall, k).

        Only so many columns, if a number is given, of each box from its first.
        """
        return table.rows(self.low[:, axis], self.shares.shape[1 + axis], first, number)

    def between(self, left: Field, right: Field) -> Field:
        """leftᵀ Q right (queries, a, b) of each query Q as a matrix, for left (nx, a) and right (ny, b)."""
        rows, columns = (self.window(Windows(table), axis) for axis, table in enumerate((left, right)))
        return np.asarray(rows.swapaxes(1, 2) @ (self.shares @ columns))


def _total(one: Field, other: Field) -> Field:
    """Σ of products over each query."""
    return np.asarray(np.einsum("kij,kij->k", one, other))


def _squares(values: Field) -> Field:
    """Σ of squares over each query, of values that lie side by side."""
    flat = values.reshape(len(values), -1)
    return np.asarray(np.vecdot(flat, flat))


def _fourth(values: Field) -> Field:
    """Σ of fourth powers over each query, of values that lie side by side; changes the values."""
    return _squares(np.multiply(values, values, out=values))


class _Sums:
    """Sums along the lines of one direction, and what is known by them.

    Parameters
    ----------
    lines : the lines' borders and sums. straight, diagonal : variance of draws, in points. own : of each level of sums.
    """

    def __init__(self, lines: Lines, straight: float, diagonal: float, own: Sequence[Cumulants]) -> None:
        noise = np.array(own).reshape(-1, 2)[lines.level] if lines.widths else np.zeros((0, 2))
        theta = lines.theta
        leaf = (lines.straight + lines.diagonal * lines.diagonals)[:, None] * theta.T
        scale = np.diag(np.array(lines.sums)[lines.level]) if lines.widths else np.zeros((0, 0))
        #: C is leaf @ inverse (`Lines`).
        self.inverse = np.linalg.inv(theta @ leaf + scale)
        within = theta * (straight + diagonal * lines.diagonals) @ theta.T + np.diag(noise[:, 0])
        self.within = self.inverse @ within @ self.inverse
        self.fourth = noise[:, 1]
        #: Of each border its part in sums, and in C before `inverse`.
        self.tables = Windows(theta.T), Windows(leaf)
        # The first and the last sum of each level that hold a border.
        self._held = []
        for level in np.unique(lines.level):
            numbers = np.flatnonzero(lines.level == level)
            holds = lines.weights[numbers] > 0
            self._held.append((numbers[-1], *(numbers[0] + f(holds) for f in (_first, _last))))

    def near(self, around: Around, axis: int) -> tuple[Index, Field, Field]:
        """The sums that hold borders of each box (queries, l), and the `tables` of these borders (queries, tall, l)."""
        start = np.maximum(around.low[:, axis] - 1, 0)
        end = np.minimum(around.high[:, axis], len(self.tables[0]) - 1)
        picked = [np.zeros((len(around), 0), dtype=np.int64)]
        tables: list[list[Field]] = [[np.zeros((len(around), around.shares.shape[1 + axis], 0))] for _ in self.tables]
        for most, first, last in self._held:
            number = int((last[end] - first[start]).max()) + 1
            begins = np.minimum(first[start], most + 1 - number)
            picked.append(begins[:, None] + np.arange(number))
            for out, table in zip(tables, self.tables, strict=True):
                out.append(around.window(table, axis, begins, number))
        held, leaf = (np.concatenate(each, axis=2) if len(each) != 2 else each[1] for each in tables)
        # Behind the rim of a box there is only room.
        held *= (np.arange(held.shape[1]) <= (end + 1 - around.low[:, axis])[:, None])[:, :, None]
        return np.hstack(picked), held, leaf


def _first(holds: NDArray[np.bool_]) -> Index:
    return np.argmax(holds, axis=0)


def _last(holds: NDArray[np.bool_]) -> Index:
    return np.asarray(len(holds) - 1 - np.argmax(holds[::-1], axis=0))


class RimErrors:
    """Variance and fourth cumulant of flows between the blocks of a grid.

    Parameters
    ----------
    lines : of the flow, the ones along y first.
    draws : variance and fourth cumulant of draws in points, by the name of their kind. sums : of each level of sums.
    """

    def __init__(
        self, lines: Sequence[Lines], draws: Mapping[str, Cumulants], sums: Sequence[Cumulants]
    ) -> None:
        self._straight, self._diagonal = draws[STRAIGHT], draws[DIAGONAL]
        self._along = [_Sums(line, self._straight[0], self._diagonal[0], sums) for line in lines]

    def of(self, around: Around, kurtosis: bool) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of the draws in the boxes around queries and of all sums."""
        straight, diagonal = self._straight[0], self._diagonal[0]
        rising, falling = around.differences((1, 1), (0, 0)), around.differences((1, 0), (0, 1))
        flows = around.differences((1, 0), (0, 0)), around.differences((0, 1), (0, 0))
        total = straight * sum(map(_squares, flows)) + diagonal * (_squares(rising) + _squares(falling))
        fourth, spread = np.zeros(len(around)), []
        for axis, (sums, own) in enumerate(zip(self._along, flows, strict=True)):
            # A falling move counts at the left, respectively lower, end: its row above, or its column to the right.
            crossing, up, down = (each if axis == 0 else each.swapaxes(1, 2) for each in (own, rising, falling))
            picked, held, leaf = sums.near(around, 1 - axis)
            known = crossing @ leaf
            outer = straight * (crossing @ held) + diagonal * (up @ held)
            outer += (diagonal if axis == 0 else -diagonal) * (down[:, :, :-1] @ held[:, 1:])
            pairs = picked[:, :, None], picked[:, None, :]
            waves = known @ sums.inverse[pairs]
            total += _total(known @ sums.within[pairs], known) - 2 * _total(outer, waves)
            if kurtosis:
                squares = known @ sums.inverse[picked]
                np.multiply(squares, squares, out=squares)
                fourth += np.einsum("kij,kij->kj", squares, squares) @ sums.fourth
            one, other = (waves, held) if axis == 0 else (held, waves)
            spread.append(one @ other.swapaxes(1, 2))
        # Of each move what its line along y and its line along x spread there; a falling one's are one further.
        over, up = (each.reshape(len(around), -1) for each in spread)
        further = over[:, 1:], up[:, around.shares.shape[2] :]
        size = further[1].shape[1]
        total += 2 * diagonal * (np.vecdot(over, up) - np.vecdot(further[0][:, :size], further[1]))
        if kurtosis:
            for own, known in zip(flows, spread, strict=True):
                fourth += self._straight[1] * _fourth(own - known)
            rising -= over.reshape(rising.shape)
            rising -= up.reshape(rising.shape)
            left = falling.reshape(len(around), -1)
            left[:, :-1] -= further[0]
            left[:, :size] += further[1]
            for left in (rising, falling):
                fourth += self._diagonal[1] * _fourth(around.inside(left, 0, 1))
        return total, fourth


class HubErrors:
    """Variance and fourth cumulant of hubs.

    Parameters
    ----------
    known : their covariance. draws, sums : fourth cumulant of the draws, in points, and of each level of sums.
    total_known : of the release.
    """

    def __init__(self, known: HubVariance, draws: float, sums: Sequence[float], total_known: bool) -> None:
        self._known, self._draws, self._sums, self._total_known = known, draws, sums, total_known
        self._waves = [np.ascontiguousarray(line.waves.T) for line in known.hubs.grid.axes]

    def of(self, around: Around, kurtosis: bool) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of hubs inside queries, strips through these, and all sums."""
        hubs, known = self._known.hubs, self._known.joint
        (at_x, over), (at_y, up) = (self._hubs(around, axis) for axis in (0, 1))
        share = around.shares[np.arange(len(around))[:, None, None], at_x[:, :, None], at_y[:, None, :]]
        # What waves along one axis hold of each row or column of hubs.
        on_x, on_y = over.mT @ share, share @ up
        found = over.mT @ on_y
        variance = known[0, 0] * _total(share, share)
        variance += _total(found, known[1:, 1:] * found)
        if hubs.grid.strips:
            variance += _total(on_x, known[1:, :1] * on_x)
            variance += _total(on_y, known[0, 1:] * on_y)
        held, (core, ones) = share != 0, self._known.onto_total
        # What a query holds of the total is taken off all hubs alike; without noise there is nothing to take off.
        if self._total_known and ones > 0:
            entering = found.reshape(len(found), -1) @ core.ravel()
            variance -= entering**2 / ones
            alike = (entering / ones)[:, None, None]
            x, y = (waves.sum(axis=0) for waves in self._waves)
            share, found = share - alike, found - alike * np.multiply.outer(x, y)
            on_x, on_y = on_x - alike * x[:, None], on_y - alike * y
        fourth = np.zeros(len(around))
        if not kurtosis:
            return variance, fourth
        # Intervals take fourth cumulants to thousandths: single precision is enough, and takes a third of the time.
        onto = [line.turn * line.squares for line in hubs.grid.axes]
        fields: list[NDArray[Any]] = [share, found, on_x, on_y, over, up, hubs.trust, joint(hubs.trust), *onto]
        single: list[Any] = [each.astype(np.float32) for each in fields]
        share, found, on_x, on_y, over, up, trust, weight, onto_x, onto_y = single
        # A hub's own draw counts by what is left of the query there, and those of its sums by what they see of that.
        left = share + over @ (weight[1:, 1:] * found) @ up.mT
        if hubs.ratios:
            fourth += self._sums[0] * _fourth(onto_x @ (trust[1:, 1:] * found) @ onto_y.T / hubs.ratios[0])
        if hubs.grid.strips:
            left += over @ (weight[1:, :1] * on_x) + (weight[0, 1:] * on_y) @ up.mT
            on_x = trust[1:, :1] * on_x + ((trust[1:, 1:] - trust[1:, :1]) * found) @ up.mT
            on_y = trust[0, 1:] * on_y + over @ ((trust[1:, 1:] - trust[0, 1:]) * found)
            on_x = onto_x @ on_x * held.any(axis=1)[:, None, :]
            on_y = on_y @ onto_y.T * held.any(axis=2)[:, :, None]
            fourth += self._sums[1] * (_fourth(on_x) + _fourth(on_y)) / hubs.ratios[1] ** 4
        return variance, fourth + self._draws * _fourth(left * held)

    def _hubs(self, around: Around, axis: int) -> tuple[Index, Field]:
        """Places in each box of the hubs along an axis (queries, h), and their waves (queries, h, k).

        A box with fewer hubs than others has places in its rim, where it holds nothing, and whose waves are nothing.
        """
        places, low = self._known.hubs.grid.axes[axis].places, around.low[:, axis]
        first, behind = (np.searchsorted(places, edge) for edge in (low, around.high[:, axis]))
        hub = first[:, None] + np.arange(max(1, int((behind - first).max())))
        beyond = hub >= behind[:, None]
        hub[beyond] = 0
        waves = self._waves[axis][hub]
        waves[beyond] = 0.0
        return np.where(beyond, 0, places[hub] - low[:, None] + 1), waves
