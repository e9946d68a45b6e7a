"""What has been spent, and what may be: accounts, windows over time, how a window is shared out. Private."""

from deltahist.budgets import allocation
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.paying import Account
from deltahist.budgets.window import Window

__all__ = ["Account", "Ledger", "Window", "allocation"]
