"""Decoding tents over a flow: the tents tell the flow's cells, which are the estimate; both noises add up."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.decode.base import Decoder, decodes
from deltahist.decode.flows import FlowDecoder
from deltahist.decode.moments import LEAST_SQUARED, Moments
from deltahist.decode.tents import TentsDecoder
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.flow import BITS
from deltahist.strategies.layered import Layered
from deltahist.workloads import AllRanges, Boxes


@decodes(Layered)
class LayeredDecoder(Decoder):
    """ĉ = the tents' least squares, as if the flow's cells were what was counted.

    That is the best there is: noise that enters as counts do cannot be told from them.
    """

    strategy: Layered

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        inner, outer = self.strategy.inner, self.strategy.outer
        number = len(inner.groups)
        self.inner = FlowDecoder(inner, self.laws[:number], total_known)
        self.outer = TentsDecoder(outer, self.laws[number:], total_known, 1 << BITS)
        # A flow that does not keep the total is moved onto it together with the tents.
        self._apart = inner.keeps_total or not total_known

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.outer.solve(values)

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.outer.adjoint(query)

    @functools.cached_property
    def onto_total(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        return self.outer.onto_total if self._apart else super().onto_total

    def moments(self, work: Boxes | AllRanges | scipy.sparse.csr_array) -> Moments:
        if isinstance(work, scipy.sparse.sparray) or not self._apart:
            return super().moments(work)
        one, other = self.inner.moments(work), self.outer.moments(work)
        variance = one.variance + other.variance
        fourth = one.kurtosis * one.variance**2 + other.kurtosis * other.variance**2
        kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance > LEAST_SQUARED)
        return Moments(variance, kurtosis, freedom=min(one.freedom, other.freedom), note=one.note)

    def mean_variance(self, work: AllRanges) -> float:
        if not self._apart:
            return super().mean_variance(work)
        return self.inner.mean_variance(work) + self.outer.mean_variance(work)

    @property
    def speck(self) -> float:
        return self.outer.speck
