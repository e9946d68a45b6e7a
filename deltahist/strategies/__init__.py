"""Strategies: what is measured, with its exact cost."""

from deltahist.strategies.base import Group, Strategy
from deltahist.strategies.cuts import CutAugmented
from deltahist.strategies.flow import Flow
from deltahist.strategies.grids import Hierarchical, Identity, ShiftedGrids, dyadic_grids
from deltahist.strategies.optimal import Optimal
from deltahist.strategies.product import Cumulative, Wavelet
from deltahist.strategies.registry import from_description
from deltahist.strategies.spectral import Spectral
from deltahist.strategies.tuning import tuned

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
    "tuned",
]
