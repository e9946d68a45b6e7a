"""Sums and differences of releases with independent noise."""

from __future__ import annotations

import abc
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import Metric, Placement, ProjectedCells, interval, learn_placement, project_nonnegative
from deltahist.decode.base import Asked, Moments
from deltahist.decode.placement import Chosen, block_variance
from deltahist.errors import InputError
from deltahist.laws import Law
from deltahist.releases.answerer import answer_in_parts
from deltahist.releases.base import UNBIASED, BaseRelease
from deltahist.releases.histogram import CountEstimates, Release
from deltahist.space.domain import Domain
from deltahist.space.workloads import RegionCover, Workload
from deltahist.strategies.base import Strategy

Field = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summed(CountEstimates):
    """The sum of releases of one strategy on one domain, which answers queries as a release does.

    Raises InputError if two releases share noise: the same release twice, releases of one chain, or a release and its
    copy.
    """

    releases: tuple[Release, ...]

    def __post_init__(self) -> None:
        check_apart(self.releases)

    @property
    def total(self) -> int | None:
        """The number of points in all releases if each is public, else None."""
        known = [each.total for each in self.releases if each.total is not None]
        return sum(known) if len(known) == len(self.releases) else None

    @functools.cached_property
    def alike(self) -> dict[Release, int]:
        """One release for each set of noise laws, with the number of releases that have it."""
        number = Counter(each.laws for each in self.releases)
        first = {each.laws: each for each in reversed(self.releases)}
        return {first[laws]: number[laws] for laws in number}

    @functools.cached_property
    def decoder(self) -> JointNoise:
        """The error of sums of answers."""
        one = self.releases[0]
        parts = [(each.decoder, number, 1.0) for each, number in self.alike.items()]
        return JointNoise(one.domain, one.strategy, one.laws, parts)

    @functools.cached_property
    def placement(self) -> JointPlacement:
        """The positions of points inside cells."""
        blocks = {each.laws: block_variance(each.decoder) for each in self.alike}
        parts = [learn_placement(each.cells(), blocks[each.laws]) for each in self.releases]
        return JointPlacement(parts, learn_placement(self.cells(), block_variance(self.decoder)))

    @functools.cached_property
    def _unbiased_cells(self) -> Field:
        cells: Field = np.sum([each.cells() for each in self.releases], axis=0)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def projection(self) -> ProjectedCells:
        # Only the sum is made non-negative. Non-negative parts would each add a bias.
        parts = [each.decoder.estimate_on_grid(each.values, each.total) for each in self.releases]
        return project_nonnegative(np.sum(parts, axis=0), self._noise_metric, self.total)

    @functools.cached_property
    def _noise_metric(self) -> Metric:
        parts = [(each.decoder.noise_metric(), number) for each, number in self.alike.items()]
        return replace(parts[0][0], variance=np.sum([own.variance * number for own, number in parts], axis=0))


def check_apart(releases: Sequence[Release]) -> None:
    """Raise InputError if two releases share noise, because sums assume that noise is independent."""
    origin, number = Counter(each.noise_origin for each in releases).most_common(1)[0]
    if number > 1:
        raise InputError(
            f"{number} of the releases are copies or refinements of one ({origin}), or that one itself: they share "
            "data and noise, so use the finest one"
        )


@dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise of sums and differences of answers from releases with independent noise.

    Domain, strategy and laws are those of one release. `parts` are decoders, each with the number of releases that have
    the same noise laws, and a factor on their noise.
    """

    domain: Domain
    strategy: Strategy
    laws: tuple[Law, ...]
    parts: Sequence[tuple[Any, int, float]]

    def moments(self, work: Asked) -> Moments:
        """Return the moments of all releases' noise together."""
        found = [decoder.moments(work) for decoder, _, _ in self.parts]
        numbers = [number for _, number, _ in self.parts]
        own = [m.variance * factor**2 for m, (_, _, factor) in zip(found, self.parts, strict=True)]
        variance = np.sum([v * n for v, n in zip(own, numbers, strict=True)], axis=0)
        fourth = np.sum([m.kurtosis * v**2 * n for m, v, n in zip(found, own, numbers, strict=True)], axis=0)
        kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance**2 > 0)
        shares = [m.unresolved for m in found if m.unresolved is not None]
        unresolved = np.max(shares, axis=0) if len(shares) == len(found) else None
        # Draws of several decoders are no plain sum.
        draws = found[0].draws
        draws = None if draws is None else draws * (numbers[0] if len(found) == 1 else 0)
        return Moments(variance, kurtosis, min(m.freedom for m in found), unresolved, draws, found[0].note)


@dataclass(frozen=True, eq=False)
class JointPlacement:
    """The positions of points of several releases inside cells. Their errors add up, not their variances.

    `parts` are learnt from each release, `learnt` from the sum of their cells.
    """

    parts: Sequence[Placement]
    learnt: Placement

    def slope_terms(self, own: Field, chosen: Chosen) -> tuple[Field, ...]:
        """Return `Placement.slope_terms`: each release's slopes on its cells, and the sum's on the rest of `own`."""
        parts = [each.slope_terms(each.cells[chosen], chosen) for each in self.parts]
        beyond = self.learnt.slope_terms(own - self.learnt.cells[chosen], chosen)
        return tuple(np.sum(along, axis=0) for along in zip(*parts, beyond, strict=True))

    def spreads(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the fields of each release, then the field of their sum."""
        return tuple(field for each in (*self.parts, self.learnt) for field in each.spreads(chosen))

    def joined_variance(self, apart: Sequence[Field]) -> Field:
        """Return the square of the sum of standard errors, or the variance of the sum if that is more (m,)."""
        *parts, learnt = apart
        return np.maximum(np.sum(np.sqrt(parts), axis=0) ** 2, learnt)


class Difference(abc.ABC):
    """One set of answers minus another."""

    before: Any
    after: Any

    @property
    @abc.abstractmethod
    def _decoders(self) -> Sequence[tuple[Any, float]]:
        """Both decoders, each with the factor on its noise."""

    @property
    def domain(self) -> Domain:
        """The public space."""
        domain: Domain = self.after.domain
        return domain

    @property
    def decoder(self) -> JointNoise:
        """The error of differences of answers."""
        one = self._decoders[1][0]
        return JointNoise(self.domain, one.strategy, one.laws, [(each, 1, factor) for each, factor in self._decoders])

    def name_estimator(self, nonnegative: bool) -> str:
        """Return the name of the estimates; InputError if `nonnegative` is set, as a difference can be negative."""
        if nonnegative:
            raise InputError("nonnegative is set: a difference can be negative")
        return UNBIASED

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, arrays (m,)."""
        self.name_estimator(nonnegative)
        return answer_in_parts(work, self.domain, lambda part: self._answer_part(part, level))

    def _answer_part(self, work: Workload, level: float) -> dict[str, NDArray[Any]]:
        before, after = (
            each.answer_workload(work, level=level, nonnegative=False) for each in (self.before, self.after)
        )
        cover, decoder = work.cover(self.domain), self.decoder
        joint = decoder.moments(cover if isinstance(cover, RegionCover) else work)
        # Placement errors add up, not their variances.
        none = np.zeros(len(joint.variance))
        placement = before.get("placement_error", none) + after.get("placement_error", none)
        error = joint.and_normal(placement**2)
        down, up = interval(error, decoder.laws[0], level)
        estimate = after["estimate"] - before["estimate"]
        table = {
            "before": before["estimate"],
            "after": after["estimate"],
            "estimate": estimate,
            "std_error": np.sqrt(error.variance),
            "low": estimate - down,
            "high": estimate + up,
        }
        if "cut" in before:
            table |= {"noise_error": np.sqrt(joint.variance), "placement_error": placement, "cut": after["cut"]}
        unresolved = [each["unresolved"] for each in (before, after) if "unresolved" in each]
        if unresolved:
            table["unresolved"] = np.max(unresolved, axis=0)
        return table


@dataclass(frozen=True)
class ReleaseDifference(Difference):
    """One release of counts minus another on the same cells, for `answer`. Strategies and budgets may differ.

    Raises InputError if one is not of counts, they share noise, or they differ in cells or in points per user.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> may, june = (dh.publish(np.full(4, each), near, "identity", 1.0) for each in (5, 8))
    >>> dh.answer(ReleaseDifference(may, june), [[0, 4]])[["before", "after", "estimate"]].to_numpy().tolist()
    [[20.0, 32.0, 12.0]]
    """

    before: BaseRelease
    after: BaseRelease

    def __post_init__(self) -> None:
        before, after = self.before, self.after
        if not (
            (isinstance(before, Release) and isinstance(after, Release))
            and (before.domain, before.contributions) == (after.domain, after.contributions)
        ):
            raise InputError(
                "the releases cannot be compared: both must hold counts on the same cells, with the same bound on "
                "points per user"
            )
        check_apart([before, after])

    def cells(self) -> Field:
        """Return unbiased estimates of all cells (domain.shape)."""
        return self.after.cells() - self.before.cells()

    @property
    def _decoders(self) -> Sequence[tuple[Any, float]]:
        return [(each.decoder, 1.0) for each in (self.before, self.after) if isinstance(each, Release)]
