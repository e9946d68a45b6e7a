"""Routes: which draws of a flow make up for a move or an arrival, by definition; what its cost is checked against."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.strategies.doors import ARRIVALS, HUB_STRIPS, HUB_SUMS, HUBS
from deltahist.strategies.lines import DIAGONAL, STRAIGHT, hats, sums_on
from deltahist.strategies.prices import Priced, door_within, most_direct

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood


@dataclass(frozen=True)
class Kind:
    """Draws of one kind.

    Parameters
    ----------
    name : for people. number : how many there are. unit : what a draw of one is, in points.
    width : of sums, the distance between their centres in borders; None for all others.
    """

    name: str
    number: int
    unit: Fraction
    width: int | None = None


class Blocks(Priced, Protocol):
    """What routes are through: the blocks of a flow, its doors and its draws."""

    @property
    def centred(self) -> bool: ...
    @property
    def plain(self) -> bool: ...
    @property
    def entries(self) -> NDArray[np.int64]: ...
    @property
    def kinds(self) -> tuple[Kind, ...]: ...
    @property
    def draws(self) -> int: ...


class Routes:
    """The way of every move and arrival through the blocks of a flow.

    A move goes from block to block, diagonally first, then straight; a long one (`most_direct`) leaves at the hub of
    the block where it starts, and enters at that of the block where it ends. An arrival enters at its door, the nearest
    block where arrivals have noise or, too far from it (`door_within`), the hub of its block, and goes on like a move.
    Every border that is crossed changes the draws that count there.
    """

    def __init__(self, flow: Blocks, near: Neighbourhood) -> None:
        self.flow, self.near = flow, near
        #: A crossing in units of its draws.
        self._one = int(1 / next(kind.unit for kind in flow.kinds if kind.name == STRAIGHT))

    @functools.cached_property
    def doors(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """For every cell that touches a source its block, the door that arrivals take, and whether it is a hub."""
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
        door = np.stack([nearest[axis][tuple(block)] for axis in range(flow.domain.ndim)])
        far = np.abs(door - block).max(axis=0) > door_within(flow)
        if hubs is not None and far.any():
            door[:, far] = hubs.place_of(hubs.hub_of(block[:, far]))
        return block, door, far

    @property
    def ways_in(self) -> list[list[int]]:
        """Blocks along x and along y between cells that touch a source and their doors, and whether these are hubs."""
        block, door, hub = self.doors
        nx, ny = (*self.flow.blocks, 1)[:2]
        seen = np.zeros((nx, ny, 2), dtype=bool)
        far = np.abs(block - door)
        seen[far[0], far[1] if len(far) > 1 else 0, hub.astype(np.int64)] = True
        return np.argwhere(seen).tolist()  # type: ignore[no-any-return]

    def changes(self) -> scipy.sparse.csr_array:
        """By how much each draw makes up for each edge (draws, M)."""
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
            _, door, hub = self.doors
            arriving = number[~moves]
            if hubs is not None and hub.any():
                enter(hubs.hub_of(there[:, arriving[hub]]), arriving[hub], 1)
            entry = np.searchsorted(flow.entries, np.ravel_multi_index(tuple(door[:, ~hub]), flow.blocks))
            if len(entry):
                add(entry + self._start[ARRIVALS], arriving[~hub], self._one)
            walk(door, there[:, arriving], arriving)
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
        """Draws that count at hubs (ndim, m): which draw, which hub, with which weight."""
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
        """Draws that steps to a neighbouring block change: which draw, which step, by −1 or 1."""
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
    """The sums that overlap at places, of which there are so many at most: which one, and its weight (0 for none)."""
    each, rest, out = np.arange(weights.shape[1]), weights.copy(), []
    for _ in range(most):
        which = rest.argmax(axis=0)
        out.append((which[place], rest[which, each][place]))
        rest[which, each] = 0
    return out
