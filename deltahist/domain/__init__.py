"""The public space: a domain, its map, and how rows and geometries come to it."""

from deltahist.domain.domain import Domain
from deltahist.domain.grids import length_times, metres

__all__ = ["Domain", "length_times", "metres"]
