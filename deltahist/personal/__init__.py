"""People's own budgets: each person pays for the questions that use their records (ProPer). Private."""

from deltahist.personal.engines import Engine
from deltahist.personal.people import People

__all__ = ["Engine", "People"]
