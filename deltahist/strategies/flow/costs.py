"""Costs of moves and arrivals through a flow: which ways they take, the dearest of them, and the draws that change."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.strategies.base import whole_shares
from deltahist.strategies.flow.entry import ARRIVALS, HUB_STRIPS, HUB_SUMS, HUBS, HubLine
from deltahist.strategies.flow.lines import DIAGONAL, STRAIGHT, hats, sums_on

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.strategies.flow.strategy import Flow

#: Further than any move.
_NEVER = 1 << 40
#: Cells up to which the cost of moves between hubs that share sums is looked up, not bounded.
_FEW = 400


class Prices:
    """Costs of steps and entry points as whole numbers, over denominator^norm.

    The weights of the sums at a border add up to one, and so do the weights of the sums of hubs at a hub, and of its
    strips along either axis: sums cost their share, in the 2-norm at most (they do where one sum has all the weight).

    Parameters
    ----------
    flow : its shares. norm : 1 or 2.
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
        most = 2 * self.cells if near.frontier.any() else 0
        limit = most_direct(self.flow)
        for move in near.frontier.tolist():
            # A move by d cells leaves up to ⌈d / block⌉ blocks behind; shorter moves are moves as well.
            far = [
                min(-(-d // b), n - 1, limit)
                for d, b, n in zip(move, self.flow.sides, self.flow.blocks, strict=True)
            ]
            x, y = (far[0], far[1] if len(far) > 1 else 0)
            if x or y:
                most = max(most, self.dearest(x, y) + 2 * self.cells)
        return most

    def far(self, near: Neighbourhood) -> int:
        """Return the dearest move that goes through hubs, at most; 0 if none does.

        Where both ways of a move cross a line they do so in opposite directions, and hubs that are near each other
        share sums: such a move may cost less than its two ways and hubs alone. Dearest moves do neither where there is
        room (`far_is_exact`).
        """
        return self._beyond(near, most_direct(self.flow), alone=False)

    def move(self, near: Neighbourhood) -> int | None:
        """Return the dearest move; None on a small domain where it is not known, and can be looked up."""
        direct, far = self.direct(near), self.far(near)
        if far > direct and self.flow.domain.size <= _FEW and not self.far_is_exact(near):
            return None
        return max(direct, far)

    def far_is_exact(self, near: Neighbourhood) -> bool:
        """Return whether there is a dearest move whose ways and hubs share no draws."""
        hubs = self.flow.hub_grid
        if hubs is None or not (hubs.sums or self.flow.widths):
            return True
        apart = max((2 * max(line.widths, default=0) + 1) * line.apart for line in hubs.axes)
        return self.far(near) == self._beyond(near, max(most_direct(self.flow), apart), alone=True)

    def _beyond(self, near: Neighbourhood, limit: int, alone: bool) -> int:
        """Return the dearest move through hubs that is longer than the limit along an axis, its ways taken alone.

        It depends on how far both ends are from their hubs along each axis: all that the neighbourhood's moves can have
        are looked at; if `alone`, those whose ways never cross one line.
        """
        hubs = self.flow.hub_grid
        if hubs is None or max(self.flow.blocks) <= limit + 1:
            return 0
        (least_x, far_x), (least_y, far_y) = (_apart(line, limit, alone) for line in hubs.axes)
        walk = np.array(
            [[self.path(i, j) for j in range(len(least_y))] for i in range(len(least_x))], dtype=object
        )
        most = -1
        for one, other in np.ndindex(least_x.shape):
            taken = self._within(near, far_x[one, other], least_y)
            taken |= self._within(near, least_x[one, other], far_y)
            if taken.any():
                most = max(most, *np.add.outer(walk[one], walk[other])[taken].tolist())
        return 0 if most < 0 else most + 2 * (self.hub + self.cells)

    def _within(self, near: Neighbourhood, x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.bool_]:
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


def arrivals_within(flow: Flow) -> int:
    """Return the blocks along either axis within which an arrival takes its own entry point, else a hub."""
    if flow.hub_grid is None:
        return max(flow.blocks)
    price = Prices(flow, 1)
    return max(0, (price.through_hub - price.arrival) // max(price.straight, price.diagonal))


def _apart(line: HubLine, limit: int, alone: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least distance of two blocks by their distances from hubs, above a limit.

    If `alone`, without those on one side of one hub, whose ways cross the same lines.
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


@dataclass(frozen=True)
class Kind:
    """Draws of one kind.

    Parameters
    ----------
    name : as text. number : of draws. unit : points that a draw of one counts.
    width : of sums, the distance between their centres in borders; None for all others.
    """

    name: str
    number: int
    unit: Fraction
    width: int | None = None


class Routes:
    """The way of every move and arrival through the blocks of a flow.

    A move goes from block to block, diagonally first, then straight; a long one (`most_direct`) leaves at the hub of
    the block where it starts, and enters at that of the block where it ends. An arrival enters at the
    nearest block where arrivals have noise or, too far from it (`arrivals_within`), at the hub of its block, and goes
    on like a move. Every border that is crossed changes the draws that count there.
    """

    def __init__(self, flow: Flow, near: Neighbourhood) -> None:
        self.flow, self.near = flow, near
        #: A crossing in units of its draws.
        self._one = int(1 / next(kind.unit for kind in flow.kinds if kind.name == STRAIGHT))

    @functools.cached_property
    def entrances(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """For every cell that touches a source its block, the point that arrivals take, and whether it is a hub."""
        from scipy.ndimage import distance_transform_cdt

        flow, hubs = self.flow, self.flow.hub_grid
        places = np.nonzero(self.near.source_cells)
        block = np.stack([p // b for p, b in zip(places, flow.sides, strict=True)])
        if not len(flow.entries):
            if hubs is None:
                raise InputError(
                    "the neighbourhood has sources and the flow strategy has no arrivals: nothing hides who appears "
                    '(make it with Flow.tuned(near), or with arrivals="boundary")'
                )
            return block, hubs.place_of(hubs.hub_of(block)), np.ones(len(places[0]), dtype=bool)
        open_ = np.ones(flow.blocks, dtype=bool)
        open_.reshape(-1)[flow.entries] = False
        nearest = distance_transform_cdt(
            open_, metric="chessboard", return_distances=False, return_indices=True
        )
        point = np.stack([nearest[axis][tuple(block)] for axis in range(flow.domain.ndim)])
        far = np.abs(point - block).max(axis=0) > arrivals_within(flow)
        if hubs is not None and far.any():
            point[:, far] = hubs.place_of(hubs.hub_of(block[:, far]))
        return block, point, far

    @property
    def ways_in(self) -> list[list[int]]:
        """Blocks along x and along y between source cells and their entrances, and whether these are hubs."""
        block, point, hub = self.entrances
        nx, ny = (*self.flow.blocks, 1)[:2]
        seen = np.zeros((nx, ny, 2), dtype=bool)
        far = np.abs(block - point)
        seen[far[0], far[1] if len(far) > 1 else 0, hub.astype(np.int64)] = True
        return np.argwhere(seen).tolist()  # type: ignore[no-any-return]

    def changes(self) -> scipy.sparse.csr_array:
        """Return U (draws, M): by how much each draw makes up for each edge."""
        flow, hubs, edges = self.flow, self.flow.hub_grid, self.near.edges()
        moves = edges[:, 0] >= 0
        rows: list[NDArray[np.int64]] = []
        columns: list[NDArray[np.int64]] = []
        values: list[NDArray[np.int64]] = []

        def add(draw: NDArray[np.int64], edge: NDArray[np.int64], value: NDArray[np.int64] | int) -> None:
            rows.append(draw)
            columns.append(edge)
            values.append(np.broadcast_to(np.asarray(value, dtype=np.int64), draw.shape))

        def enter(hub: NDArray[np.int64], edge: NDArray[np.int64], sign: int) -> None:
            for draw, which, value in self._through(hub):
                add(draw, edge[which], sign * value * self._one)

        def walk(here: NDArray[np.int64], there: NDArray[np.int64], edge: NDArray[np.int64]) -> None:
            here = here.copy()
            while len(going := np.flatnonzero((here != there).any(axis=0))):
                step = np.sign(there[:, going] - here[:, going])
                for draw, which, value in self._crossings(here[:, going], step):
                    add(draw, edge[going[which]], value * self._one)
                here[:, going] += step

        number = np.arange(len(edges))
        if not flow.plain:
            add(edges[:, 1], number, 1)
            add(edges[moves, 0], number[moves], -1)
        cell = np.stack(np.unravel_index(edges.clip(0), flow.domain.shape))
        block = cell // np.array(flow.sides)[:, None, None]
        here, there = block[:, :, 0], block[:, :, 1]
        if not moves.all():
            # The edges list arrivals in the order of the source cells.
            _, point, hub = self.entrances
            arriving = number[~moves]
            if hubs is not None and hub.any():
                enter(hubs.hub_of(there[:, arriving[hub]]), arriving[hub], 1)
            entry = np.searchsorted(flow.entries, np.ravel_multi_index(tuple(point[:, ~hub]), flow.blocks))
            if len(entry):
                add(entry + self._start[ARRIVALS], arriving[~hub], self._one)
            walk(point, there[:, arriving], arriving)
        far = moves & (np.abs(there - here).max(axis=0) > most_direct(flow))
        if hubs is not None and far.any():
            leaving, entering = hubs.hub_of(here[:, far]), hubs.hub_of(there[:, far])
            walk(here[:, far], hubs.place_of(leaving), number[far])
            enter(leaving, number[far], -1)
            enter(entering, number[far], 1)
            walk(hubs.place_of(entering), there[:, far], number[far])
        direct = moves & ~far
        walk(here[:, direct], there[:, direct], number[direct])
        return scipy.sparse.csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(flow.draws, len(edges)),
        )

    @functools.cached_property
    def _start(self) -> dict[str, int]:
        """The first draw of each kind."""
        kinds = self.flow.kinds
        return dict(
            zip([k.name for k in kinds], accumulate((k.number for k in kinds), initial=0), strict=False)
        )

    def _through(
        self, hub: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Return draws that count at hubs (ndim, m): which draw, which hub, with which weight."""
        hubs, index = self.flow.hub_grid, np.arange(hub.shape[1])
        assert hubs is not None
        x, y = hubs.axes
        at_x, at_y = hub[0], hub[1] if len(hub) > 1 else np.zeros_like(hub[0])
        out = [(self._start[HUBS] + at_x * len(y.places) + at_y, index, np.ones_like(index))]
        if not hubs.sums:
            return out
        on_x, on_y = (
            _overlapping(line.weights, at, 2 * len(line.widths)) for line, at in ((x, at_x), (y, at_y))
        )
        for (i, of_x), (j, of_y) in itertools.product(on_x, on_y):
            out.append((self._start[HUB_SUMS] + i * len(y.weights) + j, index, of_x * of_y))
        if hubs.strips:
            along_x = self._start[HUB_STRIPS]
            along_y = along_x + math.prod(hubs.shapes[0])
            out += [(along_x + i * len(y.places) + at_y, index, of_x) for i, of_x in on_x]
            out += [(along_y + at_x * len(y.weights) + j, index, of_y) for j, of_y in on_y]
        return [(draw[size > 0], which[size > 0], size[size > 0]) for draw, which, size in out]

    def _crossings(
        self, here: NDArray[np.int64], step: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Return draws that steps to a neighbouring block change: which draw, which step, by −1 or 1."""
        index = np.arange(here.shape[1])
        straight = self._start[STRAIGHT]
        if self.flow.domain.ndim == 1:
            return [(straight + np.minimum(here[0], here[0] + step[0]), index, step[0])]
        nx, ny = self.flow.blocks
        x, y = np.minimum(here, here + step)
        dx, dy = step
        left = np.where(dx > 0, here[1], here[1] + dy)  # row of the step's left end
        low = np.where(dy > 0, here[0], here[0] + dx)  # column of its lower end
        out = []
        only_x, only_y, both = ((dx != 0) & (dy == 0), (dx == 0) & (dy != 0), (dx != 0) & (dy != 0))
        out.append((straight + x * ny + y, only_x, dx))
        out.append((straight + (nx - 1) * ny + y * nx + x, only_y, dy))
        if both.any():
            diagonal = self._start[DIAGONAL] + x * (ny - 1) + y
            out.append((diagonal + np.where(dx == dy, 0, (nx - 1) * (ny - 1)), both, dx))
        for kind in self.flow.kinds:
            if kind.width is None:
                continue
            start, w = self._start[kind.name], kind.width
            for across, along, place, n, sign, moved in (
                (start, x, left, ny, dx, dx != 0),
                (start + (nx - 1) * sums_on(ny, w, self.flow.centred), y, low, nx, dy, dy != 0),
            ):
                weights = hats(n, w, self.flow.centred)
                for which, size in _overlapping(weights, place.clip(0, n - 1)):
                    out.append((across + along * len(weights) + which, moved & (size != 0), sign * size))
        return [(draw[mask], index[mask], value[mask]) for draw, mask, value in out]


def _overlapping(
    weights: NDArray[np.int64], place: NDArray[np.int64], most: int = 2
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the sums that overlap at places: which one, and its weight (0 for none)."""
    each, rest, out = np.arange(weights.shape[1]), weights.copy(), []
    for _ in range(most):
        which = rest.argmax(axis=0)
        out.append((which[place], rest[which, each][place]))
        rest[which, each] = 0
    return out
