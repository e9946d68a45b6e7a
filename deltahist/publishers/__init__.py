"""Publishers: the private side. They see counts, draw noise and make releases.

Those of points on a line (`points`), of chains (`gradual`), of streams (`stream`), of networks (`diffusion`) and of
users' reports (`rappor`) are imported from their modules: publishing a map does not wait for them.
"""

from deltahist.publishers.histogram import publish

__all__ = ["publish"]
