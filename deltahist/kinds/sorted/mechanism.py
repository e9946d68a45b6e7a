"""Mechanism of sorted points: sums of consecutive points of a line, with noise of one law (docs/sorted.md)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.errors import InputError, fits_memory, whole
from deltahist.mechanisms.base import BaseMechanism, budget_description, budget_of
from deltahist.mechanisms.calibration import scale_noise
from deltahist.mechanisms.sequence import Chain
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.privacy import Law
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood

#: Share of a group by which a rank in it is off where points come in clumps.
_CLUMPED = 0.2
#: Largest sum of lattice steps in a group, noise included, that int64 and exact floats hold.
MOST_SUM = 1 << 52


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


def group_size(near: Neighbourhood, number: int, budget: Budget, contributions: int = 1) -> int:
    """Return how many consecutive points to sum, for the least expected error of a rank, from public figures alone.

    Points that are spread at random over the domain are s = (length / n) apart. The mean of k of them has noise
    σ/k, which is σ/(k s) ranks where groups do not overlap; where they do, isotonic regression leaves about
    0.82 (σ/(k² s))^(2/3) groups. Within a group ranks are interpolated, which costs √(k/6) at random places, and a
    fifth of the group is added since real points come in clumps. The k with the least sum of squares is taken
    (docs/sorted.md).

    Parameters
    ----------
    near : the neighbourhood, in one dimension. number : of points, or its public bound.
    budget : ε or ρ. contributions : points of one user that may move at once.

    >>> near = Neighbourhood(Domain((0, 1), (100,)), delta=0.01)
    >>> group_size(near, 10_000, Budget(epsilon=1)), group_size(near, 20, Budget(epsilon=1))
    (26, 1)
    """
    check_membership(near)
    number = whole(number=number)
    deviation = math.sqrt(noise_law(near, budget, contributions).variance())
    steps = near.domain.lattice_shape[0]
    most = max(1, min(number, MOST_SUM // steps))
    k = np.unique(np.rint(np.geomspace(1, most, 2000)))
    spacing = steps / number
    overlap = deviation / (k * k * spacing)
    noise = k * np.where(overlap < 0.55, overlap, 0.82 * overlap ** (2 / 3))
    return int(k[np.argmin(noise * noise + variance_within(k))])


def noise_law(near: Neighbourhood, budget: Budget, contributions: int, *, refinable: bool = False) -> Law:
    """Return the noise of each sum: neighbours' sums differ by at most K D lattice steps, in the L1 and the L2 norm.

    D is δ, or a longer move over the factor of its limit (`hidden_move`).
    """
    change = whole(contributions=contributions) * max(Fraction(near.radius), hidden_move(near))
    return scale_noise(budget, change, refinable=refinable)


def hidden_move(near: Neighbourhood) -> Fraction:
    """Return the lattice steps of the furthest move of a point on the line, over its factor: noise hides it."""
    last = near.domain.lattice_shape[0] - 1
    return max(min(relation.radius, last) / factor for factor, relation in near.relations)


def length_ratio(near: Neighbourhood, moves: Neighbourhood) -> Fraction:
    """Return the longest move of a point on the line under another relation, in units of `hidden_move`."""
    return min(moves.radius, near.domain.lattice_shape[0] - 1) / hidden_move(near)


def variance_within(group: ArrayLike) -> NDArray[np.float64]:
    """Return the variance of a rank within a group: k/6 at random places, and a fifth of the group for clumps."""
    k = np.asarray(group, dtype=np.float64)
    return np.asarray((k - 1) / 6 + ((k - 1) * _CLUMPED) ** 2)


@dataclass(frozen=True)
class SortedMechanism(BaseMechanism):
    """Sums of consecutive sorted coordinates with exact integer noise.

    Source: 2014, section 5.5.1; docs/sorted.md. Coordinates are in lattice steps. With a source at one end there
    are `number` places, and those that nobody takes lie at that end: a point there counts as absent.

    Parameters
    ----------
    neighbourhood : who may be confused with whom; one dimension.
    number : of points; with a source the public bound on it.
    budget : ε (Laplace noise) or ρ (Gaussian noise).
    group : points per sum, or "auto": chosen from public figures (`group_size`).
    counting : how rows became points; nothing may be left out, since the number of places is public.
    chain : which release of a chain it is for, if its releases can be refined (`dh.refine`).

    Raises
    ------
    InputError
        On a domain of two dimensions, sources other than one end, a budget with a probability, points that were left
        out, or a group that is larger than the number of points or whose sum does not fit.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> mechanism = SortedMechanism(near, 50, dh.Budget(epsilon=1), group=2)
    >>> mechanism.size, mechanism.laws[0].kind
    (25, 'laplace')
    """

    neighbourhood: Neighbourhood
    number: int
    budget: Budget
    group: int | str = "auto"
    counting: Preprocessing = POINTS
    chain: Chain | None = None

    def __post_init__(self) -> None:
        check_membership(self.neighbourhood)
        check_all_there(self.counting)
        if self.budget.probability is not None:
            raise InputError(
                f"probability is {self.budget.probability!r}: sorted points take epsilon or rho alone"
            )
        object.__setattr__(self, "number", whole(number=self.number))
        if self.number > MOST_SUM:
            raise InputError(f"number is {self.number:,}: at most 2^52 points")
        group = self.group
        if isinstance(group, str):
            if group != "auto":
                raise InputError(f"group is {group!r}: it must be 'auto' or a whole number of points")
            group = group_size(self.neighbourhood, self.number, self.budget, self.counting.contributions)
        object.__setattr__(self, "group", whole(group=group))
        self._check_chain()
        if self.together > self.number:
            raise InputError(f"group is {group:,}: it must be at most the number of points, {self.number:,}")
        law = self.law
        spread = 64 * law.scale
        if self.together * self.steps + spread >= MOST_SUM:
            raise InputError(
                f"group is {group:,}: sums of {self.steps:,} lattice steps would exceed 2^52; use fewer cells or a "
                "smaller group"
            )

    @property
    def together(self) -> int:
        """Points per sum."""
        assert isinstance(self.group, int)
        return self.group

    @property
    def steps(self) -> int:
        """Lattice steps along the domain."""
        return self.domain.lattice_shape[0]

    @functools.cached_property
    def law(self) -> Law:
        """Noise of each sum, in lattice steps."""
        return noise_law(
            self.neighbourhood, self.budget, self.counting.contributions, refinable=self.refinable
        )

    @property
    def laws(self) -> tuple[Law, ...]:
        """The one law."""
        return (self.law,)

    @property
    def size(self) -> int:
        return -(-self.number // self.together)

    @property
    def words(self) -> str:
        one = "sorted coordinates"
        each = one if self.group == 1 else f"sums of {self.group:,} consecutive {one}"
        what = "points" if self.neighbourhood.fixed_membership else "places for points"
        return f"{each} of {self.number:,} {what}, in lattice steps, with {self.noise_words}"

    @property
    def determines_cells(self) -> bool:
        """Whether the numbers determine every cell: they do, up to the grouping."""
        return True

    def measure(self, points: ArrayLike) -> NDArray[np.int64]:
        """Return the sums (size,) of consecutive sorted points, in lattice steps; private.

        Raises InputError if there are more points than places, or fewer where their number is public.
        """
        array, number = on_a_line(points), self.number
        if len(array) > number or (self.total_known and len(array) != number):
            raise InputError(
                f"the mechanism is for {number:,} points, and there are others: their number must be its own"
            )
        fits_memory(40 * number, f"sorting {number:,} points")
        steps = sorted_steps(array, self.domain, number, parked=self.neighbourhood.sources)
        return np.add.reduceat(steps, np.arange(0, number, self.together))

    def noise_rows(self) -> list[dict[str, Any]]:
        std = math.sqrt(self.law.variance())
        return [{"rows": "sums", "law": self.law.kind, "std": std, "unit": "lattice steps"}]

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        """Return the budget that another relation costs: in proportion to the length of its moves (squared for ρ)."""
        return self.budget.amount * length_ratio(self.neighbourhood, moves) ** self.norm

    def describe(self) -> dict[str, Any]:
        return {
            "domain": self.domain.describe(),
            "neighbourhood": self.neighbourhood.describe(),
            "number": self.number,
            "group": self.group,
            **budget_description(self.budget),
            "law": self.law.describe(),
            **self.counting.describe(),
            **({} if self.chain is None else {"chain": self.chain.describe()}),
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> SortedMechanism:
        """Make the mechanism that `describe` described, from an untrusted file; its noise is not compared yet."""
        domain = Domain(**description["domain"])
        return cls(
            Neighbourhood.from_description(domain, description["neighbourhood"]),
            whole(number=description["number"]),
            budget_of(description),
            whole(group=description["group"]),
            Preprocessing.from_description(description),
            Chain.from_description(description.get("chain")),
        )


def sorted_steps(
    points: NDArray[Any], domain: Domain, number: int, *, parked: Any = None
) -> NDArray[np.int64]:
    """Return sorted lattice steps (number,), absent points at the end where they are parked; private."""
    steps = np.empty(number, dtype=np.int64)
    absent = number - len(points)
    if parked == "right":
        steps[len(points) :] = domain.lattice_shape[0] - 1
        part = steps[: len(points)]
    else:
        steps[:absent] = 0
        part = steps[absent:]
    if len(points):
        part[:] = domain.lattice(points)[:, 0]
    part.sort()
    return steps


def places_for(present: int, near: Neighbourhood, most: int | None) -> int:
    """Return the length of the released list: the number of points, or its public bound."""
    if near.fixed_membership:
        if most is not None:
            raise InputError(
                f"most is {most!r} with fixed membership: the number of points is public then; leave it out, or "
                "declare sources='left' or 'right'"
            )
        if not present:
            raise InputError("there are no points: a list of none says nothing")
        return present
    if most is None:
        raise InputError(
            f"most is missing with sources={near.sources!r}: give a public bound on the number of points; the places "
            "that nobody takes are parked at the source"
        )
    bound = whole(most=most)
    if present > bound:
        raise InputError(
            f"most is {bound:,}, but there are more points: raise the public bound (it costs no budget)"
        )
    return bound


def check_all_there(counting: Preprocessing) -> None:
    """Refuse points of which some may have been left out: their number is public here."""
    if counting.dropped:
        raise InputError(
            f"rows may have been left out ({', '.join(counting.dropped)}), and the number of points is public, which "
            "may then depend on a person: count all of them, or publish a histogram"
        )


def on_a_line(points: ArrayLike) -> NDArray[Any]:
    """Return points as (n,) numbers, also of a column (n, 1); InputError on anything else."""
    array = np.asarray(points)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        # Not their shape: with a source their number is private.
        raise InputError(f"points have {array.ndim} dimensions and type {array.dtype.name}: they must be (n,) numbers")
    return array
