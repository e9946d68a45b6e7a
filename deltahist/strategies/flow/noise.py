"""Noise of a flow and how it enters: the flow across lines, and the inflow at hubs, each joined to weighted sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import Field, Index, cumulated

#: Numbers of either type: whole ones of a release, or floats of its linear part.
Array: TypeAlias = NDArray[Any]
#: Names of kinds of draws: noise on moves across one border, and across two; on what enters at blocks.
STRAIGHT, DIAGONAL = "straight flows", "diagonal flows"
ARRIVALS, HUBS, HUB_SUMS, HUB_STRIPS = "arrivals", "hubs", "sums of hubs", "strips of hubs"
#: Binary digits after the point of flows between blocks: rounding adds less than a thousandth of a point squared.
BITS = 4
#: Axes of hubs.
_X, _Y = -2, -1
#: Flows across lines that are worked on at a time, so that arrays in between stay small and near.
_AT_A_TIME = 1 << 19
#: Eigenvalues of sums' weights below this, against the largest, are rounding.
_ROUNDING = 1e-12


# -- weighted sums along a line --------------------------------------------------------------------------------


def sums_on(n: int, width: int, centred: bool = False) -> int:
    """Return the number of overlapping sums, a width apart on a line of n places, one more if centred."""
    return max(1, round(n / width)) + centred


def hats(n: int, width: int, centred: bool = False) -> Index:
    """Return weights (sums, n) of the places in each sum, in units of 1 / (2 width).

    Each sum's weight falls linearly from one at its centre to nothing at its neighbours' centres; before the first
    and behind the last centre it stays one. At every place the weights add up to one. Sums over separate blocks
    would be weighted one inside and nothing outside: a range then ends inside a block with nothing between.
    The first sum begins at the line's start; centred sums leave as much at both ends, and reach beyond them.
    """
    number = sums_on(n, width, centred)
    first = n - 1 - (number - 1) * width if centred else width - 1
    centre = 2 * width * np.arange(number) + first
    place = np.clip(2 * np.arange(n), centre[0], centre[-1])
    return np.maximum(2 * width - np.abs(place - centre[:, None]), 0)


class Sums:
    """Weighted sums of places along a line: whole-number weights (sums, places) for each level, and their units."""

    def __init__(self, n: int, levels: Sequence[Index], units: Sequence[int]) -> None:
        numbers = np.array([len(weights) for weights in levels], dtype=np.int64)
        #: Weights of all levels (sums, n); level, and unit of the weights, of each sum (sums,).
        self.weights = np.concatenate([np.zeros((0, n), dtype=np.int64), *levels])
        self.level = np.repeat(np.arange(len(levels)), numbers)
        self.units = np.repeat(np.array(units, dtype=np.float64), numbers)
        #: Number of sums in each level.
        self.numbers = numbers.tolist()
        #: Θ (sums, n), the weights in their units.
        self.theta = self.weights / self.units[:, None]

    def __len__(self) -> int:
        return len(self.level)

    def product(self, values: Array, axis: int = -1) -> Array:
        """Return the sums of values along the last axis, or the last but one, in units; exact in whole numbers.

        In each row of weights few are not zero, and stand together: only these are multiplied.
        """
        shape = list(values.shape)
        shape[axis] = len(self)
        out = np.empty(shape, dtype=np.result_type(values, self.weights))
        for i, row in enumerate(self.weights):
            places = np.flatnonzero(row)
            some = slice(places[0], places[-1] + 1) if places.size else slice(0)
            if axis == -1:
                out[..., i] = values[..., some] @ row[some]
            else:
                out[..., i, :] = row[some] @ values[..., some, :]
        return out

    @functools.cached_property
    def ends(self) -> list[tuple[Index, Index, int]]:
        """The first and the last sum of each level that hold each place (n,); the level's last sum."""
        out = []
        for level in range(len(self.numbers)):
            members = np.flatnonzero(self.level == level)
            holds = self.weights[members] > 0
            out.append((members[holds.argmax(axis=0)], members[-1] - holds[::-1].argmax(axis=0), int(members[-1])))
        return out

    def holding(self, place: Index) -> Iterator[tuple[Index, Index]]:
        """Yield the sums that hold places, with their weights there; two of each level, with weight 0 for none."""
        for first, last, _ in self.ends:
            one, other = first[place], last[place]
            yield one, self.weights[one, place]
            yield other, np.where(one == other, 0, self.weights[other, place])


# -- flows across lines ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Least squares along a line of n borders, the same for all lines of one direction.

    T is the flow through each border as the noise on single moves has it, Θ T its weighted sums (`hats`), s those
    sums with noise of their own. The estimate is T + C (s − Θ T) with C = V Θᵀ (Θ V Θᵀ + W)⁻¹ for
    the variances V of T and W of s. A move shifts s and Θ T alike, so that s − Θ T does not change, and the
    estimate shifts by exactly the move, whatever C is and however C (s − Θ T) is rounded.

    The variances, up to a common factor, are of noise on a straight and on a diagonal move, and on the sums of each
    level, whose centres are `widths` borders apart.
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]
    centred: bool = False

    @functools.cached_property
    def diagonals(self) -> Field:
        """Number of diagonal moves that count at each border (n,)."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def windows(self) -> Sums:
        """Θ, each level's weights in units of 1 / (2 width)."""
        levels = [hats(self.n, w, self.centred) for w in self.widths]
        return Sums(self.n, levels, [2 * w for w in self.widths])

    @functools.cached_property
    def leaf(self) -> Field:
        """V (n,), as planned."""
        return self.straight + self.diagonal * self.diagonals

    @functools.cached_property
    def own(self) -> Field:
        """W (p,), as planned."""
        return np.array(self.sums, dtype=np.float64)[self.windows.level]

    @functools.cached_property
    def gain(self) -> Field:
        """C (n, p)."""
        theta = self.windows.theta
        spread = self.leaf[:, None] * theta.T
        if not self.widths:
            return spread
        return np.asarray(np.linalg.solve(theta @ spread + np.diag(self.own), spread.T).T)

    def spread(self, leaf: Field, sums: Sequence[float]) -> Field:
        """Return Θ V Θᵀ + W (p, p) for variances V of borders (n,), and of each level of sums."""
        theta = self.windows.theta
        own = np.array(sums, dtype=np.float64)[self.windows.level]
        return np.asarray((theta * leaf) @ theta.T + np.diag(own))

    @functools.cached_property
    def prefix_gain(self) -> Field:
        """Sums of C over the borders before each edge (n + 1, p)."""
        return cumulated(self.gain)

    def correction(self, flow: Array, sums: Sequence[Array]) -> Array:
        """Return C (s − Θ T) (..., lines, n) for flows T (..., lines, n); sums are by level, in units.

        Of integers it is rounded so that sums from the line's start are nearest.
        """
        surplus = np.concatenate(sums, axis=-1) - self.windows.product(flow)
        if surplus.dtype.kind == "f":
            return surplus / self.windows.units @ self.gain.T
        along = surplus / self.windows.units @ self.prefix_gain.T
        return np.diff(np.rint(along, out=along), axis=-1).astype(surplus.dtype)

    def adjoint(
        self, weights: Field, sums: Sequence[Field]
    ) -> Field:
        """Return −ΘᵀCᵀw, the weights on T beside w, for w (lines, n) on `correction`; write Cᵀw into `sums`."""
        back = weights @ self.gain
        for level, part in enumerate(sums):
            part[...] = back[:, self.windows.level == level] / (2 * self.widths[level])
        return -back @ self.windows.theta


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
        numbers = zip(*(line.windows.numbers for line in lines), strict=True)
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
        step = max(1, _AT_A_TIME * number // max(1, self.straight.size))
        for start in range(0, number, step):
            stop = min(start + step, number)
            yield slice(start, stop), slice(start + 1, stop + 1)

    def estimate(self, some: slice, line: Lines | None) -> Array:
        """Return the straight flow across some lines (..., some, places), with what the sums along them add."""
        straight = self.straight[..., some, :]
        if line is None:
            return straight
        # T of the lines: all flow across them, as the single draws have it.
        across, falling = straight.copy(), self.falling[..., some, :]
        across[..., :-1] += self.rising[..., some, :]
        if self.axis == 0:
            across[..., 1:] += falling
        else:
            across[..., 1:] -= falling
        out = line.correction(across, [sums[..., some, :] for sums in self.sums])
        out += straight
        return out


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
    def places(self) -> Index:
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
    def unit(self) -> int:
        """Parts that weights are counted in."""
        return int(self.windows.units[0])

    @functools.cached_property
    def spectrum(self) -> tuple[Field, Field]:
        """Eigenvalues λ of Θ Θᵀ above zero, and its eigenvectors over √λ, as columns: each wave's part of each sum."""
        theta = self.windows.theta
        values, vectors = np.linalg.eigh(theta @ theta.T)
        seen = values > _ROUNDING * values[-1]
        return values[seen], vectors[:, seen] / np.sqrt(values[seen])

    @functools.cached_property
    def waves(self) -> Field:
        """An orthonormal basis of what sums of hubs see (waves, hubs): eigenvectors of Θᵀ Θ."""
        return self.spectrum[1].T @ self.windows.theta

    @functools.cached_property
    def before(self) -> Field:
        """Hubs before each edge of blocks (n + 1, 1)."""
        return self._before(np.ones((1, len(self.places))))

    @functools.cached_property
    def waves_before(self) -> Field:
        """Sums of the waves before each edge of blocks (n + 1, waves)."""
        return self._before(self.waves)

    def _before(self, weights: Field) -> Field:
        out = np.zeros((self.n + 1, len(weights)))
        out[self.places + 1] = weights.T
        return np.asarray(out.cumsum(axis=0))

    def onto_waves(self, hubs: Field, axis: int) -> Field:
        """Return how much of each wave is in numbers at hubs along an axis."""
        sums, turn = self.windows.product(hubs, axis) / self.unit, self.spectrum[1]
        return np.asarray(sums @ turn if axis == _Y else turn.T @ sums)

    def of_waves(self, waves: Field, axis: int) -> Field:
        """Return the numbers at hubs along an axis from coefficients of waves."""
        turn = self.spectrum[1]
        return self.of_sums(waves @ turn.T if axis == _Y else turn @ waves, axis)

    def of_sums(self, sums: Field, axis: int) -> Field:
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
    def between(
        cls, blocks: tuple[int, ...], spacing: int, widths: tuple[int, ...] = (), strips: bool = False
    ) -> Hubs:
        """Return the hubs of a grid: `spacing` in blocks, `widths` of the levels of sums in hubs."""
        x, y = (*blocks, 1)[:2]
        line = HubLine(x, spacing, widths)  # axes alike share their tables
        return cls((line, line if x == y else HubLine(y, spacing, widths)), strips)

    @functools.cached_property
    def places(self) -> Index:
        """Flat indices of the hubs' blocks."""
        x, y = self.axes
        return np.add.outer(x.places * y.n, y.places).ravel()

    @property
    def numbers(self) -> dict[str, tuple[int, int]]:
        """Number of draws, and parts into which their unit divides a flow's, by the name of their kind."""
        x, y = self.axes
        out = {HUBS: (len(self.places), 1)}
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
    def ones(self) -> Field:
        """All ones as a sum of products of waves (waves, waves): sums' weights add up to one at every hub."""
        return np.asarray(np.multiply.outer(*(line.waves.sum(axis=1) for line in self.axes)))

    @functools.cached_property
    def levels(self) -> list[Field]:
        """Eigenvalues of squares, and of strips, for products of waves (1 + waves, 1 + waves).

        The first along each axis stands for all that the sums there do not see.
        """
        x, y = (np.concatenate([[0.0], line.spectrum[0]]) for line in self.axes)
        return [np.multiply.outer(x, y), np.add.outer(x, y)]

    @functools.cached_property
    def trust(self) -> Field:
        """T for products of waves (1 + waves, 1 + waves), as in `levels`."""
        seen = (level / ratio for level, ratio in zip(self.levels, self.ratios, strict=False))
        return np.asarray(1 / (1 + sum(seen, np.zeros_like(self.levels[0]))))

    def hub_of(self, block: Index) -> Index:
        """Return the number along each axis (ndim, m) of the hub of blocks (ndim, m)."""
        return np.stack([b // line.apart for b, line in zip(block, self.axes, strict=False)])

    def place_of(self, hub: Index) -> Index:
        """Return blocks (ndim, m) of hubs (ndim, m)."""
        return np.stack([line.places[h] for h, line in zip(hub, self.axes, strict=False)])

    def inflow(self, draws: dict[str, Array]) -> Array:
        """Return the inflow at each hub (..., hubs), from draws (..., number) of all kinds."""
        own, *sums = self.split(draws)
        if not self.ratios:
            return draws[HUBS]
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

    def adjoint(self, weights: Field, draws: dict[str, Field]) -> None:
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


def joint(values: Field) -> Field:
    """Return coefficients of products of waves, the first wave being 1, from a matrix's numbers on each product.

    The first of `values` along each axis is for all that is no wave: a wave adds the difference.
    """
    out = values.copy()
    out[1:] -= values[:1]
    out[:, 1:] -= out[:, :1]
    return out
