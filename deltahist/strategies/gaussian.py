"""Shared parts of the best strategies for Gaussian noise: how they are asked for, bounds on costs, steps uphill."""

from __future__ import annotations

import base64
import functools
import math
import zlib
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.strategies.base import Strategy, read_numbers

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

FloatArray = NDArray[np.float64]
#: Entries of saved arrays are below this: four of them, squared, fit 64 bits.
_LARGEST = 1 << 30


class BestGaussian(Strategy):
    """A strategy that is best for Gaussian noise, made of a neighbourhood and a workload (all ranges when None)."""

    determines_cells: ClassVar[bool] = True
    #: Whose moves are bounds, and the queries; None of a strategy that a description made again.
    near: Neighbourhood
    workload: Workload | None

    @functools.cached_property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.near.domain

    @classmethod
    def _solved(cls, **known: Any) -> Self:
        """Return a strategy whose solution is known, so that nothing is optimised again."""
        out = object.__new__(cls)
        out.__dict__.update(near=None, workload=None, **known)
        return out

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Self:
        read_numbers(text, 0)
        if norm == 1:
            raise InputError(
                f"strategy is {cls.texts[0]!r} with pure ε: it is made for Gaussian noise; give rho, or a probability "
                "as well"
            )
        return cls(near)  # type: ignore[call-arg]


def bound_levels(near: Neighbourhood) -> tuple[NDArray[np.intp], FloatArray]:
    """Return which relation bounds each displacement, and all bounds, infinity last.

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


def arrival_squares(near: Neighbourhood) -> FloatArray:
    """Return the bound on the squared cost of an arrival in each cell (domain.shape); infinite where there is none."""
    out = np.full(near.domain.shape, np.inf)
    if not near.fixed_membership:
        for factor, relation in reversed(near.relations):
            out[relation.source_cells] = float(factor) ** 2
    return out


class EdgeBounds(NamedTuple):
    """All edges (M, 2) of a neighbourhood's relations, and the bounds (M,) on their squared costs.

    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 3), (3,)), 1, limits=[(math.inf, 2)])
    >>> bounds = EdgeBounds.of(near)
    >>> bounds.edges.tolist(), bounds.squares.tolist()
    ([[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 4.0])
    """

    edges: NDArray[np.int64]
    squares: FloatArray

    @classmethod
    def of(cls, near: Neighbourhood) -> EdgeBounds:
        """Return the bounds of moves, then arrivals, as in `Neighbourhood.edges`: each the least of its relations."""
        shape = near.domain.shape
        edges = near.relations[-1][1].edges()  # the widest relation holds all moves
        edges = edges[edges[:, 0] >= 0]
        start, end = (np.array(np.unravel_index(side, shape)) for side in edges.T)
        place, squares = bound_levels(near)
        moved = squares[place[tuple(np.abs(end - start))]]
        arrivals = arrival_squares(near).ravel()
        entry = np.flatnonzero(np.isfinite(arrivals))
        entries = np.column_stack([np.full_like(entry, -1), entry])
        return cls(np.concatenate([edges, entries]), np.concatenate([moved, arrivals[entry]]))


class Ascent:
    """Steps of λ uphill: λ_e ← λ_e · (cost_e / f)^p, on logarithms with Nesterov's momentum.

    cost_e is what edge e costs over its bound, f its mean over λ. p = 2 would find λ in one step if the edges had
    nothing in common; it grows while f does, and starts again from half, without momentum, when f falls.

    Parameters
    ----------
    start : ln λ (M,) to begin with, up to a constant. floor : least λ, of a sum of one; none falls far below it.
    """

    def __init__(self, start: FloatArray, floor: float) -> None:
        self.floor = floor
        #: ln λ to go on from, up to a constant, and where the last step led before momentum.
        self.at = self.before = start
        self.power, self.moved, self.last = 2.0, 0, 0.0

    def weight(self) -> FloatArray:
        """Return λ (M,), adding up to one, none far below the floor."""
        weight = np.exp(self.at - self.at.max())
        weight = np.maximum(weight / weight.sum(), self.floor)
        weight /= weight.sum()
        return np.asarray(weight)

    def step(self, weight: FloatArray, relative: FloatArray, bound: float) -> None:
        """Go on from λ, where the costs over their bounds and f are `relative` (M,) and f is `bound`."""
        if bound < self.last:
            self.power, self.moved = max(1.0, self.power / 2), 0
        else:
            self.power = min(1.1 * self.power, 12.0)
        here = np.log(weight) + self.power * np.log(np.maximum(relative, 1e-12))
        momentum = self.moved / (self.moved + 3)
        self.at = here + momentum * (here - self.before) if self.moved else here
        self.last, self.before, self.moved = bound, here, self.moved + 1


def pack(array: NDArray[np.int64]) -> str:
    """Return the compressed text of an array of 32-bit whole numbers; differences along the last axis pack better."""
    if np.abs(array).max(initial=0) >= _LARGEST:
        raise InputError("the strategy's entries are too large to be saved: they must be below 2^30")
    steps = np.diff(array, axis=-1, prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 6)).decode("ascii")


def unpack(text: Any, shape: tuple[int, ...], name: str) -> NDArray[np.int64]:
    """Return the array of a packed text; the text is untrusted, and never more of it is unpacked than there should be.

    Raises InputError if it is damaged or does not hold exactly the numbers that the shape says.
    """
    number = math.prod(shape)
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b64decode(text, validate=True), 4 * number + 1)
    except (TypeError, ValueError, zlib.error):
        raise InputError(f"{name} is damaged: it must be base64 of compressed numbers") from None
    if len(data) != 4 * number or not reader.eof or reader.unused_data:
        raise InputError(f"{name} is damaged: it must hold {number:,} numbers for this domain")
    out = np.frombuffer(data, dtype="<i4").reshape(shape).astype(np.int64).cumsum(axis=-1)
    if np.abs(out).max(initial=0) >= _LARGEST:
        raise InputError(f"{name} has entries that are too large: they must be below 2^30")
    return out
