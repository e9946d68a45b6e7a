"""Blocks of cells, and tiles of a map that outgrows memory: their values, and the noise that enters them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.strategies.base import Strategy

Integers = NDArray[np.int64]
#: The first cell of every block along each axis, for one grid.
Starts = tuple[NDArray[np.int64], ...]
#: Cells along each axis of a tile, about.
SIDE = 256
#: A tile by its number along each axis.
Tile = tuple[int, int]


def sum_blocks(cube: NDArray[Any], starts: Starts) -> NDArray[Any]:
    """Return sums over blocks along the leading axes, exact for integers; trailing axes are kept."""
    for axis, first in enumerate(starts):
        n = cube.shape[axis]
        if len(first) == n:
            continue
        if cube.dtype in (bool, np.int64, np.float64) and np.array_equal(first, np.arange(0, n, 2)):
            # Pairs, of which maps are halved again and again: `reduceat` takes twenty times as long.
            cells = np.moveaxis(cube, axis, 0)
            sums = np.array(cells[::2], dtype=np.int64 if cube.dtype == bool else cube.dtype)
            sums[: n // 2] += cells[1::2]
            cube = np.moveaxis(sums, 0, axis)
        else:
            cube = np.add.reduceat(cube, first, axis=axis)
    return cube


def spread_blocks(cube: NDArray[Any], starts: Starts, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the adjoint of `sum_blocks`: every cell gets its block's value."""
    for axis, (first, n) in enumerate(zip(starts, shape, strict=True)):
        if len(first) < n:
            cube = np.repeat(cube, np.diff(first, append=n), axis=axis)
    return cube


class Draws(Protocol):
    """Noise draws of a release, in arrays of which a part is the same whenever it is asked for."""

    def __call__(self, group: int, part: int, shape: tuple[int, ...], rows: slice) -> Integers:
        """Return some rows of an array of draws, which the caller may change.

        Parameters
        ----------
        group : number of the strategy's group whose law they have. part : number of the array within the group.
        shape : of the whole array. rows : which of it, along the first axis.
        """


@dataclass(frozen=True)
class Layer:
    """Values of one part of a strategy, one for each block of cells, which tiles share without cutting a block.

    Parameters
    ----------
    part : number of the part (`Strategy.parts`), whose members are a slice. step : cells of a block along each axis.
    unit : the value of one point.
    """

    part: int
    step: tuple[int, int] = (1, 1)
    unit: int = 1

    def starts(self, shape: tuple[int, ...]) -> Starts:
        """Return the first cell of each block along each axis, of a number of cells from a tile's first on."""
        return tuple(np.arange(0, n, step) for n, step in zip(shape, self.step, strict=True))


class Tiling:
    """A map of two dimensions in tiles of one size, but for a rest at the upper edges.

    A slab is a row of tiles, of all cells with the same x. Slabs are measured, and their noise is drawn, one after the
    other; what comes of it are the values of the whole map, number for number (docs/privacy/tiles.md). A strategy says
    by a subclass what its values need beyond their own block of cells.

    Parameters
    ----------
    strategy : on a domain of two dimensions.
    layers : of its values. Those that no layer has are kept whole: `top`.
    side : cells of a tile along each axis; a multiple of all steps, of about `SIDE` cells if None.
    """

    #: Rows of the strategy that are kept whole: they are few.
    top: slice = slice(0, 0)

    def __init__(self, strategy: Strategy, layers: Sequence[Layer], side: tuple[int, int] | None = None) -> None:
        self.strategy, self.layers, self.domain = strategy, tuple(layers), strategy.domain
        if self.domain.ndim != 2:
            raise InputError("the domain has one dimension: only maps of two are published in tiles")
        steps = [math.lcm(*(layer.step[axis] for layer in self.layers)) for axis in (0, 1)]
        x, y = side or (step * max(1, round(SIDE / step)) for step in steps)
        self.side = x, y
        if x % steps[0] or y % steps[1] or min(x, y) < 1:
            raise InputError(f"side is {self.side}: it must be a multiple of the blocks' sides, {tuple(steps)}")

    @property
    def shape(self) -> Tile:
        """Number of tiles along each axis."""
        (nx, ny), (x, y) = self.domain.shape, self.side
        return -(-nx // x), -(-ny // y)

    def cells(self, tile: Tile) -> tuple[slice, slice]:
        """Return the cells of a tile along each axis."""
        x, y = (slice(i * s, min((i + 1) * s, n)) for i, s, n in zip(tile, self.side, self.domain.shape, strict=True))
        return x, y

    def size_of(self, layer: Layer) -> tuple[int, int]:
        """Return the number of blocks of a layer along each axis of the map."""
        x, y = (-(-n // step) for n, step in zip(self.domain.shape, layer.step, strict=True))
        return x, y

    def blocks(self, layer: Layer, tile: Tile) -> tuple[slice, slice]:
        """Return the blocks of a layer that lie in a tile, along each axis."""
        cells = zip(self.cells(tile), layer.step, strict=True)
        x, y = (slice(span.start // step, -(-span.stop // step)) for span, step in cells)
        return x, y

    def rows(self, tile: Tile) -> Integers:
        """Return the strategy's rows whose values a tile holds, in their order."""
        found = []
        for layer in self.layers:
            (x, y), (_, ny) = self.blocks(layer, tile), self.size_of(layer)
            start = self.strategy.parts[layer.part].members.start  # type: ignore[union-attr]
            found.append(start + np.add.outer(np.arange(x.start, x.stop) * ny, np.arange(y.start, y.stop)).ravel())
        return np.concatenate(found)

    # -- private: what is measured, and what noise enters ----------------------------------------------------

    def measure(self, slab: int, counts: Integers) -> list[Integers]:
        """Return the exact values of each layer (blocks along x, along y) of a slab, from its counts (x, ny)."""
        return [sum_blocks(counts, layer.starts(counts.shape)) * layer.unit for layer in self.layers]

    def measure_top(self, slab: int, counts: Integers) -> Integers:
        """Return what the counts (x, ny) of a slab add to the values that are kept whole (top,)."""
        return np.zeros(self.top.stop - self.top.start, dtype=np.int64)

    def noise(self, draws: Draws) -> Iterator[list[Integers]]:
        """Yield the noise of each layer, slab after slab: what `Strategy.scatter` makes of the same draws."""
        for slab in range(self.shape[0]):
            found = []
            for layer in self.layers:
                rows, _ = self.blocks(layer, (slab, 0))
                found.append(draws(layer.part, 0, self.size_of(layer), rows))
            yield found

    def noise_of_top(self, draws: Draws) -> Integers:
        """Return the noise of the values that are kept whole (top,)."""
        return np.zeros(self.top.stop - self.top.start, dtype=np.int64)

    def cut(self, slab: int, values: Sequence[Integers]) -> Iterator[Integers]:
        """Yield the values of each tile of a slab, in the order of `rows`, from the values of its layers."""
        for number in range(self.shape[1]):
            parts = (
                each[:, self.blocks(layer, (slab, number))[1]] for layer, each in zip(self.layers, values, strict=True)
            )
            yield np.concatenate([part.ravel() for part in parts])

    # -- public: values of a tile ----------------------------------------------------------------------------

    def split(self, tile: Tile, values: Integers) -> list[Integers]:
        """Return the values of each layer (blocks along x, along y) in a tile, from all of the tile's (`rows`)."""
        found, start = [], 0
        for layer in self.layers:
            x, y = self.blocks(layer, tile)
            shape = x.stop - x.start, y.stop - y.start
            found.append(values[start : start + math.prod(shape)].reshape(shape))
            start += math.prod(shape)
        return found
