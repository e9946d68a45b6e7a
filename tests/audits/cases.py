"""The mechanisms that are audited, and the bugs that are planted in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deltahist.laws import Law
from deltahist.mechanisms import histogram as mechanism
from deltahist.publishers import publication
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import Cumulative, CutAugmented, Hierarchical, Identity, ShiftedGrids, Wavelet
from deltahist.strategies.base import Strategy
from tests.audits.harness import Draw, design, mechanism_of, worst_pairs

#: Releases that one call gives of a line, where tens of thousands are wanted.
COPIES = 100


def line(n: int) -> Domain:
    """A 1-D domain with cells of side 1."""
    return Domain((0, n), (n,))


def square(n: int) -> Domain:
    """A 2-D domain with cells of side 1."""
    return Domain((0, 0, n, n), (n, n))


def _greedy(near: Neighbourhood) -> CutAugmented:
    """One grid of 2 × 2 blocks and the rows that fit beside it."""
    return CutAugmented.greedy(ShiftedGrids(near.domain, width=2, shift=1, m=1), near)


#: name -> (strategy for a neighbourhood, domain, δ). All in cells.
MECHANISMS: dict[str, tuple[Callable[[Neighbourhood], Strategy], Domain, float]] = {
    "Identity": (lambda near: Identity(near.domain), square(2), 1),
    "Cumulative": (lambda near: Cumulative(near.domain), line(5), 2),
    "Hierarchical": (lambda near: Hierarchical(near.domain), line(4), 1),
    "Hierarchical with shares": (lambda near: Hierarchical(near.domain, shares=(1, 2, 1)), line(4), 1),
    "Wavelet": (lambda near: Wavelet(near.domain), line(4), 1),
    "ShiftedGrids": (lambda near: ShiftedGrids(near.domain, width=2, shift=1), square(4), 1),
    "ShiftedGrids of two widths": (lambda near: ShiftedGrids(near.domain, widths=(2, 4), offsets=(1, 2)), line(5), 2),
    "CutAugmented": (_greedy, square(3), 1),
}
SOURCES = ("none", "boundary")


def quick(names: Iterable[str], *chosen: str) -> list[Any]:
    """Parameters of a test, of which all but some chosen ones are slow."""
    return [pytest.param(n, marks=[] if n in chosen else pytest.mark.slow) for n in names]


def build(name: str, sources: str = "none") -> tuple[Strategy, Neighbourhood]:
    """A mechanism's strategy and neighbourhood."""
    make, domain, delta = MECHANISMS[name]
    near = Neighbourhood(domain, delta, None if sources == "none" else sources)
    return make(near), near


def plan_audit(strategy: Strategy, near: Neighbourhood, points: int = 1) -> tuple[Fraction, int]:
    """(ε, releases) at which an audit of the edge that costs most has power."""
    return design(int(np.count_nonzero(worst_pairs(strategy, near)[0].change)), points)


def end_to_end(strategy: Strategy, near: Neighbourhood, **options: Any) -> Draw:
    """Releases of a line from the real `publish`, many of them from each call: copies of it on a longer line.

    A copy's rows are those of the line alone, but that a suffix sum holds the copies to the right of it as well, which
    are taken off. No two copies share a row, so that their releases are independent, and a move between copies costs
    what others do, so that the noise is the same.
    """
    domain = line(COPIES * near.domain.size)
    long, around = type(strategy)(domain), Neighbourhood(domain, near.delta, limits=near.limits)

    def draw(counts: NDArray[np.int64], number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        mechanism = mechanism_of(around, long, **options)
        assert mechanism.laws == mechanism_of(near, strategy, **options).laws
        to_the_right = np.arange(COPIES)[::-1, None] * (counts.sum() if isinstance(long, Cumulative) else 0)
        out = []
        for _ in range(-(-number // COPIES)):
            release = publication.publish_mechanism(mechanism, np.tile(counts, COPIES), rng=rng)
            own = release.values.reshape(COPIES, -1) - to_the_right
            out.append(np.column_stack([own, np.full(COPIES, release.total // COPIES)]))
        return np.concatenate(out)[:number]

    return draw


def scaled_noise(patch: pytest.MonkeyPatch, factor: Fraction) -> None:
    """Plant a bug: Laplace noise of `factor` times the scale, Gaussian noise of `factor` times σ."""
    right = publication.sample_law

    def narrow(law: Law, size: int, rng: np.random.Generator | None) -> Any:
        return right(replace(law, parameter=law.parameter * factor**law.norm), size, rng)

    patch.setattr(publication, "sample_law", narrow)


def understated_sensitivity(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: the sensitivity (its square for the 2-norm) is one less than it is."""
    right = mechanism.sensitivity

    def less(strategy: Strategy, near: Neighbourhood, *, norm: int = 1) -> Any:
        value = right(strategy, near, norm=norm)
        return value - 1 if norm == 1 else mechanism.Root.of(value.squared - 1)  # type: ignore[union-attr]

    patch.setattr(mechanism, "sensitivity", less)


def ignored_limits(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: noise is made for moves within δ alone."""
    right = mechanism.sensitivity
    patch.setattr(mechanism, "sensitivity", lambda A, near, *, norm=1: right(A, replace(near, limits=()), norm=norm))


#: name -> how to plant it.
BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "noise scaled by 0.9": lambda patch: scaled_noise(patch, Fraction(9, 10)),
    "noise scaled by 0.5": lambda patch: scaled_noise(patch, Fraction(1, 2)),
    "sensitivity understated by one": understated_sensitivity,
}
