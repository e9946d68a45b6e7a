"""Decoding turns a release into estimates of all cells, and gives the error of every query.

A mechanism's decoder exists before any data are read. The decoder computes the variance of every answer:

>>> import deltahist as dh
>>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
>>> mechanism = dh.Mechanism(near, dh.strategies.Flow(near.domain), dh.Budget(1))
>>> mechanism.decoder.moments(dh.workloads.boxes([[0, 8], [0, 4], [2, 5]])).variance.round(2).tolist()
[0.0, 2.0, 4.0]

Estimates are unbiased. Non-negative estimates are closer to the truth where most cells are empty:

>>> import numpy as np
>>> release = dh.publishers.publish_mechanism(mechanism, [9, 0, 0, 0, 0, 0, 0, 1], rng=np.random.default_rng(1))
>>> release.cells().round(1).tolist()
[9.7, 2.3, -3.1, -2.8, 3.3, -0.9, 2.3, -0.8]
>>> release.cells(nonnegative=True).round().tolist()
[9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
"""

from deltahist.decode.base import Decoder, DenseDecoder, Moments, check_level, interval, make_decoder, stands_out
from deltahist.decode.placement import Placement, learn_placement
from deltahist.decode.projection import Metric, ProjectedCells, estimate_nonnegative, project_nonnegative

__all__ = [
    "Decoder", "DenseDecoder", "Metric", "Moments", "Placement", "ProjectedCells", "check_level",
    "estimate_nonnegative", "interval", "learn_placement", "make_decoder", "project_nonnegative", "stands_out",
]  # fmt: skip
