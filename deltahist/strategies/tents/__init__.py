"""Tents: noise on every cell and on overlapping B-splines of cells, so that a move of any length costs little."""

from deltahist.strategies.tents.lattice import Lattice, along
from deltahist.strategies.tents.strategy import Tents

__all__ = ["Lattice", "Tents", "along"]
