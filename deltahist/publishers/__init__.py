"""Publishers: the private side. They see counts, draw noise and make releases."""

from deltahist.publishers.histogram import publish
from deltahist.publishers.median import quantile, smooth_sensitivity
from deltahist.publishers.points import publish_sorted
from deltahist.publishers.window import Window

__all__ = ["Window", "publish", "publish_sorted", "quantile", "smooth_sensitivity"]
