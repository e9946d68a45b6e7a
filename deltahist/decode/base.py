"""Decoder: least squares from noisy answers to cells, and the exact error of every query.

Notation: A the strategy, Σ the diagonal noise covariance, V = (AᵀΣ⁻¹A)⁺ the covariance of the cells,
a(q) = Σ⁻¹ A V q the coefficients with which the released values enter the answer to q, so that the answer
is a(q)·y and its variance a(q)ᵀ Σ a(q). Where the total n is public the estimate is moved onto it along V1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.metric import Metric, simulated_metric
from deltahist.decode.moments import (
    CLOSED,
    LEAST_SQUARED,
    MOST_SOLVED,
    SIMULATED,
    SOLVED,
    Asked,
    Moments,
    Terms,
    Way,
    evaluate,
)
from deltahist.privacy import Law
from deltahist.space.workloads import AllRanges, Boxes, Span

if TYPE_CHECKING:
    from deltahist.strategies.base import Strategy

#: Squared share of a vector, per cell, below which it is rounding.
_UNSEEN = 1e-9


class Decoder:
    """Least squares for one strategy and its noise; subclasses give `solve` and `adjoint`.

    Parameters
    ----------
    strategy : A (k, N).
    laws : one noise law per group.
    total_known : whether the number of entities is public, so that estimates add up to it.
    """

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        self.strategy, self.laws, self.total_known = strategy, tuple(laws), total_known
        self.domain = strategy.domain

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return V AᵀΣ⁻¹ y (N,), without the total."""
        raise NotImplementedError

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Σ⁻¹ A V q (k,), the adjoint of `solve`."""
        raise NotImplementedError

    def terms(self, order: int) -> Terms | None:
        """Return the closed form over boxes of the variance (order 2) or fourth cumulant (order 4), total included."""
        return None

    @functools.cached_property
    def draw_variance(self) -> NDArray[np.float64]:
        """Variance of each noise draw (draws,)."""
        return self._per_draw([law.variance() for law in self.laws])

    @functools.cached_property
    def draw_kurtosis(self) -> NDArray[np.float64]:
        """Excess kurtosis of each noise draw (draws,)."""
        return self._per_draw([law.kurtosis() for law in self.laws])

    def _per_draw(self, figures: Sequence[float]) -> NDArray[np.float64]:
        out = np.empty(self.strategy.draws)
        for group, figure in zip(self.strategy.groups, figures, strict=True):
            out[group.members] = figure
        return out

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """a(1) (k,), the direction in which estimates move onto the total (N,), and its sum.

        The direction is V1 where the rows determine the total. Where they do not, what the total adds belongs
        to what was not measured: the direction is the part of 1 that no row sees.
        """
        ones = self.adjoint(np.ones(self.domain.size))
        unseen = np.zeros(0)
        if not self.strategy.determines_cells:
            unseen = 1 - np.asarray(self.strategy.rmatvec(ones))
        if unseen @ unseen > _UNSEEN * self.domain.size:
            return ones, unseen, float(unseen.sum())
        direction = self.solve(self.strategy.scatter(self.draw_variance * self.strategy.gather(ones)))
        return ones, direction, float(direction.sum())

    def estimate(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Return least-squares estimates of all cells (domain.shape)."""
        cells = self.solve(np.asarray(values, dtype=np.float64))
        if self.total_known and total is not None:
            _, direction, spread = self.onto_total
            if spread > 0:
                cells = cells + direction * ((total - cells.sum()) / spread)
        return cells.reshape(self.domain.shape)

    def field(self, values: NDArray[Any], total: int | None) -> NDArray[np.float64]:
        """Return estimates on the grid of `metric`, which holds the domain; here they are the same.

        A decoder with another grid gives its `metric` as well.
        """
        return self.estimate(values, total)

    def metric(self) -> Metric:
        """Return the metric of the estimates' noise, from simulated noise, which anybody may draw.

        Simulated spectra are smoothed over neighbouring frequencies. An error in them makes the non-negative estimate
        a little less sharp, not wrong.
        """
        rng = np.random.default_rng(20140605)
        return simulated_metric(lambda: self.noise(rng), self.domain.shape, total_known=self.total_known)

    def noise(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw normal noise of `field`, with the same joint variances."""
        spread = np.sqrt(self.draw_variance)
        values = self.strategy.scatter(rng.normal(size=len(spread)) * spread)
        return self.field(values, 0 if self.total_known else None)

    def coefficients(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(q) (k,): how the released values enter the answer to q (N,), beside the public total."""
        own = self.adjoint(query)
        if self.total_known:
            ones, direction, spread = self.onto_total
            if spread > 0:
                own = own - ones * (float(query @ direction) / spread)
        return own

    def way(self, work: Asked) -> Way:
        """Return how the error of a workload is computed, however the decoder solves.

        In closed form where there is one, else query by query, or from simulated noise where there are many.
        """
        if not isinstance(work, Boxes | AllRanges):
            return SOLVED
        if self.terms(2) is not None:
            return CLOSED
        return SOLVED if len(work) <= MOST_SOLVED else SIMULATED

    def moments(self, work: Asked) -> Moments:
        """Return the variance and kurtosis of the answers to boxes, or to explicit queries (m, N)."""
        return self.way(work).moments(self, work)

    def variance(self, work: Asked) -> NDArray[np.float64]:
        """Return the variance of the answers alone (m,), which planning compares."""
        return CLOSED.variance(self, work) if self.way(work) is CLOSED else self.moments(work).variance

    def mean_variance(self, work: AllRanges) -> float:
        """Return the mean variance over all ranges; in closed form where there is one, else over a sample."""
        return self.way(work).mean(self, work)

    def kurtosis(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the excess kurtosis of the answers to boxes, from the closed form of the fourth cumulant; else 0."""
        out = np.zeros(len(variance))
        fourth = self.terms(4)
        if fourth is not None:
            some = variance > LEAST_SQUARED
            most = max(law.kurtosis() for law in self.laws)
            out[some] = np.clip(
                evaluate(fourth, spans)[some] / variance[some] ** 2, min(most, 0.0), max(most, 0.0)
            )
        return out

    def draws_summed(
        self, spans: Sequence[Span], variance: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        """Return the number of draws (m,) whose plain sum is an answer's noise, 0 for none; None if it never is."""
        return None

    @property
    def rounding_floor(self) -> float:
        """Size below which a variance is rounding error: an answer may be exact, such as the public total."""
        groups = zip(self.strategy.groups, self.laws, strict=True)
        return 1e-12 * max(law.variance() * float(group.unit) ** 2 for group, law in groups)

    #: How the closed form relates to the truth, as text.
    note = "exact"
