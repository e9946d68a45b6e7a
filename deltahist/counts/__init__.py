"""Counting: from records to counts. Private: nothing on the public side imports this."""

from deltahist.counts.arrays import count
from deltahist.counts.databases import count_table
from deltahist.counts.files import Counted, Located, count_file, points_file

__all__ = ["Counted", "Located", "count", "count_file", "count_table", "points_file"]
