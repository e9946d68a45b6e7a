"""Sums of releases: what the maps of several steps say together, with the joint error.

Noise is drawn afresh for every release, so its variances add up. Where in their cells the points lie is not known of
any of them, and people come back to the same places: these errors are added up as if they were one (docs/streams.md).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import (
    Metric,
    Placement,
    Posterior,
    ProjectedCells,
    nonnegative,
    placement,
    posterior,
)
from deltahist.decode.moments import Asked, Moments
from deltahist.decode.placement import Chosen, block_variance, place_points
from deltahist.errors import InputError
from deltahist.privacy import Law
from deltahist.releases.answerer import Answerer
from deltahist.releases.histogram import Release, nonnegative_words
from deltahist.releases.tables import UNBIASED
from deltahist.space.domain import Domain
from deltahist.strategies.base import Strategy

Field = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summed:
    """The sum of releases of one strategy on one domain; it answers queries as a release does.

    Parameters
    ----------
    releases : at least one, of different data or steps, each with noise of its own.

    Raises
    ------
    InputError
        If two of them share noise: releases of one chain, or a release and its copies.
    """

    releases: tuple[Release, ...]

    def __post_init__(self) -> None:
        check_apart(self.releases)

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.releases[0].domain

    @property
    def strategy(self) -> Strategy:
        """The strategy that was measured."""
        return self.releases[0].strategy

    @property
    def laws(self) -> tuple[Law, ...]:
        """Noise laws of the first release."""
        return self.releases[0].laws

    @property
    def total(self) -> int | None:
        """The number of points of all releases if all of them are public; else None."""
        known = [each.total for each in self.releases if each.total is not None]
        return sum(known) if len(known) == len(self.releases) else None

    @functools.cached_property
    def decoder(self) -> JointNoise:
        """The error of sums of answers."""
        return JointNoise(self.releases)

    @functools.cached_property
    def placement(self) -> JointPlacement:
        """Where in their cells the points lie."""
        blocks = {each.laws: block_variance(each.decoder) for each in self.decoder.alike}
        parts = [place_points(each.cells(), blocks[each.laws]) for each in self.releases]
        return JointPlacement(parts, placement(self.cells(), self.decoder))

    @functools.cached_property
    def _cells(self) -> Field:
        cells: Field = np.sum([each.cells() for each in self.releases], axis=0)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def posterior(self) -> Posterior | None:
        """Counts of all releases together, as they may be (`Release.posterior`); None where that does not settle.

        The sum is made not negative, not its parts: each of them would add a bias of its own.
        """
        return posterior(self._field, self._metric, self.total, self.decoder.noise)

    @functools.cached_property
    def projection(self) -> ProjectedCells:
        """The nearest cells to the sum that are not negative."""
        return nonnegative(self._field, self._metric, self.total)

    @property
    def _field(self) -> Field:
        return np.sum([each.decoder.field(each.values, each.total) for each in self.releases], axis=0)

    @functools.cached_property
    def _metric(self) -> Metric:
        parts = [(each.decoder.metric(), number) for each, number in self.decoder.alike.items()]
        return replace(parts[0][0], variance=np.sum([own.variance * number for own, number in parts], axis=0))

    def cells(self, *, nonnegative: bool = False) -> Field:
        """Return sums of the estimates of all cells (domain.shape); with `nonnegative`, of counts that may be."""
        if not nonnegative:
            return self._cells
        return self.projection.cells if self.posterior is None else self.posterior.cells

    def estimator(self, nonnegative: bool) -> str:
        """Return the name of the estimates."""
        return nonnegative_words(self.posterior) if nonnegative else UNBIASED

    def answerer(self) -> Answerer:
        """Return all that answers need, made once."""
        return self._answerer

    @functools.cached_property
    def _answerer(self) -> Answerer:
        return Answerer(self)


def check_apart(releases: Sequence[Release]) -> None:
    """Raise InputError if two releases share noise, whose errors would be added up as if they were independent."""
    if all(each.mechanism.chain is None for each in releases):  # nothing is copied or refined: no digest is needed
        return
    origin, number = Counter(each.origin for each in releases).most_common(1)[0]
    if number > 1:
        raise InputError(
            f"{number} of the releases are copies or refinements of one ({origin}): they share its noise and its data; "
            "take one of them"
        )


@dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise of sums of answers from releases, each with noise of its own."""

    releases: tuple[Release, ...]

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.releases[0].domain

    @functools.cached_property
    def alike(self) -> dict[Release, int]:
        """One release for each amount that was spent, and how many there are of it."""
        found: dict[tuple[Law, ...], Release] = {}
        number = Counter(each.laws for each in self.releases)
        for each in self.releases:
            found.setdefault(each.laws, each)
        return {each: number[laws] for laws, each in found.items()}

    def moments(self, work: Asked) -> Moments:
        """Return variances and fourth cumulants, which add up; noise that is a plain sum of draws stays such."""
        return together([(each.decoder.moments(work), number) for each, number in self.alike.items()])

    def noise(self, rng: np.random.Generator) -> Field:
        """Return normal noise of the sum, on the grid of its metric."""
        return np.sum(
            [math.sqrt(number) * each.decoder.noise(rng) for each, number in self.alike.items()], axis=0
        )


def together(parts: Sequence[tuple[Moments, int]]) -> Moments:
    """Return the moments of sums of independent errors, each of which comes some times."""
    variance = np.sum([m.variance * n for m, n in parts], axis=0)
    fourth = np.sum([m.kurtosis * m.variance**2 * n for m, n in parts], axis=0)
    kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance**2 > 0)
    first, times = parts[0]
    shares = [m.unresolved for m, _ in parts if m.unresolved is not None]
    unresolved = np.max(shares, axis=0) if len(shares) == len(parts) else None
    draws = None if first.draws is None else first.draws * (times if len(parts) == 1 else 0)
    freedom = min(m.freedom for m, _ in parts)
    return Moments(variance, kurtosis, freedom, unresolved, draws, first.note)


@dataclass(frozen=True, eq=False)
class JointPlacement:
    """Where in their cells the points of several releases lie: never less uncertain than if all errors were one.

    Parameters
    ----------
    parts : how the points of each release lie.
    learnt : what the sum of their cells says of where all points lie.
    """

    parts: Sequence[Placement]
    learnt: Placement

    def slanted(self, own: Field, chosen: Chosen) -> tuple[Field, ...]:
        """`Placement.slanted`: each release's slopes with its own cells, the sum's with what `own` is beyond it."""
        parts = [each.slanted(chosen.own(each.cells), chosen) for each in self.parts]
        beyond = self.learnt.slanted(own - chosen.own(self.learnt.cells), chosen)
        return tuple(np.sum(along, axis=0) for along in zip(*parts, beyond, strict=True))

    def spreads(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the fields of each release, then the field of their sum."""
        return tuple(field for each in (*self.parts, self.learnt) for field in each.spreads(chosen))

    def joined(self, apart: Sequence[Field]) -> Field:
        """Return the square of the sum of standard errors, or the variance of the sum if that is more (m,)."""
        *parts, learnt = apart
        return np.maximum(np.sum(np.sqrt(parts), axis=0) ** 2, learnt)
