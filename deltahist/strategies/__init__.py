"""Strategies measure a map of counts. Each one is defined together with its exact cost and its decoder.

To add a strategy, add a file here and register its class below (CONTRIBUTING.md).

This prints the sensitivity and the mean squared error over all ranges of 64 cells, for moves by one cell at ε = 1:

>>> import deltahist as dh
>>> near = dh.Neighbourhood(dh.Domain((0, 64), (64,)), delta=1)
>>> work = dh.workloads.all_ranges(near.domain)
>>> for kind in (Identity, Hierarchical, Flow):
...     A = kind(near.domain)
...     print(A.name, int(dh.sensitivity(A, near)), round(float(dh.expected_error(A, near, work, 1).mean()), 1))
Identity 2 84.8
Hierarchical 12 348.4
Flow 1 3.9
"""

from deltahist.strategies.base import Group, Strategy, from_description, parse_strategy, register, strategies
from deltahist.strategies.flow import Flow
from deltahist.strategies.graphs import GraphFlow
from deltahist.strategies.grids import CutAugmented, Identity, ShiftedGrids, dyadic_grids
from deltahist.strategies.hierarchical import Hierarchical
from deltahist.strategies.optimal import Optimal
from deltahist.strategies.product import Cumulative, Wavelet
from deltahist.strategies.spectral import Spectral
from deltahist.strategies.tents import Tents

for _cls in (  # planning tries candidates in this order
    Optimal, Spectral, Flow, GraphFlow, Tents, Identity, Wavelet, Cumulative, Hierarchical, ShiftedGrids, CutAugmented,
):  # fmt: skip
    register(_cls)

__all__ = [
    "Cumulative", "CutAugmented", "Flow", "GraphFlow", "Group", "Hierarchical", "Identity", "Optimal", "ShiftedGrids",
    "Spectral", "Strategy", "Tents", "Wavelet", "dyadic_grids", "from_description", "parse_strategy", "register",
    "strategies",
]  # fmt: skip
