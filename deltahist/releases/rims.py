"""Sums over the cells that boxes cut, from sums of blocks along each axis and a few single cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.placement import Chosen
from deltahist.space.workloads import BoxCover
from deltahist.space.workloads.cover import Pieces, counted

Field = NDArray[np.float64]
Index = NDArray[np.int64]
#: Numbers that sums of blocks are, at most: of large maps blocks are longer (64 MiB).
_MOST = 1 << 23
#: Cells of a map that are looked at together: what is worked out for them stays near the processor.
_CELLS = 1 << 15


class _Sides(NamedTuple):
    """The first and the last cells of boxes along an axis (2, m): which, and the shares f that boxes hold of them.

    Where both are one, the last is none. `lean` is f ξ, with ξ the centroid of the part held, from the cell's centre
    and in half cells.
    """

    cell: Index
    share: Field
    lean: Field

    @classmethod
    def of(cls, pieces: Pieces) -> Self:
        head, tail = pieces.head, pieces.tail * pieces.apart
        # What is held of the first cell is at its end, what is held of the last one at its start.
        lean = np.array([head * (2 * pieces.before + head - 1), tail * (tail - 1)])
        return cls(np.array([pieces.first, pieces.last]), np.array([head, tail]), lean)


class Rims:
    """Sums over the cells that boxes cut.

    Parameters
    ----------
    fields : gives slopes times chosen cells along each axis, and spreads u (`Placement`).
    shape : of the map.
    """

    def __init__(self, fields: Callable[[Chosen], Sequence[Field]], shape: tuple[int, ...]) -> None:
        self._fields, self._shape = fields, shape
        if len(shape) == 2:
            number = len(fields((slice(1), slice(1)))) - 1
            self._width = -(-2 * number * math.prod(shape) // _MOST)
            self._blocks = self._sums_of_blocks(number)

    def _sums_of_blocks(self, number: int) -> tuple[Field, Field]:
        """Return sums up to every block along each axis: (blocks + 1, ny, number) and (nx, blocks + 1, number).

        The first of the numbers is of slopes across the axis, the others are of spreads.
        """
        width, (nx, ny), (of_x, of_y) = self._width, self._shape, (n // self._width for n in self._shape)
        along_x, along_y = np.zeros((of_x + 1, ny, number)), np.zeros((nx, of_y + 1, number))
        step = width * max(1, _CELLS // (width * ny))
        for start in range(0, nx, step):
            rows = slice(start, start + step)
            lean_x, lean_y, *spreads = self._fields((rows, slice(None)))
            for place, field in enumerate((lean_x, *spreads)):
                blocks = field[:, : of_y * width].reshape(len(field), of_y, width).sum(axis=2)
                np.cumsum(blocks, axis=1, out=along_y[rows, 1:, place])
            for place, field in enumerate((lean_y, *spreads)):
                blocks = field[: len(field) // width * width].reshape(-1, width, ny).sum(axis=1)
                for block, each in enumerate(blocks, start // width):
                    np.add(along_x[block, :, place], each, out=along_x[block + 1, :, place])
        return along_x, along_y

    def over(self, cover: BoxCover) -> Field:
        """Return sums over cells (1 + spreads, m): f ξ of slopes, and f (1 − f) u of each spread u."""
        pieces = [Pieces.of(*span) for span in cover.spans]
        x, *others = sides = [_Sides.of(each) for each in pieces]
        if not others:
            lean, *spreads = self._fields((x.cell,))
            return _weigh(x.lean * lean, x.share, spreads).sum(axis=1)
        (y,) = others
        cell, share, lean = x.cell[:, None], x.share[:, None], x.lean[:, None]
        lean_x, lean_y, *spreads = self._fields((cell, y.cell))
        corners = _weigh(lean * y.share * lean_x + share * y.lean * lean_y, share * y.share, spreads)
        out: Field = corners.sum(axis=1).sum(axis=1)
        for axis in (0, 1):
            out += self._along(axis, pieces[axis], sides[1 - axis])
        return out

    def _along(self, axis: int, pieces: Pieces, sides: _Sides) -> Field:
        """Return sums over both sides of boxes along an axis, without corners (1 + spreads, m).

        A side ends at the nearest edges of blocks; single cells are added, or taken away, up to its own ends.
        """
        blocks, width, low = self._blocks[axis], self._width, pieces.first + 1
        ends = np.array([np.maximum(pieces.last, low), low])[:, None]
        nearest = np.minimum((ends + width // 2) // width, self._shape[axis] // width)
        row = nearest * blocks.shape[1] + sides.cell if axis == 0 else sides.cell * blocks.shape[1] + nearest
        far, near = np.take(blocks.reshape(-1, blocks.shape[2]), row, axis=0)
        lean, *spreads = np.moveaxis(far - near, 2, 0)
        found: Field = _weigh(sides.lean * lean, sides.share, spreads).sum(axis=1)
        if width > 1:
            edge = nearest * width
            begin: Index = np.broadcast_to(np.minimum(edge, ends), row.shape).ravel()
            gap: Index = np.broadcast_to(ends - edge, row.shape).ravel()
            which = np.repeat(np.arange(row.size), abs(gap))
            place = begin[which] + counted(abs(gap))
            sign = np.where(which < sides.cell.size, 1, -1) * np.sign(gap)[which]
            side = which % sides.cell.size
            cell, share, lean = sides.cell.ravel()[side], sides.share.ravel()[side], sides.lean.ravel()[side]
            lean_x, lean_y, *singles = self._fields((place, cell) if axis == 0 else (cell, place))
            parts = sign * _weigh(lean * (lean_y if axis == 0 else lean_x), share, singles)
            found += [np.bincount(which % len(low), part, len(low)) for part in parts]
        return found


def _weigh(lean: Field, share: Field, spreads: Sequence[Field]) -> Field:
    """Return `lean` and f (1 − f) u of each spread u (1 + spreads, …)."""
    uneven = share * (1 - share)
    return np.array([lean, *(uneven * each for each in spreads)])
