"""Workloads: the queries that people ask. A workload is a strategy without noise."""

from deltahist.workloads.polygons import Regions, regions
from deltahist.workloads.ranges import AllRanges, Boxes, Span, all_ranges, boxes, random_squares, range_gram

#: What can be asked.
Workload = Boxes | AllRanges | Regions

__all__ = [
    "AllRanges",
    "Boxes",
    "Regions",
    "Span",
    "Workload",
    "all_ranges",
    "boxes",
    "random_squares",
    "range_gram",
    "regions",
]
