"""Shared parts of the best strategies for Gaussian noise: bounds on costs, steps uphill, and packed arrays."""

from __future__ import annotations

import base64
import functools
import math
import zlib
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import FloatArray, IntArray
from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.strategies.base import Strategy, read_numbers

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Entries of saved arrays are smaller, so that four of them, squared, fit 64 bits.
_LARGEST = 1 << 30


class BestGaussian(Strategy):
    """A strategy that is best for Gaussian noise, given a neighbourhood and a workload (all ranges when None)."""

    determines_cells: ClassVar[bool] = True
    #: The neighbourhood whose moves are bounds, and the queries; None after `restore`.
    near: Neighbourhood
    workload: Workload | None

    @functools.cached_property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.near.domain

    @classmethod
    def _from_solution(cls, **known: Any) -> Self:
        """Return a strategy whose solution is known, so that nothing is optimised again."""
        out = object.__new__(cls)
        out.__dict__.update(near=None, workload=None, **known)
        return out

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Self:
        read_numbers(text, 0)
        if norm == 1:
            raise InputError(f"strategy is {text!r} with pure ε: it is made for Gaussian noise, so give rho")
        return cls(near)  # type: ignore[call-arg]


def bound_levels(near: Neighbourhood) -> tuple[NDArray[np.intp], FloatArray]:
    """Return which relation bounds each displacement, and all bounds, infinity last.

    The first array (domain.shape) holds the place of the first of `near.relations` that contains the displacement with
    these coordinates, none negative. The second holds the squared factors of the relations, followed by infinity.
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
    """Return the bound on the squared cost of an arrival in each cell (domain.shape); infinite without arrivals."""
    out = np.full(near.domain.shape, np.inf)
    if not near.fixed_membership:
        for factor, relation in reversed(near.relations):
            out[relation.source_cells] = float(factor) ** 2
    return out


class Ascent:
    """Steps of λ uphill: λ_e ← λ_e · (cost_e / f)^p, on logarithms with Nesterov's momentum.

    cost_e is what edge e costs over its bound, f its mean over λ. p = 2 would find λ in one step if the edges had
    nothing in common; it grows while f does, and restarts from half, without momentum, when f falls.

    Parameters
    ----------
    start : ln λ (M,) to begin with, up to a constant. floor : least λ, relative to a sum of one.
    """

    def __init__(self, start: FloatArray, floor: float) -> None:
        self._floor = floor
        #: ln λ to go on from, up to a constant, and where the last step led before momentum.
        self._at = self._before = start
        self._power, self._moved, self._last = 2.0, 0, 0.0

    def current_weights(self) -> FloatArray:
        """Return λ (M,), adding up to one."""
        weight = np.exp(self._at - self._at.max())
        weight = np.maximum(weight / weight.sum(), self._floor)
        weight /= weight.sum()
        return np.asarray(weight)

    def take_step(self, weight: FloatArray, relative: FloatArray, bound: float) -> None:
        """Go on from λ, where the costs over their bounds and f are `relative` (M,) and f is `bound`."""
        if bound < self._last:
            self._power, self._moved = max(1.0, self._power / 2), 0
        else:
            self._power = min(1.1 * self._power, 12.0)
        here = np.log(weight) + self._power * np.log(np.maximum(relative, 1e-12))
        momentum = self._moved / (self._moved + 3)
        self._at = here + momentum * (here - self._before) if self._moved else here
        self._last, self._before, self._moved = bound, here, self._moved + 1


def pack_integers(array: IntArray) -> str:
    """Return the compressed text of an array of 32-bit integers; differences along the last axis pack better."""
    if np.abs(array).max(initial=0) >= _LARGEST:
        raise InputError("the strategy's entries are too large to be saved: they must be below 2^30")
    steps = np.diff(array, axis=-1, prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 6)).decode("ascii")


def unpack_integers(text: Any, shape: tuple[int, ...], name: str) -> IntArray:
    """Return the array of a packed text, which is untrusted: no more than the shape's bytes are unpacked."""
    number, reader = math.prod(shape), zlib.decompressobj()
    try:
        data = reader.decompress(base64.b64decode(text, validate=True), 4 * number + 1)
    except (TypeError, ValueError, zlib.error):
        data = b""
    out = np.frombuffer(data[: len(data) // 4 * 4], dtype="<i4")
    if len(data) == 4 * number and reader.eof and not reader.unused_data:
        out = out.reshape(shape).astype(np.int64).cumsum(axis=-1)
        if np.abs(out).max(initial=0) < _LARGEST:
            return out
    raise InputError(f"{name} is damaged: it must be {number:,} compressed integers below 2^30, in base64")
