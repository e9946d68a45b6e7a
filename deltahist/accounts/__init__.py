"""Accounts of budgets: ledgers, windows over time, and the allocation of a window. Private."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submodules=["allocation"])
