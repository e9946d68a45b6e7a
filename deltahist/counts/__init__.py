"""Counting: from records to counts. Private: nothing on the public side imports this."""

from deltahist.counts.files import Counted, count_file
from deltahist.counts.points import count

__all__ = ["Counted", "count", "count_file"]
