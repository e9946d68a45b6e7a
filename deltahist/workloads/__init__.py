"""Workloads: the queries that people ask. A workload is a strategy without noise."""

from deltahist.workloads.cover import BoxCover, Cover, RowCover, Span
from deltahist.workloads.polygons import Regions, regions
from deltahist.workloads.ranges import (
    AllRanges,
    Boxes,
    all_ranges,
    boxes,
    random_boxes,
    random_squares,
    range_gram,
)

#: What can be asked.
Workload = Boxes | AllRanges | Regions

__all__ = [
    "AllRanges",
    "BoxCover",
    "Boxes",
    "Cover",
    "Regions",
    "RowCover",
    "Span",
    "Workload",
    "all_ranges",
    "boxes",
    "random_boxes",
    "random_squares",
    "range_gram",
    "regions",
]
