"""Products of one square matrix per axis, and cumulative sums, with their decoder: closed forms throughout."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.decode.forms import (
    MOST_FOURTH,
    Feature,
    Form,
    Quadratic,
    Terms,
    weighted,
)
from deltahist.errors import InputError, one_of
from deltahist.privacy import Law
from deltahist.space.domain import Domain
from deltahist.space.workloads import Span
from deltahist.space.workloads.cover import Pieces, aligned_spans
from deltahist.strategies.base import Strategy

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Tables over pairs of cell edges are made up to this many cells along an axis, for errors in closed form.
MOST_TABLED = 4096


class Factor:
    """A square integer matrix F (n, n) along the first axis of an array, and its inverse."""

    #: Cells along the axis.
    n: int

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return F x."""
        raise NotImplementedError

    def transpose(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return Fᵀ y."""
        raise NotImplementedError

    def solve(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return F⁻¹ y."""
        raise NotImplementedError

    def solve_transpose(self, q: NDArray[Any]) -> NDArray[np.float64]:
        """Return F⁻ᵀ q."""
        raise NotImplementedError

    def prefix_power(self) -> float:
        """Return Σ_e |F⁻ᵀ P_e|² over the prefixes P_e, all before edge e = 0, ..., n."""
        raise NotImplementedError


class Product(Strategy):
    """F_x ⊗ F_y with square, invertible factors: N rows that determine every cell."""

    determines_cells: ClassVar[bool] = True

    @functools.cached_property
    def factors(self) -> tuple[Factor, ...]:
        """One factor per axis."""
        raise NotImplementedError

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (self.domain.size, self.domain.size)

    def decoder_class(self) -> type[Decoder]:
        return ProductDecoder

    def along_axes(self, name: str, X: NDArray[Any]) -> NDArray[Any]:
        """Return one of the factors' methods, applied along every axis of X (N, m)."""
        cube = X.reshape(*self.domain.shape, -1)
        for axis, factor in enumerate(self.factors):
            cube = np.moveaxis(getattr(factor, name)(np.moveaxis(cube, axis, 0)), 0, axis)
        return cube.reshape(X.shape)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.along_axes("apply", X)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.along_axes("transpose", X)


@dataclass(frozen=True)
class _Sums(Factor):
    n: int
    suffix: bool

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        return x[::-1].cumsum(axis=0)[::-1] if self.suffix else x.cumsum(axis=0)

    def transpose(self, y: NDArray[Any]) -> NDArray[Any]:
        return _Sums(self.n, not self.suffix).apply(y)

    def solve(self, y: NDArray[Any]) -> NDArray[np.float64]:
        zero = np.zeros_like(y[:1])
        return y - np.concatenate([y[1:], zero]) if self.suffix else y - np.concatenate([zero, y[:-1]])

    def solve_transpose(self, q: NDArray[Any]) -> NDArray[np.float64]:
        return _Sums(self.n, not self.suffix).solve(q)

    def prefix_power(self) -> float:
        # A prefix is one prefix sum; of suffix sums it is the first less another, and the whole is the first alone.
        return float(2 * self.n - 1 if self.suffix else self.n)


@dataclass(frozen=True, eq=False)
class Cumulative(Product):
    """Sums of all cells from each cell on: C_n (2014, section 5.2, eq. (6)); in 2-D along both axes.

    Suffix sums, as eq. (6) prints them, cost 1 for a move by one cell and for an arrival at the left end;
    section 5.4.1 speaks of prefix sums, which suit a source at the right end. A move by d cells costs d.

    Parameters
    ----------
    domain : Domain
    direction : "suffix" or "prefix".

    >>> Cumulative(Domain((0, 1), (3,))).matrix().toarray().tolist()
    [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    """

    domain: Domain
    direction: Literal["suffix", "prefix"] = "suffix"
    texts: ClassVar[tuple[str, ...]] = ("cumulative[:prefix]",)

    def __post_init__(self) -> None:
        one_of(("suffix", "prefix"), direction=self.direction)

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Cumulative:
        rest = text.partition(":")[2] or "suffix"
        if rest not in ("suffix", "prefix"):
            raise InputError(
                f"strategy is {text!r}: it must be cumulative, cumulative:suffix or cumulative:prefix"
            )
        return cls(near.domain, "prefix" if rest == "prefix" else "suffix")

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if max(near.domain.shape) <= MOST_TABLED:
            yield "Cumulative (suffix)", cls(near.domain)
            yield "Cumulative (prefix)", cls(near.domain, direction="prefix")

    @functools.cached_property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(_Sums(n, self.direction == "suffix") for n in self.domain.shape)

    def edge_cost(self, near: Neighbourhood, norm: int) -> int:
        """Return the largest C(e): rows that hold one end of an edge e only (2014, section 5.3).

        Entries are 0 or 1, so that both norms count rows. Cells are counted from 0, for prefix sums from the far end.
        Then the rows that hold a cell u belong to the cells up to u on every axis: r(u) = Π (u_i + 1) of them. An
        arrival at u costs r(u); a move from u to v, which share the rows r(min(u, v)), costs

            C(u, v) = r(u) + r(v) − 2 r(min(u, v)),   min axis by axis.
        """
        return max(self._dearest_move(near), self._dearest_arrival(near))

    def _dearest_move(self, near: Neighbourhood) -> int:
        """Return the largest C(u, v) over the moves: of a displacement d it is Π n_i − Π (n_i − d_i).

        With v = u + d and no d_i below zero, C = r(u + d) − r(u). It does not fall as u grows, so that the worst v is
        the far corner, nor as d grows, so that only the frontier matters. In 2-D a move across, from (x, y + d_y) to
        (x + d_x, y), costs (x + 1) d_y + (y + 1) d_x: d_x d_y less than the one from (x, y) to (x + d_x, y + d_y).
        """
        shape = self.domain.shape
        return max(
            self.domain.size - math.prod(n - d for n, d in zip(shape, move, strict=True))
            for move in near.frontier.tolist()
        )

    def _dearest_arrival(self, near: Neighbourhood) -> int:
        """Return the largest r(u) over the cells u that touch a source; 0 where nobody arrives."""
        cells = np.argwhere(near.source_cells)
        if self.direction == "prefix":
            cells = np.array(self.domain.shape) - 1 - cells
        return int((cells + 1).prod(axis=1).max(initial=0))


class Prefixes(Form):
    """F⁻ᵀP_i · F⁻ᵀP_j for a square factor F: coefficients of prefixes, each row of F having noise of variance one."""

    def __init__(self, factor: Factor) -> None:
        self.factor, self.size, self.work = factor, factor.n + 1, factor.n

    @functools.cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """F⁻ᵀP_e (n + 1, n)."""
        prefix = np.tril(np.ones((self.size, self.size - 1)), -1)  # row e: the cells before edge e
        # Row by row in memory: of another layout every box would copy them all.
        return np.ascontiguousarray(self.factor.solve_transpose(np.ascontiguousarray(prefix.T)).T)

    def entries(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.einsum("en,en->e", self.coefficients[i], self.coefficients[j])

    def rows(self, first: int, stop: int) -> NDArray[np.float64]:
        return self.coefficients[first:stop] @ self.coefficients.T

    def of(self, intervals: Pieces) -> NDArray[np.float64]:
        own = weighted(self.coefficients, intervals.edges)
        return np.einsum("mn,mn->m", own, own)

    def whole(self, weight: NDArray[np.float64]) -> float:
        # A cell is in the prefixes of all edges behind it.
        held = np.cumsum(weight[::-1])[::-1][1:]
        own = self.factor.solve_transpose(held.reshape(-1, 1))
        return float((own * own).sum())

    def trace(self) -> float:
        return self.factor.prefix_power()


class CoefficientTable:
    """Sums over the coefficients F⁻ᵀq of intervals q."""

    def __init__(self, factor: Factor) -> None:
        self.form = Prefixes(factor)
        ones = factor.solve_transpose(np.ones((factor.n, 1)))
        self.total = float((ones * ones).sum())
        self.along_total = np.concatenate([[0.0], factor.solve(ones)[:, 0].cumsum()])

    @functools.cached_property
    def fourth(self) -> NDArray[np.float64]:
        """Σ_k (P_jk − P_ik)⁴ for all pairs of edges i, j."""
        p = self.form.coefficients
        cube, square = p**3 @ p.T, (p * p) @ (p * p).T
        own = np.diag(square)
        return own[:, None] + own[None, :] - 4 * cube - 4 * cube.T + 6 * square


@dataclass(frozen=True, eq=False)
class Fourth(Feature):
    """Σ_k a_k⁴, for the nearest whole cells."""

    table: CoefficientTable

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.table.fourth[np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class WithTotal(Feature):
    """(Σ_k a_k a_k(1))², the part that a public total takes away."""

    table: CoefficientTable

    def __call__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        along = self.table.along_total
        edge = np.arange(len(along))
        part = np.interp(high, edge, along) - np.interp(low, edge, along)
        return part * part

    def mean(self, n: int) -> float:
        along = self.table.along_total
        return float((n + 1) * (along @ along) - along.sum() ** 2) / (n * (n + 1) / 2)


class ProductDecoder(Decoder):
    """F_x ⊗ F_y with invertible factors: x̂ = F⁻¹ y, whatever the noise."""

    strategy: Product

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        # With several laws the variance is no product over axes; it is then solved query by query.
        self.tables: tuple[CoefficientTable, ...] = ()
        if len(set(laws)) == 1 and max(self.domain.shape) <= MOST_TABLED:
            self.tables = tuple(_table(f) for f in self.strategy.factors)

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.strategy.along_axes("solve", values.reshape(-1, 1))[:, 0]

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.strategy.along_axes("solve_transpose", query.reshape(-1, 1))[:, 0]

    def terms(self, order: int) -> Terms | None:
        if not self.tables:
            return None
        law = self.laws[0]
        if order == 4:
            if max(self.domain.shape) > MOST_FOURTH:
                return None
            # The public total shifts every coefficient a little; the kurtosis hardly feels it.
            return [(law.kurtosis() * law.variance() ** 2, tuple(Fourth(t) for t in self.tables))]
        own: Terms = [(law.variance(), tuple(Quadratic.of(t.form) for t in self.tables))]
        if not self.total_known:
            return own
        spread = float(np.prod([t.total for t in self.tables]))
        return [*own, (-law.variance() / spread, tuple(WithTotal(t) for t in self.tables))]

    def draws_summed(
        self, spans: Sequence[Span], variance: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        if not isinstance(self.strategy, Cumulative) or self.laws[0].variance() == 0:
            return None
        # Differences of sums: every released value enters with coefficient −1, 0 or 1.
        return np.where(aligned_spans(spans), np.rint(variance / self.laws[0].variance()), 0.0)


@functools.lru_cache(maxsize=4)
def _table(factor: Factor) -> CoefficientTable:
    return CoefficientTable(factor)
