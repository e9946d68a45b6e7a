"""Quantiles of points on a line: the points around one, the mechanism, and the release in a JSON file.

Source: 2014, section 5.5.2. Notation and proofs: docs/quantiles.md and docs/privacy/quantiles.md.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import DIGEST, check_format, write_whole
from deltahist.budget import Budget, Payment
from deltahist.errors import InputError, finite, one_of, positive, whole
from deltahist.kinds.sorted import check_all_there, on_a_line
from deltahist.mechanisms.base import BaseMechanism, bound_of, budget_description, budget_of, stamp
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.privacy import Guarantee, Law
from deltahist.releases.base import VERSION, BaseRelease, damaged, is_publishable
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood

#: Ways to publish a quantile: a place drawn by the moves it needs, or noise in proportion to a smooth sensitivity.
METHODS = ("inverse", "smooth")
#: The floats of a smooth sensitivity agree with the real ones to fewer digits than this; β pays for it.
SLACK = 1e-12
#: Least smooth sensitivity that noise is drawn for, in lattice steps: public, and far below any accuracy.
FLOOR = 1
#: The steepest slope of the log-density of Student's t with 2 degrees of freedom.
_STUDENT_SLOPE = 3 / (2 * math.sqrt(2))


def check_quantile(q: float, near: Neighbourhood) -> None:
    """Raise InputError on a q outside 0 to 1, two dimensions, or membership that is not fixed."""
    if not 0 <= finite(q=q) <= 1:
        raise InputError(f"q is {q!r}: it must be between 0 and 1, such as 0.5 for the median")
    if near.domain.ndim != 1:
        raise InputError(f"domain has {near.domain.ndim} dimensions: quantiles are for points on a line")
    if not near.fixed_membership:
        raise InputError(
            f"sources is {near.sources!r}: n must be public for a quantile; use fixed membership, or publish_sorted"
        )


def rank_of(q: float, number: int) -> int:
    """Return the rank ⌈q n⌉ of the q-quantile, from 1.

    >>> rank_of(0.5, 101), rank_of(0.1, 10), rank_of(0, 10)
    (51, 1, 1)
    """
    # A hair less, so that 0.1 of 10 points is one point and not two.
    return min(max(math.ceil(q * number - 1e-9), 1), number)


def lattice_steps(points: ArrayLike, domain: Domain) -> NDArray[np.int64]:
    """Return the lattice steps (n,) of points on a line, of which there must be some."""
    array = on_a_line(points)
    if not len(array):
        raise InputError("there are no points: they have no quantiles")
    return domain.lattice(array)[:, 0]


def smooth_sensitivity(
    points: ArrayLike, q: float, near: Neighbourhood, *, beta: float, contributions: int = 1
) -> float:
    """Return the smooth sensitivity of a quantile under δ-neighbourhood: max over t of e^(−βt) min(δ, A(t)).

    A(t) is the longest stretch around the quantile that t moves can clear, max over s of
    x_(r+s) − x_(r+s−t−1). No move takes the quantile further than δ (docs/quantiles.md). It tells about the data:
    never publish it.

    Source: Nissim, Raskhodnikova and Smith 2007; 2014, section 5.5.2.

    Parameters
    ----------
    points : (n,) coordinates in the domain's units, sorted or not; private.
    q : which quantile. near : the neighbourhood, one dimension, fixed membership.
    beta : β > 0, by how much the logarithm may change between neighbours.
    contributions : points of one user that may move at once.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=10)
    >>> round(smooth_sensitivity([10, 20, 21, 22, 90], 0.5, near, beta=0.5), 3)
    6.065
    """
    check_quantile(q, near)
    positive(beta=beta)
    steps = lattice_steps(points, near.domain)
    around = PointsAround(steps, rank_of(q, len(steps)), near.domain.lattice_shape[0] - 1)
    return around.smooth(near.radius, float(beta), whole(contributions=contributions)) * near.domain.step[0]


class PointsAround:
    """Points in order around a quantile; private.

    As in docs/quantiles.md, x_1 ≤ … ≤ x_n are lattice steps and r is the rank; x_i is the lower end of the domain for
    i < 1 and the upper one, its last lattice step, for i > n.
    """

    def __init__(self, steps: NDArray[np.int64], rank: int, last: int) -> None:
        self._sorted, self._centre, self._last = np.sort(steps), rank - 1, last

    @property
    def quantile(self) -> int:
        """x_r, without noise."""
        return int(self._sorted[self._centre])

    @property
    def room(self) -> tuple[int, int]:
        """Lattice steps above the quantile and below it."""
        return self._last - self.quantile, self.quantile

    def nearest(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the distances x_i − x_r of points above, and x_r − x_i of points below, at most `number` each."""
        x, centre = self._sorted, self._centre
        above, below = x[centre : centre + number], x[max(centre + 1 - number, 0) : centre + 1]
        return above - x[centre], x[centre] - below[::-1]

    def longest(self, t: int, contributions: int) -> int:
        """Return A(t), the longest stretch of (t + 1) K gaps with the quantile; without a move it must be at an end."""
        number = len(self._sorted)
        gaps = min((t + 1) * contributions, number + 1)
        low, high = self._centre - gaps, self._centre + gaps + 1
        ends = np.zeros(max(-low, 0), dtype=np.int64), np.full(max(high - number, 0), self._last)
        around = np.concatenate([ends[0], self._sorted[max(low, 0) : high], ends[1]])
        stretch = around[gaps:] - around[: gaps + 1]
        return int(stretch.max() if t else max(stretch[0], stretch[-1]))

    def smooth(self, reach: int, beta: float, contributions: int) -> float:
        """Return S_β, the smooth sensitivity in lattice steps, for moves of K points by at most D.

        That is the maximum of e^(−βt) f(t), f(t) = min(D, A(t)), by branch and bound. f does not fall: no value between
        a and b is above e^(−β(a+1)) f(b), so that where that is no more than the best so far, nothing is to be gained.
        """
        best = 0.0

        def evaluate(t: int) -> tuple[int, int]:
            nonlocal best
            value = min(reach, self.longest(t, contributions))
            best = max(best, math.exp(-beta * t) * value)
            return t, value

        def bound(a: int, value: int) -> float:
            return math.exp(-beta * (a + 1)) * value

        # After that many moves the stretch is the whole line.
        most = -(-(len(self._sorted) + 1) // contributions)
        t, value = evaluate(0)
        known = [(t, value)]
        # t = 0, 1, 3, 7, …: until f is as large as it can be, or even that would not do.
        while value < reach and t < most and bound(t, reach) > best:
            t, value = evaluate(min(2 * t + 1, most))
            known.append((t, value))
        between = list(itertools.pairwise(known))
        while between:
            first, second = between.pop()
            if second[0] - first[0] > 1 and bound(first[0], second[1]) > best:
                middle = evaluate((first[0] + second[0]) // 2)
                between += [(first, middle), (middle, second)]
        return best


@dataclass(frozen=True)
class SmoothScale:
    """How ε pays for noise in proportion to a smooth sensitivity S_β: the noise is S_β · factor · Z.

    If S_β(x) and S_β(x') differ by a factor of at most e^β and the values by S_β, the output of a neighbour is that
    of Z stretched by e^±β and shifted by at most 1/factor. For Student's t with 2 degrees of freedom, stretching costs
    2β and a shift by s costs 3 s / (2 √2). Where points are dense S_β is in proportion to 1/β, so that β and s get
    half of ε each. Both are a hair less, since floats are rounded.
    """

    beta: float
    factor: Fraction

    @classmethod
    def of(cls, epsilon: float) -> SmoothScale:
        """Return the scale for ε; InputError if it is too small."""
        if epsilon / 4 <= 2 * SLACK:
            raise InputError(f"epsilon is {epsilon:g}: the method 'smooth' needs more")
        return cls(epsilon / 4 - SLACK, 1 / Fraction(epsilon / 2 / _STUDENT_SLOPE * (1 - SLACK)))


def rate_of(budget: Budget, contributions: int) -> Fraction:
    """Return the rate ε/(2K) of e^(−rate · moves), by which places are drawn.

    A mechanism whose log-probabilities differ by an interval of length ε is (ε²/8)-zCDP.
    """
    epsilon = budget.amount
    if budget.unit == "rho":
        # Rounded down to twelve digits: less than √(8 ρ).
        epsilon = Fraction(math.isqrt(int(8 * epsilon * 10**24)), 10**12)
        if not epsilon:
            raise InputError(f"rho is {float(budget.amount):g}: it must be at least 10^-24 for places drawn by moves")
    return epsilon / (2 * contributions)


@dataclass(frozen=True)
class QuantileMechanism(BaseMechanism):
    """A way to publish a quantile of points on a line (docs/quantiles.md).

    Parameters
    ----------
    neighbourhood : who may be confused with whom; one dimension, fixed membership.
    q : which quantile: the ⌈q n⌉-th smallest of n points.
    number : of points, public.
    budget : ε, or ρ for the method "inverse".
    method : "inverse" draws a place, the likelier the fewer moves within δ would make it the quantile; "smooth" adds
        noise in proportion to the smooth sensitivity, and needs ε.
    counting : how rows became points; nothing may be left out.

    Raises InputError on a q outside 0 to 1, two dimensions, membership that is not fixed, points that were left out,
    or a method that does not go with the budget or cannot keep the neighbourhood's limits.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> [float(QuantileMechanism(near, 0.5, 101, dh.Budget(epsilon=1)).cost_within(r)[0]) for r in (5, 12)]
    [1.0, 3.0]
    """

    neighbourhood: Neighbourhood
    q: float
    number: int
    budget: Budget
    method: str = "inverse"
    counting: Preprocessing = POINTS

    def __post_init__(self) -> None:
        check_quantile(self.q, self.neighbourhood)
        check_all_there(self.counting)
        object.__setattr__(self, "q", float(self.q))
        object.__setattr__(self, "number", whole(number=self.number))
        one_of(METHODS, method=self.method)
        if self.budget.probability is not None:
            raise InputError("budget has a failure probability: a quantile takes epsilon or rho")
        if self.method == "smooth" and self.budget.unit != "epsilon":
            raise InputError("method is 'smooth': it takes epsilon, not rho")
        if self.method == "smooth":
            SmoothScale.of(float(self.budget.amount))  # refuses what is too small
        near, letter = self.neighbourhood, self.letter
        for limit, (factor, relation) in zip(near.profile, near.relations[1:], strict=True):
            cost, allowed = self.cost_under(relation), self.budget.amount * factor**self.norm
            if cost > allowed:
                place = "any move" if limit.any else f"a move over {limit.distance}"
                raise InputError(
                    f"limit of {place} is {letter} = {float(allowed):.4g}: a quantile costs {float(cost):.4g} there; "
                    "take a longer delta"
                )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(*self.budget.exact)

    @property
    def rank(self) -> int:
        """Rank of the quantile, from 1."""
        return rank_of(self.q, self.number)

    @property
    def steps(self) -> int:
        """Lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @property
    def laws(self) -> tuple[Law, ...]:
        """None: the law of the noise depends on the points, and is private."""
        return ()

    @property
    def size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"the {self.q:g}-quantile of {self.number:,} points, in lattice steps, by the method {self.method!r}"

    def noise_rows(self) -> list[dict[str, Any]]:
        law = "a place is drawn, the likelier the fewer moves would make it the quantile"
        if self.method == "smooth":
            law = "Student's t, in proportion to a smooth sensitivity that is not published"
        return [{"rows": "the quantile", "law": law, "std": None}]

    def cost_under(self, moves: Neighbourhood) -> Fraction | float:
        """Return the budget that another relation costs: as many times its own as moves within δ make one."""
        return bound_of(self.guarantee, -(-min(moves.radius, self.steps) // self.neighbourhood.radius))

    def smooth_scale(self, points: PointsAround) -> Fraction:
        """Return by what Student's t is multiplied in the method "smooth", in lattice steps; private.

        Below the floor e^(−βt) would lose its digits, and at last be zero: a value without noise. The larger of a
        smooth bound and a constant is a smooth bound, too (docs/privacy/quantiles.md).
        """
        scale = SmoothScale.of(float(self.budget.amount))
        smooth = points.smooth(self.neighbourhood.radius, scale.beta, self.counting.contributions)
        return max(Fraction(smooth), Fraction(FLOOR)) * scale.factor

    def describe(self) -> dict[str, Any]:
        return {
            "q": self.q,
            "number": self.number,
            "method": self.method,
            **budget_description(self.budget),
            **self.counting.describe(),
            "domain": self.domain.describe(),
            "neighbourhood": self.neighbourhood.describe(),
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> QuantileMechanism:
        """Make the mechanism that `describe` described, from an untrusted file."""
        return cls(
            Neighbourhood.from_description(Domain(**description["domain"]), description["neighbourhood"]),
            description["q"],
            description["number"],
            budget_of(description),
            description["method"],
            Preprocessing.from_description(description),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Quantile(BaseRelease):
    """A published quantile and what may be known about it.

    Parameters
    ----------
    mechanism : neighbourhood, which quantile of how many points, budget and method.
    values : (1,) int64, the published lattice step.
    publishable : as of every release. payment : which account paid, or None.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = dh.publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> abs(float(found) - 50) < 10, found.total
    (True, 101)
    """

    mechanism: QuantileMechanism
    values: NDArray[np.int64]
    publishable: bool = field(default=False, init=False)
    payment: Payment | None = None
    FORMAT: ClassVar[str] = "deltahist-quantile"

    @property
    def step(self) -> int:
        """The published lattice step."""
        return int(self.values[0])

    @property
    def value(self) -> float:
        """The published quantile in the domain's units."""
        return self.domain.low[0] + self.step * self.domain.step[0]

    def __float__(self) -> float:
        return self.value

    @property
    def total(self) -> int:
        """The number of points; public, since membership is fixed."""
        return self.mechanism.number

    @property
    def method(self) -> str:
        """How it was published."""
        return self.mechanism.method

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"value": self.value, "step": self.step}

    def columns(self) -> dict[str, NDArray[Any]]:
        return {}  # the description has the value

    def save(self, path: str | Path) -> None:
        """Write the description as one JSON file, whole or not at all."""
        write_whole(Path(path), lambda part: part.write_text(self.to_json() + "\n", encoding="utf-8"))

    def to_json(self) -> str:
        """Return the text of the file that `save` writes: the description with its digest."""
        return json.dumps(self.describe() | {DIGEST: self.digest}, indent=2, ensure_ascii=False)

    @classmethod
    def read(cls, description: dict[str, Any], file: Any, path: str) -> Quantile:
        check_format(description, path, form=cls.FORMAT, version=VERSION)
        mechanism = QuantileMechanism.from_description(description)
        step = whole(least=0, step=description["step"])
        if step >= mechanism.steps:
            raise damaged(path, f"states the lattice step {step:,} of {mechanism.steps:,}")
        payment = Payment.from_description(description.get("account"))
        values = np.array([step], dtype=np.int64)
        found = stamp(cls(mechanism, values, payment=payment), is_publishable(description))
        if found.value != description["value"]:
            raise damaged(path, "states a value that is not that of its lattice step")
        return found
