"""The base class of mechanisms, and the places of releases in chains and streams."""

from __future__ import annotations

import abc
import functools
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist._text import format_length, format_number
from deltahist.budget import LETTERS, Budget
from deltahist.errors import InputError, check_positive, check_whole
from deltahist.laws import Guarantee, Law
from deltahist.preprocessing import Clock, Preprocessing
from deltahist.space import neighbourhood
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import GraphNeighbourhood, Limit, Neighbourhood
from deltahist.strategies.base import Members, join_groups

_WHO = "an observer who considers two places within δ equally likely"
#: Maximum number of releases in a chain.
_LONGEST = 10_000


@dataclass(frozen=True)
class Chain:
    """The public place of a release in a chain of releases.

    The noise is a Markov chain, so the releases y_j = u + V_j for j = 1, …, i are together ε_i-private.
    Source: 2015, eq. (2), Theorem 12, eq. (35); 2015 abstract, Theorem 2, eq. (3).

    name : 32 random hexadecimal digits; empty for a more private copy of a release that is not in a chain.
    amounts : ε or ρ of the releases up to this one, in ascending order. The last amount is their total cost.
    copied : ε or ρ of this release if it is a more private copy of the last release (`dh.tighten`); None otherwise.
    origin : SHA-256 of a copy's original. An original and its copies together cost as much as the original alone.
    """

    name: str
    amounts: tuple[Fraction, ...]
    copied: Fraction | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        copy, amounts = self.copied is not None, self.amounts
        rising = all(before < now for before, now in itertools.pairwise((Fraction(0), *amounts)))
        if not (
            re.fullmatch(r"([0-9a-f]{32})?" if copy else r"[0-9a-f]{32}", self.name)
            and re.fullmatch(r"[0-9a-f]{64}" if copy else "", self.origin)
            and 0 < len(amounts) <= _LONGEST
            and rising
            and (self.copied is None or 0 < self.copied < amounts[-1])
        ):
            raise InputError(
                f"chain {self.name!r} is invalid: it must have a valid name and at most {_LONGEST:,} releases, each "
                "costing more than the one before, and a copy must give its original's SHA-256 and cost less than it"
            )

    @property
    def number(self) -> int:
        """Number of the release in its chain, counted from 1."""
        return len(self.amounts)

    @property
    def amount(self) -> Fraction:
        """ε or ρ of the release itself."""
        return self.amounts[-1] if self.copied is None else self.copied

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready description with exact amounts."""
        copied = {} if self.copied is None else {"copied": str(self.copied), "origin": self.origin}
        return {"name": self.name, "amounts": [str(a) for a in self.amounts], **copied}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Chain | None:
        """Recreate a chain from its description in an untrusted file. Returns None if there is no chain."""
        if description is None:
            return None
        amounts = tuple(Fraction(a) for a in description["amounts"][: _LONGEST + 1])
        copied = None if description.get("copied") is None else Fraction(description["copied"])
        return cls(description["name"], amounts, copied, str(description.get("origin", "")))


@dataclass(frozen=True)
class Step:
    """A step of a stream. Any `window` consecutive steps together spend at most `budget`.

    Source: 2014, Theorem 2.

    clock : the clock that defines the steps. number : number of this step, counted from 0.
    window : number of consecutive steps that share the budget. budget : ε or ρ of every window.
    limits : caps on the cost of changes that last longer than a window (`read_lasting`).

    >>> import deltahist as dh
    >>> step = Step(Clock.of("2010-05-01", "1d"), 2, 7, dh.Budget(1))
    >>> step.label
    '2010-05-03'
    """

    clock: Clock
    number: int
    window: int
    budget: Budget
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        check_whole(least=0, number=self.number)
        check_whole(window=self.window)
        self.clock.label(self.number)  # raises an error if the step has no date

    @property
    def label(self) -> str:
        """Date or number of the step."""
        return self.clock.label(self.number)

    def describe(self) -> dict[str, Any]:
        """Return a JSON-ready public description with the exact budget."""
        clock, budget = self.clock, {self.budget.unit: str(self.budget.amount)}
        about = {"start": clock.start, "every": clock.every, "number": self.number, "window": self.window} | budget
        about |= {} if clock.tz is None else {"tz": clock.tz}
        return about | ({"limits": neighbourhood.describe_limits(self.limits)} if self.limits else {})

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Step:
        """Recreate a step from its description in an untrusted file."""
        start = check_whole(least=-(10**15), start=description["start"])
        clock = Clock(start, check_whole(least=0, every=description["every"]), tz=description.get("tz"))
        epsilon, rho = (Fraction(description[k]) if k in description else None for k in ("epsilon", "rho"))
        limits = neighbourhood.read_lasting(
            neighbourhood.limits_of(description.get("limits", [])), description["window"]
        )
        return cls(clock, description["number"], description["window"], Budget(epsilon, rho), limits)


class OfMechanism:
    """A base class for objects that share the budget and noise of their mechanism."""

    mechanism: BaseMechanism

    @property
    def epsilon(self) -> Fraction | None:
        """Exact ε; None if the budget is in ρ."""
        return self.mechanism.budget.exact[0]

    @property
    def rho(self) -> Fraction | None:
        """Exact ρ; None if the budget is in ε."""
        return self.mechanism.budget.exact[1]

    @property
    def noise(self) -> str:
        """ "laplace" or "gaussian"."""
        return self.mechanism.budget.law().noise

    @property
    def any_move(self) -> float:
        """Largest cost of a move between any two places, in the budget's unit (ε or ρ)."""
        return self.mechanism.any_move


class BaseMechanism(abc.ABC):
    """A neighbourhood, a budget and a measurement, with the resulting noise and guarantees. It stores no data.

    Each kind of release has a subclass, a frozen dataclass of its public choices. Subclasses also define the noise, and
    how to check and measure private data. Only publishers check and measure data (`publish_mechanism`).
    """

    #: Name of this kind of release in files.
    kind: ClassVar[str]
    neighbourhood: Neighbourhood
    budget: Budget
    counting: Preprocessing
    #: Step of the stream; None outside a stream.
    step: Step | None = None
    #: Place in a chain of ever finer releases; None if the release cannot be refined or its kind has no such field.
    chain: Chain | None = None
    #: Cached properties that do not depend on the counting or the budget, so that `with_changes` can copy them.
    _COPIED: ClassVar[tuple[str, ...]] = ()

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.neighbourhood.domain

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for neighbours, either pure ε or ρ-zCDP."""
        return self.budget.guarantee

    @property
    def norm(self) -> int:
        """The norm that measures changes: 1 for ε, 2 for ρ."""
        return self.budget.law().norm

    @property
    def total_known(self) -> bool:
        """Whether the number of points is public: membership is fixed, and no rows are left out."""
        return self.neighbourhood.fixed_membership and not self.counting.dropped

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many numbers a release publishes."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """A phrase that describes the measured numbers and their noise."""

    @property
    @abc.abstractmethod
    def laws(self) -> tuple[Law, ...]:
        """Noise law of each group of numbers."""

    @abc.abstractmethod
    def check_data(self, data: ArrayLike) -> Any:
        """Convert private data to what `measure` takes. Raises InputError if the data cannot be published."""

    @abc.abstractmethod
    def measure(self, private: Any) -> NDArray[np.int64]:
        """Return the exact private numbers, of shape (size,), without noise. Measuring checked data never fails."""

    def exact_facts(self, private: Any) -> dict[str, Any]:
        """Return the fields of the release that are public although they depend on the data."""
        return {}

    def private_noise(self, private: Any) -> tuple[str, dict[str, Any]] | None:
        """Return a sampler's name and private parameters if the noise depends on the data; None otherwise."""
        return None

    @property
    def draws(self) -> int:
        """Number of noise draws."""
        return self.size

    @property
    def noise_groups(self) -> tuple[tuple[Members, Law], ...]:
        """Groups of draws, each with the law that its draws share."""
        return tuple((slice(None), law) for law in self.laws)

    @property
    def scatters_linearly(self) -> bool:
        """Whether `scatter` is linear, so that noise can be added before or after applying it."""
        return True

    def scatter(self, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what whole-number noise of shape (draws,) adds to the released numbers, of shape (size,)."""
        return noise

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return `scatter` of all groups' noise (32-bit or 64-bit integers) as a new array."""
        return self.scatter(join_groups([members for members, _ in self.noise_groups], noise))

    @property
    def determines_cells(self) -> bool | None:
        """Whether the numbers determine every cell; None if they do not describe cells."""
        return None

    @abc.abstractmethod
    def noise_rows(self) -> list[dict[str, Any]]:
        """Return a JSON-ready list of the law and standard deviation of each group's noise."""

    @abc.abstractmethod
    def cost_under(self, moves: Neighbourhood) -> Fraction | float:
        """Return the largest cost of a move that another relation allows, in the budget's unit (ε or ρ)."""

    def describe(self) -> dict[str, Any]:
        """Return the complete public description, ready for JSON, with exact amounts."""
        epsilon, rho = (None if amount is None else str(amount) for amount in self.budget.exact)
        places = {"step": self.step, "chain": self.chain}
        return {
            **{"domain": self.domain.describe(), "neighbourhood": self.neighbourhood.describe()},
            **{"epsilon": epsilon, "rho": rho, **self.counting.describe()},
            **{name: place.describe() for name, place in places.items() if place is not None},
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Self:
        """Recreate a mechanism from its description in an untrusted file. The noise in the description is ignored."""
        domain = Domain(**description["domain"])
        amounts = (None if description[k] is None else Fraction(description[k]) for k in ("epsilon", "rho"))
        common = {
            "neighbourhood": Neighbourhood.from_description(domain, description["neighbourhood"]),
            "budget": Budget(*amounts),
            "counting": Preprocessing.from_description(description),
        }
        return cls(**common, **cls.read_fields(domain, description))

    @staticmethod
    @abc.abstractmethod
    def read_fields(domain: Domain, description: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that only this kind of mechanism has, from an untrusted file."""

    def with_budget(self, budget: Budget) -> Self:
        """Return the same mechanism with a different budget in the same unit."""
        if budget.unit != self.budget.unit:
            raise InputError(f"the budget is in {budget.unit}: it must be in {self.budget.unit}, to match the noise")
        return self.with_changes(budget=budget, **({} if self.chain is None else {"chain": None}))

    def with_chain(self, chain: Chain) -> Self:
        """Return the same mechanism for a release in a chain, with the chain's amount as its budget."""
        if "chain" not in {each.name for each in fields(self)}:  # type: ignore[arg-type]
            raise InputError(f"{self.words} cannot be refined or tightened: only counts and sorted points can be")
        return self.with_changes(chain=chain, budget=self.budget.of(chain.amount))

    @property
    def refinable(self) -> bool:
        """Whether the release is in a chain, or is a copy of a release in a chain."""
        return self.chain is not None and bool(self.chain.name)

    def _check_common(self, domain: Domain) -> None:
        """Raise InputError if the neighbourhood or the chain does not fit the mechanism."""
        known = type(self.neighbourhood) in (Neighbourhood, GraphNeighbourhood)
        if not known or getattr(self.neighbourhood, "hops", 1) != 1 or domain != self.domain:
            raise InputError(
                f"neighbourhood is a {type(self.neighbourhood).__name__}: it must be a plain Neighbourhood on the "
                "strategy's domain, or one made by `Neighbourhood.of`"
            )
        if self.chain is not None and self.chain.amount != self.budget.amount:
            raise InputError(
                f"{self.budget.unit} is {float(self.budget.amount):.10g}, but the chain states "
                f"{float(self.chain.amount):.10g}: they must be the same"
            )

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with some fields changed. The copy keeps cached values that the changes do not affect."""
        out = replace(self, **changes)  # type: ignore[type-var]
        if changes.keys() <= {"counting", "budget", "step", "chain"}:
            vars(out).update({name: vars(self)[name] for name in self._COPIED if name in vars(self)})
        return out

    @functools.cached_property
    def _known(self) -> dict[Any, Any]:
        """Cache of costs by distance and of errors by workload."""
        return {}

    def cost_within(self, distance: float | str) -> tuple[Fraction | float, Fraction | float]:
        """Return the exact largest cost of a move over a distance, and a simple bound on the cost.

        The distance is a number of ground units or text such as "2km". Infinity means any move. A path of
        n = ⌈distance/δ⌉ moves within δ proves the bound n ε, or n² ρ. Limits can lower the bound.
        Source: 2014, section 3.2, Lemma 1: d ε for any move, where d is the diameter.
        """
        near = self.neighbourhood
        if isinstance(distance, str):
            distance = near.read_distance(distance)
        distance = near.diameter if distance == math.inf else float(check_positive(distance=distance))
        if distance not in self._known:
            limit = self.promised_within(distance)
            self._known[distance] = min(self.cost_under(near.moves_within(distance)), limit), limit
        return self._known[distance]  # type: ignore[no-any-return]

    def promised_within(self, distance: float) -> Fraction | float:
        """Return the bound in `cost_within` for a distance in ground units."""
        return self.budget.amount * factor_promised(self.neighbourhood, distance) ** self.norm

    @property
    def any_move(self) -> float:
        """Largest cost of a move between any two places, in the budget's unit (ε or ρ)."""
        return float(self.cost_within(self.neighbourhood.diameter)[0])

    @property
    def letter(self) -> str:
        """Unit of the budget, "ε" or "ρ"."""
        return LETTERS[self.budget.unit]

    def approximate(self, probability: float) -> float:
        """Return the ε of the (ε, δ_prob) guarantee with failure probability δ_prob. A pure ε stays the same."""
        return self.guarantee.approximate(probability)

    @property
    def noise_of_a_cell(self) -> float | None:
        """Standard deviation of the noise in one cell's count, in points; None if the mechanism counts no cells."""
        return None

    @property
    def weakness(self) -> str | None:
        """The reason why the mechanism hardly protects anyone; None if there is no reason (docs/privacy/weak.md)."""
        if (weakness := weakness_of(self.guarantee)) is not None:
            return weakness
        sure = self.guarantee.certainty
        # If counts are almost exact, an attacker's certainty above 90% already counts as weak protection.
        noise = self.noise_of_a_cell if sure > 0.9 else None
        if noise is not None and noise < 1:
            return (
                f"the noise in a cell's count is less than one point (standard deviation {noise:.2g}), and {_WHO} can "
                f"be {100 * sure:.6g}% sure afterwards"
            )
        return None

    @property
    def promise(self) -> str:
        """One-line summary of the guarantee and the neighbourhood."""
        near, amount = self.neighbourhood, float(self.budget.amount)
        cost = f"ε = {amount:g}"
        if self.budget.unit == "rho":
            cost = f"ρ = {amount:.4g} (ε = {self.approximate(1e-6):.4g} but for 10⁻⁶)"
        limits, far = neighbourhood.list_limits(near), ""
        for distance, factor in limits if len(limits) < 4 else limits[-1:]:  # a line has room for three limits
            reach = "however far" if distance is None else f"up to {format_length(distance, near.unit, 6)}"
            far += f", at most {format_number(float(factor**self.norm), 6)} {self.letter} {reach}"
        return f"{cost} for each {self.counting.who} moving up to {near.delta_words}{far}"


def weakness_of(guarantee: Guarantee) -> str | None:
    """Return the reason why a guarantee hardly protects anyone, whatever is measured; None if there is no reason."""
    sure = guarantee.certainty
    return f"{_WHO} can be {100 * sure:.6g}% sure of one of them afterwards" if sure > 0.999 else None


def factor_promised(near: Neighbourhood, distance: float) -> Fraction | float:
    """Return a bound on the cost of moving over a ground distance, in one or more moves, as a multiple of ε.

    The bound is infinite if no moves within δ lead from one place to another, as between disconnected parts of a graph.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 90), (90,)), 1, limits=[(10, 2), ("any", 8)])
    >>> [int(factor_promised(near, r)) for r in (1, 2, 10, 11, 19, 30, 80)]
    [1, 2, 2, 3, 4, 6, 8]
    """
    steps = near.steps_of(distance)
    limits = [(steps if limit.any else near.steps_of(limit.distance), limit.factor) for limit in near.profile]
    # Combining more limits, or much shorter ones, would take too long.
    few = limits[::-1] if math.prod(1 + steps // far for far, _ in limits) < 100_000 else []
    moves: Fraction | float = max(Fraction(1), _cover(steps, [*few, (near.radius, Fraction(1))]))
    if distance >= near.diameter and not near.connected:
        moves = math.inf
    return min([moves, *(factor for far, factor in limits if steps <= far)])


def _cover(distance: int, lengths: Sequence[tuple[int, Fraction]]) -> Fraction:
    """Return the least total factor of moves that together cover a distance in whole lattice steps.

    The moves exist because the cells at the ends of a line segment are no further apart than the segment's length.
    """
    (far, factor), *rest = lengths
    most = max(0, -(-distance // far))
    if not rest:
        return most * factor
    return min(n * factor + _cover(distance - n * far, rest) for n in range(most + 1))


class Root(float):
    """The square root of an exact number, as a float whose attribute `squared` is that number.

    >>> Root.of(Fraction(2)).squared
    Fraction(2, 1)
    """

    squared: Fraction

    @classmethod
    def of(cls, squared: Fraction | int) -> Root:
        """Return the square root of a non-negative number."""
        root = cls(math.sqrt(squared))
        root.squared = Fraction(squared)
        return root


def scale_noise(budget: Budget, change: Fraction | Root, times: Fraction | int = 1, *, refinable: bool = False) -> Law:
    """Return the law that hides `times` · `change` (L1 norm for ε, L2 for ρ) and, if `refinable`, can be refined."""
    law = budget.law(refinable=refinable)
    power = change.squared if isinstance(change, Root) else Fraction(change) ** law.norm
    return law.hiding(times**law.norm * power, budget.amount)
