"""Tents: noise on every cell and on overlapping smooth sums of cells, so that no move costs much, however long."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError, one_of, whole
from deltahist.strategies.base import Group, Strategy, numbers_of, read_shares, whole_shares
from deltahist.strategies.tents.choice import best_tents
from deltahist.strategies.tents.costs import largest_change, largest_own_square, largest_square
from deltahist.strategies.tents.lattice import MOST_WEIGHT, Lattice, along, lattice

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.workloads import Workload

#: Answers are numbers of 64 bits, with room for noise.
_MOST_ANSWER = 1 << 62


@dataclass(frozen=True, eq=False)
class Tents(Strategy):
    """Every cell, and tents over the cells: products of B-splines, centred every few cells along each axis.

    A short move hardly changes the tents, and one of any length no more than the two cells and the tents over them:
    with shares a of the cells and h of the tents every move costs at most 2 (a + h). Least squares joins both: what
    is smooth comes from the tents, what is finer than they are from the cells.
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
        """The tents with the least expected error on a workload, for what a neighbourhood promises at every distance.

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
        """What the weights of all tents over a cell add up to."""
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
        """Exact answers to the rows; InputError beyond 64 bits."""
        most = _MOST_ANSWER // self.scale
        if float(counts.sum(dtype=np.float64)) >= most:
            raise InputError(
                f"counts add up to more than these tents hold: fewer than {most:,} points (take tents with a shorter "
                "spacing or of a lower degree)"
            )
        return super().measure(counts)

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
