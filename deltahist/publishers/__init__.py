"""Read private counts and points, charge accounts, draw noise and make releases."""

from deltahist.publishers.publication import publish, publish_mechanism, publish_quantile, publish_sorted

__all__ = ["publish", "publish_mechanism", "publish_quantile", "publish_sorted"]
