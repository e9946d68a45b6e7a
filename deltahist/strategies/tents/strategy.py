"""Tents: noise on every cell and on overlapping smooth sums of cells, so that no move costs much, however long."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Asked, Decoder, Moments
from deltahist.decode.forms import BlockPower, surroundings
from deltahist.decode.projection import Metric, shrink_long_waves
from deltahist.errors import InputError, one_of, whole
from deltahist.privacy import Law
from deltahist.space.domain import Domain
from deltahist.space.workloads import AllRanges, Boxes, Span
from deltahist.space.workloads.cover import explicit
from deltahist.strategies.base import Group, Strategy, numbers_of, read_shares, whole_shares
from deltahist.strategies.tents.choice import best_tents
from deltahist.strategies.tents.lattice import (
    MOST_WEIGHT,
    Lattice,
    along,
    largest_change,
    largest_own_square,
    largest_square,
    lattice,
)

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Answers are numbers of 64 bits, with room for noise.
_MOST_ANSWER = 1 << 62
#: Numbers of boxes times waves at a time.
_AT_A_TIME = 1 << 22
#: Ratio of the precisions of tents and cells beyond which the cells' own noise says nothing more.
_MOST_PRECISE = 1e12
#: What a wave holds of the total, which is of the size of a cell's, where rounding is all that it holds.
_UNSEEN = 1e-9
#: Power of the frequency by which long waves are trusted beyond their noise; found on real counts.
TRUST = 1.0


@dataclass(frozen=True, eq=False)
class Tents(Strategy):
    """Every cell, and tents over the cells: products of B-splines, centred every few cells along each axis.

    A short move hardly changes the tents, and one of any length no more than the two cells and the tents over them:
    with shares a of the cells and h of the tents every move costs at most 2 (a + h). Least squares joins both:
    smooth parts come from the tents, finer ones from the cells.
    Source: docs/theory.md, section 7; costs: docs/privacy/tents.md.

    Parameters
    ----------
    domain : Domain
    spacing : cells between the centres of tents, one number or one per axis; when None about what suits all ranges.
    degree : of the B-splines: 1 for hats, 2 or 3 for smoother tents, which are wider.
    shares : of ε, for the cells and for the tents; equal when None.

    Raises
    ------
    InputError
        If a spacing is below 1 or longer than the domain, makes too many tents along an axis, or weights too large for
        exact answers.

    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64, limits=[(math.inf, 2)])
    >>> A = Tents.tuned(near)
    >>> A.spacing, A.degree, [round(float(dh.sensitivity(A, n)), 1) for n in (near, near.anywhere())]
    ((5, 5), 3, [1.0, 1.9])
    """

    domain: Domain
    spacing: int | tuple[int, ...] | None = None
    degree: int = 3
    shares: tuple[Fraction, ...] | None = None

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("tents[:spacing[,degree]]",)

    def __post_init__(self) -> None:
        shape, given = self.domain.shape, self.spacing
        if given is None:
            given = tuple(min(n, max(1, round(1.5 * n ** (1 / 3)))) for n in shape)
        elif not isinstance(given, list | tuple):
            given = (given,) * len(shape)
        spacing = tuple(whole("cells between tents", spacing=s) for s in given)
        if len(spacing) != len(shape):
            raise InputError(
                f"spacing is {given}: it must be one number, or one for each of {len(shape)} axes"
            )
        if any(s > n for s, n in zip(spacing, shape, strict=True)):
            raise InputError(
                f"spacing is {spacing}: tents must not be further apart than the {shape} cells are long"
            )
        object.__setattr__(self, "spacing", spacing)
        one_of((1, 2, 3), "hats, or smoother tents", degree=self.degree)
        if self.shares is not None:
            object.__setattr__(self, "shares", read_shares(self.shares, 2, "group: cells and tents"))
        if self.scale > MOST_WEIGHT:
            raise InputError(
                f"spacing is {spacing} at degree {self.degree}: the weights of the tents over a cell add up to "
                f"{self.scale:.3g}, more than exact answers hold; take a shorter spacing or a lower degree"
            )
        for axis in self.lattices:
            _ = axis.size  # refuses more than memory holds

    @classmethod
    def tuned(
        cls,
        near: Neighbourhood,
        workload: Workload | None = None,
        *,
        norm: int = 1,
        spacing: int | tuple[int, ...] | None = None,
        degree: int | None = None,
    ) -> Tents:
        """Return the tents with the least expected error on a workload, under all promises of a neighbourhood.

        Parameters
        ----------
        near : the neighbourhood with its limits.
        workload : the queries; all ranges when None (boxes of their areas stand for regions).
        norm : 1 for Laplace, 2 for Gaussian noise.
        spacing, degree : not to be chosen, but as given.

        >>> import deltahist as dh
        >>> near = dh.Neighbourhood(dh.Domain((0, 1), (50,)), delta=0.02)
        >>> Tents.tuned(near.anywhere(), spacing=10, degree=1).spacing
        (10,)
        """
        apart = None if spacing is None else cls(near.domain, spacing, 1 if degree is None else degree).apart
        return cls(near.domain, *best_tents(near, workload, norm, apart, degree))

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Tents:
        spacing, degree, *_ = (*numbers_of(text, 2), None, None)
        return cls.tuned(near, norm=norm, spacing=spacing, degree=degree)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 1 and near.domain.size > 1:
            tents = cls.tuned(near, workload)
            apart = dict.fromkeys(map(str, tents.apart))
            yield f"Tents ({' × '.join(apart)} cells apart, degree {tents.degree})", tents

    # -- what is measured ----------------------------------------------------------------------------------

    @property
    def apart(self) -> tuple[int, ...]:
        """Cells between the centres of tents, along each axis."""
        return self.spacing  # type: ignore[return-value]

    @functools.cached_property
    def lattices(self) -> tuple[Lattice, ...]:
        """The tents along each axis."""
        return tuple(lattice(n, s, self.degree) for n, s in zip(self.domain.shape, self.apart, strict=True))

    @functools.cached_property
    def scale(self) -> int:
        """Sum of the weights of all tents over a cell."""
        return math.prod(axis.scale for axis in self.lattices)

    @functools.cached_property
    def tents(self) -> tuple[int, ...]:
        """Number of tents along each axis."""
        return tuple(axis.size for axis in self.lattices)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (self.domain.size + math.prod(self.tents), self.domain.size)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        cells, tents = read_shares(self.shares, 2, "group")
        unit = Fraction(1, self.scale)
        size = self.domain.size
        return (
            Group("cells", slice(0, size), cells),
            Group(
                f"tents {' × '.join(map(str, self.apart))} cells apart",
                slice(size, self.shape[0]),
                tents * unit,
                unit,
            ),
        )

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        tents = along([axis.matrix for axis in self.lattices], X.reshape(*self.domain.shape, -1))
        return np.concatenate([X, tents.reshape(-1, X.shape[1])])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        tents = X[self.domain.size :].reshape(*self.tents, -1)
        cells = along([axis.transpose for axis in self.lattices], tents)
        return X[: self.domain.size] + cells.reshape(-1, X.shape[1])

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exact answers to the rows; InputError beyond 64 bits."""
        most = _MOST_ANSWER // self.scale
        if float(counts.sum(dtype=np.float64)) >= most:
            raise InputError(
                f"counts add up to more than these tents hold: fewer than {most:,} points (take tents with a shorter "
                "spacing or of a lower degree)"
            )
        return super().measure(counts)

    def decoder_class(self) -> type[Decoder]:
        return TentsDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction:
        # Either end of a move is a cell of its own.
        (cells, tents), denominator = whole_shares([group.share for group in self.groups])
        cells, tents = cells**norm, tents**norm
        most = 0
        if near.frontier.any():
            change = largest_change if norm == 1 else largest_square
            most = 2 * cells + tents * change(self.lattices, near)
        if near.source_cells.any():
            own = self.scale if norm == 1 else largest_own_square(self.lattices, near.source_cells)
            most = max(most, cells + tents * own)
        return Fraction(most, denominator**norm)


class TentsDecoder(Decoder):
    """Least squares ĉ = y₁ + Tᵀ (r⁻¹ + T Tᵀ)⁻¹ (y₂ − T y₁).

    y₁ are the cells, y₂ the tents, and r is the ratio of the variances of their noise.

    T Tᵀ is a product over the axes, inverted in the eigenvectors of its small factors (docs/theory.md, section 7).
    `parts` : values count in parts of a point.
    """

    strategy: Tents

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool, parts: int = 1) -> None:
        super().__init__(strategy, laws, total_known)
        self._parts = float(parts)

    @functools.cached_property
    def _cells(self) -> float:
        """Variance of the noise of a cell."""
        return self.laws[0].variance() / self._parts**2

    @functools.cached_property
    def _tents(self) -> float:
        """Variance of the noise of a tent, in points."""
        return self.laws[1].variance() / (self._parts * self.strategy.scale) ** 2

    @functools.cached_property
    def _precision(self) -> float:
        """Variance of the cells' noise over that of the tents'."""
        return self._cells / max(self._tents, self._cells / _MOST_PRECISE) if self._cells > 0 else 0.0

    def _shrink(self, tents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (r⁻¹ + T Tᵀ)⁻¹ of a field over the tents."""
        eigen = [axis.eigen for axis in self.strategy.lattices]
        values = functools.reduce(np.multiply.outer, [value for value, _ in eigen])
        waves = along([vectors.T for _, vectors in eigen], tents)
        return along(
            [vectors for _, vectors in eigen], waves * (self._precision / (1 + self._precision * values))
        )

    def _to_tents(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return T of cells (N,), in points, as a field over the tents."""
        strategy = self.strategy
        field = along([axis.matrix for axis in strategy.lattices], cells.reshape(self.domain.shape))
        return np.asarray(field / strategy.scale)

    def _to_cells(self, tents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Tᵀ of a field over the tents, in points, as cells (N,)."""
        strategy = self.strategy
        return np.asarray(
            along([axis.transpose for axis in strategy.lattices], tents).ravel() / strategy.scale
        )

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        values = values / self._parts
        cells, tents = values[: self.domain.size], values[self.domain.size :] / self.strategy.scale
        return cells + self._to_cells(self._shrink(tents.reshape(self.strategy.tents) - self._to_tents(cells)))

    def adjoint(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        tents = self._shrink(self._to_tents(query))
        return np.concatenate([query - self._to_cells(tents), tents.ravel() / self.strategy.scale]) / self._parts

    @functools.cached_property
    def _precise(self) -> NDArray[np.float64]:
        """Precision of the tents over that of the cells, for every wave (one axis per axis)."""
        values = functools.reduce(np.multiply.outer, [axis.waves[0] for axis in self.strategy.lattices])
        return np.asarray(self._precision * values)

    @functools.cached_property
    def _known(self) -> NDArray[np.float64]:
        """Share of the cells' variance that the tents take away, for every wave."""
        return np.asarray(self._precise / (1 + self._precise))

    @functools.cached_property
    def _onto(self) -> tuple[NDArray[np.float64], float]:
        """V1 over the variance of a cell by its waves, and its sum.

        The tents add up to one over every cell, so that all ones, and V1, are sums of the waves alone.
        """
        ones = functools.reduce(np.multiply.outer, [axis.waves[1][-1] for axis in self.strategy.lattices])
        onto = ones / (1 + self._precise)
        return onto, float((ones * onto).sum())

    def moments(self, work: Asked) -> Moments:
        if not isinstance(work, Boxes | AllRanges):
            return super().moments(work)
        spans = work.spans(self.domain)
        step = max(1, _AT_A_TIME // sum(self._known.shape))
        starts = range(0, len(spans[0][0]), step)
        parts = [
            self._of_boxes([(low[i : i + step], high[i : i + step]) for low, high in spans]) for i in starts
        ]
        variance = np.concatenate([np.zeros(0), *parts])
        variance[variance < self.rounding_floor] = 0.0
        return Moments(variance, self.kurtosis(spans, variance))

    def variance(self, work: Asked) -> NDArray[np.float64]:
        """Return the variance of the answers alone: of explicit queries by waves, many at a time."""
        if isinstance(work, Boxes | AllRanges) or self.domain.ndim == 1:
            return super().variance(work)
        work = explicit(work)
        out = self._cells * np.asarray((work * work).sum(axis=1))
        waves = [np.diff(axis.waves[1], axis=0) for axis in self.strategy.lattices]
        for around in surroundings(work, self.domain.shape):
            seen = around.between(waves[0], waves[1])
            taken = np.einsum("kij,ij->k", seen**2, self._known)
            if self.total_known:
                onto, spread = self._onto
                taken += np.einsum("kij,ij->k", seen, onto) ** 2 / spread
            out[around.some] -= self._cells * taken
        out[out < self.rounding_floor] = 0.0
        return out

    def _of_boxes(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        """Return the variance of boxes."""
        asked = [axis.asked(*span) for axis, span in zip(self.strategy.lattices, spans, strict=True)]
        size = math.prod((BlockPower(1, 2)(*span) for span in spans), start=np.ones(len(spans[0][0])))
        taken = _of_waves([each**2 for each in asked], self._known)
        if self.total_known:
            onto, spread = self._onto
            # The total has nothing of half of the waves: those that differ in sign about the middle of an axis.
            held = [np.abs(axis.waves[1][-1]) > _UNSEEN for axis in self.strategy.lattices]
            seen = [each[:, some] for each, some in zip(asked, held, strict=True)]
            taken += _of_waves(seen, onto[np.ix_(*held)]) ** 2 / spread
        return self._cells * (size - taken)

    def mean_variance(self, work: AllRanges) -> float:
        lattices = self.strategy.lattices
        taken = self._known
        for axis in reversed(lattices):
            taken = taken @ axis.mean_asked
        size = math.prod((n + 2) / 3 for n in self.domain.shape)
        if self.total_known:
            onto, spread = self._onto
            pairs = [axis.mean_pairs(slice(None)) for axis in lattices]
            size -= float((onto * along(pairs, onto)).sum()) / spread
        return self._cells * max(0.0, size - float(taken))

    def kurtosis(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a bound of the excess kurtosis of answers to boxes, if no draw has more than its full weight."""
        most = max(law.kurtosis() for law in self.laws)
        if most <= 0:
            return np.zeros(len(variance))
        # Σ aᵢ⁴ vᵢ² ≤ max(aᵢ² vᵢ) Σ aᵢ² vᵢ
        largest = max(self._cells, self._tents)
        return most * np.divide(largest, variance, out=np.zeros_like(variance), where=variance > 0).clip(
            max=1.0
        )

    def metric(self) -> Metric:
        """Return the exact variance of each cosine; the tents see the longer ones, nearly one by one."""
        seen = [
            scipy.fft.dct(np.diff(axis.waves[1], axis=0), axis=0, norm="ortho") ** 2
            for axis in self.strategy.lattices
        ]
        variance = self._cells * (1 - along(seen, self._known))
        if self.total_known:
            variance.flat[0] = 0.0
        inside = tuple(slice(0, n) for n in self.domain.shape)
        return shrink_long_waves(Metric(variance, self.domain.shape, False, inside), TRUST)

    @property
    def rounding_floor(self) -> float:
        return 1e-12 * self._cells * self.domain.size


def _of_waves(asked: Sequence[NDArray[np.float64]], field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ over waves of a field times what each query (m,) asks of them along the axes."""
    first, *rest = asked
    out = first @ field
    return np.asarray(np.einsum("mw,mw->m", out, rest[0]) if rest else out)
