"""Accounts of budgets: ledgers, windows over time, people's purses, and the allocation of a window. Private."""
