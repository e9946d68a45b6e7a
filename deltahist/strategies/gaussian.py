"""Code that `Optimal` and `Spectral` share: bounds on costs, the optimisation, and packed arrays."""

from __future__ import annotations

import base64
import functools
import math
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import FloatArray, IntArray
from deltahist.errors import InputError
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy, read_numbers

#: The optimisation stops at this certified gap, relative to the variance.
GAP = 1e-3
#: Entries of saved arrays are below this, so that squared differences fit in 64 bits.
LARGEST_ENTRY = 1 << 30


class BestGaussian(Strategy):
    """A strategy that is optimal for Gaussian noise, a neighbourhood and a workload (all ranges by default)."""

    determines_cells: ClassVar[bool] = True
    #: The neighbourhood that bounds the costs, and the queries (both None after `restore`).
    near: Neighbourhood
    workload: Workload | None

    @functools.cached_property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.near.domain

    @classmethod
    def _from_solution(cls, **known: Any) -> Self:
        """Return a strategy whose solution comes from a file."""
        out = object.__new__(cls)
        out.__dict__.update(near=None, workload=None, **known)
        return out

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Self:
        read_numbers(text, 0)
        if norm == 1:
            raise InputError(f"strategy is {text!r}: it requires Gaussian noise, so use rho instead of epsilon")
        return cls(near)  # type: ignore[call-arg]


def bound_levels(near: Neighbourhood) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the index of the first relation containing each displacement (domain.shape), and the bound for each index.

    The bounds are the squared factors of the relations, then infinity for displacements that no relation contains.
    """
    shape = near.domain.shape
    rows, long = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
    ends = np.zeros((rows, long + 1), dtype=np.intp)
    for _, relation in near.relations:
        # In each row, the relation contains the displacements up to the reach.
        reach = np.full(rows, -1)
        reach[: len(relation.reach)] = relation.reach
        ends[np.arange(rows), reach + 1] += 1
    squares = [float(factor) ** 2 for factor, _ in near.relations]
    return ends.cumsum(axis=1)[:, :long].reshape(shape), np.array([*squares, np.inf])


def arrival_squares(near: Neighbourhood) -> FloatArray:
    """Return a bound on the squared cost of an arrival in each cell (domain.shape), or infinity if none can occur."""
    out = np.full(near.domain.shape, np.inf)
    if not near.fixed_membership:
        for factor, relation in reversed(near.relations):
            out[relation.source_cells] = float(factor) ** 2
    return out


class Climb(NamedTuple):
    """The result of `maximise_bound`: the best feasible form with its λ and variance, and the best lower bound."""

    weight: FloatArray
    form: FloatArray
    primal: float
    dual: float


def maximise_bound(
    evaluate: Callable[[FloatArray], tuple[FloatArray, FloatArray, float, float]],
    start: FloatArray,
    most_steps: int,
    gap: float,
) -> Climb:
    """Maximise the lower bound f(λ)² by steps λ_e ← λ_e · (cost_e / f)^p, with Nesterov momentum on ln λ.

    Every λ yields a bound and a feasible form: X divided by its largest cost. If edges did not interact, p = 2 would
    find the best λ in one step. The exponent p grows while f grows. If f falls, p is halved and the momentum restarts.

    evaluate : a function that takes λ (M,) with sum one and returns X, each edge's cost / bound (M,), tr(V X⁻¹) and f.
    start : the initial ln λ (M,), up to a constant.
    """
    at = before = start
    power, moved, last = 2.0, 0, 0.0
    floor = gap / 1000 / len(start)  # keep λ above zero, because an edge may matter again later
    best = Climb(np.zeros(0), np.zeros((0, 0)), math.inf, 0.0)
    for _ in range(most_steps):
        weight = np.exp(at - at.max())
        weight = np.maximum(weight / weight.sum(), floor)
        weight /= weight.sum()
        form, costs, variance, bound = evaluate(weight)
        largest = float(costs.max())
        best = best._replace(dual=max(best.dual, bound * bound))
        if variance * largest < best.primal:
            best = Climb(weight, form / largest, variance * largest, best.dual)
        if best.primal <= (1 + gap) * best.dual:
            break
        if bound < last:
            power, moved = max(1.0, power / 2), 0
        else:
            power = min(1.1 * power, 12.0)
        here = np.log(weight) + power * np.log(np.maximum(costs / variance, 1e-12))
        at = here + moved / (moved + 3) * (here - before) if moved else here
        last, before, moved = bound, here, moved + 1
    return best


def pack_integers(array: IntArray) -> str:
    """Return integers below 2^30 as a compressed string, using differences along the last axis."""
    return base64.b64encode(zlib.compress(np.diff(array, axis=-1, prepend=0).astype("<i4").tobytes(), 6)).decode(
        "ascii"
    )


def unpack_integers(text: Any, shape: tuple[int, ...], name: str) -> IntArray:
    """Unpack an array from an untrusted string, and decompress at most one byte more than its shape requires."""
    number, reader = math.prod(shape), zlib.decompressobj()
    try:
        data = reader.decompress(base64.b64decode(text, validate=True), 4 * number + 1)
    except (TypeError, ValueError, zlib.error):
        data = b""
    out = np.frombuffer(data[: len(data) // 4 * 4], dtype="<i4")
    if len(data) == 4 * number and reader.eof and not reader.unused_data:
        out = out.reshape(shape).astype(np.int64).cumsum(axis=-1)
        if np.abs(out).max(initial=0) < LARGEST_ENTRY:
            return out
    raise InputError(f"{name} is damaged: it must contain {number:,} integers below 2^30, compressed and in base64")
