"""Exact integer noise from a cryptographic stream.

>>> discrete_laplace(2.5, (2, 3)).shape, discrete_gaussian(3.0, 5).dtype
((2, 3), dtype('int64'))

A seeded generator is for experiments only. With scale b, P(0) is tanh(1/(2b)):

>>> import numpy as np
>>> drawn = discrete_laplace(2, 100_000, rng=np.random.default_rng(1))
>>> round(float((drawn == 0).mean()), 2), round(float(np.tanh(1 / 4)), 2)
(0.24, 0.24)
"""

from deltahist.noise.samplers import discrete_gaussian, discrete_laplace

__all__ = ["discrete_gaussian", "discrete_laplace"]
