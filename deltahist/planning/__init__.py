"""Planning: which strategy, and which cells, answer a workload best, from public data alone."""

from deltahist.planning.advice import advise
from deltahist.planning.cells import CellChoice, expected_placement, on_cells, plan_cells
from deltahist.planning.ranking import Candidate, crossovers, expected_error, mechanism_for, plan
from deltahist.planning.relaxing import budget_for

__all__ = [
    "Candidate",
    "CellChoice",
    "advise",
    "budget_for",
    "crossovers",
    "expected_error",
    "expected_placement",
    "mechanism_for",
    "on_cells",
    "plan",
    "plan_cells",
]
