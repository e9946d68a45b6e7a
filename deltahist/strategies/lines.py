"""The noise draws of a flow on a grid, and how the flow across a grid line is estimated from them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Names of kinds of draws: noise on moves across one border, and across two.
STRAIGHT, DIAGONAL = "straight flows", "diagonal flows"
#: Flows across lines that are worked on at a time, so that what is in between stays small and near.
_AT_A_TIME = 1 << 19


def sums_on(n: int, width: int, centred: bool = False) -> int:
    """Number of overlapping sums with centres a width apart on a line of n borders, one more if they are centred."""
    return max(1, round(n / width)) + centred


def hats(n: int, width: int, centred: bool = False) -> NDArray[np.int64]:
    """Weights (sums, n) of the borders in each sum, in units of 1 / (2 width).

    Each sum's weight falls linearly from one at its centre to nothing at its neighbours' centres; before the first
    and behind the last centre it stays one. At every border the weights add up to one. Sums over separate blocks
    would be weighted one inside and nothing outside: a range then ends inside a block with nothing between.
    The first sum begins at the line's start; centred sums leave as much at both ends, and reach beyond them.
    """
    number = sums_on(n, width, centred)
    first = n - 1 - (number - 1) * width if centred else width - 1
    centre = 2 * width * np.arange(number) + first
    place = np.clip(2 * np.arange(n), centre[0], centre[-1])
    return np.maximum(2 * width - np.abs(place - centre[:, None]), 0)


def exact_product(values: NDArray[Any], weights: NDArray[np.int64], axis: int = -1) -> NDArray[Any]:
    """values (..., n) times weights (p, n) along the last axis, or the last but one; exact in whole numbers.

    In each row of weights few are not zero, and stand together: only these are multiplied.
    """
    shape = list(values.shape)
    shape[axis] = len(weights)
    out = np.empty(shape, dtype=np.result_type(values, weights))
    for i, row in enumerate(weights):
        places = np.flatnonzero(row)
        some = slice(places[0], places[-1] + 1) if places.size else slice(0)
        if axis == -1:
            out[..., i] = values[..., some] @ row[some]
        else:
            out[..., i, :] = row[some] @ values[..., some, :]
    return out


def strips(flow: NDArray[Any]) -> Iterator[tuple[slice, slice]]:
    """Lines of a flow (..., lines, n), a few at a time: the blocks before them, and those behind them."""
    number = flow.shape[-2]
    step = max(1, _AT_A_TIME * number // max(1, flow.size))
    for start in range(0, number, step):
        stop = min(start + step, number)
        yield slice(start, stop), slice(start + 1, stop + 1)


@dataclass(frozen=True)
class Lines:
    """Least squares along a line of n borders, the same for all lines of one direction.

    T is the flow through each border as the noise on single moves has it, Θ T its weighted sums (`hats`), s those
    sums with noise of their own. The estimate is T + C (s − Θ T) with C = V Θᵀ (Θ V Θᵀ + W)⁻¹ for
    the variances V of T and W of s. A move shifts s and Θ T alike, so that s − Θ T does not change, and the
    estimate shifts by exactly the move, whatever C is and however C (s − Θ T) is rounded.

    Parameters
    ----------
    n : borders per line.
    widths : between the centres of the sums, one level each.
    straight, diagonal : variance of the noise on a move across one border, up to a common factor.
    sums : variance of the noise on the sums of each level.
    centred : whether the sums are (`hats`).
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]
    centred: bool = False

    @functools.cached_property
    def diagonals(self) -> NDArray[np.float64]:
        """Number of diagonal moves that count at each border (n,)."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def weights(self) -> NDArray[np.int64]:
        """Θ in whole numbers (p, n): each level's in units of 1 / (2 width)."""
        return np.concatenate(
            [np.zeros((0, self.n), dtype=np.int64), *(hats(self.n, w, self.centred) for w in self.widths)]
        )

    @functools.cached_property
    def level(self) -> NDArray[np.int64]:
        """Level of each sum (p,)."""
        return np.repeat(np.arange(len(self.widths)), [sums_on(self.n, w, self.centred) for w in self.widths])

    @functools.cached_property
    def units(self) -> NDArray[np.float64]:
        """What the weights of each sum count in (p,)."""
        return 2.0 * np.array(self.widths, dtype=np.float64)[self.level] if self.widths else np.zeros(0)

    @functools.cached_property
    def theta(self) -> NDArray[np.float64]:
        """Θ (p, n)."""
        return self.weights / self.units[:, None]

    @functools.cached_property
    def gain(self) -> NDArray[np.float64]:
        """C (n, p)."""
        leaf = self.straight + self.diagonal * self.diagonals
        spread = leaf[:, None] * self.theta.T
        own = np.diag(np.array(self.sums)[self.level]) if self.widths else np.zeros((0, 0))
        return np.asarray(np.linalg.solve(self.theta @ spread + own, spread.T).T if self.widths else spread)

    @functools.cached_property
    def prefix_gain(self) -> NDArray[np.float64]:
        """Sums of C over the borders before each edge (n + 1, p)."""
        out = np.zeros((self.n + 1, self.gain.shape[1]))
        np.cumsum(self.gain, axis=0, out=out[1:])
        return out

    def surplus(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """s − Θ T (..., lines, p) for flows T (..., lines, n), in the sums' units, exact in whole numbers."""
        return np.concatenate(sums, axis=-1) - exact_product(flow, self.weights)

    def correction(self, flow: NDArray[Any], sums: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """C (s − Θ T) (..., lines, n); of whole numbers, rounded so that sums from the line's start are nearest."""
        surplus = self.surplus(flow, sums)
        if surplus.dtype.kind == "f":
            return surplus / self.units @ self.gain.T
        along = surplus / self.units @ self.prefix_gain.T
        return np.diff(np.rint(along, out=along), axis=-1).astype(surplus.dtype)

    def adjoint(
        self, weights: NDArray[np.float64], sums: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """From weights w (lines, n) on the estimates T + C (s − Θ T): those on s, Cᵀw, and beside w those on T,
        −ΘᵀCᵀw.

        The weights on the sums of each level are written into `sums`; those on T (lines, n) are returned.
        """
        back = weights @ self.gain
        for level, part in enumerate(sums):
            part[...] = back[:, self.level == level] / (2 * self.widths[level])
        return -back @ self.theta


@dataclass(frozen=True)
class FlowDraws:
    """The draws of a `Flow` between nx × ny blocks, by what they are: views that can be read and filled.

    Noise on borders and their sums has lines along the last axis but one, places along the line on the last; axes
    before them are releases of their own.

    Parameters
    ----------
    east : (nx − 1, ny) straight flow across the line to the right of each column x.
    north : (ny − 1, nx) straight flow across the line above each row y.
    rising, falling : (nx − 1, ny − 1) diagonal flow from (x, y) to (x + 1, y + 1), and from (x, y + 1) to (x + 1, y);
        None in 1-D. It crosses two lines, and counts on each at its left, respectively lower, end.
    sums_x, sums_y : noise of the sums along the lines that `east` and `north` cross, (lines, sums) per level.
    by_kind : all draws (number,) by the name of their kind; the arrays above are views of these.
    """

    east: NDArray[Any]
    north: NDArray[Any]
    rising: NDArray[Any] | None
    falling: NDArray[Any] | None
    sums_x: Sequence[NDArray[Any]]
    sums_y: Sequence[NDArray[Any]]
    by_kind: dict[str, NDArray[Any]]

    @classmethod
    def between(
        cls,
        blocks: tuple[int, ...],
        by_kind: dict[str, NDArray[Any]],
        sums: Sequence[NDArray[Any]],
        lines: Sequence[Lines],
    ) -> FlowDraws:
        """The draws of a flow, from those of each kind (..., number), those of each level of sums, and its lines."""
        straight = by_kind[STRAIGHT]
        releases = straight.shape[:-1]
        if len(blocks) == 1:
            none = straight[..., :0].reshape(*releases, 0, 1)
            return cls(straight.reshape(*releases, -1, 1), none, None, None, (), (), by_kind)
        nx, ny = blocks
        cut, half = (nx - 1) * ny, (nx - 1) * (ny - 1)
        diagonal = by_kind[DIAGONAL]
        on_x, on_y = ([int((line.level == level).sum()) for level in range(len(sums))] for line in lines)
        return cls(
            straight[..., :cut].reshape(*releases, nx - 1, ny),
            straight[..., cut:].reshape(*releases, ny - 1, nx),
            diagonal[..., :half].reshape(*releases, nx - 1, ny - 1),
            diagonal[..., half:].reshape(*releases, nx - 1, ny - 1),
            tuple(
                s[..., : (nx - 1) * p].reshape(*releases, nx - 1, p) for s, p in zip(sums, on_x, strict=True)
            ),
            tuple(
                s[..., (nx - 1) * p :].reshape(*releases, ny - 1, own)
                for s, p, own in zip(sums, on_x, on_y, strict=True)
            ),
            by_kind,
        )

    def flow_east(self, some: slice, line: Lines | None) -> NDArray[Any]:
        """Straight flow to the east across some lines along y (lines, ny), with what their sums add to all flow."""
        east = self.east[..., some, :]
        if line is None or self.rising is None or self.falling is None:
            return east
        # T of the lines: all flow to the east, as the single draws have it.
        across = east.copy()
        across[..., :-1] += self.rising[..., some, :]
        across[..., 1:] += self.falling[..., some, :]
        more = line.correction(across, [sums[..., some, :] for sums in self.sums_x])
        more += east
        return more

    def flow_north(self, some: slice, line: Lines | None) -> NDArray[Any]:
        """Straight flow to the north across some lines along x (lines, nx), with what their sums add to all flow."""
        north = self.north[..., some, :]
        if line is None or self.rising is None or self.falling is None:
            return north
        # What falls flows south.
        across = north.copy()
        across[..., :-1] += self.rising.mT[..., some, :]
        across[..., 1:] -= self.falling.mT[..., some, :]
        more = line.correction(across, [sums[..., some, :] for sums in self.sums_y])
        more += north
        return more
