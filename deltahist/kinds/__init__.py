"""Kinds of publications besides counts of cells, one file or folder each: the public half of each kind.

A kind's mechanism states the promise, measures data with NumPy alone and asks for noise; a kind's release reads files
and estimates. The publishers draw noise and charge accounts.
"""

from deltahist.kinds.quantile import Quantile, QuantileMechanism
from deltahist.kinds.sorted import SortedMechanism, SortedRelease
from deltahist.releases.base import load, read_release

__all__ = ["Quantile", "QuantileMechanism", "SortedMechanism", "SortedRelease", "load", "read_release"]
