"""Exact integer noise from a cryptographic stream."""

from deltahist.noise.discrete import discrete_gaussian, discrete_laplace

__all__ = ["discrete_gaussian", "discrete_laplace"]
