"""Release of a histogram: estimates of all cells, and its file."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Payment
from deltahist.decode import Decoder, Placement, ProjectedCells, learn_placement, project_nonnegative
from deltahist.decode.base import Moments
from deltahist.decode.placement import block_variance
from deltahist.errors import check_whole
from deltahist.mechanisms import Mechanism
from deltahist.releases.answerer import Answerer
from deltahist.releases.base import BaseRelease, list_blocks
from deltahist.releases.notices import Notice
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy

#: Number of cells to compute errors of together, to save memory.
_CELLS_TOGETHER = 1_000_000


class CountEstimates:
    """Estimates of counts from a release, or from a sum of releases.

    A subclass has `total`, `decoder` and `placement` as `Release` does, `_unbiased_cells` (domain.shape) by least
    squares, and `projection`, the nearest non-negative cells with their certificate.
    """

    def cells(self: Any, *, nonnegative: bool = False) -> NDArray[np.float64]:
        """Return estimates of all cells (domain.shape).

        The default is least squares, which is unbiased, so some estimates are negative. With `nonnegative` they are the
        nearest non-negative cells in the noise's own metric (`projection`), and add up to the total if that is public.
        They are biased, but usually much closer to the truth if many cells are empty.
        """
        found: NDArray[np.float64] = self.projection.cells if nonnegative else self._unbiased_cells
        return found

    @functools.cached_property
    def answerer(self) -> Answerer:
        """The release's `Answerer`."""
        return Answerer(self)


@dataclass(frozen=True, eq=False, repr=False)
class Release(CountEstimates, BaseRelease):
    """A release of counts: exact noisy answers to a strategy's rows.

    Parameters
    ----------
    mechanism : strategy, neighbourhood, budget and counting.
    values : (k,) int64, y = A c + η.
    total : the number of points if membership is fixed and nothing was dropped, else None.
    payment, withdrawn : as for `BaseRelease`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (8, 8)), delta=1 / 8)
    >>> release = dh.publish(np.ones((8, 8), dtype=int), near, epsilon=1.0)
    >>> release.cells().shape, release.total, release.publishable
    ((8, 8), 64, True)
    """

    mechanism: Mechanism
    values: NDArray[np.int64]
    total: int | None = None
    payment: Payment | None = None
    withdrawn: Notice | None = None
    mechanism_class: ClassVar[type[Any]] = Mechanism
    bytes_each: ClassVar[int] = 48

    @property
    def strategy(self) -> Strategy:
        """The strategy that was measured."""
        return self.mechanism.strategy

    @property
    def decoder(self) -> Decoder:
        """Least squares for this release."""
        return self.mechanism.decoder

    @functools.cached_property
    def _unbiased_cells(self) -> NDArray[np.float64]:
        cells = self.decoder.estimate_cells(self.values, self.total)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def projection(self) -> ProjectedCells:
        field, metric = self.decoder.estimate_on_grid(self.values, self.total), self.decoder.noise_metric()
        return project_nonnegative(field, metric, self.total)

    def estimate_cells(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return estimates of all cells and the standard errors of the unbiased ones."""
        return self.cells(nonnegative=nonnegative), self._cell_errors

    @functools.cached_property
    def _cell_errors(self) -> NDArray[np.float64]:
        return np.sqrt(self.block_moments(1).variance).reshape(self.domain.shape)

    def block_moments(self, width: int) -> Moments:
        """Return variance and kurtosis of the noise in all blocks of `width` cells a side, x varying slowest."""
        shape = [-(-n // width) for n in self.domain.shape]
        # Evaluate a closed form in parts to save memory. Without one, all blocks share simulated noise.
        part = max(1, _CELLS_TOGETHER * shape[0] // math.prod(shape)) if self.decoder.has_closed_form else shape[0]
        found = [
            self.decoder.moments(list_blocks(self.domain, width, start, min(start + part, shape[0]))[2])
            for start in range(0, shape[0], part)
        ]
        variance, kurtosis = (np.concatenate([getattr(m, name) for m in found]) for name in ("variance", "kurtosis"))
        return replace(found[0], variance=variance, kurtosis=kurtosis, unresolved=None, draws=None)

    @functools.cached_property
    def placement(self) -> Placement:
        """The positions of points inside cells, learnt from the estimates."""
        return learn_placement(self._unbiased_cells, block_variance(self.decoder))

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        return self.answerer.answer_workload(work, level=level, nonnegative=nonnegative)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"total": self.total}

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return the index of each value's group in the description (int16), and the values (int64)."""
        group = np.empty(self.strategy.shape[0], dtype=np.int16)
        for i, part in enumerate(self.strategy.parts):
            group[part.members] = i
        return {"group": group, **super().file_columns()}

    @classmethod
    def read_fields(cls, description: dict[str, Any], values: NDArray[np.int64] | None) -> dict[str, Any]:
        fields, total = super().read_fields(description, values), None
        if fields["mechanism"].total_known:
            # A number that is too large becomes another one, which the file does not state.
            total = min(check_whole(least=0, total=description["total"]), (1 << 63) - 1)
        return fields | {"total": total}
