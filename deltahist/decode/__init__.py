"""Decoding: from a release to estimates of all cells, and to the error of every query."""

from __future__ import annotations

from collections.abc import Sequence

from deltahist.decode.base import Decoder, Moments, aligned_spans, box_sums, prefix_sums, sums_between
from deltahist.decode.flows import FlowDecoder
from deltahist.decode.general import MOST_DENSE, DenseDecoder, IterativeDecoder
from deltahist.decode.intervals import interval
from deltahist.decode.products import CellsDecoder, ProductDecoder
from deltahist.decode.projection import Metric, Projection, metric, nonnegative, simulated_metric
from deltahist.decode.spectral import SpectralDecoder
from deltahist.decode.trees import TreeDecoder
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.strategies.flow import Flow
from deltahist.strategies.grids import Hierarchical, Identity
from deltahist.strategies.optimal import Optimal
from deltahist.strategies.product import Product
from deltahist.strategies.spectral import Spectral

__all__ = [
    "Decoder",
    "Metric",
    "Moments",
    "Projection",
    "SpectralDecoder",
    "aligned_spans",
    "box_sums",
    "decoder",
    "interval",
    "metric",
    "nonnegative",
    "prefix_sums",
    "simulated_metric",
    "sums_between",
]


def decoder(strategy: Strategy, laws: Sequence[Law], *, total_known: bool) -> Decoder:
    """The fastest exact least-squares decoder for a strategy.

    Parameters
    ----------
    strategy : what was measured.
    laws : noise law of each of its groups.
    total_known : whether the number of entities is public.
    """
    if not any(law.parameter for law in laws):  # a single cell, whose count is public: nothing to weigh
        return DenseDecoder(strategy, laws, total_known)
    if isinstance(strategy, Identity):
        return CellsDecoder(strategy, laws, total_known)
    if isinstance(strategy, Hierarchical):
        return TreeDecoder(strategy, laws, total_known)
    if isinstance(strategy, Product):
        return ProductDecoder(strategy, laws, total_known)
    if isinstance(strategy, Flow):
        return FlowDecoder(strategy, laws, total_known)
    if isinstance(strategy, Spectral):
        return SpectralDecoder(strategy, laws, total_known)
    small = strategy.domain.size <= MOST_DENSE or isinstance(strategy, Optimal)
    return (DenseDecoder if small else IterativeDecoder)(strategy, laws, total_known)
