"""Quantiles of points on a line: their mechanism, and the release with one number in a JSON file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist._files import DIGEST, check_format, write_whole
from deltahist.budget import Budget, Payment
from deltahist.errors import InputError, finite, one_of, whole
from deltahist.kinds.quantile.methods import METHODS, Method, Spread, ranked
from deltahist.kinds.sorted.mechanism import check_all_there
from deltahist.mechanisms.base import BaseMechanism, budget_description, budget_of, stamp
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.privacy import Guarantee, Law
from deltahist.releases.base import VERSION, BaseRelease, damaged, is_publishable
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from fractions import Fraction

    import pandas as pd


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


def check_method(method: str) -> None:
    """Refuse a method that nobody has made."""
    one_of(("auto", *METHODS), method=method)


def rank_of(q: float, number: int) -> int:
    """Return the rank ⌈q n⌉ of the q-quantile, from 1.

    >>> rank_of(0.5, 101), rank_of(0.1, 10), rank_of(0, 10)
    (51, 1, 1)
    """
    # A hair less, so that 0.1 of 10 points is one point and not two.
    return min(max(math.ceil(q * number - 1e-9), 1), number)


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
    counting: Preprocessing = POINTS

    def __post_init__(self) -> None:
        near = self.neighbourhood
        check_quantile(self.q, near)
        check_all_there(self.counting)
        object.__setattr__(self, "q", float(self.q))
        object.__setattr__(self, "number", whole(number=self.number))
        check_method(self.method)
        if self.method == "auto":
            object.__setattr__(self, "method", self._ranked[0][0])
        if not self.how.takes(self.budget):
            takes = ", ".join(f"{m.name} takes {m.needs}" for m in METHODS.values() if m.needs)
            raise InputError(f"method is {self.method!r}: {takes}")
        problem = self.how.broken_limit(near, self.budget)
        if problem is not None:
            raise InputError(
                f"method is {self.method!r}, which cannot keep a limit: {problem}; take the method 'global' or "
                "'exponential', or a longer delta"
            )

    @property
    def how(self) -> Method:
        """The way in which the quantile is published."""
        return METHODS[self.method]

    @property
    def _ranked(self) -> list[tuple[str, float]]:
        """Methods that take the budget and keep all limits, with expected errors in lattice steps, best first."""
        near, budget = self.neighbourhood, self.budget
        found = ranked(Spread.of(near, self.number, self.counting.contributions), budget)
        return [(name, error) for name, error in found if METHODS[name].broken_limit(near, budget) is None]

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε, ρ-zCDP, or ε with the failure probability of the methods that use it."""
        return self.how.promise(self.budget)

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
        """The law of the noise where it is public: of method "global" only."""
        return self.how.laws(self)

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
        return [{"rows": "the quantile", "law": self.how.words, "std": None}]

    def cost_under(self, moves: Neighbourhood) -> Fraction | float:
        """Return the budget that another relation costs, by the method's own account."""
        return self.how.cost_under(self, moves)

    def methods(self) -> pd.DataFrame:
        """Rank all ways to publish this quantile by the expected error for points spread evenly over the domain.

        Public figures only. Real points are denser in some places and sparser in others: dense places favour
        "inverse", and where the nearest points are further away than δ, all but "global" and "inverse" are poor.

        Returns
        -------
        DataFrame with columns method and expected_error (mean absolute, in the domain's units), best first.

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
        domain = Domain(**description["domain"])
        amounts = budget_of(description)
        return cls(
            Neighbourhood.from_description(domain, description["neighbourhood"]),
            finite(q=description["q"]),
            whole(number=description["number"]),
            Budget(*amounts.exact, description["probability"]),
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
    def q(self) -> float:
        """Which quantile."""
        return self.mechanism.q

    @property
    def number(self) -> int:
        """Of points; public, since membership is fixed."""
        return self.mechanism.number

    @property
    def total(self) -> int:
        """The number of points."""
        return self.number

    @property
    def method(self) -> str:
        """How it was published."""
        return self.mechanism.method

    @property
    def probability(self) -> float | None:
        """With ε, the failure probability that was allowed."""
        return self.mechanism.budget.probability

    def estimates(self, *, nonnegative: bool = False) -> NoReturn:
        """Raise InputError: one number says nothing of cells."""
        self.cells()

    def cells(self, *, nonnegative: bool = False) -> NoReturn:
        """Raise InputError: one number says nothing of cells."""
        raise InputError(f"the release is {self.mechanism.words}: it has no cells")

    def methods(self) -> pd.DataFrame:
        """Rank all ways to publish this quantile by expected error (`QuantileMechanism.methods`)."""
        return self.mechanism.methods()

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"value": self.value, "step": self.step}

    def columns(self) -> dict[str, NDArray[Any]]:
        """None: the description has the value."""
        return {}

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
        found = stamp(
            cls(mechanism, np.array([step], dtype=np.int64), payment=payment), is_publishable(description)
        )
        if found.value != description["value"]:
            raise damaged(path, "states a value that is not that of its lattice step")
        return found
