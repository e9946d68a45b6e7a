"""Allocating a budget over time: what to spend at each step under a limit on every window of δ steps.

Six days, of which three have queries; any three days in a row may spend 1. Known beforehand, the first day gets
all of it, since nothing is asked for in the two days after it:

>>> allocate_offline([1, 0, 0, 1, 1, 0], length=3, epsilon=1.0).tolist()
[1.0, 0.0, 0.0, 0.5, 0.5, 0.0]

Online, the days to come are only a model. On the third of three days, half having been spent on the first, the rest
is given whatever may come:

>>> allocate_online([0.5, 0.0], [1, 0, 1], length=3, epsilon=1.0, model=Independent((0, 1), (0.5, 0.5)), steps=3)
0.5
"""

from deltahist.accounts.allocation.offline import allocate_offline
from deltahist.accounts.allocation.online import Independent, Markov, allocate_online

__all__ = ["Independent", "Markov", "allocate_offline", "allocate_online"]
