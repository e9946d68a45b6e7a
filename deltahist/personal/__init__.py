"""People's own budgets: each person pays for the questions that use their records (ProPer). Private."""

from deltahist.personal.engine import Database
from deltahist.personal.people import People

__all__ = ["Database", "People"]
