"""Tents over the cells of one axis: B-splines on a coarse lattice in whole numbers, their waves, and costs of moves."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.neighbourhood import Neighbourhood

Field = NDArray[np.float64]
Whole = NDArray[np.int64]
#: Tents along an axis at most: their waves are found by dense linear algebra.
MOST_TENTS = 4128
#: Eigenvalues below this share of the largest one are rounding.
_ROUNDING = 1e-12
#: Pairs of moves along the two axes up to which squares are looked at one by one; beyond, a bound stands for them.
MOST_PAIRS = 1 << 24
#: Share of the largest square by which floats may mistake it.
_FLOAT_ERROR = 1e-9


@dataclass(frozen=True)
class Lattice:
    """T (m, n): one row per tent, centred every `spacing` cells, over the n cells of an axis.

    A tent is a centred B-spline of degree 1, 2 or 3 whose knots are `spacing` cells apart. One is centred in the
    middle of the axis; tents beyond the ends that still cover cells are kept. Cells and centres lie on half cells,
    where values are multiples of a power of 1 / (2 · spacing). As whole numbers the weights over any cell add up to
    `scale`, exactly.

    >>> tents = Lattice(5, 2, 1)
    >>> tents.scale, tents.matrix.toarray().tolist()
    (2, [[2, 1, 0, 0, 0], [0, 1, 2, 1, 0], [0, 0, 0, 1, 2]])
    """

    n: int
    spacing: int
    degree: int

    @functools.cached_property
    def _band(self) -> tuple[Whole, Whole]:
        if self.n == 1:
            return np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=np.int64)
        # In half cells, from the middle of the axis.
        place, apart, order = 2 * np.arange(self.n) - (self.n - 1), 2 * self.spacing, self.degree + 1
        first = (place - order * self.spacing) // apart + 1
        centres = apart * (first[:, None] + np.arange(order))
        weights = _spline(np.abs(place[:, None] - centres), apart, self.degree)
        return first - first[0], weights // np.gcd.reduce(weights, axis=None)

    @property
    def first(self) -> Whole:
        """The first tent over every cell (n,)."""
        return self._band[0]

    @property
    def weights(self) -> Whole:
        """Weights over every cell (n, degree + 1) of its first tent and the next ones."""
        return self._band[1]

    @functools.cached_property
    def scale(self) -> int:
        """Sum of the weights over any cell."""
        return int(self.weights[0].sum())

    @functools.cached_property
    def size(self) -> int:
        """Number of tents m; refused beyond MOST_TENTS."""
        out = int(self.first[-1]) + int(np.flatnonzero(self.weights[-1])[-1]) + 1
        if out > MOST_TENTS:
            raise InputError(
                f"spacing is {self.spacing}: it makes {out:,} tents over {self.n:,} cells, and there must be at most "
                f"{MOST_TENTS:,} tents along an axis (take a longer spacing, or larger cells)"
            )
        return out

    @property
    def _tents(self) -> Whole:
        """The tents over every cell (n, degree + 1) that `weights` are of; any tent where there is none."""
        return np.minimum(self.first[:, None] + np.arange(self.weights.shape[1]), self.size - 1)

    @functools.cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """T (m, n), int64."""
        some = self.weights > 0
        tent = (self.first[:, None] + np.arange(some.shape[1]))[some]
        cell = np.nonzero(some)[0]
        return scipy.sparse.csr_array((self.weights[some], (tent, cell)), shape=(self.size, self.n))

    @functools.cached_property
    def transpose(self) -> scipy.sparse.csr_array:
        """Tᵀ (n, m), int64."""
        return self.matrix.T.tocsr()

    @functools.cached_property
    def eigen(self) -> tuple[Field, Field]:
        """Eigenvalues (m,) of T Tᵀ / scale², falling, and its eigenvectors (m, m)."""
        # Without SciPy, which takes as long to import as a small release to read.
        tents, weights, size = self._tents, self.weights.astype(np.float64), self.size
        pairs = (tents[:, :, None] * size + tents[:, None, :]).ravel()
        both = np.bincount(pairs, (weights[:, :, None] * weights[:, None, :]).ravel(), size**2)
        values, vectors = np.linalg.eigh(both.reshape(size, size) / self.scale**2)
        return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])

    @functools.cached_property
    def waves(self) -> tuple[Field, Field]:
        """Eigenvalues (w,) of TᵀT / scale² above zero, falling; its eigenvectors, summed up to each edge (n + 1, w)."""
        values, vectors = self.eigen
        values = values[values > _ROUNDING * values[0]]
        sums = np.zeros((self.n + 1, len(values)))
        vectors = vectors[:, : len(values)] / (self.scale * np.sqrt(values))
        for tents, weights in zip(self._tents.T, self.weights.T, strict=True):
            sums[1:] += weights[:, None] * vectors[tents]
        np.cumsum(sums, axis=0, out=sums)
        return values, sums

    def asked(self, low: Field, high: Field) -> Field:
        """Return q · each wave (k, w) for intervals q in cells; a cell that is cut counts by its share."""
        sums, out = self.waves[1], 0.0
        for edge, sign in ((high, 1.0), (low, -1.0)):
            below = np.minimum(edge.astype(np.int64), self.n - 1)
            share = (edge - below)[:, None]
            out = out + sign * ((1 - share) * sums[below] + share * sums[below + 1])
        return np.asarray(out)

    @functools.cached_property
    def mean_asked(self) -> Field:
        """Mean of (q · a wave)² over all intervals q of whole cells, for every wave (w,)."""
        sums = self.waves[1]
        return _over_intervals(np.einsum("ew,ew->w", sums, sums), sums.sum(axis=0) ** 2, self.n)

    def mean_pairs(self, some: Whole | slice) -> Field:
        """Return the mean of (q · a wave)(q · another wave) over all intervals q (w, w)."""
        sums = self.waves[1][:, some]
        whole = sums.sum(axis=0)
        return _over_intervals(sums.T @ sums, np.multiply.outer(whole, whole), self.n)

    def positions(self, far: int) -> int:
        """Return the number of first cells, at different positions under the tents, from which moves start."""
        return min(self.spacing, self.n - far)

    def ends(self, far: int) -> tuple[Whole, Whole]:
        """Return weights over both ends (positions, tents) of moves by `far` cells, of tents over the first end."""
        start = np.arange(self.positions(far))
        u, v = self.weights[start], np.zeros((len(start), self.weights.shape[1]), dtype=np.int64)
        behind = self.first[start + far] - self.first[start]
        for tent in range(v.shape[1]):
            some = tent >= behind
            v[some, tent] = self.weights[start + far][some, tent - behind[some]]
        return u, v

    def own_squares(self) -> list[int]:
        """Return |T(u)|² for every position, whole numbers of any length."""
        return list((self.weights[: self.spacing].astype(object) ** 2).sum(axis=1))

    def squares(self, far: int) -> list[tuple[int, int, int]]:
        """Return |T(u)|², |T(v)|² and T(u)·T(v) of moves by `far` cells, each once: whole numbers of any length."""
        u, v = (end.astype(object) for end in self.ends(far))
        w = self.weights[far : far + len(u)].astype(object)
        return list(dict.fromkeys(zip((u * u).sum(axis=1), (w * w).sum(axis=1), (u * v).sum(axis=1), strict=True)))


def _over_intervals(own: Field, whole: Field, n: int) -> Field:
    """Return the mean of (a_j − a_i)(b_j − b_i) over edges i < j, from two sums: Σ a_i b_i, and Σ a_i Σ b_i."""
    return np.asarray(((n + 1) * own - whole) / (n * (n + 1) / 2))


@functools.lru_cache(maxsize=4)
def lattice(n: int, spacing: int, degree: int) -> Lattice:
    """Return the lattice, one for all axes and strategies that have the same."""
    return Lattice(n, spacing, degree)


def along(matrices: Sequence[Any], field: NDArray[Any]) -> NDArray[Any]:
    """Return one matrix for each of the first axes of a field, applied along it."""
    for axis, matrix in enumerate(matrices):
        cube = np.moveaxis(field, axis, 0)
        flat = matrix @ cube.reshape(len(cube), -1)
        field = np.moveaxis(flat.reshape(-1, *cube.shape[1:]), 0, axis)
    return field


def outer(factors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the outer product of one array per axis."""
    return np.asarray(functools.reduce(np.multiply.outer, factors))


def _spline(away: Whole, apart: int, degree: int) -> Whole:
    """Return the centred B-spline with knots so far apart, times `apart`, 8 apart² or 6 apart³, by its degree."""
    if degree == 1:
        return np.maximum(apart - away, 0)
    if degree == 2:
        return np.where(
            2 * away <= apart, 6 * apart**2 - 8 * away**2, np.maximum(3 * apart - 2 * away, 0) ** 2
        )
    inner = 4 * apart**3 - 6 * apart * away**2 + 3 * away**3
    return np.where(away <= apart, inner, np.maximum(2 * apart - away, 0) ** 3)


def largest_change(lattices: Sequence[Lattice], near: Neighbourhood) -> int:
    """Return the largest Σ |T(u) − T(v)| over the moves u → v, T the tents' weights over a cell.

    It does not fall where an end of a move lies further out, so that only the longest displacements count, from every
    position under the tents. Weights that add up to W over either end differ by 2 (W − Σ min(T(u), T(v))).
    """
    whole = math.prod(lattice.scale for lattice in lattices)
    least = whole
    for move in near.frontier.tolist():
        if any(d >= lattice.spacing * lattice.weights.shape[1] for d, lattice in zip(move, lattices, strict=True)):
            return 2 * whole  # no tent covers both ends
        ends = [lattice.ends(d) for lattice, d in zip(lattices, move, strict=True)]
        shared = np.zeros([len(u) for u, _ in ends], dtype=np.int64)
        for tent in np.ndindex(*(u.shape[1] for u, _ in ends)):
            here, there = (outer([both[end][:, i] for both, i in zip(ends, tent, strict=True)]) for end in (0, 1))
            shared += np.minimum(here, there)
        least = min(least, int(shared.min()))
    return 2 * (whole - least)


def largest_square(lattices: Sequence[Lattice], near: Neighbourhood) -> int:
    """Return the largest Σ (T(u) − T(v))² over the moves; a bound, 2 max |T(u)|², beyond MOST_PAIRS moves.

    It is |T(u)|² + |T(v)|² − 2 T(u)·T(v), each a product over the axes. Ends further out may cost less, so that all
    displacements count.
    """
    *first, last = lattices
    reach = near.reach.tolist()  # along the last axis, for each number of cells along the first one
    upto = np.cumsum([last.positions(d) for d in range(max(reach) + 1)])
    starts = [first[0].positions(d) if first else 1 for d in range(len(reach))]
    if sum(n * int(upto[far]) for n, far in zip(starts, reach, strict=True)) > MOST_PAIRS:
        return 2 * math.prod(max(lattice.own_squares()) for lattice in lattices)
    each = [last.squares(d) for d in range(max(reach) + 1)]
    most = 0
    for d, far in enumerate(reach):
        one = first[0].squares(d) if first else [(1, 1, 1)]
        other = list(dict.fromkeys(square for squares in each[: far + 1] for square in squares))
        sign = np.array([1.0, 1.0, -2.0])
        found = (np.array(one, dtype=np.float64) * sign) @ np.array(other, dtype=np.float64).T
        for i, j in np.argwhere(found >= found.max() - _FLOAT_ERROR * float(max(one)[0] * max(other)[0])):
            (a, b, c), (x, y, z) = one[i], other[j]
            most = max(most, a * x + b * y - 2 * c * z)
    return most


def largest_own_square(lattices: Sequence[Lattice], cells: NDArray[np.bool_]) -> int:
    """Return the largest |T(u)|² over some cells (domain.shape)."""
    own = [lattice.own_squares() for lattice in lattices]
    places = np.argwhere(cells) % [lattice.spacing for lattice in lattices]
    return max(
        math.prod(o[i] for o, i in zip(own, place, strict=True))
        for place in np.unique(places, axis=0).tolist()
    )
