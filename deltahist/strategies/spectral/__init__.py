"""Spectral strategies: the best for Gaussian noise on a torus, with their decoder."""

from deltahist.strategies.spectral.strategy import Spectral

__all__ = ["Spectral"]
