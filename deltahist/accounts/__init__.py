"""Private package: ledgers, accounts with total or windowed budgets, and allocation over time."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submodules=["allocation"])
