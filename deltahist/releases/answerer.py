"""Answers of a release as arrays, from sums over its map that are made once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import interval, sums_between
from deltahist.decode.placement import unplaced
from deltahist.workloads import BoxCover, CellSums, Cover, RegionCover, Workload
from deltahist.workloads.cover import AXES, Weight
from deltahist.workloads.sums import prefix_sums

if TYPE_CHECKING:
    from deltahist.releases.histogram import Release
    from deltahist.releases.sums import Summed

Field = NDArray[np.float64]
#: An interval may reach beyond what cut cells allow by this many times its half-width for noise alone.
_BEYOND = 1.5


class Answerer:
    """All that answers of a release need, made when it is first asked for, then kept.

    Threads may share one, and it can be pickled.

    Parameters
    ----------
    release : of counts, or a sum of such releases.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> release = dh.publish(np.array([5, 0, 3, 2]), near, epsilon=1.0)
    >>> release.answerer().answer(dh.workloads.boxes([[0, 4]]), level=0.95)["estimate"].tolist()
    [10.0]
    """

    def __init__(self, release: Release | Summed) -> None:
        self.release = release

    @functools.cached_property
    def _unbiased(self) -> _Estimates:
        return _Estimates(self.release, self.release.cells(), True)

    @functools.cached_property
    def _nonnegative(self) -> _Estimates:
        return _Estimates(self.release, self.release.cells(nonnegative=True), False)

    def answer(self, work: Workload, *, level: float, nonnegative: bool = False) -> dict[str, NDArray[Any]]:
        """Answers to a workload: the columns of `dh.answer`, an array (m,) each.

        Raises
        ------
        InputError
            If a query is reversed, empty or reaches outside the domain.
        """
        release, cover = self.release, work.cover(self.release.domain)
        cut = cover.cut.any()
        noise = release.decoder.moments(cover if isinstance(cover, RegionCover) else work)
        unbiased, whole, touched, misplaced = self._unbiased.over(cover)
        estimate, inner, outer = unbiased, whole, touched
        if nonnegative:
            found, inner, outer, _ = self._nonnegative.over(cover)
            estimate = np.maximum(found, 0.0)  # no specks of rounding
        error, around = np.sqrt(noise.variance), unbiased
        reach = [interval(each, release.laws[0], level) for each in (noise, noise.and_normal(misplaced))]
        posterior = release.posterior if nonnegative else None
        if posterior is not None:
            variance = posterior.doubted(posterior.variance(cover.shares), noise.variance)
            error, around, whole, touched = np.sqrt(variance), estimate, inner, outer
            own = [posterior.interval(estimate, each, level) for each in (variance, variance + misplaced)]
            # An answer that is nearer to the truth needs no wider interval than the unbiased one.
            reach = [(np.minimum(a, c), np.minimum(b, d)) for (a, b), (c, d) in zip(reach, own, strict=True)]
        (least, most), (down, up) = reach
        columns = {}
        if cut:
            # No place within the cut cells makes an answer less than that of the whole cells, or more than that of all.
            least = np.maximum(around - np.minimum(whole, touched), 0.0) + _BEYOND * least
            most = np.maximum(np.maximum(whole, touched) - around, 0.0) + _BEYOND * most
            down, up = (np.where(cover.cut, np.minimum(h, m), h) for h, m in ((down, least), (up, most)))
            columns = {
                "noise_error": error,
                "placement_error": np.sqrt(misplaced),
                "cut": cover.cut_share,
                "inner": np.clip(inner, 0.0 if nonnegative else None, estimate),
                "outer": np.maximum(outer, estimate),
            }
        low, high = around - down, around + up
        if nonnegative:
            ceiling = np.inf if release.total is None else float(release.total)
            low = np.minimum(np.clip(low, 0.0, ceiling), estimate)
            high = np.maximum(np.clip(high, 0.0, ceiling), estimate)
        table = {
            "estimate": estimate,
            "std_error": np.sqrt(error**2 + misplaced),
            "low": low,
            "high": high,
            **columns,
        }
        if release.strategy.determines_cells is not True:
            unresolved = noise.unresolved
            table["unresolved"] = np.full(len(estimate), np.nan) if unresolved is None else unresolved
        if nonnegative:
            table["estimator"] = np.full(len(estimate), release.estimator(nonnegative), dtype=object)
        return table


@dataclass(frozen=True, eq=False)
class _Estimates:
    """Estimates of a release's cells, ready to be summed over queries.

    Parameters
    ----------
    cells : the estimates (domain.shape).
    placed : whether the variance of where points lie in their cells is wanted, too.
    """

    release: Release | Summed
    cells: Field
    placed: bool

    @functools.cached_property
    def whole(self) -> Field:
        """Sums of the cells up to every edge."""
        return prefix_sums(self.cells)[..., 0]

    @functools.cached_property
    def fields(self) -> CellSums:
        """Cells, slopes times cells along each axis, and `spreads` if they are wanted (`Placement`)."""
        placement = self.release.placement
        spreads = placement.spreads if self.placed else ()
        return CellSums(self.cells, *placement.slanted(self.cells), *spreads)

    def over(self, cover: Cover) -> tuple[Field, Field, Field, Field]:
        """Return estimates of queries (m,); those with none, and with all of the points of the cells that they cut;
        and the variance of where these points lie.
        """
        wanted: list[tuple[int, Weight]] = [(0, "share"), (0, "whole"), (0, "touched")]
        if not cover.cut.any():
            placed = np.zeros(len(cover.cut))
            if isinstance(cover, BoxCover):
                return (sums_between(self.whole, cover.spans),) * 3 + (placed,)
            found, whole, touched = cover.sums(CellSums(self.cells), *wanted)
            return found, whole, touched, placed
        leaning = list(enumerate(AXES[: self.cells.ndim], start=1))
        spreads = range(1 + len(leaning), len(self.fields.values))
        wanted += leaning
        wanted += [(place, kind) for place in spreads for kind in ("share", "square")]
        found, whole, touched, *others = cover.sums(self.fields, *wanted)
        found, others = found + sum(others[: len(leaning)]), others[len(leaning) :]
        if not others:
            return found, whole, touched, np.zeros(len(found))
        apart = [unplaced(*each) for each in zip(others[::2], others[1::2], strict=True)]
        return found, whole, touched, np.where(cover.cut, self.release.placement.joined(apart), 0.0)
