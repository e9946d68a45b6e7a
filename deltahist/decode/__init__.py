"""Decoding: from a release to estimates of all cells, and to the error of every query."""

from deltahist.decode.base import Decoder, decodes
from deltahist.decode.flows import FlowDecoder
from deltahist.decode.general import DenseDecoder, IterativeDecoder, decoder
from deltahist.decode.intervals import check_level, interval
from deltahist.decode.metric import Metric, simulated_metric
from deltahist.decode.moments import Moments
from deltahist.decode.placement import Placement, placement
from deltahist.decode.products import CellsDecoder, ProductDecoder
from deltahist.decode.projection import Projection, nonnegative
from deltahist.decode.spectral import SpectralDecoder
from deltahist.decode.trees import TreeDecoder
from deltahist.workloads.sums import aligned_spans, box_sums, prefix_sums, sums_between

__all__ = [
    "CellsDecoder",
    "Decoder",
    "DenseDecoder",
    "FlowDecoder",
    "IterativeDecoder",
    "Metric",
    "Moments",
    "Placement",
    "ProductDecoder",
    "Projection",
    "SpectralDecoder",
    "TreeDecoder",
    "aligned_spans",
    "box_sums",
    "check_level",
    "decoder",
    "decodes",
    "interval",
    "nonnegative",
    "placement",
    "prefix_sums",
    "simulated_metric",
    "sums_between",
]
