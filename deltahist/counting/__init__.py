"""Turn records into counts. The records are private, so no public module imports this package."""

from deltahist.counting.counts import Counted, Counts, Points, check_file, count, count_file, points_file, read_owners

__all__ = ["Counted", "Counts", "Points", "check_file", "count", "count_file", "points_file", "read_owners"]
