"""Private package: ledgers, accounts with total or windowed budgets, and allocation over time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
