"""Counting: from records to counts. Private: nothing on the public side imports this."""

from deltahist.counts.files import Counted, Located, count_file, points_file
from deltahist.counts.points import count

__all__ = ["Counted", "Located", "count", "count_file", "points_file"]
