"""The made-up city of the demonstrations; it is part of the installed package, and only named here."""

from deltahist.sample import sample_points

__all__ = ["sample_points"]
