"""Exact sensitivity: the largest column norm of A E, in whole numbers and fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from deltahist.budget import Budget
from deltahist.errors import InputError, one_of, whole
from deltahist.privacy import Guarantee, Law, gaussian_epsilon, law_for
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy, whole_shares


class Root(float):
    """The square root of an exact number: a float that keeps the exact square.

    >>> Root.of(Fraction(2)).squared
    Fraction(2, 1)
    """

    squared: Fraction

    @classmethod
    def of(cls, squared: Fraction | int) -> Root:
        """Return the root of a number that is not negative."""
        out = cls(math.sqrt(squared))
        out.squared = Fraction(squared)
        return out


def sensitivity(strategy: Strategy, near: Neighbourhood, *, norm: int = 1) -> Fraction | Root:
    """Largest change of the (share-weighted) answers to a strategy between neighbouring data sets.

    The largest p-norm of a column of A E, where E is the neighbourhood's incidence matrix: one column per
    move and per arrival. For sets of cells and p = 1 it is the graph-cut sensitivity max_e C(e). What a neighbourhood
    with limits promises for moves beyond δ counts over its factor.
    Source: 2014, sections 5.2 and 5.3; docs/privacy/profiles.md.

    Parameters
    ----------
    strategy, near : on one and the same domain.
    norm : 1 (Laplace noise) or 2 (Gaussian noise).

    Returns
    -------
    Fraction for the 1-norm; for the 2-norm a float whose attribute `squared` is the exact square.

    Raises
    ------
    InputError
        If the domains differ.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> int(sensitivity(dh.strategies.Cumulative(domain), near)), int(sensitivity(dh.strategies.Identity(domain), near))
    (1, 2)
    """
    one_of((1, 2), norm=norm)
    if strategy.domain != near.domain:
        raise InputError("the strategy and the neighbourhood are on different domains: they must share one")
    relations = near.relations
    costs: dict[int, Fraction] = {}

    def cost(place: int) -> Fraction:
        if place not in costs:
            relation = relations[place][1]
            known = strategy.edge_cost(relation, norm)
            costs[place] = explicit_edge_cost(strategy, relation, norm) if known is None else Fraction(known)
        return costs[place]

    # Costs grow with the distance, and so do factors: what lies between two relations costs no more than the further
    # one, over the factor of the first one in between.
    largest, spans = Fraction(0), [(0, len(relations) - 1)]
    while spans:
        low, high = spans.pop()
        largest = max(largest, *(cost(place) / relations[place][0] ** norm for place in (low, high)))
        if high - low > 1 and cost(high) > largest * relations[low + 1][0] ** norm:
            middle = (low + high) // 2
            spans += [(low, middle), (middle, high)]
    return largest if norm == 1 else Root.of(largest)


def explicit_edge_cost(strategy: Strategy, near: Neighbourhood, norm: int) -> Fraction:
    """Return the definition itself: the largest sum of (share · |entry|)^norm over the columns of A E.

    For small domains, for strategies without a closed form, and to test closed forms against.
    """
    shares, denominator = whole_shares([g.share for g in strategy.groups])
    change = abs(strategy.changes(near))
    if norm == 2:
        change = change.multiply(change)
    change = change.tocsr()
    # Shares may be fractions of any length: their products are Python's whole numbers, which never overflow.
    total = np.zeros(change.shape[1], dtype=object)
    for group, share in zip(strategy.groups, shares, strict=True):
        total += share**norm * change[group.members].sum(axis=0).astype(object)
    return Fraction(max(total.tolist(), default=0), denominator**norm)


def calibrate(
    strategy: Strategy,
    near: Neighbourhood,
    *,
    epsilon: float | Fraction | None = None,
    rho: float | Fraction | None = None,
    contributions: int = 1,
) -> tuple[Law, ...]:
    """Return the noise law of each group of rows that makes the strategy private; all in exact fractions.

    Pure ε: Laplace noise of scale contributions · Δ₁ / (share · ε). ρ-zCDP: Gaussian noise of variance
    contributions² · Δ₂² / (2 ρ share²). Proof: docs/privacy/histogram.md.

    Raises
    ------
    InputError
        Unless exactly one of epsilon and rho is given, finite and above zero.
    """
    budget = Budget(epsilon, rho)
    largest = sensitivity(strategy, near, norm=1 if budget.unit == "epsilon" else 2)
    return noise_laws(strategy, largest, budget, contributions)


def noise_laws(
    strategy: Strategy,
    largest: Fraction | Root,
    budget: Budget,
    contributions: int,
    *,
    refinable: bool = False,
) -> tuple[Law, ...]:
    """Return the noise law of each group of rows, for a sensitivity that is known (`calibrate` computes it)."""
    times = whole(contributions=contributions)
    return tuple(
        scale_noise(budget, largest, times / Fraction(g.share), refinable=refinable) for g in strategy.groups
    )


def scale_noise(
    budget: Budget, change: Fraction | Root, times: Fraction | int = 1, *, refinable: bool = False
) -> Law:
    """Return the noise that hides a number of times a change: in the L1 norm for ε, in the L2 norm for ρ.

    Gaussian noise that is `refinable` later on is continuous, and rounded (docs/gradual.md).
    """
    law = law_for(budget.unit, refinable=refinable)
    power = change.squared if isinstance(change, Root) else Fraction(change) ** law.norm
    return law.hiding(times**law.norm * power, budget.amount)


def approximate_epsilon(
    laws: Sequence[Law],
    strategy: Strategy,
    guarantee: Guarantee,
    probability: float,
    times: Fraction = Fraction(1),
) -> float:
    """Return ε of the (ε, δ_prob) guarantee of a release at a failure probability δ_prob; for pure ε itself.

    That is the better of two: the one that zCDP implies, and the one that is proved for Gaussian noise.
    `times` : its budget over that of the first release of its chain.
    """
    known = guarantee.approximate(probability)
    variances = [least for law in laws if (least := law.least_variance(float(times))) is not None]
    if guarantee.rho is None or not variances:
        return known
    tight = gaussian_epsilon(
        float(guarantee.rho), probability, least_variance=min(variances), draws=strategy.draws
    )
    return min(known, tight)


def rho_at(strategy: Strategy, largest: Fraction | Root, budget: Budget, contributions: int) -> Fraction:
    """Return the largest ρ whose Gaussian noise on a strategy is (ε, δ_prob)-private, rounded down.

    Parameters
    ----------
    largest : 2-norm sensitivity of the strategy. budget : ε with a failure probability.

    Raises
    ------
    InputError
        If no Gaussian noise reaches ε at that probability.
    """
    target, probability = float(budget.amount), budget.probability
    assert probability is not None
    unit = noise_laws(strategy, largest, Budget(rho=Fraction(1)), contributions)

    def spent(rho: Fraction) -> float:
        laws = [replace(law, parameter=law.parameter / rho) for law in unit]
        return approximate_epsilon(laws, strategy, Guarantee(rho=rho), probability)

    low, high = Fraction(0), Fraction(1)
    while spent(high) <= target:
        low, high = high, high * 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= target else (low, middle)
    if not low:
        raise InputError(
            f"epsilon is {target:g}: no Gaussian noise reaches it at a probability of {probability!r}"
        )
    return low
