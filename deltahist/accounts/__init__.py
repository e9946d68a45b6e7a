"""Accounts of budgets: ledgers, windows over time, and the allocation of a window. Private."""
