"""Quantiles of points on a line: mechanism, ways to publish one, release."""

from deltahist.kinds.quantile.methods import METHODS
from deltahist.kinds.quantile.points import PointsAround, smooth_sensitivity
from deltahist.kinds.quantile.release import Quantile, QuantileMechanism

__all__ = ["METHODS", "PointsAround", "Quantile", "QuantileMechanism", "smooth_sensitivity"]
