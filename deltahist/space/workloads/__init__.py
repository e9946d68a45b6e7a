"""Workloads: the queries that people ask. A workload is a strategy without noise.

>>> import deltahist as dh
>>> domain = dh.Domain((0, 0, 4, 4), (4, 4))
>>> boxes([[0, 0, 2, 2], [1, 1, 4, 3]]).matrix(domain).sum(axis=1).tolist()  # how many cells each of them holds
[4.0, 6.0]
>>> len(all_ranges(domain)), len(random_squares(1.5, 10, domain))
(100, 10)

The expected squared error of each query is known before there are data. The whole domain's total is public:

>>> near, asked = dh.Neighbourhood(domain, delta=1), boxes([[0, 0, 4, 4], [1, 1, 4, 3]])
>>> dh.expected_error(dh.strategies.Flow(domain), near, asked, epsilon=1).round(1).tolist()
[0.0, 40.0]
"""

from deltahist.space.workloads.cover import BoxCover, Cover, RegionCover, Span
from deltahist.space.workloads.queries import (
    AllRanges,
    Boxes,
    Regions,
    all_ranges,
    boxes,
    random_boxes,
    random_squares,
    range_gram,
    regions,
)

#: What can be asked.
Workload = Boxes | AllRanges | Regions

__all__ = [
    "AllRanges",
    "BoxCover",
    "Boxes",
    "Cover",
    "RegionCover",
    "Regions",
    "Span",
    "Workload",
    "all_ranges",
    "boxes",
    "random_boxes",
    "random_squares",
    "range_gram",
    "regions",
]
