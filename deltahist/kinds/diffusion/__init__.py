"""Diffusion of private data over a network: network, distances, levels ε(d), mechanism, signals; all but the noise."""

from deltahist.kinds.diffusion.distances import Distances, distances_of
from deltahist.kinds.diffusion.levels import PrivacyLevels
from deltahist.kinds.diffusion.mechanism import DiffusionMechanism, Signal
from deltahist.kinds.diffusion.network import Network, read_network, read_pairs

__all__ = [
    "DiffusionMechanism",
    "Distances",
    "Network",
    "PrivacyLevels",
    "Signal",
    "distances_of",
    "read_network",
    "read_pairs",
]
