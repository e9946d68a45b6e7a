"""Workloads: the queries that people ask. A workload is a strategy without noise."""

from deltahist.workloads.ranges import AllRanges, Boxes, Span, all_ranges, boxes, random_squares, regions

__all__ = ["AllRanges", "Boxes", "Span", "all_ranges", "boxes", "random_squares", "regions"]
