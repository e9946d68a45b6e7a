"""The public space: a domain, its map, and how rows and geometries come to it."""

from deltahist.domain.counting import Counting
from deltahist.domain.domain import Domain
from deltahist.domain.lengths import length_times, metres

__all__ = ["Counting", "Domain", "length_times", "metres"]
