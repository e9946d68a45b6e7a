"""Strategies: what is measured, with its exact cost."""

from typing import Any

from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies.base import Group, Strategy
from deltahist.strategies.cuts import CutAugmented
from deltahist.strategies.flow import Flow
from deltahist.strategies.grids import Hierarchical, Identity, ShiftedGrids, dyadic_grids
from deltahist.strategies.optimal import Optimal
from deltahist.strategies.product import Cumulative
from deltahist.strategies.registry import from_description, named, register, strategies
from deltahist.strategies.spectral import Spectral
from deltahist.strategies.wavelet import Wavelet

#: Known at once, in the order in which planning tries them.
for _cls in (
    Optimal,
    Spectral,
    Flow,
    Identity,
    Wavelet,
    Cumulative,
    Hierarchical,
    ShiftedGrids,
    CutAugmented,
):
    register(_cls)


def tuned(near: Neighbourhood, *workload: Any, **options: Any) -> Flow:
    """The former name of `Flow.tuned`."""
    return Flow.tuned(near, *workload, **options)


__all__ = [
    "Cumulative",
    "CutAugmented",
    "Flow",
    "Group",
    "Hierarchical",
    "Identity",
    "Optimal",
    "ShiftedGrids",
    "Spectral",
    "Strategy",
    "Wavelet",
    "dyadic_grids",
    "from_description",
    "named",
    "register",
    "strategies",
    "tuned",
]
