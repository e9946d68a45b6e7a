"""Mechanisms of quantiles: what each way of publishing one costs, and what error it is expected to have."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deltahist.budget import Budget
from deltahist.domain import Domain
from deltahist.domain.counting import POINTS, Counting
from deltahist.errors import InputError, finite, one_of, whole
from deltahist.mechanisms.base import BaseMechanism, bound_of, budget_description, budget_of
from deltahist.mechanisms.smooth import MEAN_SIZE, Smooth, smooth_noise
from deltahist.mechanisms.sorted import check_all_there, noise_law, priced, times_as_far
from deltahist.neighbourhood import Neighbourhood
from deltahist.privacy import Guarantee, Law

if TYPE_CHECKING:
    import pandas as pd

#: Ways to publish a quantile; "smooth" ones are named by their noise.
METHODS = ("inverse", "exponential", "global", "smooth-student", "smooth-laplace", "smooth-lognormal")
#: Those whose ε holds but for a failure probability.
APPROXIMATE = ("smooth-laplace", "smooth-lognormal")


def check_quantile(q: float, near: Neighbourhood) -> None:
    """Refuse a q outside 0 to 1, two dimensions, or membership that is not fixed."""
    finite(q=q)
    if not 0 <= q <= 1:
        raise InputError(f"q is {q!r}: it must be between 0 and 1, such as 0.5 for the median")
    if near.domain.ndim != 1:
        raise InputError(f"domain has {near.domain.ndim} dimensions: quantiles are for points on a line")
    if not near.fixed_membership:
        raise InputError(
            f"sources is {near.sources!r}: a quantile's rank is ⌈q n⌉, so n must be public; use fixed membership, or "
            "publish_sorted, whose release answers quantiles too"
        )


def rank_of(q: float, number: int) -> int:
    """Rank ⌈q n⌉ of the q-quantile, from 1.

    >>> rank_of(0.5, 101), rank_of(0.1, 10), rank_of(0, 10)
    (51, 1, 1)
    """
    # A hair less, so that 0.1 of 10 points is one point and not two.
    return min(max(math.ceil(q * number - 1e-9), 1), number)


def rate_of(budget: Budget, contributions: int) -> Fraction:
    """Rate ε/(2K) of e^(−rate · moves) for the methods that draw places by the moves they need.

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


def quantile_methods(
    near: Neighbourhood,
    number: int,
    q: float = 0.5,
    *,
    epsilon: float | Fraction | None = None,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    contributions: int = 1,
) -> pd.DataFrame:
    """Ways to publish a quantile, ranked by the expected error for points spread evenly over the domain.

    Public figures only. Real points are denser in some places and sparser in others: dense places favour
    "inverse", and where the nearest points are further away than δ, all but "global" and "inverse" are poor.

    Parameters
    ----------
    near : the neighbourhood, one dimension, fixed membership. number : of points, public.
    q : between 0 and 1.
    epsilon, probability, rho, contributions : as in `quantile`.

    Returns
    -------
    DataFrame with columns method and expected_error (mean absolute, in the domain's units), best first.

    >>> near = Neighbourhood(Domain((0, 1), (100,)), delta=0.01)
    >>> quantile_methods(near, 10_000, epsilon=1.0)["method"].tolist()
    ['inverse', 'exponential', 'smooth-student', 'global']
    """
    import pandas as pd

    check_quantile(q, near)
    number, times = whole(number=number), whole(contributions=contributions)
    budget = Budget(epsilon, rho, probability)
    ranked = [
        (m, e)
        for m, e in _ranked_on(near, number, budget, times)
        if too_far(near, m, _promised(m, budget)) is None
    ]
    step = near.domain.step[0]
    return pd.DataFrame({"method": [m for m, _ in ranked], "expected_error": [e * step for _, e in ranked]})


def _promised(method: str, budget: Budget) -> Guarantee:
    """Pure ε, ρ-zCDP, or ε with the failure probability of the methods that use it."""
    used = budget.probability if method in APPROXIMATE else None
    return Guarantee(budget.epsilon, budget.rho, Fraction(used or 0))  # type: ignore[arg-type]


def too_far(near: Neighbourhood, method: str, guarantee: Guarantee) -> str | None:
    """Which limit of a neighbourhood a method cannot keep, and what it would cost there; None if it keeps all.

    The noise of "global" is made for all limits, and under "exponential" any move costs the budget. For the others so
    many times the budget is known as moves within δ make one of that length.
    """
    if method in ("global", "exponential"):
        return None
    letter = "ε" if guarantee.rho is None else "ρ"
    power, (amount, last) = (
        (1 if guarantee.rho is None else 2),
        (bound_of(guarantee, 1), near.domain.lattice_shape[0]),
    )
    for limit, (factor, relation) in zip(near.profile, near.relations[1:], strict=True):
        steps = -(-min(relation.radius, last) // near.radius)
        cost = bound_of(guarantee, steps)
        place = "any move at all" if limit.any else f"a move over {limit.distance}"
        if guarantee.probability and steps > 1:
            return f"{place} may fail with the same probability as within delta, and by it fails more often"
        if cost > amount * factor**power:
            return f"{place} may cost {letter} = {float(amount * factor**power):.4g}, and by it costs {float(cost):.4g}"
    return None


def _ranked_on(near: Neighbourhood, number: int, budget: Budget, times: int) -> tuple[tuple[str, float], ...]:
    size, hidden = float(near.domain.lattice_shape[0]), max(Fraction(near.radius), priced(near))
    return _ranked(size, float(near.radius), float(hidden), number, budget, times)


@functools.lru_cache(maxsize=64)
def _ranked(
    size: float, reach: float, hidden: float, number: int, budget: Budget, times: int
) -> tuple[tuple[str, float], ...]:
    """Methods that go with a budget and their expected errors in lattice steps, best first; all from public figures."""
    eps, rho = budget.exact
    spacing = size / number
    errors = {}
    rate = float(rate_of(budget, times))
    errors["inverse"] = _mean_of_places(spacing, reach, rate, size)
    errors["exponential"] = _mean_of_places(spacing, size, rate, size)
    if eps is not None:
        errors["global"] = hidden / float(eps)
    else:
        assert rho is not None
        errors["global"] = hidden / math.sqrt(2 * float(rho)) * math.sqrt(2 / math.pi)
    for method in MEAN_SIZE:
        noise = smooth_noise(method, budget)
        if noise is not None:
            t = np.unique(np.rint(np.geomspace(1, min(number, 40 / noise.beta + 2), 2000))) - 1
            local = np.minimum(reach, np.minimum((t + 1) * times * spacing, size))
            errors[method] = (
                float(np.max(local * np.exp(-noise.beta * t))) * float(noise.factor) * MEAN_SIZE[method]
            )
    # Figures that agree to three digits are the same; then the method that comes first in METHODS.
    order = {m: (float(f"{min(e, size / 2):.2e}"), METHODS.index(m)) for m, e in errors.items()}
    return tuple((m, min(errors[m], size / 2)) for m in sorted(errors, key=order.__getitem__))


def _mean_of_places(spacing: float, reach: float, rate: float, size: float) -> float:
    """E|z| for P(z) ∝ e^(−rate · moves), moves = Σ_i ⌈(|z| − i·spacing)/reach⌉ over points on the way."""
    z = np.concatenate([[0.0], np.geomspace(min(spacing, reach) / 100, size, 4000)])
    passed = np.floor(z / spacing) + 1
    # Within δ every point passed needs one move. Beyond it ⌈x⌉ is about x + ½, and Σ_{i<passed} ((z − i s)/D + ½) is in
    # closed form; no point needs less than one.
    further = passed * (1 + z / reach) - spacing / reach * passed * (passed - 1) / 2 - passed / 2
    moves = np.where(z < reach, passed, np.maximum(passed, further))
    weight = np.exp(-rate * moves)
    total = np.trapezoid(weight, z)
    return float(np.trapezoid(weight * z, z) / total)


@dataclass(frozen=True)
class QuantileMechanism(BaseMechanism):
    """A way to publish a quantile of points on a line (docs/quantiles.md).

    Parameters
    ----------
    neighbourhood : who may be confused with whom; one dimension, fixed membership.
    q : which quantile: the ⌈q n⌉-th smallest of n points.
    number : of points, public.
    budget : ε, ρ, or ε with a failure probability that is allowed.
    method : one of METHODS, or "auto": the least expected error for evenly spread points (`quantile_methods`).
    counting : how rows became points; nothing may be left out.

    Raises
    ------
    InputError
        On a q outside 0 to 1, two dimensions, membership that is not fixed, points that were left out, or a method
        that does not go with the budget or cannot keep the neighbourhood's limits.

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
    counting: Counting = POINTS
    FORMAT: ClassVar[str] = "deltahist-quantile"

    def __post_init__(self) -> None:
        near = self.neighbourhood
        check_quantile(self.q, near)
        check_all_there(self.counting)
        object.__setattr__(self, "q", float(self.q))
        object.__setattr__(self, "number", whole(number=self.number))
        if self.method == "auto":
            ranked = _ranked_on(near, self.number, self.budget, self.counting.contributions)
            kept = (m for m, _ in ranked if too_far(near, m, _promised(m, self.budget)) is None)
            object.__setattr__(self, "method", next(kept))
        one_of(METHODS, "or 'auto'", method=self.method)
        if self.method.startswith("smooth") and self.smooth is None:
            raise InputError(
                f"method is {self.method!r}: smooth-student takes epsilon, smooth-laplace takes epsilon and a "
                "probability, smooth-lognormal takes rho, or epsilon and a probability"
            )
        problem = too_far(near, self.method, self.guarantee)
        if problem is not None:
            raise InputError(
                f"method is {self.method!r}, which cannot keep a limit: {problem}; take the method 'global' or "
                "'exponential', or a longer delta"
            )

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε, ρ-zCDP, or ε with the failure probability of the methods that use it."""
        return _promised(self.method, self.budget)

    @property
    def rank(self) -> int:
        """Rank of the quantile, from 1."""
        return rank_of(self.q, self.number)

    @property
    def steps(self) -> int:
        """Lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @property
    def reach(self) -> int:
        """Lattice steps that count as one move: δ, or all of the line."""
        return self.steps if self.method == "exponential" else self.neighbourhood.radius

    @property
    def rate(self) -> Fraction:
        """Rate of the methods that draw places by the moves they need."""
        return rate_of(self.budget, self.counting.contributions)

    @property
    def smooth(self) -> Smooth | None:
        """How the noise of a smooth method goes with its smooth sensitivity."""
        return smooth_noise(self.method, self.budget) if self.method.startswith("smooth") else None

    @property
    def laws(self) -> tuple[Law, ...]:
        """The law of the noise where it is public: of method "global" only."""
        if self.method != "global":
            return ()
        # However many points move within δ, the quantile moves by δ at most.
        return (noise_law(self.neighbourhood, self.budget, 1),)

    @property
    def size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"the {self.q:g}-quantile of {self.number:,} points, in lattice steps, by the method {self.method!r}"

    def noise_rows(self) -> list[dict[str, Any]]:
        if self.laws:
            (law,) = self.laws
            std = math.sqrt(law.variance())
            return [{"rows": "the quantile", "law": law.kind, "std": std, "unit": "lattice steps"}]
        how = "a place is drawn, the likelier the fewer moves would make it the quantile"
        if self.smooth is not None:
            how = f"{self.method}, in proportion to a smooth sensitivity that is not published"
        return [{"rows": "the quantile", "law": how, "std": None}]

    def cost_under(self, moves: Neighbourhood) -> Fraction | float:
        """Budget that another relation costs: in proportion to its moves for "global", nothing more for
        "exponential", and as many times the budget as moves within δ make one of them for the others.
        """
        if self.method == "exponential":
            return self.budget.amount
        if self.method == "global":
            return self.budget.amount * times_as_far(self.neighbourhood, moves) ** self.norm
        return bound_of(self.guarantee, -(-moves.radius // self.neighbourhood.radius))

    def methods(self) -> pd.DataFrame:
        """All ways to publish this quantile, by expected error (`quantile_methods`)."""
        epsilon, rho = self.budget.exact
        return quantile_methods(
            self.neighbourhood,
            self.number,
            self.q,
            epsilon=epsilon,
            rho=rho,
            probability=self.budget.probability,
            contributions=self.counting.contributions,
        )

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
        """The mechanism that `describe` described, from an untrusted file."""
        domain = Domain(**description["domain"])
        amounts = budget_of(description)
        return cls(
            Neighbourhood.from_description(domain, description["neighbourhood"]),
            finite(q=description["q"]),
            whole(number=description["number"]),
            Budget(*amounts.exact, description["probability"]),
            one_of(METHODS, method=description["method"]),
            Counting.from_description(description),
        )
