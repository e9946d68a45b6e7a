"""Publishers: the private side. They see counts, draw noise and make releases.

All but that of maps are imported from their modules: of sorted points (`sorted`), of quantiles (`quantile`), of chains
(`gradual`), of streams (`stream`), of networks (`diffusion`) and of users' reports (`rappor`). Maps do not wait for them.
"""

from deltahist.publishers.histogram import publish

__all__ = ["publish"]
