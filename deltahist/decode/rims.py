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
from deltahist.strategies.doors import HubLine, joint
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
    """A table (k, places) whose parts around boxes are looked up, 0 off the grid."""

    def __init__(self, table: Field) -> None:
        # Before the first cell of a box is its rim; the largest box has another behind all places.
        self._padded = np.pad(table, ((0, 0), (1, table.shape[1] + 2)))

    def near(self, low: Index, size: int, first: Index | int = 0, number: int | None = None) -> Field:
        """Return what is at the places from the one before `low` on (queries, number, size), of k from the first on."""
        (across, along), wide = self._padded.strides, number or len(self._padded)
        shape = (len(self._padded) - wide + 1, self._padded.shape[1] - size + 1, wide, size)
        windows = np.ndarray(shape, np.float64, self._padded, strides=(across, along, across, along))
        return np.asarray(windows[first, low])


class _Sums:
    """Weighted sums along a line, of which few hold a place, and tables of them.

    Parameters
    ----------
    weights : of places in sums (sums, places). level : of each sum. tables : each (sums, places).
    """

    def __init__(self, weights: NDArray[Any], level: Index, *tables: Field) -> None:
        self._tables = [Windows(table) for table in tables]
        # The first and the last sum of each level that hold a place.
        self._levels = []
        for each in np.unique(level):
            numbers = np.flatnonzero(level == each)
            holds = weights[numbers] > 0
            first, last = np.argmax(holds, axis=0), len(holds) - 1 - np.argmax(holds[::-1], axis=0)
            self._levels.append((numbers[-1], numbers[0] + first, numbers[0] + last))

    def near(self, start: Index, end: Index, low: Index, size: int) -> tuple[Index, list[Field]]:
        """Return the sums that hold places from `start` to `end` (queries, s), and what tables have of them, each
        (queries, s, size), from the place before `low` on.
        """
        picked = [np.zeros((len(low), 0), dtype=np.int64)]
        tables: list[list[Field]] = [[np.zeros((len(low), 0, size))] for _ in self._tables]
        for most, first, last in self._levels:
            number = int((last[end] - first[start]).max()) + 1
            begins = np.minimum(first[start], most + 1 - number)
            picked.append(begins[:, None] + np.arange(number))
            for out, table in zip(tables, self._tables, strict=True):
                out.append(table.near(low, size, begins, number))
        return np.hstack(picked), [np.concatenate(each, axis=1) if len(each) != 2 else each[1] for each in tables]


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

    def between(self, left: Field, right: Field) -> Field:
        """leftᵀ Q right (queries, a, b) of each query Q as a matrix, for left (nx, a) and right (ny, b)."""
        rows, columns = (
            Windows(table.T).near(self.low[:, axis], self.shares.shape[1 + axis])
            for axis, table in enumerate((left, right))
        )
        return np.asarray(rows @ (self.shares @ columns.mT))


def _total(one: NDArray[Any], other: NDArray[Any]) -> Field:
    """Σ of products over each query."""
    return np.asarray(np.vecdot(one.reshape(len(one), -1), other.reshape(len(other), -1)))


def _squares(values: NDArray[Any]) -> Field:
    """Σ of squares over each query."""
    return _total(values, values)


def _fourth(values: NDArray[Any]) -> Field:
    """Σ of fourth powers over each query; changes the values."""
    return _squares(np.multiply(values, values, out=values))


def _pairs(table: NDArray[Any], some: Index) -> NDArray[Any]:
    """Return the part of a table (sums, sums) between some of the sums (queries, s), as (queries, s, s)."""
    return np.asarray(table[some[:, :, None], some[:, None, :]])


class _LineSums:
    """Sums along the lines of one direction, and what is known by them.

    Parameters
    ----------
    lines : the lines' borders and sums. straight, diagonal : variance of draws, in points. own : of each level of sums.
    """

    def __init__(self, lines: Lines, straight: float, diagonal: float, own: Sequence[Cumulants]) -> None:
        noise = np.array(own).reshape(-1, 2)[lines.level] if lines.widths else np.zeros((0, 2))
        theta, self._places = lines.theta, lines.n
        leaf = theta * (lines.straight + lines.diagonal * lines.diagonals)
        scale = np.diag(np.array(lines.sums)[lines.level]) if lines.widths else np.zeros((0, 0))
        #: C is leafᵀ @ inverse (`Lines`).
        self.inverse = np.linalg.inv(theta @ leaf.T + scale)
        within = theta * (straight + diagonal * lines.diagonals) @ theta.T + np.diag(noise[:, 0])
        self.within = self.inverse @ within @ self.inverse
        self.single, self.fourth = self.inverse.astype(np.float32), noise[:, 1].astype(np.float32)
        # Of each border its part in C before `inverse`, and in sums.
        self._sums = _Sums(lines.weights, lines.level, leaf, theta)

    def near(self, around: Around, axis: int) -> tuple[Index, Field, Field]:
        """The sums that hold borders of each box (queries, s), and the parts of these borders in C before `inverse`,
        and in sums, each (queries, s, wide or tall).
        """
        low, size = around.low[:, axis], around.shares.shape[1 + axis]
        end = np.minimum(around.high[:, axis], self._places - 1)
        picked, (leaf, held) = self._sums.near(np.maximum(low - 1, 0), end, low, size)
        # Behind the rim of a box there is only room.
        held *= (np.arange(size) <= (end + 1 - low)[:, None])[:, None]
        return picked, leaf, held


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
        self._along = [_LineSums(line, self._straight[0], self._diagonal[0], sums) for line in lines]

    def of(self, around: Around, kurtosis: bool) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of the draws in the boxes around queries and of all sums."""
        straight, diagonal = self._straight[0], self._diagonal[0]
        rising, falling = around.differences((1, 1), (0, 0)), around.differences((1, 0), (0, 1))
        flows = around.differences((1, 0), (0, 0)), around.differences((0, 1), (0, 0))
        total = straight * sum(map(_squares, flows)) + diagonal * (_squares(rising) + _squares(falling))
        fourth, factors = np.zeros(len(around)), []
        for axis, (sums, own) in enumerate(zip(self._along, flows, strict=True)):
            # A falling move counts at the left, respectively lower, end: its row above, or its column to the right.
            crossing, up, down = (each if axis == 0 else each.mT for each in (own, rising, falling))
            picked, leaf, held = sums.near(around, 1 - axis)
            known, outer = np.split(crossing @ np.concatenate([leaf, held], axis=1).mT, 2, axis=2)
            outer = straight * outer + diagonal * (up @ held.mT)
            outer += (diagonal if axis == 0 else -diagonal) * (down[:, :, :-1] @ held[:, :, 1:].mT)
            waves = known @ _pairs(sums.inverse, picked)
            total += _total(known @ _pairs(sums.within, picked), known) - 2 * _total(outer, waves)
            if kurtosis:
                squares = known.astype(np.float32) @ sums.single[picked]
                np.multiply(squares, squares, out=squares)
                fourth += _total(squares * sums.fourth, squares)
            factors.append((waves, held))
        # Of each move what its line along y and its line along x spread there; a falling one's are one further.
        (over, along_y), (up, along_x) = factors
        total += 2 * diagonal * _total(over.mT @ along_x.mT, along_y @ up)
        further = along_x[:, :, 1:].mT, along_y[:, :, 1:]
        total -= 2 * diagonal * _total(over[:, :-1].mT @ further[0], further[1] @ up[:, :-1])
        if kurtosis:
            fourth += self._of_draws(around, [*flows, rising, falling], [over, along_y, along_x.mT, up.mT])
        return total, fourth

    def _of_draws(self, around: Around, draws: Sequence[Field], factors: Sequence[Field]) -> Field:
        """Return the fourth cumulant of the draws in boxes, from what queries see of them, and the factors of what
        their lines along y and along x spread there.
        """
        # Intervals take fourth cumulants to thousandths: single precision is enough, and takes half of the time.
        fields: list[Any] = [each.astype(np.float32) for each in (*draws, *factors)]
        east, north, rising, falling = fields[:4]
        over, up = fields[4] @ fields[5], fields[6] @ fields[7]
        rising -= over
        rising -= up
        falling[:, :, :-1] -= over[:, :, 1:]
        falling[:, :-1] += up[:, 1:]
        east -= over
        north -= up
        fourth = self._straight[1] * (_fourth(east) + _fourth(north))
        for left in (rising, falling):
            fourth += self._diagonal[1] * _fourth(around.inside(left, 0, 1))
        return fourth


class _HubSums:
    """Sums of hubs along one axis, and what they know of hubs.

    Parameters
    ----------
    line : the hubs. variance : K, and trust : T, the axis first (`HubVariance`, `Hubs`).
    """

    def __init__(self, line: HubLine, variance: Field, trust: Field) -> None:
        theta, turn = line.weights / line.unit, line.turn
        self._places, self._sums = line.places, _Sums(theta, line.level, theta)
        #: What of each sum is in each wave (sums, waves); each wave's sum; K of pairs of sums.
        self.turn, self.waves, self.known = turn, line.waves.sum(axis=1), (turn * variance[1:, 0]) @ turn.T
        onto, own, alone = turn * line.squares, joint(trust)[1:, 0], trust[1:, 0]
        seen = (turn * alone) @ onto.T, onto @ (alone * self.waves)
        fields = onto, (turn * own) @ turn.T, turn @ (own * self.waves), *seen
        #: In single precision, what sums see of waves; what T makes of sums, and of ones; what sums see of both.
        self.onto, self.own, self.own_ones, self.seen, self.seen_ones = (each.astype(np.float32) for each in fields)
        self.beyond = (trust[1:, 1:] - trust[1:, :1]).astype(np.float32)

    def near(self, around: Around, axis: int) -> tuple[Index, Index, Field]:
        """Return places in each box of the hubs along an axis (queries, h), the sums that hold some of these
        (queries, s), and their weights (queries, s, h).

        Before the first, and behind the last hub of a box are places in its rim, where it holds nothing.
        """
        low, high = around.low[:, axis], around.high[:, axis]
        first, behind = (np.searchsorted(self._places, edge) for edge in (low, high))
        hub = first[:, None] + np.arange(-1, int((behind - first).max()) + 1)
        outside = (hub < first[:, None]) | (hub >= behind[:, None])
        places = np.where(outside, 0, self._places.take(hub, mode="clip") - low[:, None] + 1)
        last = np.maximum(behind - 1, 0)
        some, (weights,) = self._sums.near(np.minimum(first, last), last, first, hub.shape[1])
        return places, some, weights

    def strips(self, held: Field, some: Index, across: Field, found: Field, alike: Field) -> Field:
        """Return Σ of fourth powers of what sums along this axis see of each query (queries,).

        Parameters
        ----------
        held : what some of the sums hold (queries, s, h). across : weights along the other axis (queries, t, h).
        found : waves along this axis by sums along the other one (queries, waves, t). alike : taken off all hubs.
        """
        factors = np.concatenate([self.seen[some].mT, self.onto @ found], axis=2)
        seen = factors @ np.concatenate([held, across], axis=1)
        seen -= alike * self.seen_ones[:, None]
        seen *= np.any(held, axis=1, keepdims=True)
        return _fourth(seen)


class HubErrors:
    """Variance and fourth cumulant of hubs.

    Parameters
    ----------
    known : their covariance. draws, sums : fourth cumulant of the draws, in points, and of each level of sums.
    total_known : of the release.
    """

    def __init__(self, known: HubVariance, draws: float, sums: Sequence[float], total_known: bool) -> None:
        self._known, self._draws, self._sums, self._total_known = known, draws, sums, total_known
        x, y = known.hubs.grid.axes
        self._axes = _HubSums(x, known.joint, known.hubs.trust), _HubSums(y, known.joint.T, known.hubs.trust.T)
        self._everywhere = all(len(line.places) == line.n for line in (x, y))

    def of(self, around: Around, kurtosis: bool) -> tuple[Field, Field]:
        """Variance (m,) and fourth cumulant (m,), this of hubs inside queries, strips through these, and all sums."""
        hubs, known, (x, y) = self._known.hubs, self._known.joint, self._axes
        (at_x, some_x, over), (at_y, some_y, up) = (line.near(around, axis) for axis, line in enumerate(self._axes))
        share = around.shares
        if not self._everywhere:
            share = share[np.arange(len(around))[:, None, None], at_x[:, :, None], at_y[:, None, :]]
        # What sums along one axis hold of each row or column of hubs; few sums hold some of a box, all waves do.
        on_x, on_y = over @ share, up @ share.mT
        turn_x, turn_y = x.turn[some_x], y.turn[some_y]
        found = turn_x.mT @ (over @ on_y.mT) @ turn_y
        variance = known[0, 0] * _squares(share)
        variance += _total(found, known[1:, 1:] * found)
        if hubs.grid.strips:
            variance += _total(on_x, _pairs(x.known, some_x) @ on_x)
            variance += _total(on_y, _pairs(y.known, some_y) @ on_y)
        (core, ones), alike = self._known.onto_total, np.zeros((len(around), 1, 1))
        # What a query holds of the total is taken off all hubs alike; without noise there is nothing to take off.
        if self._total_known and ones > 0:
            entering = found.reshape(len(found), -1) @ core.ravel()
            variance -= entering**2 / ones
            alike = (entering / ones)[:, None, None]
            found = found - alike * np.multiply.outer(x.waves, y.waves)
        fourth = np.zeros(len(around))
        if not kurtosis:
            return variance, fourth
        # Single precision, as in `RimErrors`.
        fields: list[NDArray[Any]] = [share, found, on_x, on_y, over, up, turn_x, turn_y, alike]
        single: list[Any] = [each.astype(np.float32) for each in (*fields, hubs.trust, joint(hubs.trust))]
        share, found, on_x, on_y, over, up, turn_x, turn_y, alike, trust, weight = single
        # A hub's own draw counts by what is left of the query there, and those of its sums by what they see of that.
        along_x, along_y = turn_x @ (weight[1:, 1:] * found) @ turn_y.mT @ up, np.zeros_like(on_y)
        if hubs.ratios:
            fourth += self._sums[0] * _fourth(x.onto @ ((trust[1:, 1:] * found) @ y.onto.T) / hubs.ratios[0])
        if hubs.grid.strips:
            along_x += _pairs(x.own, some_x) @ on_x - alike * x.own_ones[some_x][:, :, None]
            along_y += _pairs(y.own, some_y) @ on_y - alike * y.own_ones[some_y][:, :, None]
            seen = x.strips(on_x, some_x, up, (x.beyond * found) @ turn_y.mT, alike)
            seen += y.strips(on_y, some_y, over, (y.beyond * found.mT) @ turn_x.mT, alike)
            fourth += self._sums[1] * seen / hubs.ratios[1] ** 4
        left = np.concatenate([over, along_y], axis=1).mT @ np.concatenate([along_x, up], axis=1)
        left += share
        left -= alike
        left *= share != 0
        return variance, fourth + self._draws * _fourth(left)
