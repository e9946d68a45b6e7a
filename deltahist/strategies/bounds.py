"""Bounds on the squared cost of every move and arrival: what a neighbourhood promises, by displacement and by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood


def within(near: Neighbourhood) -> NDArray[np.bool_]:
    """Which displacements (none negative) are moves within δ; the first is none at all."""
    if near.domain.ndim == 1:
        return np.ones(int(near.reach[0]) + 1, dtype=bool)
    return np.asarray(np.arange(int(near.reach[0]) + 1) <= near.reach[:, None])


def levels(near: Neighbourhood) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of the relations bounds a displacement, and all their bounds, with that of none last.

    Returns
    -------
    The place (domain.shape) of the first of `near.relations` that holds a displacement with these coordinates, none
    negative, and the squared factors of the relations, followed by infinity.
    """
    shape = near.domain.shape
    rows, long = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
    ends = np.zeros((rows, long + 1), dtype=np.intp)
    for _, relation in near.relations:
        # In a row of displacements all up to the reach belong to the relation.
        reach = np.full(rows, -1)
        reach[: len(relation.reach)] = relation.reach
        ends[np.arange(rows), reach + 1] += 1
    squares = [float(factor) ** 2 for factor, _ in near.relations]
    return ends.cumsum(axis=1)[:, :long].reshape(shape), np.array([*squares, np.inf])


def arrival_squares(near: Neighbourhood) -> NDArray[np.float64]:
    """The bound on the squared cost of an arrival in each cell (domain.shape); infinite where there is none."""
    out = np.full(near.domain.shape, np.inf)
    if not near.fixed_membership:
        for factor, relation in reversed(near.relations):
            out[relation.source_cells] = float(factor) ** 2
    return out


def least_arrival(near: Neighbourhood) -> float:
    """The least bound on the squared cost of any arrival; infinite if there is none."""
    if near.fixed_membership:
        return np.inf
    # Factors grow with the distance: the first relation with an arrival has the least.
    return next((float(f) ** 2 for f, relation in near.relations if relation.source_cells.any()), np.inf)


class EdgeBounds(NamedTuple):
    """All edges (M, 2) of a neighbourhood's relations, and the bounds (M,) on their squared costs.

    Examples
    --------
    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 3), (3,)), 1, limits=[(math.inf, 2)])
    >>> bounds = EdgeBounds.of(near)
    >>> bounds.edges.tolist(), bounds.squares.tolist()
    ([[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 4.0])
    """

    edges: NDArray[np.int64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, near: Neighbourhood) -> EdgeBounds:
        """Moves, then arrivals, as in `Neighbourhood.edges`; each has the least bound of the relations that hold it."""
        shape = near.domain.shape
        edges = near.relations[-1][1].edges()  # the widest relation holds all moves
        edges = edges[edges[:, 0] >= 0]
        start, end = (np.array(np.unravel_index(side, shape)) for side in edges.T)
        place, squares = levels(near)
        moved = squares[place[tuple(np.abs(end - start))]]
        arrivals = arrival_squares(near).ravel()
        entry = np.flatnonzero(np.isfinite(arrivals))
        entries = np.column_stack([np.full_like(entry, -1), entry])
        return cls(np.concatenate([edges, entries]), np.concatenate([moved, arrivals[entry]]))
