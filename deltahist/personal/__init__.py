"""People's own budgets. Each query is charged to the people whose records it uses (ProPer). Private."""

from deltahist.personal.engines import Engine
from deltahist.personal.people import People

__all__ = ["Engine", "People"]
