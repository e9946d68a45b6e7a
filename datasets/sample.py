"""The artificial city of the demonstrations. It is part of the installed package; this module re-exports it."""

from deltahist.sample import sample_points

__all__ = ["sample_points"]
