"""Publishers: the private side. They see counts, draw noise and make releases."""

from deltahist.publishers.diffusion import Diffusion
from deltahist.publishers.gradual import once_more, refine, tighten
from deltahist.publishers.histogram import publish
from deltahist.publishers.quantile import publish_quantile, smooth_sensitivity
from deltahist.publishers.rappor import Clients
from deltahist.publishers.sorted import publish_sorted
from deltahist.publishers.stream import Stream

__all__ = [
    "Clients",
    "Diffusion",
    "Stream",
    "once_more",
    "publish",
    "publish_quantile",
    "publish_sorted",
    "refine",
    "smooth_sensitivity",
    "tighten",
]
