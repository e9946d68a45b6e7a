"""Planning: which strategy, and which cells, answer a workload best, from public data alone."""

from deltahist.planning.advice import advise
from deltahist.planning.cells import CellChoice, expected_placement, on_cells, plan_cells
from deltahist.planning.frontier import LIMITS, FrontierPoint, frontier
from deltahist.planning.ranking import Candidate, crossovers, expected_error, mechanism_for, plan
from deltahist.planning.relaxing import budget_for

__all__ = [
    "LIMITS",
    "Candidate",
    "CellChoice",
    "FrontierPoint",
    "advise",
    "budget_for",
    "crossovers",
    "expected_error",
    "expected_placement",
    "frontier",
    "mechanism_for",
    "on_cells",
    "plan",
    "plan_cells",
]
