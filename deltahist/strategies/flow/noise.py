"""The noise of a flow. Weighted sums improve the estimates of the flow across lines and of the inflow at hubs."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.forms import FloatArray, IntArray, cumulate_rows

#: Integers for a release, or floats for the linear part of its noise.
Array: TypeAlias = NDArray[Any]
#: Units per point in released flows. Rounding adds less than a thousandth of a squared point to the variance.
UNITS = 1 << 4
#: Axes of an array of hubs.
_X, _Y = -2, -1


class Kind(enum.StrEnum):
    """The kinds of draws, except sums along lines. A straight flow crosses one border. A diagonal flow crosses two."""

    STRAIGHT = "straight flows"
    DIAGONAL = "diagonal flows"
    ARRIVALS = "arrivals"
    HUBS = "hubs"
    HUB_SUMS = "sums of hubs"
    HUB_STRIPS = "strips of hubs"


def count_sums(n: int, width: int, centred: bool = False) -> int:
    """Return the number of overlapping sums that lie `width` apart on a line of n places (one more if centred)."""
    return max(1, round(n / width)) + centred


def _find_centres(n: int, width: int, centred: bool) -> IntArray:
    """Return the centre of each sum, in units of half a place."""
    number = count_sums(n, width, centred)
    return 2 * width * np.arange(number) + (n - 1 - (number - 1) * width if centred else width - 1)


def make_hat_weights(n: int, width: int, centred: bool = False) -> IntArray:
    """Return a table (sums, n) of the weight of each place in each sum, in units of 1 / (2 width).

    The weight of a place in a sum falls linearly from one at the sum's centre to zero at the centres of neighbouring
    sums. Places before the first centre and after the last have weight one in the nearest sum. The weights of a place
    add up to one. The first sum starts where the line starts, but centred sums extend equally beyond both ends.
    """
    centre = _find_centres(n, width, centred)
    return np.maximum(2 * width - np.abs(np.clip(2 * np.arange(n), centre[0], centre[-1]) - centre[:, None]), 0)


def find_bends(n: int, widths: Sequence[int], centred: bool) -> IntArray:
    """Return the ends of a line and all places where a weight bends. Between these, all weights are linear."""
    centres = [_find_centres(n, width, centred) for width in widths]
    begins = np.unique(np.concatenate([np.array([0, n]), *(-(-centre // 2) for centre in centres)]))
    return begins[(begins >= 0) & (begins <= n)]


class WeightedSums:
    """Weighted sums of places along a line. The weights are integers, and each level has its own unit for them."""

    def __init__(self, n: int, levels: Sequence[IntArray], units: Sequence[int]) -> None:
        numbers = [len(weights) for weights in levels]
        #: The weights of all levels (sums, n), then each sum's level and the unit of its weights (sums,).
        self.weights = np.concatenate([np.zeros((0, n), dtype=np.int64), *levels])
        self.level = np.repeat(np.arange(len(levels)), numbers)
        self.units = np.repeat(np.array(units, dtype=np.float64), numbers)
        #: Θ (sums, n), the weights divided by their units.
        self.theta = self.weights / self.units[:, None]

    def __len__(self) -> int:
        return len(self.level)

    def sum_along(self, values: Array, axis: int = -1) -> Array:
        """Return weighted sums of values along one of the last two axes, in the weights' units. Integers stay exact."""
        shape = list(values.shape)
        shape[axis] = len(self)
        out = np.empty(shape, dtype=np.result_type(values, self.weights))
        for i, row in enumerate(self.weights):
            places = np.flatnonzero(row)  # a row is zero outside a short stretch
            some = slice(places[0], places[-1] + 1) if places.size else slice(0)
            if axis == -1:
                out[..., i] = values[..., some] @ row[some]
            else:
                out[..., i, :] = row[some] @ values[..., some, :]
        return out

    @functools.cached_property
    def covering_sums(self) -> list[tuple[IntArray, IntArray, int]]:
        """For each level, the first sum and the last sum that contain each place, and the last sum of the level."""
        out = []
        for level in np.unique(self.level):
            members = np.flatnonzero(self.level == level)
            holds = self.weights[members] > 0
            out.append((members[holds.argmax(axis=0)], members[-1] - holds[::-1].argmax(axis=0), int(members[-1])))
        return out

    def iterate_weights(self, place: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """For each level, yield two sums that contain each place, each with the place's weight (0 in a repeat)."""
        for first, last, _ in self.covering_sums:
            one, other = first[place], last[place]
            yield one, self.weights[one, place]
            yield other, np.where(one == other, 0, self.weights[other, place])


class Stretches(NamedTuple):
    """Stretches of a line on which all places have the same variance and all weights are linear.

    Two sums of each level cover a stretch. From place to place, a weight of `slope` moves from the first to the second.

    cuts : (s,) the first place of each stretch. variance : (s,) the variance of each of its places.
    levels : for each level, (s,) the first sum, the weight of the first place in this sum, the second sum, and the
        slope. Before the first centre and after the last, the two sums are the same and the slope is zero.
    """

    cuts: IntArray
    variance: FloatArray
    levels: list[tuple[IntArray, IntArray, IntArray, IntArray]]


@dataclass(frozen=True)
class LineEstimator:
    """A least-squares estimator of the flow across a line of n borders. All lines of one direction share it.

    T is the flow across each border from single draws, Θ T are its weighted sums (`make_hat_weights`), and s are the
    same sums with separate noise. V and W are the variances of T and s. The estimate is T + C (s − Θ T) with C = V Θᵀ
    (Θ V Θᵀ + W)⁻¹. A move shifts s and Θ T by the same amount. So a move does not change s − Θ T, and shifts the
    estimate by exactly the move, for any C and any rounding of C (s − Θ T).

    `straight`, `diagonal` and `sums` are variances, up to a common factor. Sums have centres `widths` borders apart.
    """

    n: int
    widths: tuple[int, ...]
    straight: float
    diagonal: float
    sums: tuple[float, ...]
    centred: bool = False

    @functools.cached_property
    def diagonal_counts(self) -> FloatArray:
        """The number of diagonal moves that cross each border."""
        out = np.zeros(self.n)
        out[:-1] += 1
        out[1:] += 1
        return out

    @functools.cached_property
    def windows(self) -> WeightedSums:
        """Θ, with each level's weights in units of 1 / (2 width)."""
        levels = [make_hat_weights(self.n, w, self.centred) for w in self.widths]
        return WeightedSums(self.n, levels, [2 * w for w in self.widths])

    @functools.cached_property
    def border_variance(self) -> FloatArray:
        """V, the variance of the flow across each border, from the planned variances."""
        return self.straight + self.diagonal * self.diagonal_counts

    def covariance_of_sums(self, borders: FloatArray, sums: Sequence[float]) -> FloatArray:
        """Return Θ V Θᵀ + W, where `borders` are the variances V and `sums` gives one variance W for each level."""
        theta = self.windows.theta
        return np.asarray((theta * borders) @ theta.T + np.diag(np.array(sums, dtype=float)[self.windows.level]))

    @functools.cached_property
    def prefix_gain(self) -> FloatArray:
        """The prefix sums of C, of shape (n + 1, p), over the borders before each edge."""
        spread = self.windows.theta * self.border_variance
        gain = np.linalg.solve(self.covariance_of_sums(self.border_variance, self.sums), spread).T
        return cumulate_rows(np.asarray(gain, dtype=np.float64))

    @functools.cached_property
    def knots(self) -> IntArray:
        """The edges between which the weights next to an edge and the prefix sums of the weights are quadratic."""
        bend = np.concatenate([find_bends(self.n, self.widths, self.centred), [1, self.n - 1]])
        every: IntArray = np.unique(np.add.outer(bend, np.arange(-1, 2)))
        return every[(every >= 0) & (every <= self.n)]

    @functools.cached_property
    def sums_per_level(self) -> list[int]:
        return [count_sums(self.n, width, self.centred) for width in self.widths]

    @functools.cached_property
    def stretches(self) -> Stretches:
        """The stretches of the line, which end at the centres of sums and next to the line's ends."""
        centres = [_find_centres(self.n, width, self.centred) for width in self.widths]
        begins = [-(-centre // 2) for centre in centres]
        cuts: IntArray = np.unique(np.concatenate([np.array([0, 1, self.n - 1]), *begins]))
        cuts = cuts[(cuts >= 0) & (cuts < self.n)]
        levels, start = [], 0
        for width, centre, begin in zip(self.widths, centres, begins, strict=True):
            last, before = len(centre) - 1, np.searchsorted(begin, cuts, side="right") - 1
            between, place = ((before >= 0) & (before < last)).astype(np.int64), np.maximum(before, 0)
            weight = 2 * width - between * (2 * cuts - centre[place])
            levels.append((start + place, weight, start + place + between, 2 * between))
            start += len(centre)
        return Stretches(cuts, self.border_variance[cuts], levels)

    @functools.cached_property
    def banded_factors(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """The order of the sums along the line, and L and the diagonal of D with L D Lᵀ = Θ V Θᵀ + W in this order.

        L is one on its diagonal. `L[j]` holds the b numbers below it in column j. BLAS does not affect the result.
        """
        weights, unit = scipy.sparse.csr_array(self.windows.weights), self.windows.units
        order = np.argsort(self.windows.weights.argmax(axis=1), kind="stable")
        weights, unit = weights[order], unit[order]
        diagonal = (weights * self.diagonal_counts.astype(np.int64)) @ weights.T
        left = self.straight * (weights @ weights.T).toarray() + self.diagonal * diagonal.toarray()
        left /= np.multiply.outer(unit, unit)
        left[np.diag_indices(len(order))] += np.repeat(self.sums, self.sums_per_level)[order]
        band = int(np.abs(np.subtract(*np.nonzero(left))).max(initial=0))
        below, own = np.zeros((len(order), band)), np.zeros(len(order))
        for j in range(len(order)):
            behind, own[j] = slice(j + 1, j + 1 + band), left[j, j]
            column = left[behind, j] / own[j]
            left[behind, behind] -= np.multiply.outer(column, left[behind, j])
            below[j, : len(column)] = column
        return order, below, own

    def solve_sums(self, surplus: Array) -> FloatArray:
        """Return (Θ V Θᵀ + W)⁻¹ (s − Θ T), given s − Θ T in `windows.units`. Each column is a separate line."""
        order, below, own = self.banded_factors
        out = (surplus / self.windows.units[:, None])[order]
        for j, column in enumerate(below):
            behind = out[j + 1 : j + 1 + len(column)]
            behind -= column[: len(behind), None] * out[j]
        out /= own[:, None]
        for j in range(len(order) - 1, 0, -1):
            before = np.arange(max(0, j - below.shape[1]), j)
            out[before[0] : j] -= below[before, j - 1 - before, None] * out[j]
        solved = np.empty_like(out)
        solved[order] = out
        return solved

    def weigh_flows(self, flow: Array) -> Array:
        """Return Θ T in `windows.units` for flows T, with one row per line. It is exact for integers."""
        cuts, _, levels = self.stretches
        which = np.repeat(np.arange(len(cuts)), np.diff(cuts, append=self.n))
        plain = np.add.reduceat(flow, cuts, axis=-1)
        moment = np.add.reduceat(flow * (np.arange(self.n) - cuts[which]), cuts, axis=-1)
        out = np.zeros((len(flow), sum(self.sums_per_level)), dtype=flow.dtype)
        for width, (left, weight, right, slope) in zip(self.widths, levels, strict=True):
            falling = weight * plain - slope * moment
            for sums, part in ((left, falling), (right, 2 * width * plain - falling)):
                runs = np.flatnonzero(np.diff(sums, prepend=-1))
                out[:, sums[runs]] += np.add.reduceat(part, runs, axis=-1)
        return out

    def correct_prefixes(self, solved: FloatArray) -> FloatArray:
        """Return the prefix sums of C (s − Θ T), with one row per line, given the result of `solve_sums`."""
        cuts, variance, levels = self.stretches
        # On each stretch, C (s − Θ T) is linear: its value at the first place is `level`, and its slope is 2 · `rise`.
        level, rise = np.zeros((2, len(cuts), solved.shape[1]))
        for width, (left, weight, right, slope) in zip(self.widths, levels, strict=True):
            one, other = solved[left], solved[right]
            other -= one
            rise += other * (slope[:, None] / (4 * width))
            other *= 1 - weight[:, None] / (2 * width)
            level += one
            level += other
        level *= variance[:, None]
        rise *= variance[:, None]
        size = np.diff(cuts)[:, None]
        before = cumulate_rows(size * (level[:-1] + (size - 1) * rise[:-1]))
        number = np.diff(cuts, append=self.n + 1)
        further = (np.arange(self.n + 1) - np.repeat(cuts, number)).astype(np.float64)
        before, level, rise = (np.repeat(each.T, number, axis=1) for each in (before, level, rise))
        rise *= further - 1
        rise += level
        rise *= further
        rise += before
        return rise

    def apply_adjoint(self, weights: FloatArray, sums: Sequence[FloatArray]) -> FloatArray:
        """Write Cᵀw into `sums` for weights w, one row per line. Return −ΘᵀCᵀw, to be added to the weights of T."""
        back = self.solve_sums(self.weigh_flows(weights * self.border_variance).T).T
        for level, part in enumerate(sums):
            part[...] = back[:, self.windows.level == level] / (2 * self.widths[level])
        return -back @ self.windows.theta


class Crossings(NamedTuple):
    """The draws of flows across all lines of one direction, as views of shape (..., lines, places).

    straight : flows east or north across each border. rising, falling : diagonal moves, stored at their left or lower
        end. A falling move flows south-east. sums : the sums along lines, for each level.
    """

    axis: int
    straight: Array
    rising: Array
    falling: Array
    sums: Sequence[Array] = ()

    @classmethod
    def of_draws(
        cls, blocks: tuple[int, ...], draws: dict[str, Array], lines: Sequence[LineEstimator], sums: Sequence[str]
    ) -> list[Crossings]:
        """Group the draws of each kind by direction. `sums` names the kinds that are sums along lines."""
        if len(blocks) == 1:
            straight = draws[Kind.STRAIGHT][..., None]
            return [cls(0, straight, straight[..., :0], straight[..., :0])]
        nx, ny = blocks
        east, north = _split_draws(draws[Kind.STRAIGHT], [(nx - 1, ny), (ny - 1, nx)])
        rising, falling = _split_draws(draws[Kind.DIAGONAL], [(nx - 1, ny - 1)] * 2)
        pairs = zip(sums, zip(*(line.sums_per_level for line in lines), strict=True), strict=True)
        levels = [_split_draws(draws[name], [(nx - 1, on_x), (ny - 1, on_y)]) for name, (on_x, on_y) in pairs]
        return [
            cls(0, east, rising, falling, [level[0] for level in levels]),
            cls(1, north, rising.mT, falling.mT, [level[1] for level in levels]),
        ]

    def slice_lines(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of the blocks on both sides of a few lines at a time, to keep intermediate arrays small."""
        number = self.straight.shape[-2]
        step = max(1, (1 << 17) * number // max(1, self.straight.size))
        for start in range(0, number, step):
            stop = min(start + step, number)
            yield slice(start, stop), slice(start + 1, stop + 1)

    def solve_sums(self, line: LineEstimator) -> FloatArray:
        """Return (Θ V Θᵀ + W)⁻¹ (s − Θ T) for all lines, which are on the last axis of the result."""
        surplus = _copy_wide(np.concatenate(self.sums, axis=-1))
        for some, _ in self.slice_lines():
            flow, falling = _copy_wide(self.straight[..., some, :]), self.falling[..., some, :]
            flow[..., :-1] += self.rising[..., some, :]
            if self.axis == 0:
                flow[..., 1:] += falling
            else:
                flow[..., 1:] -= falling
            surplus[..., some, :] -= line.weigh_flows(flow.reshape(-1, line.n)).reshape(*flow.shape[:-1], -1)
        solved = line.solve_sums(surplus.reshape(-1, surplus.shape[-1]).T)
        return solved.reshape(len(solved), *surplus.shape[:-1])

    def add_to_blocks(self, out: Array, line: LineEstimator | None) -> None:
        """Add flows, corrected by sums of `line`, to the gains in `out`. Flows to the east bring the diagonal moves."""
        solved = np.zeros(0) if line is None else self.solve_sums(line)
        gained = out if self.axis == 0 else out.mT
        for some, after in self.slice_lines():
            if self.axis == 0:
                rising, falling = self.rising[..., some, :], self.falling[..., some, :]
                out[..., some, :-1] -= rising
                out[..., after, 1:] += rising
                out[..., some, 1:] -= falling
                out[..., after, :-1] += falling
            moved = self.straight[..., some, :]
            if line is not None:
                moved = self._correct_flow(moved, line, solved[..., some])
            gained[..., some, :] -= moved
            gained[..., after, :] += moved

    def _correct_flow(self, straight: Array, line: LineEstimator, solved: FloatArray) -> Array:
        """Return corrected straight flows. For integers, the prefix sums of the corrections are rounded."""
        before = line.correct_prefixes(solved.reshape(len(solved), -1))
        if straight.dtype.kind != "f":
            np.rint(before, out=before)
        out = np.empty(straight.shape, dtype=np.result_type(straight, np.int64))
        np.subtract(before[:, 1:], before[:, :-1], out=out.reshape(-1, line.n), casting="unsafe")
        out += straight
        return out


def _copy_wide(draws: Array) -> Array:
    """Return a copy of draws as 64-bit integers or floats."""
    return draws.astype(np.result_type(draws, np.int64))


def _split_draws(draws: Array, shapes: Sequence[tuple[int, int]]) -> list[Array]:
    """Split the last axis of the draws into consecutive arrays of these shapes."""
    parts = np.split(draws, np.cumsum([math.prod(shape) for shape in shapes[:-1]]), axis=-1)
    return [part.reshape(*draws.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True, eq=False)
class HubLine:
    """The hubs along one axis of n blocks, one in the middle of every `spacing` blocks, and their weighted sums.

    The spacing is odd. For each level, `widths` gives the distance in hubs between the centres of sums.
    """

    n: int
    spacing: int
    widths: tuple[int, ...] = ()

    @functools.cached_property
    def blocks_apart(self) -> int:
        """The distance in blocks between hubs. This is the spacing or, on a short axis, a smaller odd number."""
        return min(self.spacing, self.n - 1 + self.n % 2)

    @property
    def longest_walk(self) -> int:
        """The largest distance in blocks between a block and its hub."""
        return self.blocks_apart // 2

    @functools.cached_property
    def places(self) -> IntArray:
        """The block of each hub. Blocks left over at the end also have a hub."""
        return np.minimum(np.arange(0, self.n, self.blocks_apart) + self.longest_walk, self.n - 1)

    @functools.cached_property
    def windows(self) -> WeightedSums:
        """Θ. A hub's weights in all sums add up to one. If there are no widths, one sum covers all hubs."""
        number = len(self.places)
        if not self.widths or number == 1:
            return WeightedSums(number, [np.ones((1, number), dtype=np.int64)], [1])
        most = self.widths[-1]
        levels = [most // w * make_hat_weights(number, w, centred=True) for w in self.widths]
        return WeightedSums(number, levels, [2 * most * len(levels)] * len(levels))

    @property
    def knots(self) -> IntArray:
        """The hubs between which the prefix sums of waves are quadratic."""
        number = len(self.places)
        return find_bends(number, self.widths if number > 1 else (), centred=True)

    @property
    def weight_unit(self) -> int:
        """The number of units in a weight of one."""
        return int(self.windows.units[0])

    @functools.cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """The eigenvalues λ > 0 of Θ Θᵀ, and the eigenvectors divided by √λ, as columns."""
        theta = self.windows.theta
        values, vectors = np.linalg.eigh(theta @ theta.T)
        seen = values > 1e-12 * values[-1]  # smaller values are rounding errors
        return values[seen], vectors[:, seen] / np.sqrt(values[seen])

    @functools.cached_property
    def waves(self) -> FloatArray:
        """The eigenvectors of Θᵀ Θ with λ > 0, as rows. They are an orthonormal basis of the row space of Θ."""
        return self.spectrum[1].T @ self.windows.theta

    @functools.cached_property
    def hubs_before(self) -> FloatArray:
        """The number of hubs before each of the n + 1 edges of blocks, as a column."""
        return self._sum_before(np.ones((1, len(self.places))))

    @functools.cached_property
    def waves_before(self) -> FloatArray:
        """The prefix sums of the waves before each of the n + 1 edges of blocks, with one column per wave."""
        return self._sum_before(self.waves)

    def _sum_before(self, weights: FloatArray) -> FloatArray:
        out = np.zeros((self.n + 1, len(weights)))
        out[self.places + 1] = weights.T
        return np.asarray(out.cumsum(axis=0))

    def project_onto_waves(self, hubs: FloatArray, axis: int) -> FloatArray:
        """Return the wave coefficients of values at hubs along an axis."""
        sums, turn = self.windows.sum_along(hubs, axis) / self.weight_unit, self.spectrum[1]
        return np.asarray(sums @ turn if axis == _Y else turn.T @ sums)

    def combine_waves(self, waves: FloatArray, axis: int) -> FloatArray:
        """Return the values at hubs along an axis, given the coefficients of waves."""
        turn = self.spectrum[1]
        return self.spread_sums(waves @ turn.T if axis == _Y else turn @ waves, axis)

    def spread_sums(self, sums: FloatArray, axis: int) -> FloatArray:
        """Return Θᵀ times sums along an axis."""
        each = self.windows.theta
        return np.asarray(sums @ each if axis == _Y else each.T @ sums)


@dataclass(frozen=True, eq=False)
class Hubs:
    """Evenly spaced blocks where long moves leave and enter the map, with a least-squares estimate of the inflow.

    ζ is the inflow from the hubs' own noise. Sums s over squares of hubs, and over strips of hubs along one axis, have
    separate noise. Let Θ be the weights of each level of sums, and ρ its noise variance divided by that of a hub. The
    estimate is ζ + T Σ Θᵀ (s − Θ ζ)/ρ with T = (1 + Σ ΘᵀΘ/ρ)⁻¹. A move changes s and Θ ζ by the same amount. The
    weights are products over the axes, so the eigenvectors of T and of all levels are products of two waves.

    axes : the hubs along each axis (in 1-D, the second axis has one block). strips : whether there are strips.
    ratios : ρ of squares and of strips, or () if there are no sums.
    """

    axes: tuple[HubLine, HubLine]
    strips: bool = False
    ratios: tuple[float, ...] = ()

    @classmethod
    def on_grid(cls, blocks: tuple[int, ...], spacing: int, widths: tuple[int, ...] = (), strips: bool = False) -> Hubs:
        """Return the hubs of a grid of blocks."""
        x, y = (*blocks, 1)[:2]
        line = HubLine(x, spacing, widths)
        return cls((line, line if x == y else HubLine(y, spacing, widths)), strips)  # axes of equal length share tables

    @functools.cached_property
    def places(self) -> IntArray:
        """The flat indices of the hubs' blocks."""
        x, y = self.axes
        return np.add.outer(x.places * y.n, y.places).ravel()

    @property
    def draw_counts(self) -> dict[str, tuple[int, int]]:
        """For each kind, the number of draws, and how many units of a draw make one unit of flow."""
        x, y = self.axes
        out: dict[str, tuple[int, int]] = {Kind.HUBS: (len(x.places) * len(y.places), 1)}
        if x.widths:
            out[Kind.HUB_SUMS] = (len(x.windows) * len(y.windows), x.weight_unit * y.weight_unit)
        if self.strips:
            out[Kind.HUB_STRIPS] = (len(x.windows) * len(y.places) + len(x.places) * len(y.windows), x.weight_unit)
        return out

    def split_draws(self, draws: dict[str, Array]) -> list[Array]:
        """Return the draws of hubs, squares (if any) and strips along each axis (if any). The last axes are x and y."""
        (hx, sx), (hy, sy) = ((len(line.places), len(line.windows)) for line in self.axes)
        shapes = {Kind.HUBS: [(hx, hy)], Kind.HUB_SUMS: [(sx, sy)], Kind.HUB_STRIPS: [(sx, hy), (hx, sy)]}
        return [part for name in self.draw_counts for part in _split_draws(draws[name], shapes[Kind(name)])]

    @functools.cached_property
    def ones_in_waves(self) -> FloatArray:
        """The coefficients of products of waves in the all-ones array, which is in the row space of Θ."""
        return np.asarray(np.multiply.outer(*(line.waves.sum(axis=1) for line in self.axes)))

    @functools.cached_property
    def level_spectra(self) -> list[FloatArray]:
        """The eigenvalues of squares and strips for products of waves. Index 0 is the space orthogonal to all waves."""
        x, y = (np.concatenate([[0.0], line.spectrum[0]]) for line in self.axes)
        return [np.multiply.outer(x, y), np.add.outer(x, y)]

    @functools.cached_property
    def trust(self) -> FloatArray:
        """The eigenvalues of T for products of waves, with the same indices as in `level_spectra`."""
        seen = (level / ratio for level, ratio in zip(self.level_spectra, self.ratios, strict=False))
        return np.asarray(1 / (1 + sum(seen, np.zeros_like(self.level_spectra[0]))))

    def find_hubs(self, block: IntArray) -> IntArray:
        """Return, for each axis, the index of each block's hub."""
        return np.stack([b // line.blocks_apart for b, line in zip(block, self.axes, strict=False)])

    def find_hub_blocks(self, block: IntArray) -> IntArray:
        """Return, for each of the given blocks, the block that contains its hub."""
        return np.stack([line.places[h] for h, line in zip(self.find_hubs(block), self.axes, strict=False)])

    def estimate_inflow(self, draws: dict[str, Array]) -> Array:
        """Return the inflow at each hub, given the draws of all kinds."""
        if not self.ratios:
            return draws[Kind.HUBS]
        own, *sums = map(_copy_wide, self.split_draws(draws))
        x, y = self.axes
        (squares_x, turn_x), (squares_y, turn_y) = x.spectrum, y.spectrum
        on_x, on_y = x.windows.sum_along(own, _X), y.windows.sum_along(own, _Y)
        seen = y.spread_sums((sums[0] - y.windows.sum_along(on_x, _Y)) / (y.weight_unit * self.ratios[0]), _Y)
        if self.strips:
            seen += (sums[1] - on_x) / self.ratios[1]
        # Apply T to Θxᵀ `seen` and the strips' part along y. Use wave coefficients along one axis until the last step.
        along_x, trust = (turn_x * squares_x).T @ (seen / x.weight_unit), self.trust
        mixed = y.project_onto_waves(along_x, _Y) * (trust[1:, 1:] - trust[1:, :1])
        if self.strips:
            along_y = (sums[2] - on_y) / (y.weight_unit * self.ratios[1]) @ (turn_y * squares_y)
            mixed += x.project_onto_waves(along_y, _X) * (trust[1:, 1:] - trust[0, 1:])
        more = x.combine_waves(along_x * trust[1:, :1] + y.combine_waves(mixed, _Y), _X)
        if self.strips:
            more += y.combine_waves(along_y * trust[0, 1:], _Y)
        if own.dtype.kind != "f":
            more = np.rint(more, out=more).astype(own.dtype)
        more += own
        return np.asarray(more.reshape(draws[Kind.HUBS].shape))

    def apply_adjoint(self, weights: FloatArray, draws: dict[str, FloatArray]) -> None:
        """Write the weights of the draws into `draws`, given the weight of each hub's inflow."""
        own, *sums = self.split_draws(draws)
        x, y = self.axes
        own[...] = weights.reshape(own.shape)
        if not self.ratios:
            return
        # Apply T to the weights, using wave coefficients along one or both axes.
        weight, along_x = to_increments(self.trust), x.project_onto_waves(own, _X)
        on_x = y.combine_waves(y.project_onto_waves(along_x, _Y) * weight[1:, 1:], _Y)
        if self.strips:
            on_x += along_x * weight[1:, :1]
            own += y.combine_waves(y.project_onto_waves(own, _Y) * weight[0, 1:], _Y)
        own += x.combine_waves(on_x, _X)
        on_x, on_y = x.windows.sum_along(own, _X), y.windows.sum_along(own, _Y)
        sums[0][...] = y.windows.sum_along(on_x, _Y) / ((x.weight_unit * y.weight_unit) ** 2 * self.ratios[0])
        if self.strips:
            sums[1][...] = on_x / (x.weight_unit**2 * self.ratios[1])
            sums[2][...] = on_y / (y.weight_unit**2 * self.ratios[1])


def to_increments(values: FloatArray) -> FloatArray:
    """Return values for products of waves, less the values at index 0 (for the space orthogonal to all waves)."""
    out = values.copy()
    out[1:] -= values[:1]
    out[:, 1:] -= out[:, :1]
    return out
