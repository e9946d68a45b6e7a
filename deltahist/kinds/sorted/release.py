"""Release of sorted points: noisy sums of consecutive points, decoded by isotonic regression."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import check_header, read_columns
from deltahist.budget import Payment
from deltahist.decode.moments import check_level
from deltahist.errors import DamagedFile, InputError, whole
from deltahist.kinds.sorted.decoder import Isotonic, below
from deltahist.kinds.sorted.mechanism import MOST_SUM, SortedMechanism, variance_within
from deltahist.mechanisms.base import stamp
from deltahist.releases.base import VERSION, BaseRelease, damaged, is_publishable
from deltahist.space.workloads import Regions, Workload

if TYPE_CHECKING:
    import pandas as pd

_BYTES_PER_NUMBER = 96


@dataclass(frozen=True, eq=False, repr=False)
class SortedRelease(BaseRelease):
    """Sorted points as published: sums of consecutive coordinates with exact integer noise.

    Parameters
    ----------
    mechanism : neighbourhood, number of points, group, budget and counting.
    values : (⌈number/group⌉,) int64, sums of `group` consecutive sorted coordinates (the last may have fewer).
    publishable : as of every release. payment : which account paid, or None.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = dh.publish_sorted([31, 8, 64, 47], near, epsilon=1.0)
    >>> release.total, release.histogram().shape
    (4, (20,))
    """

    mechanism: SortedMechanism
    values: NDArray[np.int64]
    publishable: bool = field(default=False, init=False)
    payment: Payment | None = None
    FORMAT: ClassVar[str] = "deltahist-sorted"

    @property
    def number(self) -> int:
        """Of points; with a source the public bound on it."""
        return self.mechanism.number

    @property
    def group(self) -> int:
        """Points per sum."""
        return self.mechanism.together

    @property
    def total(self) -> int | None:
        """The number of points if membership is fixed; else None."""
        return self.number if self.neighbourhood.fixed_membership else None

    @functools.cached_property
    def decoder(self) -> Isotonic:
        """Isotonic regression of the sums."""
        ends = np.arange(len(self.values) + 1, dtype=np.int64) * self.group
        ends[-1] = self.number
        return Isotonic(self.values, ends, self.laws[0], self.mechanism.steps)

    def coordinates(self) -> NDArray[np.float64]:
        """Estimate all sorted coordinates (number,), in the domain's units, not decreasing."""
        ranks, steps = self.decoder.knots
        return self._place(np.interp(np.arange(self.number) + 0.5, ranks, steps))

    def _place(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.domain.low[0] + np.clip(steps, 0, self.mechanism.steps - 1) * self.domain.step[0]

    def _present(self) -> tuple[float, float]:
        """Return the range of steps in which points are not parked."""
        return (
            0.5 if self.neighbourhood.sources == "left" else -0.5,
            self.mechanism.steps - 1.5
            if self.neighbourhood.sources == "right"
            else self.mechanism.steps - 0.5,
        )

    @property
    def _edges(self) -> NDArray[np.float64]:
        """Where the domain's cells begin and end, in steps."""
        return np.arange(self.domain.size + 1, dtype=np.float64) * self.domain.steps[0] - 0.5

    def counts(
        self, low: ArrayLike, high: ArrayLike, *, level: float = 0.95
    ) -> tuple[NDArray[np.float64], ...]:
        """Count points between lattice steps: estimates, standard errors and intervals.

        The standard error is the typical one: new noise on the decoded points, decoded again, and within a group
        the variance of `variance_within`. The interval makes no assumption about where the points are: it covers at
        least as often as its level says, and is several standard errors wide.

        Parameters
        ----------
        low, high : (m,) steps between which points are counted; -½ is the domain's low end.
        level : of the interval, between 0 and 1.

        Returns
        -------
        estimate, standard error, low, high : (m,) each.
        """
        check_level(level)
        ends = [np.clip(np.asarray(v, dtype=np.float64), *self._present()) for v in (low, high)]
        a, b = (below(self.decoder.knots, v) for v in ends)
        variance = np.zeros(len(a))
        for knots in self.decoder.simulated:
            variance += (below(knots, ends[1]) - below(knots, ends[0]) - (b - a)) ** 2
        variance /= len(self.decoder.simulated)
        for v in ends:
            variance += np.where((v > -0.5) & (v < self.mechanism.steps - 0.5), variance_within(self.group), 0.0)
        estimate = np.maximum(b - a, 0.0)
        # Each end's own side is missed with a quarter of what the level leaves.
        (a_least, a_most), (b_least, b_most) = (self.decoder.below_bounds(v, (1 - level) / 4) for v in ends)
        least, most = np.maximum(b_least - a_most, 0.0), b_most - a_least
        return estimate, np.sqrt(variance), np.minimum(least, estimate), np.maximum(most, estimate)

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Answer boxes (low, high): estimate, std_error, low, high; InputError on regions."""
        if isinstance(work, Regions):
            raise InputError("regions are polygons: sorted points lie on a line and answer boxes (low, high)")
        ((low, high),) = work.spans(self.domain)
        steps = self.domain.steps[0]
        # A cell edge lies half a step below the cell's first lattice step.
        found = self.counts(low * steps - 0.5, high * steps - 0.5, level=level)
        return dict(zip(("estimate", "std_error", "low", "high"), found, strict=True))

    def estimates(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate counts of all cells, which are never negative, and their typical errors."""
        edges = self._edges
        cells, error, *_ = self.counts(edges[:-1], edges[1:])
        return cells, error

    def cells(self, *, nonnegative: bool = False) -> NDArray[np.float64]:
        """Return `histogram`, of which there is one kind."""
        return self.histogram()

    def estimator(self, nonnegative: bool) -> str:
        """Name the one kind of estimates."""
        return "non-negative (isotonic regression)"

    def shows_nonnegative(self, asked: bool | None = None) -> bool:
        """Return True: there are no other estimates."""
        return True

    def histogram(self) -> NDArray[np.float64]:
        """Estimate the counts of the domain's cells (n,), not negative; they add up to the number of points."""
        return np.diff(below(self.decoder.knots, np.clip(self._edges, *self._present())))

    def quantiles(self, q: float | Sequence[float], *, level: float = 0.95) -> pd.DataFrame:
        """Estimate quantiles of the points with intervals, any number of them at no further cost.

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

        check_level(level)
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

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the values (int64)."""
        return {"value": self.values}

    @classmethod
    def read(cls, description: dict[str, Any], file: Any, path: str) -> SortedRelease:
        check_header(description, file, path, form=cls.FORMAT, version=VERSION, memory=_BYTES_PER_NUMBER)
        number, group = whole(number=description["number"]), whole(group=description["group"])
        if max(number, group) > MOST_SUM:
            raise DamagedFile(
                f"release file {path!r} states {number:,} points in groups of {group:,}: at most 2^52"
            )
        if description.get("dropped"):
            raise damaged(path, "states a number of points of which some were dropped")
        rows, wanted = file.metadata.num_rows, -(-number // group)
        if rows != wanted:
            raise damaged(
                path, f"has {rows:,} values: {number:,} points in groups of {group:,} make {wanted:,}"
            )
        mechanism = SortedMechanism.from_description(description)
        if mechanism.law.describe() != description["law"]:
            raise damaged(path, "states noise that does not follow from δ and its budget")
        values = read_columns(file, path, ["value"])["value"]
        payment = Payment.from_description(description.get("account"))
        return stamp(cls(mechanism, values, payment=payment), is_publishable(description))


def _rank(q: NDArray[np.float64], absent: float, present: float) -> NDArray[np.float64]:
    """Return the rank of the q-quantile of the points from rank `absent` to rank `present`."""
    number = present - absent
    # A hair less, so that 0.1 of 10 points is one point and not two.
    return np.asarray(absent + np.clip(np.ceil(q * number - 1e-9), 1, max(number, 1)))
