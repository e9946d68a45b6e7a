"""Ways to publish a quantile: what each one costs, which error is expected of it, and which noise it asks for.

A new way is a `Method` of this file, and a line of `METHODS`; a new heavy-tailed law also stands in `noise/heavy.py`.
Notation and proofs: docs/quantiles.md and docs/privacy/quantiles.md.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.kinds.sorted.mechanism import hidden_move, length_ratio, noise_law
from deltahist.mechanisms.base import bound_of
from deltahist.privacy import Guarantee, Law, gaussian_curve
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from deltahist.kinds.quantile.points import PointsAround
    from deltahist.kinds.quantile.release import QuantileMechanism

#: The floats of a smooth sensitivity agree with the real ones to fewer digits than this; β pays for it.
SLACK = 1e-12
#: Least smooth sensitivity that noise is drawn for, in lattice steps: public, and far below any accuracy.
FLOOR = 1
#: Spread σ of the log-normal factor: the best for dense points (docs/quantiles.md).
SIGMA = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class PlaceNoise:
    """A place drawn with probability ∝ e^(−rate · moves), the moves that would make the place the quantile; private.

    Parameters
    ----------
    nearest : gives the distances of a number of points above the quantile, and below it.
    room : lattice steps above the quantile and below it. reach : lattice steps of one move. rate : above zero.
    """

    nearest: Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64]]]
    room: tuple[int, int]
    reach: int
    rate: Fraction


@dataclass(frozen=True)
class HeavyNoise:
    """A real number of a heavy-tailed law, times a scale that depends on the data, rounded; private.

    Parameters
    ----------
    law : "student", "laplace" or "lognormal" (σ = `SIGMA`). scale : in lattice steps.
    """

    law: str
    scale: Fraction


#: What the publisher adds to the quantile.
Noise: TypeAlias = PlaceNoise | HeavyNoise | Law


@dataclass(frozen=True)
class Spread:
    """Points that are spread evenly over a domain: the public figures that expected errors are computed from.

    Parameters
    ----------
    size : of the domain. reach : δ. hidden : the longest move, over its factor. All in lattice steps.
    number : of points. contributions : points of one user.
    """

    size: float
    reach: float
    hidden: float
    number: int
    contributions: int

    @classmethod
    def of(cls, near: Neighbourhood, number: int, contributions: int) -> Spread:
        """Return the figures of a neighbourhood."""
        hidden = max(Fraction(near.radius), hidden_move(near))
        return cls(near.domain.lattice_shape[0], near.radius, float(hidden), number, contributions)

    @property
    def gap(self) -> float:
        """Lattice steps between two points."""
        return self.size / self.number


@dataclass(frozen=True)
class Method(abc.ABC):
    """A way to publish a quantile.

    Parameters
    ----------
    name : as users choose it.
    """

    name: str
    #: Budgets that the method takes, in words; "" for all.
    needs: ClassVar[str] = ""

    def takes(self, budget: Budget) -> bool:
        """Return whether the noise can be made for a budget."""
        return True

    def promise(self, budget: Budget) -> Guarantee:
        """Return the guarantee within δ at a budget."""
        return Guarantee(*budget.exact)

    @abc.abstractmethod
    def expected_error(self, points: Spread, budget: Budget) -> float:
        """Return the mean absolute error in lattice steps."""

    @abc.abstractmethod
    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        """Return the noise that the quantile of points gets; private."""

    def laws(self, mechanism: QuantileMechanism) -> tuple[Law, ...]:
        """Return the law of the noise where the law is public."""
        return ()

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """The noise in words."""

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction | float:
        """Return the budget that another relation costs: as many times its own as moves within δ make one."""
        return bound_of(mechanism.guarantee, -(-moves.radius // mechanism.neighbourhood.radius))

    def broken_limit(self, near: Neighbourhood, budget: Budget) -> str | None:
        """Return which limit of a neighbourhood the method cannot keep, and the cost there; None if it keeps all."""
        guarantee, last = self.promise(budget), near.domain.lattice_shape[0]
        letter, power = ("ε", 1) if guarantee.rho is None else ("ρ", 2)
        amount = bound_of(guarantee, 1)
        for limit, (factor, relation) in zip(near.profile, near.relations[1:], strict=True):
            steps = -(-min(relation.radius, last) // near.radius)
            cost = bound_of(guarantee, steps)
            place = "any move at all" if limit.any else f"a move over {limit.distance}"
            if guarantee.probability and steps > 1:
                return f"{place} may fail with the same probability as within delta, and by it fails more often"
            if cost > amount * factor**power:
                allowed = float(amount * factor**power)
                return f"{place} may cost {letter} = {allowed:.4g}, and by it costs {float(cost):.4g}"
        return None


# ------------------------------------------------------------------------------------------ drawn places


@dataclass(frozen=True)
class Inverse(Method):
    """A place is drawn, the likelier the fewer moves within δ would make it the quantile."""

    @property
    def words(self) -> str:
        return "a place is drawn, the likelier the fewer moves would make it the quantile"

    def expected_error(self, points: Spread, budget: Budget) -> float:
        return mean_of_places(points.gap, points.reach, float(rate_of(budget, points.contributions)), points.size)

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        return self._places(mechanism, points, mechanism.neighbourhood.radius)

    def _places(self, mechanism: QuantileMechanism, points: PointsAround, reach: int) -> Noise:
        rate = rate_of(mechanism.budget, mechanism.counting.contributions)
        return PlaceNoise(points.nearest, points.room, reach, rate)


@dataclass(frozen=True)
class Exponential(Inverse):
    """The same for moves of any length, the exponential mechanism: any move at all costs the budget."""

    def expected_error(self, points: Spread, budget: Budget) -> float:
        return mean_of_places(points.gap, points.size, float(rate_of(budget, points.contributions)), points.size)

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        return self._places(mechanism, points, mechanism.steps)

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction:
        return mechanism.budget.amount

    def broken_limit(self, near: Neighbourhood, budget: Budget) -> None:
        return None


def rate_of(budget: Budget, contributions: int) -> Fraction:
    """Return the rate ε/(2K) of e^(−rate · moves) for the methods that draw places by the moves they need.

    A mechanism whose log-probabilities differ by an interval of length ε is (ε²/8)-zCDP.
    """
    epsilon, rho = budget.exact
    if epsilon is None:
        assert rho is not None
        # Rounded down to twelve digits: less than √(8 ρ).
        epsilon = Fraction(math.isqrt(int(8 * rho * 10**24)), 10**12)
        if not epsilon:
            raise InputError(
                f"rho is {float(rho):g}: it must be at least 10^-24 for places that are drawn by moves"
            )
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
    total = np.trapezoid(weight, z)
    return float(np.trapezoid(weight * z, z) / total)


# ------------------------------------------------------------------------------------------- plain noise


@dataclass(frozen=True)
class Global(Method):
    """Noise of one public law: however many points move within δ, the quantile moves by δ at most."""

    @property
    def words(self) -> str:
        return "the law"

    def laws(self, mechanism: QuantileMechanism) -> tuple[Law, ...]:
        return (noise_law(mechanism.neighbourhood, mechanism.budget, 1),)

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        return self.laws(mechanism)[0]

    def expected_error(self, points: Spread, budget: Budget) -> float:
        if budget.unit == "epsilon":
            return points.hidden / float(budget.amount)
        return points.hidden / math.sqrt(2 * float(budget.amount)) * math.sqrt(2 / math.pi)

    def cost_under(self, mechanism: QuantileMechanism, moves: Neighbourhood) -> Fraction:
        return mechanism.budget.amount * length_ratio(mechanism.neighbourhood, moves) ** mechanism.norm

    def broken_limit(self, near: Neighbourhood, budget: Budget) -> None:
        return None  # the noise is made for all of them


# ------------------------------------------------------------------- noise in proportion to a smooth sensitivity


@dataclass(frozen=True)
class SmoothScale:
    """How noise Z goes with a smooth sensitivity S_β: the output is x + S_β · factor · Z.

    Parameters
    ----------
    beta : β of the smooth sensitivity. factor : what it is multiplied with.
    """

    beta: float
    factor: Fraction

    @classmethod
    def of(cls, beta: float, shift: float) -> SmoothScale | None:
        """Return the scale for a β and a shift, both a hair less, since floats are rounded."""
        return cls(beta - SLACK, 1 / Fraction(shift * (1 - SLACK))) if beta > 2 * SLACK else None

    @classmethod
    @functools.lru_cache(maxsize=256)
    def best(cls, budget: Budget, slope: float, stretch: Callable[[float, float], float]) -> SmoothScale | None:
        """Return the scale whose share of ε for shifting has the largest β s, over a grid; None without a probability.

        A neighbour's output is shifted first, at the cost of e^(ε₂), and then stretched, so that the failure
        probability of the stretch counts e^(ε₂) times.
        """
        if budget.unit != "epsilon" or budget.probability is None:
            return None
        epsilon, shares = float(budget.amount), np.linspace(0.02, 0.98, 49)
        betas = [stretch(epsilon * (1 - a), budget.probability * math.exp(-epsilon * a)) for a in shares]
        best = int(np.argmax(np.array(betas) * shares))
        return cls.of(betas[best], epsilon * float(shares[best]) / slope)


@dataclass(frozen=True)
class Smooth(Method):
    """Noise in proportion to a smooth sensitivity, which is not published.

    If S_β(x) and S_β(x') differ by a factor of at most e^β and the values by S_β, the output of a neighbour is that
    of Z stretched by e^±β and shifted by at most 1/factor. How a budget pays for the two is the noise's own. Where
    points are dense S_β is in proportion to 1/β, so that β s is made as large as possible.

    Parameters
    ----------
    size : E|Z|.
    """

    size: float

    @property
    def words(self) -> str:
        return f"{self.name}, in proportion to a smooth sensitivity that is not published"

    @abc.abstractmethod
    def scale(self, budget: Budget) -> SmoothScale | None:
        """Return the best split of a budget between the scale's change and the shift, or None if there is none."""

    def takes(self, budget: Budget) -> bool:
        return self.scale(budget) is not None

    def expected_error(self, points: Spread, budget: Budget) -> float:
        scale = self.scale(budget)
        assert scale is not None
        t = np.unique(np.rint(np.geomspace(1, min(points.number, 40 / scale.beta + 2), 2000))) - 1
        stretch = (t + 1) * points.contributions * points.gap
        local = np.minimum(points.reach, np.minimum(stretch, points.size))
        return float(np.max(local * np.exp(-scale.beta * t))) * float(scale.factor) * self.size

    def noise(self, mechanism: QuantileMechanism, points: PointsAround) -> Noise:
        scale, times = self.scale(mechanism.budget), mechanism.counting.contributions
        assert scale is not None
        # Below the floor e^(−βt) would lose its digits, and at last be zero: a value without noise. The larger of a
        # smooth bound and a constant is one as well (docs/privacy/quantiles.md).
        smooth = max(Fraction(points.smooth(mechanism.neighbourhood.radius, scale.beta, times)), Fraction(FLOOR))
        return HeavyNoise(self.name.removeprefix("smooth-"), smooth * scale.factor)


class SmoothStudent(Smooth):
    """Student's t with 2 degrees of freedom: stretching costs 2β, shifting by s costs 3 s / (2 √2); pure ε."""

    needs = "epsilon"

    def scale(self, budget: Budget) -> SmoothScale | None:
        if budget.unit != "epsilon":
            return None
        epsilon = float(budget.amount)
        return SmoothScale.of(epsilon / 4, epsilon / 2 / _STUDENT_SLOPE)


#: The steepest slope of the log-density of Student's t with 2 degrees of freedom.
_STUDENT_SLOPE = 3 / (2 * math.sqrt(2))


class Approximate(Smooth):
    """Noise whose ε holds but for a failure probability."""

    def promise(self, budget: Budget) -> Guarantee:
        return Guarantee(*budget.exact, Fraction(budget.probability or 0))


class SmoothLaplace(Approximate):
    """Laplace noise: shifting costs s, stretching ε₁ but for e^(−z) (1 − e^(−β)), z = (ε₁ + β)/(e^β − 1)."""

    needs = "epsilon and a probability"

    def scale(self, budget: Budget) -> SmoothScale | None:
        return SmoothScale.best(budget, 1.0, _laplace_stretch)


class SmoothLognormal(Approximate):
    """Laplace log-normal noise: its divergence of order α is at most α (β/σ + e^(3σ²/2) s)² / 2.

    Source: Bun and Steinke 2019.
    """

    needs = "rho, or epsilon and a probability"

    def scale(self, budget: Budget) -> SmoothScale | None:
        if budget.unit == "rho":
            root = math.sqrt(2 * float(budget.amount))
            return SmoothScale.of(root * float(SIGMA) / 2, root / 2 * math.exp(-1.5 * float(SIGMA) ** 2))
        return SmoothScale.best(budget, math.exp(1.5 * float(SIGMA) ** 2), _lognormal_stretch)


def _laplace_stretch(epsilon: float, probability: float) -> float:
    """Return the largest β such that Laplace noise of scales 1 and e^β, or e^−β, is (ε, δ_prob)-close."""

    def failure(beta: float) -> float:
        return math.exp(-(epsilon + beta) / math.expm1(beta)) * -math.expm1(-beta)

    return _largest(lambda beta: failure(beta) <= probability * (1 - 1e-9), epsilon)


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
        Inverse("inverse"),
        Exponential("exponential"),
        Global("global"),
        SmoothStudent("smooth-student", math.sqrt(2)),
        SmoothLaplace("smooth-laplace", 1.0),
        SmoothLognormal("smooth-lognormal", math.exp(float(SIGMA) ** 2 / 2)),
    )
}


@functools.lru_cache(maxsize=64)
def ranked(points: Spread, budget: Budget) -> tuple[tuple[str, float], ...]:
    """Return the methods that take a budget and their expected errors in lattice steps, best first."""
    taking = [method for method in METHODS.values() if method.takes(budget)]
    errors = {m.name: min(m.expected_error(points, budget), points.size / 2) for m in taking}
    # Errors that agree to three digits are the same; sorting keeps the order of METHODS then.
    return tuple(sorted(errors.items(), key=lambda item: float(f"{item[1]:.2e}")))
