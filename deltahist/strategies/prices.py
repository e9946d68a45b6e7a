"""Prices: what the ways through a flow cost, which of them moves and arrivals take, and the dearest that is taken."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.strategies.base import whole_shares
from deltahist.strategies.doors import ARRIVALS, HUB_STRIPS, HUB_SUMS, HUBS, HubGrid, HubLine
from deltahist.strategies.lines import DIAGONAL, STRAIGHT

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood

#: Further than any move.
_NEVER = 1 << 40
#: Cells up to which the cost of moves between hubs that share sums is looked up, not bounded.
_FEW = 400


class Priced(Protocol):
    """What prices are of: blocks, shares and hubs of a flow."""

    @property
    def domain(self) -> Domain: ...
    @property
    def widths(self) -> tuple[int, ...] | None: ...
    @property
    def share_of(self) -> dict[str, Fraction]: ...
    @property
    def blocks(self) -> tuple[int, ...]: ...
    @property
    def sides(self) -> tuple[int, ...]: ...
    @property
    def hub_grid(self) -> HubGrid | None: ...


class Prices:
    """Costs of steps and doors as whole numbers, over denominator^norm.

    The weights of the sums at a border add up to one, and so do those of the sums of hubs at a hub, and of its strips
    along either axis: sums cost their share, in the 2-norm at most (they do where one sum has all the weight).

    Parameters
    ----------
    flow : its shares. norm : 1 or 2.
    """

    def __init__(self, flow: Priced, norm: int) -> None:
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
        """The way to a block x and y blocks away: along diagonals first, then straight."""
        return min(x, y) * self.diagonal + abs(x - y) * self.straight

    def dearest(self, x: int, y: int) -> int:
        """The dearest way to a block at most x and y blocks away: costs are linear between 0, the bend and the end."""
        corners = {(i, j) for i in {0, min(x, y), x} for j in {0, min(x, y), y}}
        return max(self.path(i, j) for i, j in corners)

    @property
    def through_hub(self) -> int:
        """The dearest way from a block to its hub, and the hub."""
        assert self.flow.hub_grid is not None
        x, y = self.flow.hub_grid.axes
        return self.dearest(x.walk, y.walk) + self.hub

    def direct(self, near: Neighbourhood) -> int:
        """The dearest move that takes its direct way."""
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
        """The dearest move that goes through hubs, at most; 0 if none does.

        Where both ways of a move cross a line they do so in opposite directions, and hubs that are near each other
        share sums: such a move may cost less than its two ways and hubs alone. Dearest moves do neither where there is
        room (`far_is_exact`).
        """
        return self._beyond(near, most_direct(self.flow), alone=False)

    def move(self, near: Neighbourhood) -> int | None:
        """The dearest move; None on a small domain where it is not known, and can be looked up."""
        direct, far = self.direct(near), self.far(near)
        if far > direct and self.flow.domain.size <= _FEW and not self.far_is_exact(near):
            return None
        return max(direct, far)

    def far_is_exact(self, near: Neighbourhood) -> bool:
        """Whether there is a dearest move whose ways and hubs share no draws."""
        hubs = self.flow.hub_grid
        if hubs is None or not (hubs.sums or self.flow.widths):
            return True
        apart = max((2 * max(line.widths, default=0) + 1) * line.apart for line in hubs.axes)
        return self.far(near) == self._beyond(near, max(most_direct(self.flow), apart), alone=True)

    def _beyond(self, near: Neighbourhood, limit: int, alone: bool) -> int:
        """The dearest move of more than so many blocks along an axis that goes through hubs, its ways taken alone.

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
        """Whether moves lead to blocks x and y blocks away: over the blocks in between, and one cell more."""
        sides = (*self.flow.sides, 1)
        wide, high = (np.where(d > 0, (d - 1) * side + 1, 0) for d, side in zip((x, y), sides, strict=False))
        if near.domain.ndim == 1:
            return np.asarray((wide <= near.reach[0]) & (high == 0))
        far = near.reach[np.minimum(wide, len(near.reach) - 1)]
        return np.asarray((wide < len(near.reach)) & (high <= far))

    def arrival_at(self, x: int, y: int, through_hub: bool) -> int:
        """An arrival in a block x and y blocks from its door."""
        return self.path(x, y) + (self.hub if through_hub else self.arrival) + self.cells


def most_direct(flow: Priced) -> int:
    """Blocks along either axis up to which moves take their direct way; longer ones go through hubs.

    As many as steps may cost what the dearest way through hubs does. Noise and neighbourhood do not matter, so that a
    move always has one and the same way.
    """
    if flow.hub_grid is None:
        return max(flow.blocks)
    price = Prices(flow, 1)
    same = 2 * max(line.walk for line in flow.hub_grid.axes)  # never twice through one hub
    return max(same, 2 * price.through_hub // max(price.straight, price.diagonal))


def door_within(flow: Priced) -> int:
    """Blocks along either axis within which an arrival takes a door for arrivals; from further away a hub."""
    if flow.hub_grid is None:
        return max(flow.blocks)
    price = Prices(flow, 1)
    return max(0, (price.through_hub - price.arrival) // max(price.straight, price.diagonal))


def _apart(line: HubLine, limit: int, alone: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How far apart two blocks are at least that are so far from their hubs, and at least beyond a limit.

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
