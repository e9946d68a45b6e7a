"""Noise of a flow on a map that outgrows memory: slab by slab, number for number that of the whole map."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from deltahist.decode.forms import Field
from deltahist.errors import InputError
from deltahist.strategies.flow.lines import Lines
from deltahist.strategies.flow.noise import ARRIVALS, AT_A_TIME, BITS, DIAGONAL, HUBS, STRAIGHT, Crossings
from deltahist.strategies.tiles import Draws, Integers, Layer, Tiling

if TYPE_CHECKING:
    from deltahist.strategies.flow import Flow

#: Hubs that are kept whole: 128 MiB, and a few times as much while their inflow is estimated.
_MOST_HUBS = 1 << 24


class FlowTiling(Tiling):
    """Blocks of a flow in tiles, with their cells if blocks have several.

    Flows to the east, and sums along the lines that they cross, belong to a slab; what flows out of its last column is
    carried to the next one. Lines that flows to the north cross run through all slabs. Sums along them are compared
    with the flow first, over all slabs, and then the same draws are asked for again.

    Arrays of draws have x first. `part` 0 is of flows to the east, of sums along y, and of rising moves; `part` 1 of
    flows to the north, of sums along x, which are asked for as a whole, line by line, and of falling moves.
    """

    strategy: Flow

    def noise(self, draws: Draws) -> Iterator[list[Integers]]:
        flow, (nx, ny) = self.strategy, self.strategy.blocks
        along_y, along_x = flow.lines if flow.widths else (None, None)
        solved = None if along_x is None else self._solve_along_x(draws, along_x)
        arrivals, inflow = self._arriving(draws), self._inflow(draws)
        outflow, before = np.zeros(ny, dtype=np.int64), np.zeros(ny - 1)
        for slab in range(self.shape[0]):
            rows = self._block_rows(slab)
            size = rows.stop - rows.start
            # What each block gains, and at last what the next slab's first blocks do.
            gained = np.zeros((size + 1, ny), dtype=np.int64)
            gained[0] = outflow
            self._eastward(draws, rows, along_y).enter(gained, along_y)
            north = self._draw(draws, STRAIGHT, 1, (nx, ny - 1), rows)
            if along_x is not None and solved is not None:
                for lines in _strips(ny - 1, size):
                    sums_before = along_x.sums_before(solved[:, lines], rows.start, rows.stop, before[lines])
                    np.rint(sums_before, out=sums_before)
                    north[:, lines] += np.diff(sums_before, axis=1).astype(np.int64).T
            gained[:-1, :-1] -= north
            gained[:-1, 1:] += north
            del north
            here = slice(*np.searchsorted(flow.entries, (rows.start * ny, rows.stop * ny)).tolist())
            gained.ravel()[flow.entries[here] - rows.start * ny] += arrivals[here]
            if flow.hub_grid is not None:
                x, y = flow.hub_grid.axes
                hubs = x.hubs_in(rows)
                # Without sums an inflow is a draw of its own.
                entering = self._hubs(draws, hubs) if inflow is None else inflow[hubs]
                gained[np.ix_(x.places[hubs] - rows.start, y.places)] += entering
            outflow = gained[-1]
            yield [gained[:-1]] if flow.plain else [self._cells(draws, slab), gained[:-1]]

    def _cells(self, draws: Draws, slab: int) -> Integers:
        return self._draw(draws, "cells", 0, self.domain.shape, self.cells((slab, 0))[0])

    def _block_rows(self, slab: int) -> slice:
        """Return the blocks of a slab along x."""
        return self.blocks(self.layers[-1], (slab, 0))[0]

    def _draw(self, draws: Draws, name: str, part: int, shape: tuple[int, ...], rows: slice) -> Integers:
        """Return rows of an array of draws of a kind."""
        group = list(self.strategy.kinds).index(name)
        if rows.start >= rows.stop or 0 in shape:
            return np.zeros((max(0, rows.stop - rows.start), *shape[1:]), dtype=np.int64)
        return draws(group, part, shape, rows)

    def _whole(self, draws: Draws, name: str, part: int, shape: tuple[int, ...]) -> Integers:
        return self._draw(draws, name, part, shape, slice(0, shape[0]))

    def _diagonals(self, draws: Draws, rows: slice) -> tuple[Integers, Integers]:
        """Return rising and falling moves out of the blocks of a slab."""
        nx, ny = self.strategy.blocks
        lines = slice(rows.start, min(rows.stop, nx - 1))
        rising, falling = (self._draw(draws, DIAGONAL, part, (nx - 1, ny - 1), lines) for part in (0, 1))
        return rising, falling

    def _eastward(self, draws: Draws, rows: slice, along_y: Lines | None) -> Crossings:
        """Return flows to the east out of the blocks of a slab, with diagonal moves and any sums."""
        nx, ny = self.strategy.blocks
        lines = slice(rows.start, min(rows.stop, nx - 1))
        names = zip(self.strategy.sums, () if along_y is None else along_y.numbers, strict=True)
        sums = [self._draw(draws, name, 0, (nx - 1, number), lines) for name, number in names]
        east = self._draw(draws, STRAIGHT, 0, (nx - 1, ny), lines)
        return Crossings(0, east, *self._diagonals(draws, rows), sums)

    def _solve_along_x(self, draws: Draws, along_x: Lines) -> Field:
        """Return what sums say of lines along x (p, ny − 1), from all draws of the flow across."""
        nx, ny = self.strategy.blocks
        names = zip(self.strategy.sums, along_x.numbers, strict=True)
        surplus = np.concatenate(
            [self._whole(draws, name, 1, (ny - 1, number)) for name, number in names], axis=1
        )
        last = np.zeros(ny - 1, dtype=np.int64)
        for slab in range(self.shape[0]):
            rows = self._block_rows(slab)
            across = self._draw(draws, STRAIGHT, 1, (nx, ny - 1), rows)
            rising, falling = self._diagonals(draws, rows)
            across[: len(rising)] += rising
            # A falling move crosses the line in the block that it enters.
            across[0] -= last
            across[1:] -= falling[: len(across) - 1]
            last = falling[-1] if len(falling) else last
            del rising, falling
            for some in _strips(ny - 1, len(across)):
                surplus[some] -= along_x.weigh(np.ascontiguousarray(across[:, some].T), rows.start)
        return along_x.solve(surplus.T)

    def _arriving(self, draws: Draws) -> Integers:
        """Return what enters where there are arrivals."""
        number = len(self.strategy.entries)
        return self._whole(draws, ARRIVALS, 0, (number,)) if number else np.zeros(0, dtype=np.int64)

    def _inflow(self, draws: Draws) -> Integers | None:
        """Return the inflow at hubs (along x, along y); None without hubs, or without sums of them."""
        hubs = self.strategy.hub_noise
        if hubs is None or not hubs.ratios:
            return None
        others = [(name, number) for name, (number, _) in hubs.numbers.items() if name != HUBS]
        kinds = {name: self._whole(draws, name, 0, (number,)) for name, number in others}
        own = self._hubs(draws, slice(0, len(hubs.axes[0].places)))
        return hubs.inflow(kinds | {HUBS: own.ravel()}).reshape(own.shape)

    def _hubs(self, draws: Draws, rows: slice) -> Integers:
        """Return the own draws of hubs (rows, along y)."""
        assert self.strategy.hub_grid is not None
        x, y = (len(line.places) for line in self.strategy.hub_grid.axes)
        return self._draw(draws, HUBS, 0, (x, y), rows)


def _strips(lines: int, places: int) -> Iterator[slice]:
    """Yield a few lines at a time, of which each has a number of places."""
    step = max(1, AT_A_TIME // places)
    yield from (slice(start, min(start + step, lines)) for start in range(0, lines, step))


def flow_tiling(flow: Flow) -> FlowTiling:
    """Return the tiling of a flow.

    Raises InputError if there are more hubs with sums than memory may hold.
    """
    hubs = math.prod(len(line.places) for line in flow.hub_grid.axes) if flow.hub_grid and flow.hub_widths else 0
    if hubs > _MOST_HUBS:
        raise InputError(
            f"the flow has {hubs:,} hubs with sums, and tiles keep at most {_MOST_HUBS:,} of them whole: take hubs "
            "further apart, hubs without sums, or larger blocks"
        )
    sums = Layer(0 if flow.plain else 1, (1, 1) if flow.plain else flow.sides, 1 << BITS)  # type: ignore[arg-type]
    return FlowTiling(flow, [sums] if flow.plain else [Layer(0), sums])
