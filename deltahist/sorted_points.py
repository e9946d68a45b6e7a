"""Sorted points as a release: noisy sums of consecutive points, decoded by isotonic regression."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_header, read_columns, read_described, save_described
from deltahist._validate import InputError, is_number, one_of, whole
from deltahist.budget import Budget
from deltahist.counting import POINTS, Counting
from deltahist.decode.isotonic import Isotonic, below
from deltahist.domain import Domain
from deltahist.neighbourhood import Neighbourhood
from deltahist.privacy import Guarantee, Law

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "deltahist-sorted"
VERSION = 2
_BYTES_PER_NUMBER = 96
#: Share of a group by which a rank in it is off where points come in clumps.
_CLUMPED = 0.2
#: Largest sum of lattice steps in a group, noise included, that int64 and exact floats hold.
_MOST_SUM = 1 << 52


def check_membership(near: Neighbourhood) -> None:
    """Refuse what a sorted list cannot express: two dimensions, or entry anywhere but at one end."""
    if near.domain.ndim != 1:
        raise InputError(
            f"domain has {near.domain.ndim} dimensions: points can be sorted in one only; publish a histogram instead"
        )
    if near.sources not in (None, "left", "right"):
        raise InputError(
            f"sources is {near.sources!r}: sorted points allow fixed membership (None) or entry at one end, "
            "'left' or 'right', where absent points are parked"
        )


def group_size(
    near: Neighbourhood,
    number: int,
    *,
    epsilon: float | Fraction | None = None,
    rho: float | Fraction | None = None,
    contributions: int = 1,
) -> int:
    """How many consecutive points to sum, for the least expected error of a rank, from public figures alone.

    Points that are spread at random over the domain are s = (length / n) apart. The mean of k of them has noise
    σ/k, which is σ/(k s) ranks where groups do not overlap; where they do, isotonic regression leaves about
    0.82 (σ/(k² s))^(2/3) groups. Within a group ranks are interpolated, which costs √(k/6) at random places, and a
    fifth of the group is added since real points come in clumps. The k with the least sum of squares is taken
    (docs/sorted.md).

    Parameters
    ----------
    near : the neighbourhood, in one dimension. number : of points, or its public bound.
    epsilon, rho, contributions : as in `publish_sorted`.

    >>> near = Neighbourhood(Domain((0, 1), (100,)), delta=0.01)
    >>> group_size(near, 10_000, epsilon=1.0), group_size(near, 20, epsilon=1.0)
    (26, 1)
    """
    check_membership(near)
    number = whole(number=number)
    deviation = math.sqrt(noise_law(near, epsilon, rho, contributions).variance())
    most = max(1, min(number, _MOST_SUM // (near.domain.size * near.domain.steps[0])))
    k = np.unique(np.rint(np.geomspace(1, most, 2000)))
    spacing = near.domain.size * near.domain.steps[0] / number
    overlap = deviation / (k * k * spacing)
    noise = k * np.where(overlap < 0.55, overlap, 0.82 * overlap ** (2 / 3))
    return int(k[np.argmin(noise * noise + _within(k))])


def noise_law(
    near: Neighbourhood, epsilon: float | Fraction | None, rho: float | Fraction | None, contributions: int
) -> Law:
    """Noise of every released sum: the L1 (and L2) distance of neighbours' sums is at most K D lattice steps."""
    budget = Budget(epsilon, rho)
    change = whole(contributions=contributions) * near.radius
    if budget.unit == "epsilon":
        return Law("laplace", change / budget.amount)
    return Law("gaussian", change * change / (2 * budget.amount))


@dataclass(frozen=True, eq=False)
class SortedRelease:
    """Sums of consecutive sorted coordinates with exact integer noise, and the public description.

    Source: 2014, section 5.5.1; docs/sorted.md. Coordinates are in lattice steps. With a source at one end there
    are `number` places, and those that nobody takes lie at that end: a point there counts as absent.

    Parameters
    ----------
    neighbourhood : who may be confused with whom; one dimension.
    values : (⌈number/group⌉,) int64, sums of `group` consecutive sorted coordinates (the last may have fewer).
    number : of points; with a source the public bound on it.
    group : points per sum.
    epsilon, rho : the guarantee, one of them; exact fractions.
    counting : how rows became points; nothing was left out, since the number of places is public.
    publishable : False if the noise came from a seeded generator.
    """

    neighbourhood: Neighbourhood
    values: NDArray[np.int64]
    number: int
    group: int = 1
    epsilon: Fraction | None = None
    rho: Fraction | None = None
    counting: Counting = POINTS
    publishable: bool = True

    def __post_init__(self) -> None:
        check_membership(self.neighbourhood)
        rows = -(-self.number // self.group)
        if self.values.shape != (rows,) or self.values.dtype != np.int64:
            raise InputError(
                f"values have shape {self.values.shape} and type {self.values.dtype}: {self.number:,} points in "
                f"groups of {self.group:,} make {rows:,} int64 sums"
            )

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.neighbourhood.domain

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε or ρ-zCDP."""
        return Guarantee(epsilon=self.epsilon, rho=self.rho)

    @property
    def noise(self) -> str:
        """ "laplace" or "gaussian"."""
        return self.law.kind

    @property
    def contributions(self) -> int:
        """Points of one user that may move at once."""
        return self.counting.contributions

    @property
    def total(self) -> int | None:
        """The number of points if membership is fixed; else None."""
        return self.number if self.neighbourhood.fixed_membership else None

    @functools.cached_property
    def law(self) -> Law:
        """Noise of each sum, in lattice steps."""
        return noise_law(self.neighbourhood, self.epsilon, self.rho, self.contributions)

    @property
    def laws(self) -> tuple[Law, ...]:
        """The one law, as other releases have it."""
        return (self.law,)

    def approximate(self, probability: float) -> float:
        """ε of the (ε, δ_prob) guarantee at a failure probability δ_prob; a pure release's own ε."""
        return self.guarantee.approximate(probability)

    @property
    def _size(self) -> int:
        """Lattice steps along the domain."""
        return self.domain.size * self.domain.steps[0]

    @functools.cached_property
    def decoder(self) -> Isotonic:
        """Isotonic regression of the sums."""
        ends = np.arange(len(self.values) + 1, dtype=np.int64) * self.group
        ends[-1] = self.number
        return Isotonic(self.values, ends, self.law, self._size)

    def coordinates(self) -> NDArray[np.float64]:
        """Estimates (number,) of all sorted coordinates, in the domain's units, not decreasing."""
        ranks, steps = self.decoder.knots
        return self._place(np.interp(np.arange(self.number) + 0.5, ranks, steps))

    def _place(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.domain.low[0] + np.clip(steps, 0, self._size - 1) * self.domain.step[0]

    def _present(self) -> tuple[float, float]:
        """The range of steps in which points are not parked."""
        return (
            0.5 if self.neighbourhood.sources == "left" else -0.5,
            self._size - 1.5 if self.neighbourhood.sources == "right" else self._size - 0.5,
        )

    def counts(
        self, low: ArrayLike, high: ArrayLike, *, level: float = 0.95
    ) -> tuple[NDArray[np.float64], ...]:
        """Points between lattice steps: estimates, standard errors and intervals.

        The standard error is the typical one: new noise on the decoded points, decoded again, and within a group
        what `group_size` reckons with. The interval makes no assumption about where the points are: it covers at
        least as often as its level says, and is several standard errors wide.

        Parameters
        ----------
        low, high : (m,) steps between which points are counted; -½ is the domain's low end.
        level : of the interval, between 0 and 1.

        Returns
        -------
        estimate, standard error, low, high : (m,) each.
        """
        _check_level(level)
        ends = [np.clip(np.asarray(v, dtype=np.float64), *self._present()) for v in (low, high)]
        a, b = (below(self.decoder.knots, v) for v in ends)
        variance = np.zeros(len(a))
        for knots in self.decoder.simulated:
            variance += (below(knots, ends[1]) - below(knots, ends[0]) - (b - a)) ** 2
        variance /= len(self.decoder.simulated)
        for v in ends:
            variance += np.where((v > -0.5) & (v < self._size - 0.5), _within(self.group), 0.0)
        estimate = np.maximum(b - a, 0.0)
        # Each end's own side is missed with a quarter of what the level leaves.
        (a_least, a_most), (b_least, b_most) = (self.decoder.below_bounds(v, (1 - level) / 4) for v in ends)
        least, most = np.maximum(b_least - a_most, 0.0), b_most - a_least
        return estimate, np.sqrt(variance), np.minimum(least, estimate), np.maximum(most, estimate)

    def histogram(self) -> NDArray[np.float64]:
        """Estimated counts of the domain's cells (n,), not negative; they add up to the number of points."""
        edges = np.arange(self.domain.size + 1) * float(self.domain.steps[0]) - 0.5
        return np.diff(below(self.decoder.knots, np.clip(edges, *self._present())))

    def quantiles(self, q: float | Sequence[float], *, level: float = 0.95) -> pd.DataFrame:
        """Quantiles of the points with intervals, any number of them at no further cost.

        Parameters
        ----------
        q : one or several, between 0 and 1. The q-quantile of n points is the ⌈q n⌉-th smallest.
        level : of each interval; it holds the quantile at least as often.

        Returns
        -------
        DataFrame with columns q, estimate, low, high, in the domain's units.

        >>> import deltahist as dh, numpy as np
        >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=1)
        >>> release = dh.publish_sorted(np.arange(100), near, epsilon=1.0, rng=np.random.default_rng(1))
        >>> found = release.quantiles([0.5])
        >>> bool(found["low"][0] <= 49 <= found["high"][0])
        True
        """
        import pandas as pd

        _check_level(level)
        wanted = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if wanted.ndim != 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise InputError(f"q is {q!r}: it must be numbers between 0 and 1")
        first, last = self._present()
        span = np.array([first, last])
        fixed = self.neighbourhood.fixed_membership
        share = (1 - level) / (2 if fixed else 4)
        absent, present = below(self.decoder.knots, span)
        (absent_least, present_least), (absent_most, present_most) = self.decoder.below_bounds(span, share)
        ranks, steps = self.decoder.knots
        rank = _rank(wanted, absent, present)
        estimate = np.interp(rank - 0.5, ranks, steps)
        upper, lower = self.decoder.bounds(share)
        # Ranks j k + 1 at or above the largest rank in question, and j k at or below the least.
        above = -(-(_rank(wanted, absent_most, present_most) - 1) // self.group)
        high = np.minimum(upper[np.clip(above, 0, len(upper) - 1).astype(int)], last)
        at_most = np.where(
            _rank(wanted, absent_least, present_least) >= self.number,
            len(self.values),
            _rank(wanted, absent_least, present_least) // self.group,
        )
        low = np.maximum(lower[np.clip(at_most, 0, len(lower) - 1).astype(int)], first)
        places = [
            self._place(np.asarray(v))
            for v in (estimate, np.minimum(low, estimate), np.maximum(high, estimate))
        ]
        return pd.DataFrame(dict(zip(("q", "estimate", "low", "high"), (wanted, *places), strict=True)))

    @property
    def measured(self) -> str:
        """What was measured, for people."""
        each = (
            "sorted coordinates"
            if self.group == 1
            else f"sums of {self.group:,} consecutive sorted coordinates"
        )
        what = "points" if self.neighbourhood.fixed_membership else "places for points"
        return f"{each} of {self.number:,} {what}, in lattice steps,"

    def noise_rows(self) -> list[dict[str, Any]]:
        """Law and standard deviation of the noise of a sum, in lattice steps, JSON-ready."""
        std = math.sqrt(self.law.variance())
        return [{"rows": "sums", "law": self.law.kind, "std": std, "unit": "lattice steps"}]

    @property
    def determines_cells(self) -> bool:
        """Whether the numbers determine every cell: they do, up to the grouping."""
        return True

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        """Budget that another relation costs: in proportion to the length of its moves (its square for ρ)."""
        ratio = Fraction(min(moves.radius, self._size - 1), min(self.neighbourhood.radius, self._size - 1))
        if self.epsilon is not None:
            return self.epsilon * ratio
        assert self.rho is not None
        return self.rho * ratio * ratio

    def describe(self) -> dict[str, Any]:
        """The complete public description, JSON-ready; with `values` it makes the release again."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "domain": self.domain.describe(),
            "neighbourhood": self.neighbourhood.describe(),
            "number": self.number,
            "group": self.group,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "rho": None if self.rho is None else str(self.rho),
            "law": self.law.describe(),
            **self.counting.describe(),
            "publishable": self.publishable,
        }

    def save(self, path: str | Path) -> None:
        """Write one Parquet file: column `value` (int64), the description in the file's metadata."""
        save_described(path, {"value": self.values}, self.describe())

    @classmethod
    def load(cls, path: str | Path) -> SortedRelease:
        """Read a file that `save` wrote; it is treated as untrusted input.

        Raises
        ------
        InputError
            If the file is missing, truncated, foreign, of a newer version, or contradicts itself.
        """
        return read_described(path, cls._read)

    @classmethod
    def _read(cls, description: dict[str, Any], file: Any, path: str) -> SortedRelease:
        check_header(description, file, path, form=FORMAT, version=VERSION, memory=_BYTES_PER_NUMBER)
        domain = Domain(**description["domain"])
        near = Neighbourhood.from_description(domain, description["neighbourhood"])
        epsilon, rho = (
            None if description[k] is None else Fraction(description[k]) for k in ("epsilon", "rho")
        )
        number, group = whole(number=description["number"]), whole(group=description["group"])
        if max(number, group) > _MOST_SUM:
            raise InputError(
                f"release file {path!r} states {number:,} points in groups of {group:,}: at most 2^52"
            )
        counting = Counting.from_description(description, crs=domain.crs)
        if counting.dropped:
            raise InputError(
                f"release file {path!r} states a number of points of which some were dropped (altered?)"
            )
        rows = file.metadata.num_rows
        if rows != -(-number // group):
            raise InputError(
                f"release file {path!r} has {rows:,} values: {number:,} points in groups of {group:,} make "
                f"{-(-number // group):,} (altered?)"
            )
        release = cls(
            near,
            read_columns(file, path, ["value"]).column("value").to_numpy(),
            number,
            group,
            epsilon=epsilon,
            rho=rho,
            counting=counting,
            publishable=bool(one_of((True, False), publishable=description["publishable"])),
        )
        if release.law.describe() != description["law"]:
            raise InputError(
                f"release file {path!r} states noise that does not follow from δ and its budget (altered?)"
            )
        return release

    def facts(self) -> dict[str, Any]:
        """The privacy statement as data."""
        from deltahist.statement import facts

        return facts(self)

    def statement(self) -> str:
        """The privacy statement for people."""
        from deltahist.statement import statement

        return statement(self)


def _within(group: ArrayLike) -> NDArray[np.float64]:
    """Variance of a rank within a group: k/6 for points at random places, and a fifth of the group if they clump."""
    k = np.asarray(group, dtype=np.float64)
    return np.asarray((k - 1) / 6 + ((k - 1) * _CLUMPED) ** 2)


def _rank(q: NDArray[np.float64], absent: float, present: float) -> NDArray[np.float64]:
    """Rank of the q-quantile of the points from rank `absent` to rank `present`."""
    number = present - absent
    # A hair less, so that 0.1 of 10 points is one point and not two.
    return np.asarray(absent + np.clip(np.ceil(q * number - 1e-9), 1, max(number, 1)))


def _check_level(level: float) -> None:
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"level is {level!r}: it must lie between 0 and 1, such as 0.95")
