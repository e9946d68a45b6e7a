"""Choose the strategy and the cells that answer a workload best, from public data alone."""

from deltahist.planning.advice import CellChoice, advise, on_cells, plan_cells
from deltahist.planning.ranking import Candidate, expected_error, mechanism_for, plan

__all__ = ["Candidate", "CellChoice", "advise", "expected_error", "mechanism_for", "on_cells", "plan", "plan_cells"]
