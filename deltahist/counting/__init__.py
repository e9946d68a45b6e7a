"""Counting: from records to counts. Private: nothing on the public side imports this.

Counting inside databases (`databases`) is imported where it begins: files do not wait for it.
"""

from deltahist.counting.arrays import count
from deltahist.counting.files import Counted, Located, count_file, count_table, points_file

__all__ = ["Counted", "Located", "count", "count_file", "count_table", "points_file"]
