"""Answers in order, and how sure it is that one is above the next: by the joint error of their difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.releases.histogram import CountEstimates
from deltahist.releases.series import Series
from deltahist.space.domain import Domain
from deltahist.space.fitting import polygons_of
from deltahist.space.workloads import BoxCover, Boxes, RegionCover, Regions, Workload
from deltahist.space.workloads.cover import in_parts

Field = NDArray[np.float64]
#: Cells of queries that are compared together, so that memory stays small.
_CELLS_AT_A_TIME = 1 << 21
#: Share of a query that was not measured from which on its error is not known.
_UNSEEN = 1e-9


def rank_answers(
    release: Any,
    work: Workload,
    found: dict[str, NDArray[Any]],
    *,
    level: float,
) -> dict[str, NDArray[Any]]:
    """Return columns of answers to boxes or regions (m,): `rank`, `above_next`, and `order`, the place of each.

    Parameters
    ----------
    release : of counts, or a series of them.
    work : what was asked. found : the columns of the answers.
    level : neighbours of which it is less sure which is above share a rank.

    Raises
    ------
    InputError
        If the joint error of two answers is not known: of large maps, sorted points, and changes.
    """
    counts = release.summed if isinstance(release, Series) else release
    if not isinstance(counts, CountEstimates) or not isinstance(work, Boxes | Regions):
        raise InputError(f"rank is asked of {type(release).__name__}: it must be of counts, in boxes or regions")
    value = found["estimate"]
    if isinstance(release, Series) and release.mean:  # the order of means is that of sums
        value = value * len(release.releases)
    order = np.argsort(-value, kind="stable")
    sure = np.full(len(order), np.nan)
    gap = value[order[:-1]] - value[order[1:]]
    sure[order[:-1]] = _compare(counts, _Listed(work, counts.decoder.domain), order, gap)
    begins = np.append(True, sure[order[:-1]] >= level)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.maximum.accumulate(np.where(begins, np.arange(1, len(order) + 1), 0))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return {"rank": rank, "above_next": sure, "order": place}


class _Listed:
    """Boxes or regions by the shares of cells that they hold."""

    def __init__(self, work: Boxes | Regions, domain: Domain) -> None:
        import shapely

        self.work, self.domain = work, domain
        if isinstance(work, Boxes):
            self.items: NDArray[Any] = work.corners
            self.cells = np.prod([high - low + 2 for low, high in work.spans(domain)], axis=0)
        else:
            self.items = work.geometries
            self.cells = shapely.area(self.items) / np.prod(domain.cell) + shapely.get_num_coordinates(self.items)

    def shares(self, items: NDArray[Any]) -> scipy.sparse.csr_array:
        """Return the shares of cells (m, N) that some boxes or regions hold."""
        work = Boxes(items) if isinstance(self.work, Boxes) else Regions(items, tuple(map(str, range(len(items)))))
        if self.domain.ndim == 1:
            return work.matrix(self.domain)
        cover, (nx, ny) = work.cover(self.domain), self.domain.shape
        return (cover.listed((nx, ny)) if isinstance(cover, BoxCover) else cover).rows

    def common(self, one: NDArray[Any], other: NDArray[Any]) -> scipy.sparse.csr_array:
        """Return the shares of cells (m, N) that pairs hold both."""
        import shapely

        if isinstance(self.work, Boxes):
            d = self.domain.ndim
            both = np.hstack([np.maximum(one[:, :d], other[:, :d]), np.minimum(one[:, d:], other[:, d:])])
            least = 2 * np.array(self.domain.step)  # a box through no whole step is none
            some = np.flatnonzero((both[:, d:] - both[:, :d] > least).all(axis=1))
        else:
            both = np.array([polygons_of(shape) for shape in shapely.intersection(one, other)])
            some = np.flatnonzero(shapely.area(both) > 0)
        shares = scipy.sparse.csr_array((len(one), self.domain.size))
        if len(some):
            chosen = scipy.sparse.csr_array((np.ones(len(some)), (some, np.arange(len(some)))), (len(one), len(some)))
            shares = chosen @ self.shares(both[some])
        return shares


def _compare(counts: CountEstimates, listed: _Listed, order: NDArray[np.int64], gap: Field) -> Field:
    """Return how sure it is (m - 1,) that each query of an order is above the next; `gap` of estimates."""
    domain, decoder = listed.domain, counts.decoder
    spreads = [field.ravel() for field in counts.placement.spreads((slice(None),) * domain.ndim)]
    sure = []
    parts = list(in_parts(listed.cells[order[:-1]] + listed.cells[order[1:]], _CELLS_AT_A_TIME))
    for some in parts:
        pair = order[some.start : some.stop + 1]
        rows, items = listed.shares(listed.items[pair]), listed.items[pair]
        upper, lower = rows[:-1], rows[1:]
        asked = scipy.sparse.csr_array(upper - lower)
        asked.eliminate_zeros()
        noise = decoder.moments(asked if domain.ndim == 1 else RegionCover.of_rows(asked, domain.shape))
        # A point in the upper alone counts 1, in the lower alone -1, in both 0.
        squares = upper + lower - 2 * listed.common(items[:-1], items[1:])
        apart = [np.maximum(squares @ u - asked.power(2) @ u, 0.0) for u in spreads]
        error = noise.and_normal(counts.placement.joined_variance(apart))
        found = _probability(gap[some], error.variance, error.kurtosis)
        if noise.unresolved is not None:
            found[~(noise.unresolved < _UNSEEN)] = np.nan
        sure.append(found)
    return np.concatenate(sure) if sure else np.zeros(0)


def _probability(gap: Field, variance: Field, kurtosis: Field) -> Field:
    """Return the probability (m,) that an error of this variance and excess kurtosis is less than a gap.

    Normal, less the next term of Edgeworth's series, κ (z³ − 3 z) φ(z) / 24, where tails take something away: κ may be
    a bound, which must add nothing near the middle. At least Cantelli's bound z² / (1 + z²), which holds for every law.
    """
    z = np.divide(gap, np.sqrt(variance), out=np.where(gap > 0, np.inf, 0.0), where=variance > 0)
    z = np.minimum(z, 40.0)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    found = scipy.special.ndtr(z) - np.maximum(density * kurtosis * (z**3 - 3 * z) / 24, 0.0)
    return np.asarray(np.clip(found, np.maximum(z * z / (1 + z * z), 0.5), 1.0))
