"""Quantiles of points on a line: points around one, ways to publish it, the mechanism, and the release in a JSON file.

Source: 2014, section 5.5.2. Notation and proofs: docs/quantiles.md and docs/privacy/quantiles.md.
A new way is a `Method` in `METHODS`; a new heavy-tailed law also stands in `noise/quantiles.py`.
"""

from __future__ import annotations

import abc
import functools
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import DIGEST, check_format, write_whole
from deltahist.budget import Budget, Payment
from deltahist.errors import InputError, finite, one_of, positive, whole
from deltahist.kinds.sorted import check_all_there, length_ratio, noise_law, on_a_line
from deltahist.mechanisms.base import BaseMechanism, bound_of, budget_description, budget_of, stamp
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.privacy import Guarantee, Law, gaussian_curve
from deltahist.releases.base import VERSION, BaseRelease, damaged, is_publishable
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    import pandas as pd

#: The floats of a smooth sensitivity agree with the real ones to fewer digits than this; β pays for it.
SLACK = 1e-12
#: Least smooth sensitivity that noise is drawn for, in lattice steps: public, and far below any accuracy.
FLOOR = 1
#: Spread σ of the log-normal factor: the best for dense points (docs/quantiles.md).
SIGMA = Fraction(1, 2)
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
class PlaceNoise:
    """A place drawn with probability ∝ e^(−rate · moves): moves over `reach` steps that would make it the quantile."""

    reach: int
    rate: Fraction


@dataclass(frozen=True)
class HeavyNoise:
    """A real number of a law, "student", "laplace" or "lognormal", times a scale in lattice steps; private."""

    law: str
    scale: Fraction


#: What the publisher adds to the quantile.
Noise: TypeAlias = PlaceNoise | HeavyNoise | Law


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC):
    """A way to publish a quantile, by the name that users choose; `needs` are the budgets that it takes, in words."""

    name: str
    needs: str = ""

    def takes(self, budget: Budget) -> bool:
        """Return whether the noise can be made for a budget."""
        return True

    def promise(self, budget: Budget) -> Guarantee:
        """Return the guarantee within δ at a budget."""
        return Guarantee(*budget.exact)

    @property
    def words(self) -> str:
        """The noise in words, where it has no public law."""
        return ""

    @abc.abstractmethod
    def expected_error(self, mechanism: QuantileMechanism) -> float:
        """Return the mean absolute error for points spread evenly over the domain, in lattice steps."""

    @abc.abstractmethod
    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        """Return the noise that the quantile of points gets; private."""

    def laws(self, mechanism: QuantileMechanism) -> tuple[Law, ...]:
        """Return the law of the noise where the law is public."""
        return ()

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction | float:
        """Return the budget that another relation costs: as many times its own as moves within δ make one."""
        return bound_of(self.promise(mechanism.budget), _steps_of(mechanism, moves))

    def broken_limit(self, mechanism: QuantileMechanism) -> str | None:
        """Return which limit of the neighbourhood the method cannot keep, and the cost there; None if it keeps all."""
        near, letter = mechanism.neighbourhood, mechanism.letter
        for limit, (factor, relation) in zip(near.profile, near.relations[1:], strict=True):
            place = "any move at all" if limit.any else f"a move over {limit.distance}"
            if self.promise(mechanism.budget).probability and _steps_of(mechanism, relation) > 1:
                return f"{place} may fail with the same probability as within delta, and by it fails more often"
            cost, allowed = self.cost_under(mechanism, relation), mechanism.budget.amount * factor**mechanism.norm
            if cost > allowed:
                return f"{place} may cost {letter} = {float(allowed):.4g}, and by it costs {float(cost):.4g}"
        return None


def _steps_of(mechanism: QuantileMechanism, moves: Neighbourhood) -> int:
    """Return how many moves within δ make one of another relation."""
    return -(-min(moves.radius, mechanism.steps) // mechanism.neighbourhood.radius)


@dataclass(frozen=True, kw_only=True)
class Places(Method):
    """A place is drawn, the likelier the fewer moves within δ would make it the quantile.

    With `any_move` the same for moves of any length, the exponential mechanism: any move at all costs the budget.
    """

    any_move: bool = False

    @property
    def words(self) -> str:
        return "a place is drawn, the likelier the fewer moves would make it the quantile"

    def expected_error(self, mechanism: QuantileMechanism) -> float:
        noise = self.noise(mechanism)
        return mean_of_places(mechanism.gap, noise.reach, float(noise.rate), mechanism.steps)

    def noise(self, mechanism: QuantileMechanism, points: PointsAround | None = None) -> PlaceNoise:
        reach = mechanism.steps if self.any_move else mechanism.neighbourhood.radius
        return PlaceNoise(reach, rate_of(mechanism.budget, mechanism.counting.contributions))

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction | float:
        return mechanism.budget.amount if self.any_move else super().cost_under(mechanism, moves)


def rate_of(budget: Budget, contributions: int) -> Fraction:
    """Return the rate ε/(2K) of e^(−rate · moves) for the methods that draw places by the moves they need.

    A mechanism whose log-probabilities differ by an interval of length ε is (ε²/8)-zCDP.
    """
    epsilon = budget.amount
    if budget.unit == "rho":
        # Rounded down to twelve digits: less than √(8 ρ).
        epsilon = Fraction(math.isqrt(int(8 * epsilon * 10**24)), 10**12)
        if not epsilon:
            raise InputError(f"rho is {float(budget.amount):g}: it must be at least 10^-24 for places drawn by moves")
    return epsilon / (2 * contributions)


def mean_of_places(gap: float, reach: float, rate: float, size: float) -> float:
    """Return E|z| for P(z) ∝ e^(−rate · moves), moves = Σ_i ⌈(|z| − i·gap)/reach⌉ over points on the way."""
    z = np.concatenate([[0.0], np.geomspace(min(gap, reach) / 100, size, 4000)])
    passed = np.floor(z / gap) + 1
    # Within δ every point passed needs one move. Beyond it ⌈x⌉ is about x + ½, and Σ_{i<passed} ((z − i s)/D + ½) is in
    # closed form; no point needs less than one.
    further = passed * (1 + z / reach) - gap / reach * passed * (passed - 1) / 2 - passed / 2
    moves = np.where(z < reach, passed, np.maximum(passed, further))
    weight = np.exp(-rate * moves)
    return float(np.trapezoid(weight * z, z) / np.trapezoid(weight, z))


@dataclass(frozen=True, kw_only=True)
class Global(Method):
    """Noise of one public law: however many points move within δ, the quantile moves by δ at most."""

    def laws(self, mechanism: QuantileMechanism) -> tuple[Law, ...]:
        return (noise_law(mechanism.neighbourhood, mechanism.budget, 1),)

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        return self.laws(mechanism)[0]

    def expected_error(self, mechanism: QuantileMechanism) -> float:
        scale = self.laws(mechanism)[0].scale
        return scale if mechanism.norm == 1 else scale * math.sqrt(2 / math.pi)

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction:
        return mechanism.budget.amount * length_ratio(mechanism.neighbourhood, moves) ** mechanism.norm


@dataclass(frozen=True)
class SmoothScale:
    """How noise Z goes with a smooth sensitivity S_β: the output is x + S_β · factor · Z."""

    beta: float
    factor: Fraction

    @classmethod
    def of(cls, beta: float, shift: float) -> SmoothScale | None:
        """Return the scale for a β and a shift, both a hair less, since floats are rounded; None if β is too small."""
        return cls(beta - SLACK, 1 / Fraction(shift * (1 - SLACK))) if beta > 2 * SLACK else None


@dataclass(frozen=True, kw_only=True)
class Smooth(Method):
    """Noise in proportion to a smooth sensitivity, which is not published.

    If S_β(x) and S_β(x') differ by a factor of at most e^β and the values by S_β, the output of a neighbour is that
    of Z stretched by e^±β and shifted by at most 1/factor. How a budget pays for the two is the noise's own. Where
    points are dense S_β is in proportion to 1/β, so that β s is made as large as possible.
    """

    #: E|Z|.
    size: float
    #: Returns the best split of a budget between stretch and shift, or None if there is none.
    scale: Callable[[Budget], SmoothScale | None]
    #: Whether ε holds but for a failure probability.
    fails: bool = False

    @property
    def words(self) -> str:
        return f"{self.name}, in proportion to a smooth sensitivity that is not published"

    def takes(self, budget: Budget) -> bool:
        return self.scale(budget) is not None

    def promise(self, budget: Budget) -> Guarantee:
        return Guarantee(*budget.exact, Fraction(budget.probability or 0)) if self.fails else super().promise(budget)

    def expected_error(self, mechanism: QuantileMechanism) -> float:
        scale = self.scale(mechanism.budget)
        assert scale is not None
        t = np.unique(np.rint(np.geomspace(1, min(mechanism.number, 40 / scale.beta + 2), 2000))) - 1
        stretch = (t + 1) * mechanism.counting.contributions * mechanism.gap
        local = np.minimum(mechanism.neighbourhood.radius, np.minimum(stretch, mechanism.steps))
        return float(np.max(local * np.exp(-scale.beta * t))) * float(scale.factor) * self.size

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        scale, times = self.scale(mechanism.budget), mechanism.counting.contributions
        assert scale is not None
        # Below the floor e^(−βt) would lose its digits, and at last be zero: a value without noise. The larger of a
        # smooth bound and a constant is one as well (docs/privacy/quantiles.md).
        smooth = max(Fraction(points.smooth(mechanism.neighbourhood.radius, scale.beta, times)), Fraction(FLOOR))
        return HeavyNoise(self.name.removeprefix("smooth-"), smooth * scale.factor)


def student_scale(budget: Budget) -> SmoothScale | None:
    """Split ε for Student's t with 2 degrees of freedom: stretching costs 2β, shifting by s costs 3 s / (2 √2)."""
    if budget.unit != "epsilon":
        return None
    epsilon = float(budget.amount)
    return SmoothScale.of(epsilon / 4, epsilon / 2 / _STUDENT_SLOPE)


def laplace_scale(budget: Budget) -> SmoothScale | None:
    """Split ε for Laplace noise: shifting costs s, stretching ε₁ but with probability e^(−z) (1 − e^(−β)).

    Here z is (ε₁ + β)/(e^β − 1).
    """
    return _best_scale(budget, 1.0, _laplace_stretch)


def lognormal_scale(budget: Budget) -> SmoothScale | None:
    """Split a budget for Laplace log-normal noise: its divergence of order α is at most α (β/σ + e^(3σ²/2) s)² / 2.

    Source: Bun and Steinke 2019.
    """
    if budget.unit == "rho":
        root = math.sqrt(2 * float(budget.amount))
        return SmoothScale.of(root * float(SIGMA) / 2, root / 2 * math.exp(-1.5 * float(SIGMA) ** 2))
    return _best_scale(budget, math.exp(1.5 * float(SIGMA) ** 2), _lognormal_stretch)


@functools.lru_cache(maxsize=256)
def _best_scale(budget: Budget, slope: float, stretch: Callable[[float, float], float]) -> SmoothScale | None:
    """Return the scale whose share of ε for shifting has the largest β s, over a grid; None without a probability.

    A neighbour's output is shifted first, at the cost of e^(ε₂), and then stretched, so that the failure
    probability of the stretch counts e^(ε₂) times.
    """
    if budget.unit != "epsilon" or budget.probability is None:
        return None
    epsilon, shares = float(budget.amount), np.linspace(0.02, 0.98, 49)
    betas = [stretch(epsilon * (1 - a), budget.probability * math.exp(-epsilon * a)) for a in shares]
    best = int(np.argmax(np.array(betas) * shares))
    return SmoothScale.of(betas[best], epsilon * float(shares[best]) / slope)


def _laplace_stretch(epsilon: float, probability: float) -> float:
    """Return the largest β such that Laplace noise of scales 1 and e^β, or e^−β, is (ε, δ_prob)-close."""

    def holds(beta: float) -> bool:
        failure = math.exp(-(epsilon + beta) / math.expm1(beta)) * -math.expm1(-beta)
        return failure <= probability * (1 - 1e-9)

    return _largest(holds, epsilon)


def _lognormal_stretch(epsilon: float, probability: float) -> float:
    """Return σ times the largest μ such that standard normals μ apart are (ε, δ_prob)-close."""
    return float(SIGMA) * _largest(lambda mu: gaussian_curve(mu, probability * (1 - 1e-9)) <= epsilon, 10.0)


def _largest(holds: Callable[[float], bool], most: float) -> float:
    """Return the largest number up to `most` of which something holds that holds below it, by halving."""
    low, high = 0.0, most
    if holds(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and holds(middle) else (low, middle)
    return low


#: All ways by name; where two are expected to do as well, the first one is taken.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Places(name="inverse"),
        Places(name="exponential", any_move=True),
        Global(name="global"),
        Smooth(name="smooth-student", needs="epsilon", size=math.sqrt(2), scale=student_scale),
        Smooth(name="smooth-laplace", needs="epsilon and a probability", size=1, scale=laplace_scale, fails=True),
        Smooth(
            name="smooth-lognormal",
            needs="rho, or epsilon and a probability",
            size=math.exp(float(SIGMA) ** 2 / 2),
            scale=lognormal_scale,
            fails=True,
        ),
    )
}


@dataclass(frozen=True)
class QuantileMechanism(BaseMechanism):
    """A way to publish a quantile of points on a line (docs/quantiles.md).

    Parameters
    ----------
    neighbourhood : who may be confused with whom; one dimension, fixed membership.
    q : which quantile: the ⌈q n⌉-th smallest of n points.
    number : of points, public.
    budget : ε, ρ, or ε with a failure probability that is allowed.
    method : one of METHODS, or "auto": the least expected error for evenly spread points (`methods`).
    counting : how rows became points; nothing may be left out.

    Raises InputError on a q outside 0 to 1, two dimensions, membership that is not fixed, points that were left out,
    or a method that does not go with the budget or cannot keep the neighbourhood's limits.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> QuantileMechanism(near, 0.5, 101, dh.Budget(epsilon=1)).method
    'inverse'
    """

    neighbourhood: Neighbourhood
    q: float
    number: int
    budget: Budget
    method: str = "auto"
    counting: Preprocessing = POINTS

    def __post_init__(self) -> None:
        check_quantile(self.q, self.neighbourhood)
        check_all_there(self.counting)
        object.__setattr__(self, "q", float(self.q))
        object.__setattr__(self, "number", whole(number=self.number))
        one_of(("auto", *METHODS), method=self.method)
        if self.method == "auto":
            object.__setattr__(self, "method", self._ranked[0][0])
        if not self.chosen_method.takes(self.budget):
            takes = ", ".join(f"{m.name} takes {m.needs}" for m in METHODS.values() if m.needs)
            raise InputError(f"method is {self.method!r}: {takes}")
        problem = self.chosen_method.broken_limit(self)
        if problem is not None:
            raise InputError(
                f"method is {self.method!r}, which cannot keep a limit: {problem}; take the method 'global' or "
                "'exponential', or a longer delta"
            )

    @property
    def chosen_method(self) -> Method:
        """The method that `method` names."""
        return METHODS[self.method]

    @functools.cached_property
    def _ranked(self) -> list[tuple[str, float]]:
        """Methods that take the budget and keep all limits, with expected errors in lattice steps, best first."""
        able = [m for m in METHODS.values() if m.takes(self.budget) and m.broken_limit(self) is None]
        errors = [(m.name, min(m.expected_error(self), self.steps / 2)) for m in able]
        # Errors that agree to three digits are the same; sorting keeps the order of METHODS then.
        return sorted(errors, key=lambda item: float(f"{item[1]:.2e}"))

    @property
    def guarantee(self) -> Guarantee:
        return self.chosen_method.promise(self.budget)

    @property
    def rank(self) -> int:
        """Rank of the quantile, from 1."""
        return rank_of(self.q, self.number)

    @property
    def steps(self) -> int:
        """Lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @property
    def gap(self) -> float:
        """Lattice steps between two points that are spread evenly."""
        return self.steps / self.number

    @property
    def laws(self) -> tuple[Law, ...]:
        return self.chosen_method.laws(self)

    @property
    def size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"the {self.q:g}-quantile of {self.number:,} points, in lattice steps, by the method {self.method!r}"

    def noise_rows(self) -> list[dict[str, Any]]:
        for law in self.laws:
            std = math.sqrt(law.variance())
            return [{"rows": "the quantile", "law": law.kind, "std": std, "unit": "lattice steps"}]
        return [{"rows": "the quantile", "law": self.chosen_method.words, "std": None}]

    def cost_under(self, moves: Neighbourhood) -> Fraction | float:
        return self.chosen_method.cost_under(self, moves)

    def methods(self) -> pd.DataFrame:
        """Rank all ways to publish this quantile by the expected error for points spread evenly over the domain.

        Public figures only: a frame with method and expected_error (mean absolute, in the domain's units), best first.
        Real points are denser in some places and sparser in others: dense places favour "inverse", and where the
        nearest points are further away than δ, all but "global" and "inverse" are poor.

        >>> near = Neighbourhood(Domain((0, 1), (100,)), delta=0.01)
        >>> QuantileMechanism(near, 0.5, 10_000, Budget(epsilon=1)).methods()["method"].tolist()
        ['inverse', 'exponential', 'smooth-student', 'global']
        """
        import pandas as pd

        errors = {name: error * self.domain.step[0] for name, error in self._ranked}
        return pd.DataFrame({"method": list(errors), "expected_error": list(errors.values())})

    def describe(self) -> dict[str, Any]:
        return {
            "q": self.q,
            "number": self.number,
            "method": self.method,
            **budget_description(self.budget),
            "probability": float(self.guarantee.probability) or None,
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
            Budget(*budget_of(description).exact, description["probability"]),
            one_of(tuple(METHODS), method=description["method"]),
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
