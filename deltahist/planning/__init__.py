"""Planning: which strategy, and which cells, answer a workload best, from public data alone."""

from deltahist.planning.advice import advise
from deltahist.planning.cells import CellChoice, expected_placement, on_cells, plan_cells
from deltahist.planning.ranking import Candidate, crossovers, expected_error, mechanism_for, plan

__all__ = [
    "Candidate",
    "CellChoice",
    "advise",
    "crossovers",
    "expected_error",
    "expected_placement",
    "mechanism_for",
    "on_cells",
    "plan",
    "plan_cells",
]
