"""What moves and arrivals change in the tents: the largest, exactly, in whole numbers.

Proofs: docs/privacy/tents.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies.tents.lattice import Lattice

#: Pairs of moves along the two axes up to which squares are looked at one by one; beyond, a bound stands for them.
MOST_PAIRS = 1 << 24
#: Share of the largest square by which floats may mistake it.
_FLOAT_ERROR = 1e-9


def largest_change(lattices: Sequence[Lattice], near: Neighbourhood) -> int:
    """Largest Σ |T(u) − T(v)| over the moves u → v, T the tents' weights over a cell.

    It does not fall where an end of a move lies further out, so that only the longest displacements count, from every
    position under the tents. Weights that add up to W over either end differ by 2 (W − Σ min(T(u), T(v))).
    """
    whole = math.prod(lattice.scale for lattice in lattices)
    least = whole
    for move in near.frontier.tolist():
        if any(d >= lattice.width for d, lattice in zip(move, lattices, strict=True)):
            return 2 * whole
        ends = [_ends(lattice, d) for lattice, d in zip(lattices, move, strict=True)]
        shared = np.zeros([len(u) for u, _ in ends], dtype=np.int64)
        for tent in np.ndindex(*(u.shape[1] for u, _ in ends)):
            here, there = (
                _product([both[end][:, i] for both, i in zip(ends, tent, strict=True)]) for end in (0, 1)
            )
            shared += np.minimum(here, there)
        least = min(least, int(shared.min()))
    return 2 * (whole - least)


def largest_square(lattices: Sequence[Lattice], near: Neighbourhood) -> int:
    """Largest Σ (T(u) − T(v))² over the moves; a bound, 2 max |T(u)|², where there are more than MOST_PAIRS of them.

    It is |T(u)|² + |T(v)|² − 2 T(u)·T(v), each a product over the axes. Ends further out may cost less, so that all
    displacements count.
    """
    *first, last = lattices
    reach = near.reach.tolist()  # along the last axis, for each number of cells along the first one
    upto = np.cumsum([_positions(last, d) for d in range(max(reach) + 1)])
    starts = [_positions(first[0], d) if first else 1 for d in range(len(reach))]
    if sum(n * int(upto[far]) for n, far in zip(starts, reach, strict=True)) > MOST_PAIRS:
        return 2 * math.prod(max(_own(lattice)) for lattice in lattices)
    each = [_squares(last, d) for d in range(max(reach) + 1)]
    most = 0
    for d, far in enumerate(reach):
        one = _squares(first[0], d) if first else [(1, 1, 1)]
        other = list(dict.fromkeys(square for squares in each[: far + 1] for square in squares))
        sign = np.array([1.0, 1.0, -2.0])
        found = (np.array(one, dtype=np.float64) * sign) @ np.array(other, dtype=np.float64).T
        for i, j in np.argwhere(found >= found.max() - _FLOAT_ERROR * float(max(one)[0] * max(other)[0])):
            (a, b, c), (x, y, z) = one[i], other[j]
            most = max(most, a * x + b * y - 2 * c * z)
    return most


def largest_own_square(lattices: Sequence[Lattice], cells: NDArray[np.bool_]) -> int:
    """Largest |T(u)|² over some cells (domain.shape)."""
    own = [_own(lattice) for lattice in lattices]
    places = np.argwhere(cells) % [lattice.spacing for lattice in lattices]
    return max(
        math.prod(o[i] for o, i in zip(own, place, strict=True))
        for place in np.unique(places, axis=0).tolist()
    )


def _ends(lattice: Lattice, far: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Weights over both ends (positions, tents) of moves over so many cells, of the tents over the first end."""
    start = np.arange(_positions(lattice, far))
    u, v = lattice.weights[start], np.zeros((len(start), lattice.weights.shape[1]), dtype=np.int64)
    behind = lattice.first[start + far] - lattice.first[start]
    for tent in range(v.shape[1]):
        some = tent >= behind
        v[some, tent] = lattice.weights[start + far][some, tent - behind[some]]
    return u, v


def _own(lattice: Lattice) -> list[int]:
    """|T(u)|² along an axis for every position, whole numbers of any length."""
    weights = lattice.weights[: lattice.spacing].astype(object)
    return list((weights**2).sum(axis=1))


def _squares(lattice: Lattice, far: int) -> list[tuple[int, int, int]]:
    """|T(u)|², |T(v)|² and T(u)·T(v) along an axis, for moves over so many cells; each once."""
    u, v = (end.astype(object) for end in _ends(lattice, far))
    w = lattice.weights[far : far + len(u)].astype(object)
    return list(
        dict.fromkeys(zip((u * u).sum(axis=1), (w * w).sum(axis=1), (u * v).sum(axis=1), strict=True))
    )


def _positions(lattice: Lattice, far: int) -> int:
    """From how many first cells, all at other positions under the tents, moves over so many cells start."""
    return min(lattice.spacing, lattice.n - far)


def _product(factors: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return factors[0] if len(factors) == 1 else np.multiply.outer(*factors)
