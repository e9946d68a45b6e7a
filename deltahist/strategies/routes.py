"""Routes: which draws of a flow make up for a move or an arrival, by definition; what its cost is checked against."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError
from deltahist.strategies.lines import hats, sums_on

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood

#: Names of kinds of draws.
STRAIGHT, DIAGONAL, ARRIVALS = "straight flows", "diagonal flows", "arrivals"


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


class Blocks(Protocol):
    """What routes are through: the blocks of a flow, its doors and its draws."""

    domain: Domain

    @property
    def blocks(self) -> tuple[int, ...]: ...
    @property
    def sides(self) -> tuple[int, ...]: ...
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

    A move goes from block to block, diagonally first, then straight; an arrival enters at its door, the nearest block
    where arrivals have noise, and goes on like a move. Every border that is crossed changes the draws that count there.
    """

    def __init__(self, flow: Blocks, near: Neighbourhood) -> None:
        self.flow, self.near = flow, near
        #: A crossing in units of its draws.
        self._one = int(1 / next(kind.unit for kind in flow.kinds if kind.name == STRAIGHT))

    @functools.cached_property
    def doors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For every cell that touches a source its block and the nearest one where arrivals have noise."""
        from scipy.ndimage import distance_transform_cdt

        if not len(self.flow.entries):
            raise InputError(
                "the neighbourhood has sources and the flow strategy has no arrivals: nothing hides who appears "
                '(make it with Flow.tuned(near), or with arrivals="boundary")'
            )
        open_ = np.ones(self.flow.blocks, dtype=bool)
        open_.reshape(-1)[self.flow.entries] = False
        nearest = distance_transform_cdt(
            open_, metric="chessboard", return_distances=False, return_indices=True
        )
        places = np.nonzero(self.near.source_cells)
        block = tuple(p // b for p, b in zip(places, self.flow.sides, strict=True))
        door = tuple(nearest[axis][block] for axis in range(self.flow.domain.ndim))
        return np.stack(block), np.stack(door)

    @property
    def way_in(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Blocks along x and along y between each cell that touches a source and its door."""
        block, door = self.doors
        far = np.abs(block - door)
        return far[0], far[1] if len(far) > 1 else np.zeros_like(far[0])

    def changes(self) -> scipy.sparse.csr_array:
        """A move goes along diagonals first, then straight; an arrival enters at the nearest open block."""
        edges = self.near.edges()
        moves = edges[:, 0] >= 0
        rows: list[NDArray[np.int64]] = []
        columns: list[NDArray[np.int64]] = []
        values: list[NDArray[np.int64]] = []

        def add(draw: NDArray[np.int64], edge: NDArray[np.int64], value: NDArray[np.int64] | int) -> None:
            rows.append(draw)
            columns.append(edge)
            values.append(np.broadcast_to(np.asarray(value, dtype=np.int64), draw.shape))

        number = np.arange(len(edges))
        if not self.flow.plain:
            add(edges[:, 1], number, 1)
            add(edges[moves, 0], number[moves], -1)
        cell = np.stack(np.unravel_index(edges.clip(0), self.flow.domain.shape))
        block = cell // np.array(self.flow.sides)[:, None, None]
        here, there = block[:, :, 0].copy(), block[:, :, 1]
        if not moves.all():
            _, door = self.doors
            # The edges list arrivals in the order of the source cells.
            here[:, ~moves] = door
            entry = np.searchsorted(self.flow.entries, np.ravel_multi_index(tuple(door), self.flow.blocks))
            add(entry + self._start[ARRIVALS], number[~moves], self._one)
        while True:
            going = np.flatnonzero((here != there).any(axis=0))
            if not len(going):
                break
            step = np.sign(there[:, going] - here[:, going])
            for draw, which, value in self._crossings(here[:, going], step):
                add(draw, going[which], value * self._one)
            here[:, going] += step
        return scipy.sparse.csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(self.flow.draws, len(edges)),
        )

    @functools.cached_property
    def _start(self) -> dict[str, int]:
        """The first draw of each kind."""
        kinds = self.flow.kinds
        return dict(zip([k.name for k in kinds], accumulate((k.number for k in kinds), initial=0), strict=False))

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
                (start + (nx - 1) * sums_on(ny, w), y, low, nx, dy, dy != 0),
            ):
                # At most two sums overlap at a border.
                weights = hats(n, w)
                first = weights.argmax(axis=0)
                rest = weights.copy()
                rest[first, np.arange(n)] = 0
                for which, size in ((first, weights.max(axis=0)), (rest.argmax(axis=0), rest.max(axis=0))):
                    draw = across + along * len(weights) + which[place.clip(0, n - 1)]
                    value = sign * size[place.clip(0, n - 1)]
                    out.append((draw, moved & (value != 0), value))
        return [(draw[mask], index[mask], value[mask]) for draw, mask, value in out]
