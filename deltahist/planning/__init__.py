"""Planning: which strategy, and which cells, answer a workload best, from public data alone."""

from deltahist.planning.advice import CellChoice, advise, on_cells, plan_cells
from deltahist.planning.ranking import (
    LIMITS,
    Candidate,
    FrontierPoint,
    best_of_each_noise,
    budget_for,
    expected_error,
    frontier,
    mechanism_for,
    plan,
)

__all__ = [
    "LIMITS",
    "Candidate",
    "CellChoice",
    "FrontierPoint",
    "advise",
    "best_of_each_noise",
    "budget_for",
    "expected_error",
    "frontier",
    "mechanism_for",
    "on_cells",
    "plan",
    "plan_cells",
]
