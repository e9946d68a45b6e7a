"""Choosing tents: spacing, degree and shares with the least expected error for a workload; public data alone."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import BlockPower
from deltahist.errors import InputError
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Span, Workload
from deltahist.strategies.flow.tuning import lowest
from deltahist.strategies.tents.lattice import (
    MOST_TENTS,
    Lattice,
    along,
    largest_change,
    largest_own_square,
    largest_square,
    lattice,
)

#: Boxes that stand for the workload.
_BOXES = 1000
#: Weights over a cell add up to this much at most: so much is left of 64 bits that there may be 268 million points.
_MOST_WEIGHT = 1 << 34
#: Waves in which the public total is looked at: almost all of it is smooth.
_SMOOTH = 40
#: Relations of a profile that are looked at, most of them short: what long moves cost changes little.
_MOST_RELATIONS = 12
#: Factors between spacings that are tried first, and around the best of them; and where the search starts, in
#: roots of an axis' cells and times a power of δ.
_COARSE, _FINE = 1.35, 1.12
_START, _OF_DELTA = {1: 1.5, 2: 1.4, 3: 1.3}, 0.28
#: Logarithms of the tents' share over that of the cells: least and most.
_RATIOS = (-4.0, 3.0)
_DIGITS = 1000


class Choice(NamedTuple):
    """Tents with their best shares, and the mean variance they have then at a budget of one."""

    error: float
    spacing: tuple[int, ...]
    degree: int
    shares: tuple[float, float]


def best_tents(
    near: Neighbourhood,
    workload: Workload | None,
    norm: int,
    spacing: tuple[int, ...] | None,
    degree: int | None,
) -> tuple[tuple[int, ...], int, tuple[Fraction, ...]]:
    """Return spacing, degree, and shares of cells and tents with the least expected error.

    Parameters
    ----------
    near : with its limits. workload : the queries; all ranges when None. norm : 1 for Laplace, 2 for Gaussian noise.
    spacing, degree : kept where they are given.
    """
    search = _Search(near, workload, norm)
    found = [
        search.descend(each) if spacing is None else search.at(spacing, each)
        for each in ((3, 2, 1) if degree is None else (degree,))
    ]
    best = min(found, key=lambda choice: (round(choice.error, 9), choice.degree))
    if best.error == math.inf:
        raise InputError(f"no tents over {near.domain.shape} cells have weights that are small enough")
    shares = tuple(max(Fraction(round(s * _DIGITS), _DIGITS), Fraction(1, _DIGITS)) for s in best.shares)
    return best.spacing, best.degree, shares


class _Search:
    """Looks for the best tents; what was tried is remembered."""

    def __init__(self, near: Neighbourhood, workload: Workload | None, norm: int) -> None:
        self.near, self.norm, self.shape = near, norm, near.domain.shape
        if isinstance(workload, Regions):
            workload = workload.boxes()
        self.boxes = workload.thinned(_BOXES).spans(near.domain) if isinstance(workload, Boxes) else None
        if isinstance(workload, AllRanges):
            workload.check(near.domain)
        every = near.relations
        some = np.unique(np.geomspace(1, len(every), _MOST_RELATIONS).round().astype(int)) - 1
        self.relations = [every[i] for i in some.tolist()]
        self.tried: dict[tuple[tuple[int, ...], int], Choice] = {}

    def descend(self, degree: int) -> Choice:
        """Return the best spacing of a degree, by coarse steps, then by fine ones, also along single axes."""
        reach = self.near.frontier.max(axis=0, initial=1).tolist()
        start = [
            round(_START[degree] * n ** (1 / 3) * min(r, 16) ** _OF_DELTA)
            for n, r in zip(self.shape, reach, strict=True)
        ]
        best = self.at(self._within(start), degree)
        axes = range(len(self.shape))
        alike = len(set(zip(self.shape, reach, strict=True))) == 1
        alone = [] if alike else [tuple(int(i == axis) for i in axes) for axis in axes]
        for factor, direction in itertools.product((_COARSE, _FINE), [(1,) * len(axes), *alone]):
            best = self._along(best, factor, direction)
        return best

    def _along(self, best: Choice, factor: float, direction: tuple[int, ...]) -> Choice:
        """Return the best on the way along some axes, as long as it gets better."""
        for up in (True, False):
            while True:
                further = [
                    s if not d else max(s + 1, round(s * factor)) if up else min(s - 1, round(s / factor))
                    for s, d in zip(best.spacing, direction, strict=True)
                ]
                other = self.at(self._within(further), best.degree)
                if other.error >= best.error:
                    break
                best = other
        return best

    def _within(self, spacing: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(1, min(s, n)) for s, n in zip(spacing, self.shape, strict=True))

    def at(self, spacing: tuple[int, ...], degree: int) -> Choice:
        """Return the best shares of tents; the error is infinite if weights are too large, or tents too many."""
        if (spacing, degree) not in self.tried:
            self.tried[spacing, degree] = self._at(spacing, degree)
        return self.tried[spacing, degree]

    def _at(self, spacing: tuple[int, ...], degree: int) -> Choice:
        lattices = [lattice(n, s, degree) for n, s in zip(self.shape, spacing, strict=True)]
        scale = math.prod(axis.scale for axis in lattices)
        many = any(n // s + degree > MOST_TENTS for n, s in zip(self.shape, spacing, strict=True))
        if many or scale > _MOST_WEIGHT:
            return Choice(math.inf, spacing, degree, (1.0, 1.0))
        costs = self._costs(lattices, scale)
        if not costs:  # a single cell, which nobody enters: there is nothing to protect
            return Choice(0.0, spacing, degree, (1.0, 1.0))
        error = _Error(lattices, self.boxes, self.near.fixed_membership)

        def dearest(ratio: float) -> float:
            """Return the norm of what the dearest move changes, for a share of one of the cells."""
            return float(max((cells + ratio**self.norm * tents) for cells, tents in costs) ** (1 / self.norm))

        def variance(power: float) -> float:
            ratio = math.exp(power)
            return (2 if self.norm == 1 else 1) * dearest(ratio) ** 2 * error.mean(ratio**2)

        least, power = lowest(variance, *_RATIOS, 0.1)
        ratio = math.exp(power)
        unit = dearest(ratio)
        return Choice(least, spacing, degree, (1 / unit, ratio / unit))

    def _costs(self, lattices: Sequence[Lattice], scale: int) -> list[tuple[float, float]]:
        """Return each relation's largest changes in cells and tents, over its factor (norm 2: squares)."""
        out = []
        for factor, relation in self.relations:
            over = float(factor) ** self.norm
            if relation.frontier.any():
                change = largest_change if self.norm == 1 else largest_square
                out.append((2 / over, change(lattices, relation) / scale**self.norm / over))
            if relation.source_cells.any():
                own = scale if self.norm == 1 else largest_own_square(lattices, relation.source_cells)
                out.append((1 / over, own / scale**self.norm / over))
        return out


class _Error:
    """Mean variance over a workload, from cells of variance one and tents, as a function of the tents.

    With r the precision of the tents' noise over that of the cells', the covariance of the estimates is

        V = 1 − Σ_ij k_ij (w_i ⊗ w_j)(w_i ⊗ w_j)ᵀ,   k_ij = r g_i g_j / (1 + r g_i g_j),

    over the waves w_i of each axis, the eigenvectors of TᵀT, and their eigenvalues g_i. A public total takes
    (qᵀV1)² / (1ᵀV1) away from qᵀVq. What queries ask of the waves does not depend on r.

    Parameters
    ----------
    lattices : one per axis. boxes : intervals along each axis; all ranges when None.
    total_known : whether the total is public.
    """

    def __init__(self, lattices: Sequence[Lattice], boxes: Sequence[Span] | None, total_known: bool) -> None:
        self.boxes, self.total_known = boxes is not None, total_known
        whole = [axis.waves[1][-1] for axis in lattices]
        self.values, self.whole = _outer([axis.waves[0] for axis in lattices]), _outer(whole)
        self.smooth = [np.argsort(-np.abs(along_total), kind="stable")[:_SMOOTH] for along_total in whole]
        if boxes is None:
            self.plain = math.prod((axis.n + 2) / 3 for axis in lattices)
            self.squared = _outer([axis.mean_asked for axis in lattices])
            self.asked = [axis.mean_pairs(some) for axis, some in zip(lattices, self.smooth, strict=True)]
        else:
            asked = [axis.asked(*span) for axis, span in zip(lattices, boxes, strict=True)]
            self.plain = float(np.prod([BlockPower(1, 2)(*span) for span in boxes], axis=0).mean())
            rows = [a**2 for a in asked]
            self.squared = (rows[0].T @ rows[1] if len(rows) > 1 else rows[0].sum(axis=0)) / len(rows[0])
            self.asked = [a[:, some] for a, some in zip(asked, self.smooth, strict=True)]

    def mean(self, precision: float) -> float:
        """Return the mean variance for tents of so much precision."""
        shrunk = precision * self.values / (1 + precision * self.values)
        out = self.plain - float((shrunk * self.squared).sum())
        if self.total_known:
            total = self.whole * (1 - shrunk)
            out -= self._of_total(total[np.ix_(*self.smooth)]) / float((self.whole * total).sum())
        return out

    def _of_total(self, total: NDArray[np.float64]) -> float:
        """Return the mean of (qᵀV1)²."""
        if not self.boxes:
            return float((total * along(self.asked, total)).sum())
        first, *rest = self.asked
        each = first @ total
        return float(((each * rest[0]).sum(axis=1) ** 2 if rest else each**2).mean())


def _outer(factors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(functools.reduce(np.multiply.outer, factors))
