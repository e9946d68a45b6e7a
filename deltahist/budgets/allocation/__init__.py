"""Allocating a budget over time: what to spend at each step under a limit on every window of δ steps."""

from deltahist.budgets.allocation.models import Independent, Markov
from deltahist.budgets.allocation.offline import allocate_offline
from deltahist.budgets.allocation.online import allocate_online

__all__ = ["Independent", "Markov", "allocate_offline", "allocate_online"]
