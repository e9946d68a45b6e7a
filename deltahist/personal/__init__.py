"""People's own budgets: queries are charged to the people whose records they use (ProPer). Private."""

from deltahist.personal.engines import Engine
from deltahist.personal.people import People

__all__ = ["Engine", "People"]
