"""Errors of flows: the variance that hubs add to a box, and all variances of explicit queries such as regions.

Noise on a border enters an answer by how much the query differs on both sides of the border: only borders at a rim
have some. Sums along a line spread what crosses the line over all of its borders; that part is a sum over few waves.
Hubs are few, and enter by the waves of their sums.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import (
    A_CALL,
    MOST_KEPT,
    Around,
    Between,
    BlockPower,
    Feature,
    Field,
    Index,
    Joint,
    Overlap,
    Quadratic,
    Terms,
    Windows,
    weighted,
)
from deltahist.space.workloads import Span
from deltahist.space.workloads.cover import Pieces
from deltahist.strategies.flow.entry import HubLine, Hubs, joint
from deltahist.strategies.flow.lines import DIAGONAL, STRAIGHT, Lines, sums_before

#: Parts of a sum of products that are smaller than this, against the largest, are rounding.
_ROUNDING = 1e-12
#: An interval takes as long without a table as so many numbers of it take to be made.
_AS_LONG = 32
#: Variance and fourth cumulant.
Cumulants: TypeAlias = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Fourths(Feature):
    """Σ over hubs of (share of the hub's block inside the interval)⁴.

    Parameters
    ----------
    before : hubs before each edge of a cell (n + 1,), of those inside a block the share.
    """

    before: NDArray[np.float64]

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return BlockPower(1, 4)(*(sums_before(self.before[:, None], place)[:, 0] for place in (low, high)))


class HubVariance:
    """Covariance of what enters at the hubs, and what of it a public total takes away.

    With noise of variance v of their own, and w on a level of sums with the eigenvalues λ, it is T² (v + Σ w λ/ρ²) for
    each product of waves along both axes (T and ρ as in `Hubs`). With a and b for the waves, and the identity where an
    index is 0, that is Σ_ij K_ij a_i a_iᵀ ⊗ b_j b_jᵀ. A public total takes away (q·m)² / Σ m, m what the covariance
    makes of all ones.

    Parameters
    ----------
    hubs : with the ratios of their noises.
    edges : where each edge of cells lies among the blocks, per axis; None if blocks are cells.
    own, sums : variance of the draws, in points: the hubs' own, and that of each level of sums.

    Attributes
    ----------
    waves : variance of each product of waves. joint : K.
    """

    def __init__(
        self, hubs: Hubs, edges: list[NDArray[np.float64] | None], own: float, sums: Sequence[float]
    ) -> None:
        self.hubs, self.own, self.edges = hubs, own, edges
        self._lines = hubs.grid.axes[: len(edges)]
        levels = zip(sums, hubs.ratios, hubs.grid.levels, strict=False)
        self.waves = hubs.trust**2 * (own + sum(w / ratio**2 * level for w, ratio, level in levels))
        self.joint = joint(self.waves)

    def second(self, total_known: bool) -> Terms:
        """Return terms of the variance."""
        core, spread = self.onto_total if total_known else (np.zeros_like(self.joint[1:, 1:]), 1.0)
        alike = [
            Quadratic.of(Overlap(before[:, 0]), edge)
            for before, edge in zip(self._before_blocks, self.edges, strict=True)
        ]
        before = []
        for line, edge in zip(self._lines, self.edges, strict=True):
            waves = line.sums_at_edges(line.waves)
            before.append(waves if edge is None else sums_before(waves, edge))
        # Without noise there is nothing that a total could take away.
        return [(1.0, WavesKnown(alike, before, self.joint, core / np.sqrt(spread) if spread > 0 else core))]

    def fourth(self, kurtosis: float) -> Terms:
        """Return the fourth cumulant of the hubs' own noise in full weight; sums and total make it a little less."""
        features = tuple(
            Fourths(before[:, 0] if edge is None else np.interp(edge, np.arange(len(before)), before[:, 0]))
            for before, edge in zip(self._before_blocks, self.edges, strict=True)
        )
        return [(kurtosis * self.own**2, features)]

    @property
    def _before_blocks(self) -> list[NDArray[np.float64]]:
        """Hubs before each edge of blocks (n + 1, 1), per axis."""
        return [line.sums_at_edges(np.ones((1, len(line.places)))) for line in self._lines]

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], float]:
        """m in waves (k, l), and Σ m, the variance of all that enters; 0 where there is next to no noise."""
        # Ones are a sum of waves, since sums' weights add up to one at every hub; without sums there is one wave.
        held = np.multiply.outer(*(line.waves.sum(axis=1) for line in self.hubs.grid.axes))
        core = self.waves[1:, 1:] * held
        return core, float((core * held).sum())


class WavesKnown(Joint):
    """Σ_ij K_ij a_i(q) b_j(q) − (Σ_ij M_ij (a_i·q) (b_j·q))² for a box q, which is a product over the axes.

    For waves a_i(q) is (a_i·q)², and for i = 0 the squared length of q. K and M are nearly of low rank: a few products
    are all of each.

    Parameters
    ----------
    alike : the squared length, per axis.
    before : sums of the waves a, and of the waves b, over all cells before each edge (n + 1, k), per axis.
    squared : K (1 + k, 1 + l). whole : M (k, l). On a line there is no b, and l is 1.
    """

    def __init__(
        self,
        alike: list[Quadratic],
        before: list[NDArray[np.float64]],
        squared: NDArray[np.float64],
        whole: NDArray[np.float64],
    ) -> None:
        self.alike, self.before, self.squared, self.whole = alike, before, squared, whole
        squares, sums = _factors(squared), _factors(whole)
        self._axes = [_Waves(*each) for each in zip(alike, before, squares, sums, strict=False)]
        #: On a line, what the products are with.
        self._line = (squares[1].sum(axis=0), sums[1][0]) if len(before) == 1 else None

    def expect(self, number: int) -> None:
        for axis in self._axes:
            axis.expect(number)

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        found = [axis(*span) for axis, span in zip(self._axes, spans, strict=True)]
        squares, sums = zip(*found if self._line is None else (*found, self._line), strict=True)
        return np.asarray((squares[0] * squares[1]).sum(axis=1) - (sums[0] * sums[1]).sum(axis=1) ** 2)

    def mean(self, shape: tuple[int, ...]) -> float:
        # Over all pairs of edges of an axis, Σ (b_f − b_e)(b_f − b_e)ᵀ = (n + 1) Σ b bᵀ − (Σ b)(Σ b)ᵀ.
        both = [
            ((n + 1) * own.T @ own - np.multiply.outer(own.sum(axis=0), own.sum(axis=0))) / (n * (n + 1) / 2)
            for own, n in zip(self.before, shape, strict=True)
        ]
        x, y = both if len(both) == 2 else (*both, np.ones((1, 1)))
        alike = [each.mean(n) for each, n in zip(self.alike, shape, strict=True)] + [1.0]
        one, other = (np.append(mean, np.diag(held)) for mean, held in zip(alike, (x, y), strict=False))
        return float(one @ self.squared @ other - ((x @ self.whole) * (self.whole @ y)).sum())


class _Waves:
    """Waves along an axis: (|q|², (a·q)²) @ weight and (a·q) @ factor for intervals q.

    Edges between the same two hubs have the same waves before them, and are kept as one place.

    Parameters
    ----------
    alike : |q|². before : sums of the waves a over all cells before each edge (n + 1, k). weight (1 + k, r).
    factor (k, s).
    """

    def __init__(
        self,
        alike: Quadratic,
        before: NDArray[np.float64],
        weight: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> None:
        moves = np.any(before[1:] != before[:-1], axis=1)
        self.place = np.concatenate([[0], np.cumsum(moves)])
        self.waves = before[np.concatenate([[True], moves])]
        self.alike, self.own, self.weight = alike, weight[0], weight[1:]
        self.linear, self._asked = self.waves @ factor, 0

    def expect(self, number: int) -> None:
        """Make the table if it pays for all intervals that were ever asked for, and is not too large."""
        self._asked += max(number, A_CALL)
        pairs = len(self.waves) ** 2 // 2
        if pairs < self._asked * _AS_LONG and pairs * self.weight.shape[1] < MOST_KEPT:
            self._between  # noqa: B018

    @functools.cached_property
    def _between(self) -> Between:
        """(a·q)² @ weight of the intervals between all places."""
        waves, weight = self.waves, self.weight

        def rows(first: int, stop: int) -> NDArray[np.float64]:
            return np.swapaxes((waves[first:stop, None] * weight.T) @ waves.T, 1, 2)

        return Between(rows, waves**2 @ weight)

    def __call__(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        intervals = Pieces.of(low, high)
        edges = [(self.place[edge], share) for edge, share in intervals.edges]
        if "_between" in self.__dict__:
            squares = self._between.of(intervals, self.place)
        else:
            squares = weighted(self.waves, edges) ** 2 @ self.weight
        squares += np.multiply.outer(self.alike(low, high), self.own)
        return squares, weighted(self.linear, edges)


def _factors(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return L (k, r) and R (l, r) with L Rᵀ the matrix, r its rank beyond rounding."""
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    some = int(np.count_nonzero(sizes > _ROUNDING * max(sizes[0], np.finfo(float).tiny)))
    return left[:, :some] * sizes[:some], right[:some].T


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
        """Return the sums that hold places from `start` to `end` (queries, s), and their part of each table.

        Parts are (queries, s, size), from the place before `low` on.
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


def _total(one: NDArray[Any], other: NDArray[Any]) -> Field:
    """Return Σ of products over each query."""
    return np.asarray(np.vecdot(one.reshape(len(one), -1), other.reshape(len(other), -1)))


def _squares(values: NDArray[Any]) -> Field:
    """Return Σ of squares over each query."""
    return _total(values, values)


def _fourth(values: NDArray[Any]) -> Field:
    """Return Σ of fourth powers over each query; changes the values."""
    return _squares(np.multiply(values, values, out=values))


def _pairs(table: NDArray[Any], some: Index) -> NDArray[Any]:
    """Return the part of a table (sums, sums) between some of the sums (queries, s), as (queries, s, s)."""
    return np.asarray(table[some[:, :, None], some[:, None, :]])


class _LineSums:
    """Sums along the lines of one direction, and the covariance of estimates by them.

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
        """Return the sums that hold borders of each box (queries, s), with the borders' parts in C and in sums.

        Parts are (queries, s, wide or tall), in C before `inverse`.
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
        """Return variance and fourth cumulant (m,) of the draws in the boxes around queries and of all sums."""
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
        """Return the fourth cumulant of the draws in boxes.

        It takes the queries' weights of draws, and the factors of those that lines along y and along x spread there.
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
        """Return places of the hubs in each box along an axis, the sums that hold some, and their weights.

        Shapes are (queries, h), (queries, s) and (queries, s, h).

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
        """Return variance and fourth cumulant (m,) of hubs inside queries, strips through these, and all sums."""
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
