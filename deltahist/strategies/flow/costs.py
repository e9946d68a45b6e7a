"""Costs of moves and arrivals through a flow: which ways they take, the dearest of them, and the draws that change."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.forms import IntArray
from deltahist.errors import InputError
from deltahist.strategies.base import whole_shares
from deltahist.strategies.flow.noise import ARRIVALS, DIAGONAL, HUB_STRIPS, HUB_SUMS, HUBS, STRAIGHT, HubLine

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.strategies.flow import Flow

#: Further than any move.
_NEVER = 1 << 40
#: Cells up to which the cost of moves between hubs that share sums is looked up, not bounded.
_FEW = 400


class Prices:
    """Costs of steps and entry points of a flow as whole numbers, over denominator^norm.

    The weights of the sums at a border add up to one, and so do the weights of the sums of hubs at a hub, and of its
    strips along either axis: sums cost their share, in the 2-norm at most (they do where one sum has all the weight).
    """

    def __init__(self, flow: Flow, norm: int) -> None:
        self.flow = flow
        shares, self.denominator = whole_shares(list(flow.share_of.values()))
        share = dict(zip(flow.share_of, (s**norm for s in shares), strict=True))
        self.cells, self.arrival = share.pop("cells", 0), share.pop(ARRIVALS, 0)
        # A hub is in strips along both axes.
        self.hub = share.pop(HUBS, 0) + share.pop(HUB_SUMS, 0) + 2 * share.pop(HUB_STRIPS, 0)
        straight, diagonal = share.pop(STRAIGHT), share.pop(DIAGONAL, 0)
        sums = sum(share.values())
        #: One step across a border, and one across two.
        self.straight, self.diagonal = straight + sums, diagonal + 2 * sums

    def path(self, x: int, y: int) -> int:
        """Return the way to a block x and y blocks away: along diagonals first, then straight."""
        return min(x, y) * self.diagonal + abs(x - y) * self.straight

    def dearest(self, x: int, y: int) -> int:
        """Return the dearest way to a block at most x and y away: costs are linear up to the bend, and behind it."""
        corners = {(i, j) for i in {0, min(x, y), x} for j in {0, min(x, y), y}}
        return max(self.path(i, j) for i, j in corners)

    @property
    def through_hub(self) -> int:
        """The dearest way from a block to its hub, and the hub."""
        assert self.flow.hub_grid is not None
        x, y = self.flow.hub_grid.axes
        return self.dearest(x.walk, y.walk) + self.hub

    def direct(self, near: Neighbourhood) -> int:
        """Return the dearest move that takes its direct way."""
        if not near.frontier.any():
            return 0
        # A move by d cells leaves up to ⌈d / block⌉ blocks behind; shorter moves are moves as well.
        limit = np.minimum(np.array(self.flow.blocks) - 1, most_direct(self.flow))
        far = np.minimum(-(-near.frontier // self.flow.sides), limit)
        return max(self.dearest(*(*move, 0)[:2]) for move in np.unique(far, axis=0).tolist()) + 2 * self.cells

    def far(self, near: Neighbourhood) -> int:
        """Return the dearest move that goes through hubs, at most; 0 if none does.

        Where both ways of a move cross a line they do so in opposite directions, and hubs that are near each other
        share sums: such a move may cost less than its two ways and hubs alone. Dearest moves do neither where there is
        room (`far_is_exact`).
        """
        return self._beyond(near, most_direct(self.flow), alone=False)

    def far_is_exact(self, near: Neighbourhood) -> bool:
        """Return whether there is a dearest move whose ways and hubs share no draws."""
        hubs = self.flow.hub_grid
        if hubs is None or not (HUB_SUMS in hubs.numbers or self.flow.widths):
            return True
        apart = max((2 * max(line.widths, default=0) + 1) * line.apart for line in hubs.axes)
        return self.far(near) == self._beyond(near, max(most_direct(self.flow), apart), alone=True)

    def _beyond(self, near: Neighbourhood, limit: int, alone: bool) -> int:
        """Return the dearest move through hubs that is longer than the limit along an axis, its ways taken alone.

        It depends on how far both ends are from their hubs along each axis: all that the neighbourhood's moves can have
        are looked at; if `alone`, only moves whose ways never cross one line.
        """
        hubs = self.flow.hub_grid
        if hubs is None or max(self.flow.blocks) <= limit + 1:
            return 0
        (least_x, far_x), (least_y, far_y) = (_apart(line, limit, alone) for line in hubs.axes)
        walk = np.array([[self.path(i, j) for j in range(len(least_y))] for i in range(len(least_x))], dtype=object)
        most = -1
        for one, other in np.ndindex(least_x.shape):
            taken = self._within(near, far_x[one, other], least_y)
            taken |= self._within(near, least_x[one, other], far_y)
            if taken.any():
                most = max(most, *np.add.outer(walk[one], walk[other])[taken].tolist())
        return 0 if most < 0 else most + 2 * (self.hub + self.cells)

    def _within(self, near: Neighbourhood, x: IntArray, y: IntArray) -> NDArray[np.bool_]:
        """Return whether moves lead to blocks x and y blocks away: over the blocks in between, and one cell more."""
        sides = (*self.flow.sides, 1)
        wide, high = (np.where(d > 0, (d - 1) * side + 1, 0) for d, side in zip((x, y), sides, strict=False))
        if near.domain.ndim == 1:
            return np.asarray((wide <= near.reach[0]) & (high == 0))
        far = near.reach[np.minimum(wide, len(near.reach) - 1)]
        return np.asarray((wide < len(near.reach)) & (high <= far))

    def arrival_at(self, x: int, y: int, through_hub: bool) -> int:
        """Return the cost of an arrival in a block x and y blocks from its entry point."""
        return self.path(x, y) + (self.hub if through_hub else self.arrival) + self.cells


def most_direct(flow: Flow) -> int:
    """Return blocks along either axis up to which moves take their direct way; longer ones go through hubs.

    As many as steps may cost what the dearest way through hubs does. Noise and neighbourhood do not matter, so that a
    move always has one and the same way.
    """
    if flow.hub_grid is None:
        return max(flow.blocks)
    price = Prices(flow, 1)
    same = 2 * max(line.walk for line in flow.hub_grid.axes)  # never twice through one hub
    return max(same, 2 * price.through_hub // max(price.straight, price.diagonal))


def _apart(line: HubLine, limit: int, alone: bool) -> tuple[IntArray, IntArray]:
    """Return the least distance of two blocks by their distances from hubs, and the least above a limit.

    If `alone`, without blocks on one side of one hub, whose ways cross the same lines.
    """
    block = np.arange(line.n)
    hub = block // line.apart
    way = block - line.places[hub]
    least, beyond = (np.full((line.walk + 1, line.walk + 1), _NEVER) for _ in range(2))
    # Hubs repeat: what three of them further on is not found is nowhere.
    for apart in range(min(line.n, limit + 3 * line.apart + 1)):
        one, other = way[: line.n - apart], way[apart:]
        if alone:
            free = (hub[: line.n - apart] != hub[apart:]) | (one * other <= 0)
            one, other = one[free], other[free]
        seen = np.zeros(least.shape, dtype=bool)
        seen[np.abs(one), np.abs(other)] = True
        seen |= seen.T
        least[seen & (least == _NEVER)] = apart
        if apart > limit:
            beyond[seen & (beyond == _NEVER)] = apart
    return least, beyond


def edge_cost(flow: Flow, near: Neighbourhood, norm: int) -> Fraction | None:
    """Return the cost of the dearest move or arrival; None where it is not known, and can be looked up."""
    prices = Prices(flow, norm)
    most, far_most = prices.direct(near), prices.far(near)
    if far_most > most and flow.domain.size <= _FEW and not prices.far_is_exact(near):
        return None
    most = max(most, far_most)
    if near.source_cells.any():
        block, point, hub = entrances(flow, near)
        far = (*np.abs(block - point), 0)[:2]
        seen = np.zeros((*(*flow.blocks, 1)[:2], 2), dtype=bool)
        seen[(*far, hub.astype(np.int64))] = True
        most = max(most, *(prices.arrival_at(x, y, bool(by_hub)) for x, y, by_hub in np.argwhere(seen).tolist()))
    return Fraction(most, prices.denominator**norm)


def entrances(flow: Flow, near: Neighbourhood) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Return for every cell that touches a source its block, where arrivals enter, and whether by a hub.

    An arrival enters at the nearest block where arrivals have noise or, where that is dearer, at the hub of its block.
    """
    from scipy.ndimage import distance_transform_cdt

    hubs = flow.hub_grid
    places = np.nonzero(near.source_cells)
    block = np.stack([p // b for p, b in zip(places, flow.sides, strict=True)])
    if not len(flow.entries):
        if hubs is None:
            raise InputError(
                "the neighbourhood has sources and the flow strategy has no arrivals: nothing hides who appears "
                '(make it with Flow.tuned(near), or with arrivals="boundary")'
            )
        return block, hubs.place_of(hubs.hub_of(block)), np.ones(len(places[0]), dtype=bool)
    closed = np.ones(flow.blocks, dtype=bool)
    closed.reshape(-1)[flow.entries] = False
    nearest = distance_transform_cdt(closed, metric="chessboard", return_distances=False, return_indices=True)
    point = nearest[(slice(None), *block)]
    far = np.zeros(len(places[0]), dtype=bool)
    if hubs is not None:
        price = Prices(flow, 1)
        most = max(0, (price.through_hub - price.arrival) // max(price.straight, price.diagonal))
        far = np.abs(point - block).max(axis=0) > most
        point[:, far] = hubs.place_of(hubs.hub_of(block[:, far]))
    return block, point, far


class Routes:
    """The way of every move and arrival through the blocks of a flow.

    A move goes from block to block, diagonally first, then straight; a long one (`most_direct`) leaves at the hub of
    the block where it starts, and enters at the hub of the block where it ends. An arrival enters at its entrance, and
    goes on like a move. Every border that is crossed changes the draws that count there.
    """

    def __init__(self, flow: Flow, near: Neighbourhood) -> None:
        self.flow, self.near = flow, near
        #: A crossing in units of its draws.
        self._one = int(1 / next(group.unit for group in flow.groups if group.name == STRAIGHT))
        #: Numbers of the draws, in the arrays that they stand in.
        self._draws, self._crossings = flow.split(np.arange(flow.draws))
        self._changes: list[tuple[IntArray, IntArray, IntArray]] = []

    def changes(self) -> scipy.sparse.csr_array:
        """Return U (draws, M): by how much each draw makes up for each edge."""
        flow, edges = self.flow, self.near.edges()
        moves, every = edges[:, 0] >= 0, np.arange(len(edges))
        if not flow.plain:
            self._changes.append((edges[:, 1], every, np.ones_like(every)))
            self._changes.append((edges[moves, 0], every[moves], -np.ones_like(every[moves])))
        cell = np.stack(np.unravel_index(edges.clip(0), flow.domain.shape))
        here, there = np.moveaxis(cell // np.array(flow.sides)[:, None, None], 2, 0)
        if not moves.all():
            # The edges list arrivals in the order of the source cells.
            _, point, hub = entrances(flow, self.near)
            arriving = every[~moves]
            if hub.any():
                self._enter(there[:, arriving[hub]], arriving[hub], 1)
            if not hub.all():
                entry = np.searchsorted(flow.entries, np.ravel_multi_index(tuple(point[:, ~hub]), flow.blocks))
                self._add(self._draws[ARRIVALS][entry], arriving[~hub], np.ones_like(entry))
            self._walk(point, there[:, arriving], arriving)
        far = moves & (np.abs(there - here).max(axis=0) > most_direct(flow))
        if (hubs := flow.hub_grid) is not None and far.any():
            start, end = here[:, far], there[:, far]
            self._walk(start, hubs.place_of(hubs.hub_of(start)), every[far])
            self._enter(start, every[far], -1)
            self._enter(end, every[far], 1)
            self._walk(hubs.place_of(hubs.hub_of(end)), end, every[far])
        direct = moves & ~far
        self._walk(here[:, direct], there[:, direct], every[direct])
        draws, columns, values = (np.concatenate(part) for part in zip(*self._changes, strict=True))
        return scipy.sparse.csr_array((values, (draws, columns)), shape=(flow.draws, len(edges)))

    def _add(self, draw: IntArray, edge: IntArray, value: IntArray) -> None:
        some = value != 0
        self._changes.append((draw[some], edge[some], value[some] * self._one))

    def _walk(self, here: IntArray, there: IntArray, edge: IntArray) -> None:
        """Cross the borders between blocks here and there (ndim, m)."""
        here = here.copy()
        while len(going := np.flatnonzero((here != there).any(axis=0))):
            step = np.sign(there[:, going] - here[:, going])
            self._cross(here[:, going], step, edge[going])
            here[:, going] += step

    def _cross(self, here: IntArray, step: IntArray, edge: IntArray) -> None:
        """Cross the borders to neighbouring blocks (ndim, m): draws change by −1 or 1, and sums by their weights."""
        there = here + step
        low = np.minimum(here, there)
        for axis, crossings in enumerate(self._crossings):
            crossed = np.flatnonzero(step[axis])
            sign, line = step[axis, crossed], low[axis, crossed]
            if len(step) == 1:
                self._add(crossings.straight[line, 0], edge[crossed], sign)
                return
            # A diagonal move counts at its left, respectively lower, end.
            place = np.where(sign > 0, here[1 - axis, crossed], there[1 - axis, crossed])
            straight = step[1 - axis, crossed] == 0
            self._add(crossings.straight[line, place], edge[crossed], np.where(straight, sign, 0))
            if crossings.sums:
                table = np.concatenate(crossings.sums, axis=-1)
                for which, weight in self.flow.lines[axis].windows.holding(place):
                    self._add(table[line, which], edge[crossed], sign * weight)
        both = np.flatnonzero(step.all(axis=0))
        rising, falling = (
            table[low[0, both], low[1, both]] for table in (self._crossings[0].rising, self._crossings[0].falling)
        )
        draw = np.where(step[0, both] == step[1, both], rising, falling)
        self._add(draw, edge[both], step[0, both])

    def _enter(self, block: IntArray, edge: IntArray, sign: int) -> None:
        """Enter at the hubs of blocks (ndim, m), or leave there: draws of hubs, of squares and of strips count."""
        hubs = self.flow.hub_grid
        assert hubs is not None
        x, y = hubs.axes
        at_x, at_y = (*hubs.hub_of(block), np.zeros_like(edge))[:2]
        own, *sums = hubs.split(self._draws)
        self._add(own[at_x, at_y], edge, np.full_like(edge, sign))
        if not sums:
            return
        on_x, on_y = (list(line.windows.holding(at)) for line, at in ((x, at_x), (y, at_y)))
        for (i, of_x), (j, of_y) in itertools.product(on_x, on_y):
            self._add(sums[0][i, j], edge, sign * of_x * of_y)
        if hubs.strips:
            for i, of_x in on_x:
                self._add(sums[1][i, at_y], edge, sign * of_x)
            for j, of_y in on_y:
                self._add(sums[2][at_x, j], edge, sign * of_y)
