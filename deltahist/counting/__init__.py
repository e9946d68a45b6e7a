"""Turn records into counts. This is private, so nothing on the public side imports it."""

from deltahist.counting.counts import Counted, Counts, Points, check_file, count, count_file, points_file, read_owners

__all__ = ["Counted", "Counts", "Points", "check_file", "count", "count_file", "points_file", "read_owners"]
