"""Noise of a flow and how it enters: the flow across lines, and the inflow at hubs, each joined to weighted sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deltahist.decode.forms import FloatArray, IntArray
from deltahist.strategies.flow.lines import Array, Lines, Sums, bends, hats

#: Names of kinds of draws: noise on moves across one border, and across two; on what enters at blocks.
STRAIGHT, DIAGONAL = "straight flows", "diagonal flows"
ARRIVALS, HUBS, HUB_SUMS, HUB_STRIPS = "arrivals", "hubs", "sums of hubs", "strips of hubs"
#: Binary digits after the point of flows between blocks: rounding adds less than a thousandth of a point squared.
BITS = 4
#: Axes of hubs.
_X, _Y = -2, -1
#: Flows across lines that are worked on at a time, so that arrays in between stay small and near.
AT_A_TIME = 1 << 17
#: Eigenvalues of sums' weights below this, against the largest, are rounding.
_ROUNDING = 1e-12


# -- flows across lines ----------------------------------------------------------------------------------------


class Crossings(NamedTuple):
    """Draws of the flows across all lines of one direction, in arrays (..., lines, places) that are views.

    straight : flow across each border, to the east or to the north. rising, falling : of diagonal moves, which count at
    the left, respectively lower, end; a falling move flows east and south. sums : by level.
    """

    axis: int
    straight: Array
    rising: Array
    falling: Array
    sums: Sequence[Array] = ()

    @classmethod
    def of_draws(
        cls, blocks: tuple[int, ...], draws: dict[str, Array], lines: Sequence[Lines], sums: Sequence[str]
    ) -> list[Crossings]:
        """Return draws by their direction, from draws (..., number) by the name of their kind, and names of sums."""
        if len(blocks) == 1:
            straight = draws[STRAIGHT][..., None]
            return [cls(0, straight, straight[..., :0], straight[..., :0])]
        nx, ny = blocks
        east, north = _cut(draws[STRAIGHT], [(nx - 1, ny), (ny - 1, nx)])
        rising, falling = _cut(draws[DIAGONAL], [(nx - 1, ny - 1)] * 2)
        numbers = zip(*(line.numbers for line in lines), strict=True)
        levels = [
            _cut(draws[name], [(nx - 1, on_x), (ny - 1, on_y)])
            for name, (on_x, on_y) in zip(sums, numbers, strict=True)
        ]
        return [
            cls(0, east, rising, falling, [level[0] for level in levels]),
            cls(1, north, rising.mT, falling.mT, [level[1] for level in levels]),
        ]

    def strips(self) -> Iterator[tuple[slice, slice]]:
        """Yield a few lines at a time: the blocks before them, and behind them."""
        number = self.straight.shape[-2]
        step = max(1, AT_A_TIME * number // max(1, self.straight.size))
        for start in range(0, number, step):
            stop = min(start + step, number)
            yield slice(start, stop), slice(start + 1, stop + 1)

    def across(self, some: slice) -> Array:
        """Return T of some lines (..., some, places): all flow across them, as the single draws have it."""
        out, falling = _wide(self.straight[..., some, :]), self.falling[..., some, :]
        out[..., :-1] += self.rising[..., some, :]
        if self.axis == 0:
            out[..., 1:] += falling
        else:
            out[..., 1:] -= falling
        return out

    def solve(self, line: Lines) -> FloatArray:
        """Return what sums say of each line (p, ..., lines), by least squares (`Lines.solve`)."""
        surplus = _wide(np.concatenate(self.sums, axis=-1))
        for some, _ in self.strips():
            flow = self.across(some)
            surplus[..., some, :] -= line.weigh(flow.reshape(-1, line.n)).reshape(*flow.shape[:-1], -1)
        solved = line.solve(surplus.reshape(-1, surplus.shape[-1]).T)
        return solved.reshape(len(solved), *surplus.shape[:-1])

    def enter(self, out: Array, line: Lines | None) -> None:
        """Let the flows enter what blocks gain (..., along x, along y); sums add to them by the line, if there are any.

        Diagonal moves, which both directions have, enter with the flows to the east.
        """
        solved = np.zeros(0) if line is None else self.solve(line)
        gained = out if self.axis == 0 else out.mT
        for some, after in self.strips():
            if self.axis == 0:
                rising, falling = self.rising[..., some, :], self.falling[..., some, :]
                out[..., some, :-1] -= rising
                out[..., after, 1:] += rising
                out[..., some, 1:] -= falling
                out[..., after, :-1] += falling
            moved = self.straight[..., some, :] if line is None else self.estimate(some, line, solved)
            gained[..., some, :] -= moved
            gained[..., after, :] += moved

    def estimate(self, some: slice, line: Lines, solved: FloatArray) -> Array:
        """Return the straight flow across some lines (..., some, places), with what the sums along them add.

        The sum from the line's start is rounded, of whole numbers.
        """
        straight = self.straight[..., some, :]
        known = solved[..., some].reshape(len(solved), -1)
        before = line.sums_before(known)
        if straight.dtype.kind != "f":
            np.rint(before, out=before)
        out = np.empty(straight.shape, dtype=np.result_type(straight, np.int64))
        np.subtract(before[:, 1:], before[:, :-1], out=out.reshape(-1, line.n), casting="unsafe")
        out += straight
        return out


def _wide(draws: Array) -> Array:
    """Return a copy of draws in 64 bits, whole numbers or floats."""
    return draws.astype(np.result_type(draws, np.int64))


def _cut(draws: Array, shapes: Sequence[tuple[int, int]]) -> list[Array]:
    """Return draws (..., number) as arrays of these shapes, one after the other."""
    ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
    return [
        draws[..., start:end].reshape(*draws.shape[:-1], *shape)
        for shape, start, end in zip(shapes, ends[:-1], ends[1:], strict=True)
    ]


# -- inflow at hubs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HubLine:
    """Hubs along one axis of n blocks, one in the middle of every `spacing` blocks, and their sums.

    The spacing is odd, and less on an axis with fewer blocks. `widths` are hubs between the centres of sums, one for
    each level of sums, multiples of the one before; () for none.
    """

    n: int
    spacing: int
    widths: tuple[int, ...] = ()

    @functools.cached_property
    def apart(self) -> int:
        """Blocks between hubs: odd, so that each hub is in the middle of its own, and at least one is."""
        return min(self.spacing, self.n - 1 + self.n % 2)

    @property
    def walk(self) -> int:
        """Blocks from any block to its hub, at most."""
        return self.apart // 2

    @functools.cached_property
    def places(self) -> IntArray:
        """Block of each hub; a rest at the end has one, too."""
        return np.minimum(np.arange(0, self.n, self.apart) + self.walk, self.n - 1)

    @functools.cached_property
    def windows(self) -> Sums:
        """Θ: at every hub the weights of all levels add up to one unit, levels alike; one sum of all without widths."""
        number = len(self.places)
        if not self.widths or number == 1:
            return Sums(number, [np.ones((1, number), dtype=np.int64)], [1])
        most = self.widths[-1]
        levels = [most // w * hats(number, w, centred=True) for w in self.widths]
        return Sums(number, levels, [2 * most * len(levels)] * len(levels))

    @property
    def knots(self) -> IntArray:
        """The hubs (s,) between which sums of waves before a hub are quadratic."""
        number = len(self.places)
        return bends(number, self.widths if number > 1 else (), centred=True)

    @property
    def unit(self) -> int:
        """Parts that weights are counted in."""
        return int(self.windows.units[0])

    @functools.cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues λ of Θ Θᵀ above zero, and its eigenvectors over √λ, as columns: each wave's part of each sum."""
        theta = self.windows.theta
        values, vectors = np.linalg.eigh(theta @ theta.T)
        seen = values > _ROUNDING * values[-1]
        return values[seen], vectors[:, seen] / np.sqrt(values[seen])

    @functools.cached_property
    def waves(self) -> FloatArray:
        """An orthonormal basis of what sums of hubs see (waves, hubs): eigenvectors of Θᵀ Θ."""
        return self.spectrum[1].T @ self.windows.theta

    @functools.cached_property
    def before(self) -> FloatArray:
        """Hubs before each edge of blocks (n + 1, 1)."""
        return self._before(np.ones((1, len(self.places))))

    @functools.cached_property
    def waves_before(self) -> FloatArray:
        """Sums of the waves before each edge of blocks (n + 1, waves)."""
        return self._before(self.waves)

    def _before(self, weights: FloatArray) -> FloatArray:
        out = np.zeros((self.n + 1, len(weights)))
        out[self.places + 1] = weights.T
        return np.asarray(out.cumsum(axis=0))

    def onto_waves(self, hubs: FloatArray, axis: int) -> FloatArray:
        """Return how much of each wave is in numbers at hubs along an axis."""
        sums, turn = self.windows.product(hubs, axis) / self.unit, self.spectrum[1]
        return np.asarray(sums @ turn if axis == _Y else turn.T @ sums)

    def of_waves(self, waves: FloatArray, axis: int) -> FloatArray:
        """Return the numbers at hubs along an axis from coefficients of waves."""
        turn = self.spectrum[1]
        return self.of_sums(waves @ turn.T if axis == _Y else turn @ waves, axis)

    def of_sums(self, sums: FloatArray, axis: int) -> FloatArray:
        """Return at each hub along an axis the sums that it is in, by their weights."""
        each = self.windows.theta
        return np.asarray(sums @ each if axis == _Y else each.T @ sums)


@dataclass(frozen=True, eq=False)
class Hubs:
    """Blocks every few blocks along both axes, through which long moves leave and enter; and least squares of that.

    ζ is the inflow as the hubs' own noise has it; sums s over squares of hubs, and over strips of them along one axis,
    have noise of their own. With Θ for the weights of each level of sums and ρ for the variance of its noise over that
    of a hub's own, the estimate is ζ + T Σ Θᵀ (s − Θ ζ)/ρ with T = (1 + Σ ΘᵀΘ/ρ)⁻¹. A move changes s and Θ ζ alike.
    Squares are products over the axes, and strips have the same weights along one: all levels have the same waves as
    eigenvectors, and T is a number for each product of two of them.

    Parameters
    ----------
    axes : the hubs along each axis; a second axis of one block in 1-D. strips : whether there are any.
    ratios : ρ of squares, and of strips; () where there are no sums, or the estimate does not matter.
    """

    axes: tuple[HubLine, HubLine]
    strips: bool = False
    ratios: tuple[float, ...] = ()

    @classmethod
    def between(cls, blocks: tuple[int, ...], spacing: int, widths: tuple[int, ...] = (), strips: bool = False) -> Hubs:
        """Return the hubs of a grid: `spacing` in blocks, `widths` of the levels of sums in hubs."""
        x, y = (*blocks, 1)[:2]
        line = HubLine(x, spacing, widths)  # axes alike share their tables
        return cls((line, line if x == y else HubLine(y, spacing, widths)), strips)

    @functools.cached_property
    def places(self) -> IntArray:
        """Flat indices of the hubs' blocks."""
        x, y = self.axes
        return np.add.outer(x.places * y.n, y.places).ravel()

    @property
    def numbers(self) -> dict[str, tuple[int, int]]:
        """Number of draws, and parts into which their unit divides a flow's, by the name of their kind."""
        x, y = self.axes
        out = {HUBS: (len(x.places) * len(y.places), 1)}
        if x.widths:
            out[HUB_SUMS] = (len(x.windows) * len(y.windows), x.unit * y.unit)
        if self.strips:
            out[HUB_STRIPS] = (len(x.windows) * len(y.places) + len(x.places) * len(y.windows), x.unit)
        return out

    def split(self, draws: dict[str, Array]) -> list[Array]:
        """Return draws (..., along x, along y) of hubs, of squares, and of strips along either axis, if any."""
        (hx, sx), (hy, sy) = ((len(line.places), len(line.windows)) for line in self.axes)
        shapes = {HUBS: [(hx, hy)], HUB_SUMS: [(sx, sy)], HUB_STRIPS: [(sx, hy), (hx, sy)]}
        return [part for name in self.numbers for part in _cut(draws[name], shapes[name])]

    @functools.cached_property
    def ones(self) -> FloatArray:
        """All ones as a sum of products of waves (waves, waves): sums' weights add up to one at every hub."""
        return np.asarray(np.multiply.outer(*(line.waves.sum(axis=1) for line in self.axes)))

    @functools.cached_property
    def levels(self) -> list[FloatArray]:
        """Eigenvalues of squares, and of strips, for products of waves (1 + waves, 1 + waves).

        The first along each axis stands for all that the sums there do not see.
        """
        x, y = (np.concatenate([[0.0], line.spectrum[0]]) for line in self.axes)
        return [np.multiply.outer(x, y), np.add.outer(x, y)]

    @functools.cached_property
    def trust(self) -> FloatArray:
        """T for products of waves (1 + waves, 1 + waves), as in `levels`."""
        seen = (level / ratio for level, ratio in zip(self.levels, self.ratios, strict=False))
        return np.asarray(1 / (1 + sum(seen, np.zeros_like(self.levels[0]))))

    def hub_of(self, block: IntArray) -> IntArray:
        """Return the number along each axis (ndim, m) of the hub of blocks (ndim, m)."""
        return np.stack([b // line.apart for b, line in zip(block, self.axes, strict=False)])

    def place_of(self, hub: IntArray) -> IntArray:
        """Return blocks (ndim, m) of hubs (ndim, m)."""
        return np.stack([line.places[h] for h, line in zip(hub, self.axes, strict=False)])

    def inflow(self, draws: dict[str, Array]) -> Array:
        """Return the inflow at each hub (..., hubs), from draws (..., number) of all kinds."""
        if not self.ratios:
            return draws[HUBS]
        own, *sums = map(_wide, self.split(draws))
        x, y = self.axes
        (squares_x, turn_x), (squares_y, turn_y) = x.spectrum, y.spectrum
        on_x, on_y = x.windows.product(own, _X), y.windows.product(own, _Y)
        seen = y.of_sums((sums[0] - y.windows.product(on_x, _Y)) / (y.unit * self.ratios[0]), _Y)
        if self.strips:
            seen += (sums[1] - on_x) / self.ratios[1]
        # T (Θxᵀ seen), and T of what strips along y say, in waves along one axis until the end.
        along_x, trust = (turn_x * squares_x).T @ (seen / x.unit), self.trust
        mixed = y.onto_waves(along_x, _Y) * (trust[1:, 1:] - trust[1:, :1])
        if self.strips:
            along_y = (sums[2] - on_y) / (y.unit * self.ratios[1]) @ (turn_y * squares_y)
            mixed += x.onto_waves(along_y, _X) * (trust[1:, 1:] - trust[0, 1:])
        more = x.of_waves(along_x * trust[1:, :1] + y.of_waves(mixed, _Y), _X)
        if self.strips:
            more += y.of_waves(along_y * trust[0, 1:], _Y)
        if own.dtype.kind != "f":
            more = np.rint(more, out=more).astype(own.dtype)
        more += own
        return np.asarray(more.reshape(draws[HUBS].shape))

    def adjoint(self, weights: FloatArray, draws: dict[str, FloatArray]) -> None:
        """Write the weights of draws, from weights (hubs,) of the inflow, into `draws`."""
        own, *sums = self.split(draws)
        x, y = self.axes
        own[...] = weights.reshape(own.shape)
        if not self.ratios:
            return
        # T of the weights, in waves along one axis or both.
        weight, along_x = joint(self.trust), x.onto_waves(own, _X)
        on_x = y.of_waves(y.onto_waves(along_x, _Y) * weight[1:, 1:], _Y)
        if self.strips:
            on_x += along_x * weight[1:, :1]
            own += y.of_waves(y.onto_waves(own, _Y) * weight[0, 1:], _Y)
        own += x.of_waves(on_x, _X)
        on_x, on_y = x.windows.product(own, _X), y.windows.product(own, _Y)
        sums[0][...] = y.windows.product(on_x, _Y) / ((x.unit * y.unit) ** 2 * self.ratios[0])
        if self.strips:
            sums[1][...] = on_x / (x.unit**2 * self.ratios[1])
            sums[2][...] = on_y / (y.unit**2 * self.ratios[1])


def joint(values: FloatArray) -> FloatArray:
    """Return coefficients of products of waves, the first wave being 1, from a matrix's numbers on each product.

    The first of `values` along each axis is for all that is no wave: a wave adds the difference.
    """
    out = values.copy()
    out[1:] -= values[:1]
    out[:, 1:] -= out[:, :1]
    return out
