"""Publishers: the private side. They see counts, draw noise and make releases.

Those of chains (`gradual`), of streams (`stream`), of networks (`diffusion`) and of users' reports (`rappor`) are
imported from their modules: publishing a map does not wait for them.
"""

from deltahist.publishers.histogram import publish
from deltahist.publishers.quantile import publish_quantile, smooth_sensitivity
from deltahist.publishers.sorted import publish_sorted

__all__ = ["publish", "publish_quantile", "publish_sorted", "smooth_sensitivity"]
