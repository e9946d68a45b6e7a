"""Flows: noise on the moves between blocks, with what they cost, how they are chosen, and their decoder."""

from deltahist.strategies.flow.strategy import Flow

__all__ = ["Flow"]
