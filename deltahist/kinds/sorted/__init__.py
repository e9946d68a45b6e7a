"""Sorted points of a line: mechanism, decoder, release."""

from deltahist.kinds.sorted.mechanism import SortedMechanism
from deltahist.kinds.sorted.release import SortedRelease

__all__ = ["SortedMechanism", "SortedRelease"]
