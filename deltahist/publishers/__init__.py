"""Publishers: the private side. They see counts, draw noise and make releases."""

from deltahist.publishers.histogram import publish

__all__ = ["publish"]
