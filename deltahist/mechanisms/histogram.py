"""The mechanism of a histogram, with its exact sensitivity Δ_A (2014, eq. (7)), noise and error.

A release is y = A c + R(η), where a strategy A measures the counts c, and its `scatter` R maps noise draws η to
answers. In 2014, section 5.2, R(η) = η.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.decode import Decoder, make_decoder
from deltahist.errors import InputError, check_choice, check_finite
from deltahist.laws import Law, gaussian_epsilon
from deltahist.mechanisms.base import BaseMechanism, Chain, Root, Step, scale_noise
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Regions, Workload, boxes
from deltahist.strategies.base import Members, Strategy, from_description, is_own


def sensitivity(strategy: Strategy, near: Neighbourhood, *, norm: int = 1) -> Fraction | Root:
    """Return the largest share-weighted change of a strategy's answers between neighbouring data sets.

    The sensitivity is the largest p-norm of a column of A E, where the incidence matrix E of the neighbourhood has one
    column for each move and each arrival. If each answer counts a set of cells and p = 1, it is the graph-cut
    sensitivity max_e C(e). With moves only, it is max_(i,j)∈N ‖a_i − a_j‖₁. With limits, the change from a move beyond
    δ is divided by the factor of its limit. Source: 2014, section 5.2, eq. (7), section 5.3; docs/privacy/profiles.md.

    Parameters
    ----------
    strategy, near : a strategy and a neighbourhood on the same domain.
    norm : 1 (Laplace noise) or 2 (Gaussian noise).

    Returns a Fraction for the 1-norm, and for the 2-norm a float whose attribute `squared` is the exact square.

    Raises InputError if the domains differ, or if the strategy does not support the kind of `near` or its axes.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> int(sensitivity(dh.strategies.Cumulative(domain), near)), int(sensitivity(dh.strategies.Identity(domain), near))
    (1, 2)
    """
    check_choice((1, 2), norm=norm)
    suits = type(near) is Neighbourhood or strategy.row_by_row or strategy.on_graphs
    if strategy.domain != near.domain or not suits or near.domain.ndim > strategy.most_axes:
        raise InputError(
            f"near is a {type(near).__name__} with {near.domain.ndim} axes: strategy {strategy.name} must have the "
            "same domain, and support that many axes and this kind of neighbourhood"
        )
    relations = near.relations
    costs: dict[int, Fraction] = {}

    def cost(place: int) -> Fraction:
        if place not in costs:
            relation = relations[place][1]
            # Most closed forms depend on δ alone, so they do not apply to the edges of a graph.
            closed = type(relation) is Neighbourhood or not strategy.row_by_row
            known = strategy.edge_cost(relation, norm) if closed else None
            costs[place] = explicit_edge_cost(strategy, relation, norm) if known is None else Fraction(known)
        return costs[place]

    # Costs and factors increase with the distance. For every relation between two others, cost / factor is therefore at
    # most the cost of the longer of the two divided by the smallest factor in between.
    largest, spans = Fraction(0), [(0, len(relations) - 1)]
    while spans:
        low, high = spans.pop()
        largest = max(largest, *(cost(place) / relations[place][0] ** norm for place in (low, high)))
        if high - low > 1 and cost(high) > largest * relations[low + 1][0] ** norm:
            middle = (low + high) // 2
            spans += [(low, middle), (middle, high)]
    return largest if norm == 1 else Root.of(largest)


def explicit_edge_cost(strategy: Strategy, near: Neighbourhood, norm: int) -> Fraction:
    """Return the largest column sum of (share · |entry|)^norm in A E, computed from all entries."""
    shares, denominator = strategy.whole_shares
    change = abs(strategy.changes(near))
    # Larger entries would silently overflow int64 and understate the cost.
    most = int(change.max() if change.nnz else 0) ** norm * change.shape[0]
    check_finite(below=1 << 63, **{f"largest sum of entries of A E for strategy {strategy.name}": most})
    if norm == 2:
        change = change.multiply(change)
    change = change.tocsr()
    # Shares may have long denominators, so use Python integers, which never overflow.
    total = np.zeros(change.shape[1], dtype=object)
    for group, share in zip(strategy.groups, shares, strict=True):
        total += share**norm * change[group.members].sum(axis=0).astype(object)
    return Fraction(max(total.tolist(), default=0), denominator**norm)


@dataclass(frozen=True)
class Mechanism(BaseMechanism):
    """The public choices of a release of counts: neighbourhood, strategy, budget, and how rows become counts.

    Parameters
    ----------
    neighbourhood : the neighbourhood, which includes the domain.
    strategy : what is measured (`dh.plan` ranks strategies).
    budget : ε (Laplace noise) or ρ (Gaussian noise).
    counting : how rows become counts.
    step : step of the stream, if the map is part of a stream.
    chain : place in a chain, if the release can be refined (`dh.refine`).

    Raises InputError if the strategy has another domain or reveals a private point count, or if the step overspends.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25, sources="left")
    >>> mechanism = dh.Mechanism(near, dh.strategies.Cumulative(near.domain), dh.Budget(epsilon=1))
    >>> int(mechanism.sensitivity), mechanism.guarantee.epsilon
    (1, Fraction(1, 1))
    >>> mechanism.variance(dh.workloads.boxes([[0, 0.5]])).round(3).tolist()
    [3.683]
    """

    neighbourhood: Neighbourhood
    strategy: Strategy
    budget: Budget
    counting: Preprocessing = POINTS
    step: Step | None = None
    chain: Chain | None = None
    kind: ClassVar[str] = "deltahist-release"
    _COPIED: ClassVar[tuple[str, ...]] = ("sensitivity", "determines_cells")

    def __post_init__(self) -> None:
        near, strategy, counting = self.neighbourhood, self.strategy, self.counting
        self._check_common(strategy.domain)
        if "points outside" in counting.dropped and near.sources != "boundary":
            raise InputError(
                "outside is 'drop', so a point could vanish at the boundary: use outside='clamp' or sources='boundary'"
            )
        if strategy.keeps_total and (counting.dropped or not near.fixed_membership):
            reason = "rows were dropped" if near.fixed_membership else "the neighbourhood has sources"
            raise InputError(
                f"strategy {strategy.name} publishes the exact number of points, but {reason}: use another strategy"
            )
        if self.step is not None:
            own, window = self.budget, self.step.budget
            if own.unit != window.unit or own.amount > window.amount:
                raise InputError(
                    f"step spends {own.unit} = {float(own.amount):g}: it must spend at most the budget of the window, "
                    f"{window.unit} = {float(window.amount):g}"
                )

    def check_data(self, data: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(data)
        whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool((array == np.floor(array)).all()))
        total = float(array.sum(dtype=np.float64)) if whole else math.inf
        # If the sum is below 2^52, sums over any rows are exact in int64 and in float64.
        if array.shape != self.domain.shape or not total < 1 << 52 or array.min() < 0 or np.ma.is_masked(data):
            raise InputError(
                f"counts have type {array.dtype} and shape {array.shape}: they must be non-negative whole numbers, "
                f"none of them masked, with the shape {self.domain.shape} (axis 0 is x) and a sum below 2^52"
            )
        self.strategy.check_points(total)
        counts = array.astype(np.int64, copy=False)
        if not is_own(self.strategy):  # errors in a user's strategy must be raised before the charge
            self.strategy.measure(counts)
        return counts

    def measure(self, private: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.strategy.measure(private)

    def exact_facts(self, private: NDArray[np.int64]) -> dict[str, Any]:
        return {"total": int(private.sum()) if self.total_known else None}

    @functools.cached_property
    def sensitivity(self) -> Fraction | Root:
        """Sensitivity of the strategy in the norm of the noise (`sensitivity`)."""
        return sensitivity(self.strategy, self.neighbourhood, norm=self.norm)

    @functools.cached_property
    def laws(self) -> tuple[Law, ...]:
        """Noise law of each group of rows (docs/privacy/histogram.md)."""
        budget, change, times = self.budget, self.sensitivity, self.counting.contributions
        if not change and sensitivity(self.strategy, self.neighbourhood.anywhere(), norm=self.norm):
            raise InputError(
                f"no protected move changes what strategy {self.strategy.name} measures: its numbers would be exact"
            )
        shares = [Fraction(group.share) for group in self.strategy.groups]
        return tuple(scale_noise(budget, change, times / share, refinable=self.refinable) for share in shares)

    @property
    def draws(self) -> int:
        return self.strategy.draws

    @property
    def noise_groups(self) -> tuple[tuple[Members, Law], ...]:
        return tuple(zip((group.members for group in self.strategy.groups), self.laws, strict=True))

    @property
    def scatters_linearly(self) -> bool:
        return self.strategy.scatters_linearly

    def scatter(self, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.strategy.scatter(noise)

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        return self.strategy.scatter_groups(noise)

    @functools.cached_property
    def decoder(self) -> Decoder:
        """Least-squares decoder for the releases."""
        return make_decoder(self.strategy, self.laws, total_known=self.total_known)

    @property
    def size(self) -> int:
        return self.strategy.shape[0]

    @property
    def words(self) -> str:
        return f"{self.strategy.name} with {self.budget.law(refinable=self.refinable).words}"

    def noise_rows(self) -> list[dict[str, Any]]:
        pairs = zip(self.strategy.groups, self.laws, strict=True)
        return [{"rows": g.name, "law": law.kind, "std": math.sqrt(law.variance()) * float(g.unit)} for g, law in pairs]

    @functools.cached_property
    def determines_cells(self) -> bool:
        """Whether the numbers determine every cell."""
        known = self.strategy.determines_cells
        if known is None:
            return bool(np.linalg.matrix_rank(self.strategy.matrix().toarray()) == self.domain.size)
        return known

    @functools.cached_property
    def noise_of_a_cell(self) -> float | None:
        """Standard deviation of the noise in the middle cell or, if cells are undetermined, the least noisy number."""
        if self.strategy.determines_cells:
            sides = [(self.domain.edges(axis), n // 2) for axis, n in enumerate(self.domain.shape)]
            cell = [edges[middle + end] for end in (0, 1) for edges, middle in sides]
            return math.sqrt(max(0.0, float(self.variance(boxes([cell]))[0])))
        return min((row["std"] for row in self.noise_rows() if row["std"]), default=None)

    def cost_under(self, moves: Neighbourhood) -> Fraction:
        """Return the cost under a different relation: the budget times the ratio of the sensitivities.

        The sensitivity is the largest Σ share |A (e_u − e_v)| over neighbours u and v. For ρ, each term is squared.
        """
        own, wide = self.sensitivity, sensitivity(self.strategy, moves, norm=self.norm)
        if not own:  # if there is no noise, no move may change the numbers (checked in `laws`)
            return Fraction(0)
        if isinstance(own, Root) and isinstance(wide, Root):
            return self.budget.amount * wide.squared / own.squared
        return self.budget.amount * Fraction(wide) / Fraction(own)

    def approximate(self, probability: float) -> float:
        # zCDP and Gaussian noise each prove a bound. The guarantee is the smaller of the two bounds.
        known, rho = super().approximate(probability), self.guarantee.rho
        times = 1.0 if self.chain is None else float(self.budget.amount / self.chain.amounts[0])
        variances = [least for law in self.laws if (least := law.least_variance(times)) is not None]
        if rho is None or not variances:
            return known
        return min(known, gaussian_epsilon(float(rho), probability, least_variance=min(variances), draws=self.draws))

    def variance(self, workload: Workload, *, continuous: bool = False) -> NDArray[np.float64]:
        """Return the expected squared error of the answer to each query, in points squared.

        Source: 2014, eq. (5), where the printed formula omits the factor 2/ε² of Laplace noise.

        Parameters
        ----------
        workload : the queries.
        continuous : whether to assume continuous noise of the same scale (variance 2 b² for Laplace noise), for
            comparison with papers. Releases use integer noise, whose variance differs slightly.
        """
        found = self.decoder
        if continuous:
            laws = [replace(law, continuous=True) for law in self.laws]
            found = make_decoder(self.strategy, laws, total_known=self.total_known)
        return found.answer_variance(workload.cover(self.domain) if isinstance(workload, Regions) else workload)

    def rmse(self, workload: Workload) -> float:
        """Return the expected root mean square error of a query, in points. Results are cached by workload."""
        if workload not in self._known:
            if isinstance(workload, AllRanges):
                mean = self.decoder.mean_variance(workload)
            else:
                mean = float(self.variance(workload).mean())
            self._known[workload] = math.sqrt(mean)
        return float(self._known[workload])

    def describe(self) -> dict[str, Any]:
        laws, groups = [law.describe() for law in self.laws], [part.name for part in self.strategy.parts]
        return {"strategy": self.strategy.describe(), "laws": laws, "groups": groups, **super().describe()}

    @staticmethod
    def read_fields(domain: Domain, description: dict[str, Any]) -> dict[str, Any]:
        step = Step.from_description(description["step"]) if description.get("step") else None
        places = {"step": step, "chain": Chain.from_description(description.get("chain"))}
        return {"strategy": from_description(domain, description["strategy"]), **places}
