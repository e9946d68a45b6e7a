"""Quantiles of points on a line: the private points, the mechanism, and the release, which is stored as JSON.

Source: 2014, section 5.5.2. For notation and proofs, see docs/privacy/quantiles.md.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._files import DIGEST, write_whole
from deltahist.budget import Budget
from deltahist.errors import InputError, check_choice, check_finite, check_whole
from deltahist.kinds.sorted import check_line, rank_of, read_line
from deltahist.laws import Law
from deltahist.mechanisms.base import BaseMechanism
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.releases.base import BaseRelease
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload

#: Bound on the relative rounding error of a smooth sensitivity. The noise allows for this error.
SLACK = 1e-12


class PointsAround:
    """Private points x_1 ≤ … ≤ x_n around the quantile x_r, in lattice steps.

    For i < 1, x_i is the lower end of the domain. For i > n, x_i is the upper end, which is the last lattice step.
    """

    def __init__(self, steps: NDArray[np.int64], rank: int, last: int) -> None:
        self._sorted, self._centre, self._last = np.sort(steps), rank - 1, last

    @property
    def quantile_step(self) -> int:
        """The exact quantile x_r."""
        return int(self._sorted[self._centre])

    @property
    def steps_beside(self) -> tuple[int, int]:
        """The numbers of lattice steps above and below the quantile."""
        return self._last - self.quantile_step, self.quantile_step

    def nearest_distances(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the distances |x_i − x_r| of up to `number` points from x_r upwards, and of as many downwards."""
        x, centre = self._sorted, self._centre
        above, below = x[centre : centre + number], x[max(centre + 1 - number, 0) : centre + 1]
        return above - x[centre], x[centre] - below[::-1]

    def longest_stretch(self, t: int, contributions: int) -> int:
        """Return A(t), the length of the longest stretch of (t + 1) K gaps that contains x_r (as an end if t = 0)."""
        number = len(self._sorted)
        gaps = min((t + 1) * contributions, number + 1)
        low, high = self._centre - gaps, self._centre + gaps + 1
        ends = np.zeros(max(-low, 0), dtype=np.int64), np.full(max(high - number, 0), self._last)
        around = np.concatenate([ends[0], self._sorted[max(low, 0) : high], ends[1]])
        stretch = around[gaps:] - around[: gaps + 1]
        return int(stretch.max() if t else max(stretch[0], stretch[-1]))

    def smooth_sensitivity(self, reach: int, beta: float, contributions: int) -> float:
        """Return the private smooth sensitivity S_β, in lattice steps, for moves of K points by at most D each.

        Branch and bound finds the maximum S_β of e^(−βt) f(t), where f(t) = min(D, A(t)). Since f never decreases, no
        value between a and b exceeds e^(−β(a+1)) f(b).
        Source: Nissim, Raskhodnikova and Smith 2007; 2014, section 5.5.2. Proof: docs/privacy/quantiles.md.
        """
        best = 0.0

        def evaluate_at(t: int) -> tuple[int, int]:
            nonlocal best
            value = min(reach, self.longest_stretch(t, contributions))
            best = max(best, math.exp(-beta * t) * value)
            return t, value

        # After this many moves, the stretch is the whole line.
        most = -(-(len(self._sorted) + 1) // contributions)
        known = [evaluate_at(0)]
        # Double t (0, 1, 3, 7, …) until f reaches its maximum D, or until even D could not exceed the best value.
        while known[-1][1] < reach and (t := known[-1][0]) < most and math.exp(-beta * (t + 1)) * reach > best:
            known.append(evaluate_at(min(2 * t + 1, most)))
        between = list(itertools.pairwise(known))
        while between:
            first, second = between.pop()
            if second[0] - first[0] > 1 and math.exp(-beta * (first[0] + 1)) * second[1] > best:
                middle = evaluate_at((first[0] + second[0]) // 2)
                between += [(first, middle), (middle, second)]
        return best


@dataclass(frozen=True)
class InverseNoise:
    """A draw of a place z with probability ∝ e^(−rate · m), where m moves within δ are needed to make z the quantile.

    The rate is ε/(2K). Log-ratios between neighbours lie in an interval of length ε, so the draw is also (ε²/8)-zCDP.
    """

    rate: Fraction
    law: ClassVar[str] = "a random place, more likely the fewer moves would make it the quantile"

    @classmethod
    def for_budget(cls, budget: Budget, contributions: int) -> InverseNoise:
        """Return the noise for a budget."""
        epsilon = budget.amount
        if budget.unit == "rho":
            # Round down to twelve digits, so that ε is at most √(8 ρ).
            epsilon = Fraction(math.isqrt(int(8 * epsilon * 10**24)), 10**12)
        return cls(epsilon / (2 * contributions))

    def sampler_parameters(self, points: PointsAround, reach: int, contributions: int) -> dict[str, Any]:
        """Return the sampler's private parameters for these points, if K points move by at most D each."""
        return {"nearest": points.nearest_distances, "room": points.steps_beside, "reach": reach, "rate": self.rate}


@dataclass(frozen=True)
class SmoothNoise:
    """Noise S_β · factor · Z, proportional to the smooth sensitivity S_β, which is not published.

    Between neighbours, S_β differs by a factor of at most e^β, and the quantile by at most S_β. So, for a neighbour,
    the same output has a Z that is scaled by at most e^±β and shifted by at most 1/factor. For Student's t with 2
    degrees of freedom, scaling costs 2β, and a shift by s costs 3 s / (2 √2). The two get half of ε each, less a margin
    for rounding. Equal halves are best for dense points, because their S_β is proportional to 1/β.
    """

    beta: float
    factor: Fraction
    law: ClassVar[str] = "Student's t, in proportion to a smooth sensitivity that is not published"

    @classmethod
    def for_budget(cls, budget: Budget, contributions: int) -> SmoothNoise:
        """Return the noise for a budget in ε."""
        epsilon, slope = float(budget.amount), 3 / (2 * math.sqrt(2))  # the steepest slope of Student's log-density
        return cls(epsilon / 4 - SLACK, 1 / Fraction(epsilon / 2 / slope * (1 - SLACK)))

    def sampler_parameters(self, points: PointsAround, reach: int, contributions: int) -> dict[str, Any]:
        """Return the sampler's private parameters, as `InverseNoise` does.

        A sensitivity of at least one lattice step ensures that there is noise even if e^(−βt) underflows. The maximum
        of a smooth bound and a constant is also a smooth bound (docs/privacy/quantiles.md).
        """
        smooth = points.smooth_sensitivity(reach, self.beta, contributions)
        return {"room": points.steps_beside, "scale": max(Fraction(smooth), Fraction(1)) * self.factor}


#: Methods by name. Each method has a sampler of the same name in `QUANTILE_SAMPLERS` of `noise/samplers.py`.
METHODS: dict[str, type[InverseNoise | SmoothNoise]] = {"inverse": InverseNoise, "smooth": SmoothNoise}


@dataclass(frozen=True)
class QuantileMechanism(BaseMechanism):
    """The mechanism that publishes a quantile of points on a line (docs/privacy/quantiles.md).

    Parameters
    ----------
    neighbourhood : one-dimensional, with fixed membership.
    q : level of the quantile, which is the ⌈q n⌉-th smallest of n points.
    number : the public number n of points.
    budget : ε or, only for the method "inverse", ρ.
    method : "inverse" draws a place. A place is less likely the more moves within δ it takes to make it the quantile.
        "smooth" adds noise proportional to the smooth sensitivity.
    counting : how rows became points. No rows may be left out.

    Raises InputError if q is outside 0 to 1, if there are sources, two dimensions or rows left out, or if the budget or
    limits rule out the method.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> [float(QuantileMechanism(near, 0.5, 101, dh.Budget(epsilon=2)).cost_within(r)[0]) for r in (1, 5, 6, 10, 12)]
    [2.0, 2.0, 4.0, 4.0, 6.0]
    """

    neighbourhood: Neighbourhood
    q: float
    number: int
    budget: Budget
    method: str = "inverse"
    counting: Preprocessing = POINTS
    kind: ClassVar[str] = "deltahist-quantile"

    def __post_init__(self) -> None:
        self._check_common(self.domain)
        check_finite(least=0, most=1, q=self.q)
        check_line(self.neighbourhood, (None,), self.counting)
        check_whole(number=self.number)
        check_choice(tuple(METHODS) if self.budget.unit == "epsilon" else ("inverse",), method=self.method)
        near, amount = self.neighbourhood, self.budget.amount
        # Float arithmetic in the noise and its sampler would fail with budgets far below these limits.
        bounds = [(self.budget.unit, amount, Fraction(self.counting.contributions, 10**11))]
        for limit, (factor, relation) in zip(near.profile, near.relations[1:], strict=True):
            name = f"{self.letter} of {'any move' if limit.any else f'a move over {limit.distance}'}"
            bounds.append((name, amount * factor**self.norm, self.cost_under(relation)))
        for name, allowed, least in bounds:
            if allowed < least:
                raise InputError(f"{name} is {float(allowed):.4g}: it must be at least {float(least):.4g}")

    @property
    def lattice_steps(self) -> int:
        """Number of lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @property
    def laws(self) -> tuple[Law, ...]:
        """Empty. The law of the noise is private, because it depends on the points."""
        return ()

    @property
    def size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"the {self.q:g}-quantile of {self.number:,} points, in lattice steps, by the method {self.method!r}"

    def noise_rows(self) -> list[dict[str, Any]]:
        return [{"rows": "the quantile", "law": self.place_noise.law, "std": None}]

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        """Return the cost under another relation, as the cost of the moves within δ that cover its longest move."""
        return self.guarantee.times(-(-min(moves.radius, self.lattice_steps) // self.neighbourhood.radius)).amount

    @functools.cached_property
    def place_noise(self) -> InverseNoise | SmoothNoise:
        """The method's noise for the budget."""
        return METHODS[self.method].for_budget(self.budget, self.counting.contributions)

    def check_data(self, data: ArrayLike) -> PointsAround:
        points = read_line(data)
        check_choice((self.number,), points=len(points))
        rank = int(rank_of(self.q, self.number))
        return PointsAround(self.domain.lattice(points)[:, 0], rank, self.lattice_steps - 1)

    def measure(self, private: PointsAround) -> NDArray[np.int64]:
        return np.array([private.quantile_step], dtype=np.int64)

    def private_noise(self, private: PointsAround) -> tuple[str, dict[str, Any]]:
        reach, contributions = self.neighbourhood.radius, self.counting.contributions
        return self.method, self.place_noise.sampler_parameters(private, reach, contributions)

    def describe(self) -> dict[str, Any]:
        return {"q": float(self.q), "number": self.number, "method": self.method, **super().describe()}

    @staticmethod
    def read_fields(domain: Domain, description: dict[str, Any]) -> dict[str, Any]:
        number = check_whole(number=description["number"])
        return {"q": description["q"], "number": number, "method": description["method"]}


@dataclass(frozen=True, eq=False, repr=False)
class Quantile(BaseRelease):
    """A published quantile.

    Parameters
    ----------
    mechanism : the public choices. values : the published lattice step, in an int64 array of shape (1,).
    payment, withdrawn, about : as for `BaseRelease`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = dh.publishers.publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> abs(float(found) - 50) < 10, found.total
    (True, 101)
    """

    mechanism: QuantileMechanism
    values: NDArray[np.int64]
    mechanism_class: ClassVar[type[Any]] = QuantileMechanism

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
        """The number of points, which is public because membership is fixed."""
        return self.mechanism.number

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"value": self.value, "step": self.step}

    def file_columns(self) -> dict[str, NDArray[Any]]:
        return {}  # the description contains the value

    def save(self, path: str | Path) -> None:
        """Write the description to a JSON file, atomically."""
        write_whole(Path(path), lambda part: part.write_text(self.to_json() + "\n", encoding="utf-8"))

    def to_json(self) -> str:
        """Return the text that `save` writes: the description with its digest."""
        return json.dumps(self.describe() | {DIGEST: self.digest}, indent=2, ensure_ascii=False)

    @classmethod
    def read_fields(cls, description: dict[str, Any], values: NDArray[np.int64] | None) -> dict[str, Any]:
        mechanism = QuantileMechanism.from_description(description)
        # If clamping changes the step, the release no longer matches the file, and the file is refused.
        step = min(check_whole(least=0, step=description["step"]), mechanism.lattice_steps - 1)
        return {"mechanism": mechanism, "values": np.array([step], dtype=np.int64)}

    def estimate_cells(self, *, nonnegative: bool = False) -> NoReturn:
        raise InputError("release is a quantile: it has no cells and cannot answer queries")

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> NoReturn:
        self.estimate_cells()
