"""Sorted points on a line: noisy sums of consecutive points, their decoder and release (docs/privacy/sorted.md).

Source: 2014, section 5.5.1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.decode import check_level
from deltahist.errors import InputError, check_choice, check_finite, check_memory, check_whole
from deltahist.laws import Law
from deltahist.mechanisms.base import BaseMechanism, Chain, scale_noise
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.releases.base import BaseRelease
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import BoxCover, Workload

if TYPE_CHECKING:
    import pandas as pd

#: Largest sum of lattice steps in a group, including noise. Smaller sums are exact in int64 and in floats.
_MOST_SUM = 1 << 52
#: Values of `sources` allowed for sorted points.
SOURCES = (None, "left", "right")
#: Ranks and lattice steps of a piecewise linear estimate.
Knots = tuple[NDArray[np.float64], NDArray[np.float64]]


def check_line(near: Neighbourhood, sources: tuple[Any, ...], counting: Preprocessing = POINTS) -> None:
    """Raise InputError unless there is one dimension, the sources are allowed, and no rows were left out."""
    check_choice((1,), dimensions=near.domain.ndim)
    check_choice((True,), **{"neighbourhood on a grid": near.on_grid})
    check_choice(sources, sources=near.sources)
    check_choice(((),), **{"set of dropped rows (the number of points is public)": counting.dropped})


def read_line(points: ArrayLike) -> NDArray[Any]:
    """Return an array of finite numbers, (n,) or (n, 1), with shape (n,). Raises InputError for anything else."""
    array = np.asarray(points)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    plain = array.ndim == 1 and (not array.size or (array.dtype.kind in "iuf" and bool(np.isfinite(array).all())))
    if np.ma.is_masked(points) or not plain:
        # The message omits the shape, because the number of points is private if there is a source.
        raise InputError(
            f"points have {array.ndim} dimensions and type {array.dtype.name}: they must be a 1-D array of finite "
            "numbers, none of them masked"
        )
    return array


def rank_of(q: ArrayLike, number: float) -> NDArray[np.float64]:
    """Return the ranks ⌈q n⌉ of q-quantiles, counted from 1.

    >>> rank_of([0.5, 0], 101).tolist(), rank_of(0.1, 10).tolist()
    ([51.0, 1.0], 1.0)
    """
    # Subtract a little, so that rounding errors do not give the 0.1-quantile of 10 points rank 2.
    return np.asarray(np.clip(np.ceil(np.multiply(q, number) - 1e-9), 1, max(number, 1)))


def hidden_move(near: Neighbourhood) -> Fraction:
    """Return the largest ratio of a move's length, in lattice steps, to the factor of its limit."""
    last = near.domain.lattice_shape[0] - 1
    return max(min(relation.radius, last) / factor for factor, relation in near.relations)


def noise_law(near: Neighbourhood, budget: Budget, contributions: int, *, refinable: bool = False) -> Law:
    """Return the noise law of each sum. K moves change sums by at most K times the larger of δ and `hidden_move`."""
    change = check_whole(contributions=contributions) * max(Fraction(near.radius), hidden_move(near))
    return scale_noise(budget, change, refinable=refinable)


def variance_within(group: ArrayLike) -> NDArray[np.float64]:
    """Return the variance of a rank within a group of k points: (k − 1)/6 for random points, plus a term for clumps."""
    k = np.asarray(group, dtype=np.float64)
    return np.asarray((k - 1) / 6 + ((k - 1) * 0.2) ** 2)  # clumps may misplace a rank by a fifth of the group


def group_size(near: Neighbourhood, number: int, budget: Budget, contributions: int = 1) -> int:
    """Return, from public figures only, the number of points per sum that minimises the expected error of a rank.

    Random points are s = length / n apart on average. The mean of k points has noise σ/k, or σ/(k s) ranks if groups do
    not overlap. Otherwise isotonic regression leaves an error of about 0.82 (σ/(k² s))^(2/3) groups. The best k
    minimises the squared error plus `variance_within` (docs/privacy/sorted.md).

    >>> near = Neighbourhood(Domain((0, 1), (100,)), delta=0.01)
    >>> group_size(near, 10_000, Budget(epsilon=1)), group_size(near, 20, Budget(epsilon=1))
    (26, 1)
    """
    check_line(near, SOURCES)
    deviation = math.sqrt(noise_law(near, budget, contributions).variance())
    steps = near.domain.lattice_shape[0]
    most = max(1, min(number, _MOST_SUM // steps))
    k = np.unique(np.rint(np.geomspace(1, most, 2000)))
    overlap = deviation / (k * k * (steps / number))
    noise = k * np.where(overlap < 0.55, overlap, 0.82 * overlap ** (2 / 3))
    return int(k[np.argmin(noise * noise + variance_within(k))])


@dataclass(frozen=True)
class SortedMechanism(BaseMechanism):
    """The mechanism that publishes sums of consecutive sorted coordinates with exact integer noise.

    Source: 2014, section 5.5.1; docs/privacy/sorted.md. Coordinates are in lattice steps. If there is a source at one
    end, missing points are placed at that end, and all points there count as absent.

    Parameters
    ----------
    neighbourhood : one-dimensional.
    number : number of points or, with a source, a public bound on it.
    budget : ε (Laplace noise) or ρ (Gaussian noise).
    group : number of points per sum (`group_size`).
    counting : how rows became points. No rows may be left out.
    chain : place in a chain, if the release can be refined (`dh.refine`).

    Raises InputError if the neighbourhood has two dimensions or a source that is not at one end, if rows were left out,
    if a group exceeds the number of points, or if sums could be too large.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> mechanism = SortedMechanism(near, 50, dh.Budget(epsilon=1), group=2)
    >>> mechanism.size, mechanism.laws[0].kind
    (25, 'laplace')
    """

    neighbourhood: Neighbourhood
    number: int
    budget: Budget
    group: int = 1
    counting: Preprocessing = POINTS
    chain: Chain | None = None
    kind: ClassVar[str] = "deltahist-sorted"

    def __post_init__(self) -> None:
        check_line(self.neighbourhood, SOURCES, self.counting)
        number, group = check_whole(number=self.number), check_whole(group=self.group)
        self._check_common(self.domain)
        most = group * self.lattice_steps + 64 * self.laws[0].scale
        if not group <= number <= _MOST_SUM or most >= _MOST_SUM:
            raise InputError(
                f"group is {group:,} for {number:,} points: it must be at most the number of points, and small enough "
                f"to keep noisy sums below 2^52 at {self.lattice_steps:,} steps per point (or use fewer cells)"
            )

    @property
    def lattice_steps(self) -> int:
        """Number of lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @functools.cached_property
    def laws(self) -> tuple[Law, ...]:
        """The noise of each sum, in lattice steps."""
        return (noise_law(self.neighbourhood, self.budget, self.counting.contributions, refinable=self.refinable),)

    @property
    def size(self) -> int:
        return -(-self.number // self.group)

    @property
    def words(self) -> str:
        one = "sorted coordinates"
        each = one if self.group == 1 else f"sums of {self.group:,} consecutive {one}"
        what = "points" if self.neighbourhood.fixed_membership else "places for points"
        noise = self.budget.law(refinable=self.refinable).words
        return f"{each} of {self.number:,} {what}, in lattice steps, with {noise}"

    @property
    def determines_cells(self) -> bool:
        return True  # except within groups

    def check_data(self, data: ArrayLike) -> NDArray[np.int64]:
        array, number = read_line(data), self.number
        if len(array) > number or (self.total_known and len(array) != number):
            raise InputError(f"number is {number:,}: it must be at least (if public, exactly) the number of points")
        check_memory(40 * number, f"sorting {number:,} points")
        return self.domain.lattice(array)[:, 0] if len(array) else np.zeros(0, dtype=np.int64)

    def measure(self, private: NDArray[np.int64]) -> NDArray[np.int64]:
        absent = self.lattice_steps - 1 if self.neighbourhood.sources == "right" else 0
        steps = np.full(self.number, absent, dtype=np.int64)
        steps[: len(private)] = private
        steps.sort()
        return np.add.reduceat(steps, np.arange(0, self.number, self.group))

    def noise_rows(self) -> list[dict[str, Any]]:
        (law,) = self.laws
        return [{"rows": "sums", "law": law.kind, "std": math.sqrt(law.variance()), "unit": "lattice steps"}]

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        longest = min(moves.radius, self.lattice_steps - 1)
        return self.budget.amount * (longest / hidden_move(self.neighbourhood)) ** self.norm

    def describe(self) -> dict[str, Any]:
        return {"number": self.number, "group": self.group, "law": self.laws[0].describe(), **super().describe()}

    @staticmethod
    def read_fields(domain: Domain, description: dict[str, Any]) -> dict[str, Any]:
        numbers = {name: check_whole(**{name: description[name]}) for name in ("number", "group")}
        return {**numbers, "chain": Chain.from_description(description.get("chain"))}


@dataclass(frozen=True, eq=False, repr=False)
class SortedRelease(BaseRelease):
    """Published sums of consecutive sorted coordinates.

    Parameters
    ----------
    mechanism : the public choices.
    values : ⌈number/group⌉ int64 sums of `group` consecutive sorted coordinates. The last sum may cover fewer.
    payment, withdrawn, about : as for `BaseRelease`.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = dh.publishers.publish_sorted([31, 8, 64, 47], near, epsilon=1.0)
    >>> release.total, release.cells().shape
    (4, (20,))
    """

    mechanism: SortedMechanism
    values: NDArray[np.int64]
    mechanism_class: ClassVar[type[Any]] = SortedMechanism
    bytes_each: ClassVar[int] = 96

    @property
    def total(self) -> int | None:
        """The number of points if membership is fixed, else None."""
        return self.mechanism.number if self.neighbourhood.fixed_membership else None

    @functools.cached_property
    def decoder(self) -> Isotonic:
        """The isotonic regression of the sums."""
        ends = np.arange(len(self.values) + 1, dtype=np.int64) * self.mechanism.group
        ends[-1] = self.mechanism.number
        return Isotonic(self.values, ends, self.laws[0], self.mechanism.lattice_steps)

    @property
    def _present_range(self) -> tuple[float, float]:
        """The range of lattice steps where points count as present."""
        sources, last = self.neighbourhood.sources, self.mechanism.lattice_steps - 0.5
        return (0.5 if sources == "left" else -0.5, last - 1 if sources == "right" else last)

    def count_between(self, low: ArrayLike, high: ArrayLike, *, level: float = 0.95) -> dict[str, NDArray[np.float64]]:
        """Estimate how many points lie between m pairs of places, given in cells from the start of the domain.

        Returns columns of `dh.answer`, each of shape (m,). The standard error is approximate. It combines simulated
        noise on the `simplest_knots` with `variance_within` groups. The interval contains the exact number with a
        probability of at least `level`, wherever the points are, so it is several standard errors wide.
        """
        check_level(level)
        # A cell's edge is half a step below its first lattice step.
        edges = (np.asarray(v, dtype=np.float64) * self.domain.steps[0] - 0.5 for v in (low, high))
        ends = [np.clip(edge, *self._present_range) for edge in edges]
        a, b = (count_below(self.decoder.knots, v) for v in ends)
        without = np.subtract(*(count_below(self.decoder.simplest_knots, v) for v in reversed(ends)))
        variance = np.zeros(len(a))
        for knots in self.decoder.simulated_knots:
            variance += (count_below(knots, ends[1]) - count_below(knots, ends[0]) - without) ** 2
        variance /= len(self.decoder.simulated_knots)
        within = variance_within(self.mechanism.group)
        for v in ends:
            variance += np.where((v > -0.5) & (v < self.mechanism.lattice_steps - 0.5), within, 0.0)
        estimate = np.maximum(b - a, 0.0)
        # Allocate a quarter of the error probability 1 − level to each side of each end.
        (a_least, a_most), (b_least, b_most) = (self.decoder.bound_count_below(v, (1 - level) / 4) for v in ends)
        least, most = np.minimum(np.maximum(b_least - a_most, 0.0), estimate), np.maximum(b_most - a_least, estimate)
        return {"estimate": estimate, "std_error": np.sqrt(variance), "low": least, "high": most}

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        cover = work.cover(self.domain)
        assert isinstance(cover, BoxCover)  # a line has no regions
        return self.count_between(*cover.spans[0], level=level)

    def estimate_cells(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        edges = np.arange(self.domain.size + 1)
        found = self.count_between(edges[:-1], edges[1:])
        return found["estimate"], found["std_error"]

    def cells(self, *, nonnegative: bool = False) -> NDArray[np.float64]:
        # Differences of counts are never negative, and sum to the number of points.
        edges = np.arange(self.domain.size + 1) * self.domain.steps[0] - 0.5
        return np.diff(count_below(self.decoder.knots, np.clip(edges, *self._present_range)))

    def name_estimator(self, nonnegative: bool) -> str:
        return "non-negative, by isotonic regression"

    def quantiles(self, q: float | Sequence[float], *, level: float = 0.95) -> pd.DataFrame:
        """Estimate any number of quantiles of the points, at no further privacy cost.

        Parameters
        ----------
        q : one or more numbers from 0 to 1. The q-quantile of n points is the ⌈q n⌉-th smallest.
        level : each interval contains its quantile with at least this probability.

        Returns a DataFrame with columns q, estimate, low and high. The last three are in the domain's units.

        >>> import deltahist as dh, numpy as np
        >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=1)
        >>> release = dh.publishers.publish_sorted(np.arange(100), near, epsilon=1.0, rng=np.random.default_rng(1))
        >>> found = release.quantiles([0.5])
        >>> bool(found["low"][0] <= 49 <= found["high"][0])
        True
        """
        import pandas as pd

        check_level(level)
        wanted = np.array([check_finite(least=0, most=1, q=each) for each in np.ravel(q).tolist()], dtype=np.float64)

        def rank_between(absent: float, present: float) -> NDArray[np.float64]:
            """Return the ranks of the quantiles, counting only the points between two ranks."""
            return absent + rank_of(wanted, present - absent)

        number, group = self.mechanism.number, self.mechanism.group
        first, last = self._present_range
        span, decoder = np.array([first, last]), self.decoder
        share = (1 - level) / (2 if self.neighbourhood.fixed_membership else 4)
        (absent_least, present_least), (absent_most, present_most) = decoder.bound_count_below(span, share)
        upper, lower = decoder.confidence_bounds(share)
        # Find the first j k + 1 at or above the largest possible rank, and the last j k at or below the smallest.
        above = -(-(rank_between(absent_most, present_most) - 1) // group)
        least = rank_between(absent_least, present_least)
        at_most = np.where(least >= number, len(self.values), least // group)
        high = np.minimum(upper[np.clip(above, 0, len(upper) - 1).astype(int)], last)
        low = np.maximum(lower[np.clip(at_most, 0, len(lower) - 1).astype(int)], first)
        estimate = np.interp(rank_between(*count_below(decoder.knots, span)) - 0.5, *decoder.knots)
        end, step, most = self.domain.low[0], self.domain.step[0], self.mechanism.lattice_steps - 1
        places = {"estimate": estimate, "low": np.minimum(low, estimate), "high": np.maximum(high, estimate)}
        return pd.DataFrame({"q": wanted} | {name: end + np.clip(v, 0, most) * step for name, v in places.items()})


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Estimates of sorted whole numbers below `size`, from noisy sums of groups. Groups end at the ranks `ends`."""

    values: NDArray[np.int64]
    ends: NDArray[np.int64]
    law: Law
    size: int
    _bounds: dict[float, Knots] = field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def knots(self) -> Knots:
        """The estimated ranks and steps, both ascending. Each rank is the number of values below its step."""
        return self._fit_knots(self.values)

    def _fit_knots(self, values: NDArray[np.int64] | NDArray[np.float64]) -> Knots:
        number = self.ends[-1]
        sizes = np.diff(self.ends).astype(np.float64)
        # The noise in the mean of m points has a standard deviation proportional to 1/m.
        found = scipy.optimize.isotonic_regression(values / sizes, weights=sizes * sizes)
        edges = self.ends[found.blocks]
        ranks, steps = (edges[1:] + edges[:-1]) / 2, found.x[found.blocks[:-1]]
        low, high = -0.5, self.size - 0.5
        inside = np.flatnonzero((steps > low) & (steps < high))
        if len(inside) == 0:
            below = float(edges[np.searchsorted(steps, (low + high) / 2)])
            return np.array([0.0, below, below, number]), np.array([low, low, high, high])
        first, last = inside[0], inside[-1]
        ranks, steps = ranks[first : last + 1], steps[first : last + 1]
        # Extend each outermost block beyond its centre, at the density between this centre and the next one.
        start, stop = steps[0], steps[-1]
        if len(steps) > 1:
            start -= (ranks[0] - edges[first]) * (steps[1] - steps[0]) / (ranks[1] - ranks[0])
            stop += (edges[last + 1] - ranks[-1]) * (steps[-1] - steps[-2]) / (ranks[-1] - ranks[-2])
        ranks = np.concatenate([[0.0, edges[first]], ranks, [edges[last + 1], number]])
        steps = np.concatenate([[low, max(start, low)], steps, [min(stop, high), high]])
        return ranks, steps

    @functools.cached_property
    def simplest_knots(self) -> Knots:
        """The estimate within the `confidence_bounds` at α = ½ that has the fewest places, built from the left."""
        upper, lower = self.confidence_bounds(0.5)
        rows, cuts = len(self.values), [0]
        # A place that begins at boundary i can end as late as the last j with lower[j] ≤ upper[i].
        following = np.maximum(np.searchsorted(lower, upper, side="right") - 1, np.arange(1, rows + 2)).tolist()
        while cuts[-1] < rows:
            cuts.append(following[cuts[-1]])
        ends = self.ends[cuts]
        means = np.add.reduceat(self.values, cuts[:-1]) / np.diff(ends)
        # Clipping to these bounds keeps the places in order.
        places = np.maximum(np.minimum(means, upper[cuts[:-1]]), lower[cuts[1:]])
        return np.repeat(ends, 2)[1:-1].astype(np.float64), np.repeat(places, 2)

    @functools.cached_property
    def simulated_knots(self) -> list[Knots]:
        """Estimates from sums of the `simplest_knots` plus simulated noise. The noise is public and may be seeded."""
        rng, rows = np.random.default_rng(0), len(self.values)
        ranks, places = self.simplest_knots
        each = np.searchsorted(ranks[1::2], self.ends[1:])
        sums = places[::2][each] * np.diff(self.ends)
        number = int(np.clip(100_000_000 // rows, 20, 200))
        return [self._fit_knots(sums + self.law.simulate(rows, rng)) for _ in range(number)]

    def confidence_bounds(self, alpha: float) -> Knots:
        """Return upper and lower confidence bounds, each wrong with probability at most `alpha` at any one rank.

        upper[j] bounds the coordinate of rank j k + 1, which is at most the exact mean of each window of 1, 2, 4, …
        groups that begins there. The bound is the smallest of these windows' noisy means, each increased by a bound on
        its noise. In the same way, lower[j] bounds the coordinate of rank j k by the windows that end there. Each
        window gets an equal share of `alpha`. Making the bounds monotone keeps them valid (docs/privacy/sorted.md).
        """
        if alpha not in self._bounds:
            rows = len(self.values)
            sums = np.concatenate([[0.0], np.cumsum(self.values, dtype=np.float64)])
            upper, lower = np.full(rows + 1, np.inf), np.full(rows + 1, -np.inf)
            widths = [1 << i for i in range(rows.bit_length())]
            for m in widths:
                reach = self.law.tail(m, alpha / len(widths))
                change = sums[m:] - sums[:-m]
                points = (self.ends[m:] - self.ends[:-m]).astype(np.float64)
                np.minimum(upper[:-m], (change + reach) / points, out=upper[:-m])
                np.maximum(lower[m:], (change - reach) / points, out=lower[m:])
            self._bounds[alpha] = np.maximum.accumulate(upper), np.minimum.accumulate(lower[::-1])[::-1]
        return self._bounds[alpha]

    def bound_count_below(self, steps: NDArray[np.float64], alpha: float) -> Knots:
        """Return bounds on the number of points below each step. A bound is wrong with probability at most `alpha`."""
        upper, lower = self.confidence_bounds(alpha)
        rows, number = len(self.values), int(self.ends[-1])
        # A value is certainly below a step if its upper bound is, and certainly not below it if its lower bound is not.
        known = np.searchsorted(upper, steps, side="left")
        least = np.where(known > 0, self.ends[np.maximum(known, 1) - 1] + 1, 0)
        beyond = np.searchsorted(lower, steps, side="left")
        most = np.where(beyond <= rows, self.ends[np.minimum(beyond, rows)] - 1, number)
        inside = (steps > -0.5) & (steps < self.size - 0.5)
        everything = np.where(steps <= -0.5, 0, number)
        least, most = (np.where(inside, np.clip(bound, 0, number), everything) for bound in (least, most))
        return least.astype(np.float64), np.maximum(most, least).astype(np.float64)


def count_below(knots: Knots, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the estimated number of points below each step. At a jump, it is the number after the jump."""
    ranks, at = knots
    found = np.interp(steps, at, ranks)
    return np.where(steps <= at[0], 0.0, np.where(steps >= at[-1], ranks[-1], found))
