"""Ways to publish a quantile: what each one costs, which error is expected of it, and which noise it asks for.

A new way is a `Method` in `METHODS`; a new heavy-tailed law also stands in `noise/quantiles.py`.
Notation and proofs: docs/quantiles.md and docs/privacy/quantiles.md.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.kinds.sorted import length_ratio, noise_law
from deltahist.mechanisms.base import bound_of
from deltahist.privacy import Guarantee, Law, gaussian_curve
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from deltahist.kinds.quantile import PointsAround, QuantileMechanism

#: The floats of a smooth sensitivity agree with the real ones to fewer digits than this; β pays for it.
SLACK = 1e-12
#: Least smooth sensitivity that noise is drawn for, in lattice steps: public, and far below any accuracy.
FLOOR = 1
#: Spread σ of the log-normal factor: the best for dense points (docs/quantiles.md).
SIGMA = Fraction(1, 2)
#: The steepest slope of the log-density of Student's t with 2 degrees of freedom.
_STUDENT_SLOPE = 3 / (2 * math.sqrt(2))


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
