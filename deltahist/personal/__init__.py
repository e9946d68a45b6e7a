"""People's own budgets: each person pays for the questions that use their records (ProPer). Private."""

from deltahist.personal.people import Database, People

__all__ = ["Database", "People"]
