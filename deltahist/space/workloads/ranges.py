"""Workloads: the queries that people ask, as boxes and regions of the public space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, fits_memory, positive, whole
from deltahist.space.domain import Domain
from deltahist.space.workloads.cover import BoxCover, Span

#: All ranges of a domain are listed one by one up to this number.
MOST_LISTED = 5_000_000


@dataclass(frozen=True, eq=False)
class Boxes:
    """Axis-parallel boxes; a cell that a box cuts counts by the share of its area (2014, eq. (8)).

    Parameters
    ----------
    corners : (m, 4) west, south, east, north, or (m, 2) low, high in 1-D, in the domain's coordinates.

    >>> import deltahist as dh
    >>> work = dh.workloads.boxes([[0, 0, 2, 1], [1, 1, 2, 2]])
    >>> work.matrix(dh.Domain((0, 0, 2, 2), (2, 2))).toarray().tolist()
    [[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    corners: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.corners)

    def thinned(self, most: int) -> Boxes:
        """Return at most `most` of the boxes, evenly taken."""
        return self if len(self) <= most else Boxes(self.corners[:: -(-len(self) // most)])

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Intervals in cells along each axis, through whole lattice steps.

        Raises
        ------
        InputError
            If a box is reversed, empty or reaches outside the domain.
        """
        d = domain.ndim
        if self.corners.shape[1] != 2 * d:
            raise InputError(
                f"boxes have {self.corners.shape[1]} numbers each: it must be {2 * d} on a {d}-D domain"
            )
        steps, start, step = (np.array(each + each)[:, None] for each in (domain.steps, domain.low, domain.step))
        places = np.subtract(self.corners.T, start, order="C")
        places /= step
        np.rint(places, out=places)
        low, high = places[:d], places[d:]
        if not (low < high).all():
            self._refuse(~(low < high), "reversed or empty: it must be west < east and south < north")
        outside = (low < 0) | (high > np.array(domain.lattice_shape)[:, None])
        if outside.any():
            bounds = tuple(round(b, 6) for b in domain.bounds)
            self._refuse(outside, f"not inside the domain, whose bounds are {bounds}")
        places /= steps
        return tuple(zip(low, high, strict=True))

    def cover(self, domain: Domain) -> BoxCover:
        """Which share of each cell the boxes hold, and where in the cell; InputError as of `spans`."""
        return BoxCover(self.spans(domain))

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return the queries as explicit rows (m, N) of area shares."""
        fits_memory(16 * len(self) * domain.size, f"{len(self):,} explicit queries")
        shares = [
            _interval_shares(*span, n) for span, n in zip(self.spans(domain), domain.shape, strict=True)
        ]
        if domain.ndim == 1:
            return scipy.sparse.csr_array(shares[0])
        parts = [
            scipy.sparse.csr_array((x[:, :, None] * y[:, None, :]).reshape(len(x), -1))
            for x, y in zip(*(np.array_split(s, -(-len(self) // 512)) for s in shares), strict=True)
        ]
        return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))

    def _refuse(self, bad: NDArray[np.bool_], rule: str) -> NoReturn:
        """Raise InputError for the first box that breaks a rule along any axis (d, m)."""
        first = int(np.argmax(bad.any(axis=0)))
        box = ",".join(f"{v:.10g}" for v in self.corners[first])
        raise InputError(f"box {first} ({box}) is {rule}")


def boxes(corners: ArrayLike) -> Boxes:
    """Boxes from an array (m, 4) of west, south, east, north, or (m, 2) of low, high in 1-D.

    Raises InputError on another shape or on NaN or infinite corners.

    >>> len(boxes([[0, 0, 0.5, 0.5]]))
    1
    """
    array = np.atleast_2d(np.asarray(corners, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] not in (2, 4):
        raise InputError(f"boxes have shape {array.shape}: it must be (m, 4), or (m, 2) in 1-D")
    if not np.isfinite(array).all():
        raise InputError("boxes have NaN or infinite corners: all must be finite")
    return Boxes(array)


@dataclass(frozen=True)
class AllRanges:
    """Every box of whole cells, each once."""

    domain: Domain

    def __len__(self) -> int:
        return math.prod(n * (n + 1) // 2 for n in self.domain.shape)

    def intervals(self) -> tuple[Span, ...]:
        """All intervals along each axis; the ranges are their product."""
        out = []
        for n in self.domain.shape:
            first, last = np.triu_indices(n)
            out.append((first.astype(np.float64), last.astype(np.float64) + 1))
        return tuple(out)

    def spans(self, domain: Domain) -> tuple[Span, ...]:
        """Every range listed, x varying slowest; refused beyond five million."""
        same_domain(domain, self.domain)
        if len(self) > MOST_LISTED:
            raise InputError(
                f"there are {len(self):,} ranges: at most {MOST_LISTED:,} are listed one by one "
                "(take .sample(number, seed), or random_squares)"
            )
        intervals = self.intervals()
        if len(intervals) == 1:
            return intervals
        (a, b), (c, d) = intervals
        return ((np.repeat(a, len(c)), np.repeat(b, len(c))), (np.tile(c, len(a)), np.tile(d, len(a))))

    def sample(self, number: int, seed: int = 0) -> Boxes:
        """Ranges drawn uniformly, with replacement."""
        rng = np.random.default_rng(seed)
        low, high = [], []
        for axis, n in enumerate(self.domain.shape):
            rank = rng.integers(0, n * (n + 1) // 2, number)
            # The ranges that end at cell e are the e + 1 ranks from e (e + 1) / 2 on.
            end = ((np.sqrt(8.0 * rank + 1) - 1) // 2).astype(np.int64)
            end -= end * (end + 1) // 2 > rank
            start = rank - end * (end + 1) // 2
            edges = self.domain.edges(axis)
            low.append(edges[start])
            high.append(edges[end + 1])
        return Boxes(np.column_stack([*low, *high]))

    def cover(self, domain: Domain) -> BoxCover:
        """Return the cover of the ranges listed, which consist of whole cells."""
        return BoxCover(self.spans(domain))

    def matrix(self, domain: Domain) -> scipy.sparse.csr_array:
        """Return the queries as explicit rows (m, N)."""
        same_domain(domain, self.domain)
        fits_memory(16 * len(self) * domain.size, f"{len(self):,} explicit queries")
        axes = [
            scipy.sparse.csr_array(_interval_shares(*span, n))
            for span, n in zip(self.intervals(), domain.shape, strict=True)
        ]
        if domain.ndim == 1:
            return axes[0]
        return scipy.sparse.csr_array(scipy.sparse.kron(*axes, format="csr"))


def all_ranges(domain: Domain) -> AllRanges:
    """All boxes of whole cells: n (n + 1) / 2 in 1-D, the product over both axes in 2-D.

    >>> len(all_ranges(Domain((0, 1), (4,))))
    10
    """
    return AllRanges(domain)


def random_squares(
    side: float | str, number: int, domain: Domain, *, seed: int = 0, rng: np.random.Generator | None = None
) -> Boxes:
    """Squares (1-D: intervals) of a given side at uniform places inside the domain (2014, section 5.4.2).

    Parameters
    ----------
    side : in the domain's coordinates, or text in ground metres such as "2km".
    number : how many. seed, or rng : a seeded generator in its place, of the public choice of places.

    Raises
    ------
    InputError
        If the side is longer than the domain.
    """
    side = domain.length(side, name="side") if isinstance(side, str) else positive(side=side)
    number = whole(number=number)
    rng = np.random.default_rng(seed) if rng is None else rng
    low = []
    for lo, hi in zip(domain.low, domain.high, strict=True):
        if side > (hi - lo) * (1 + 1e-12):
            raise InputError(f"side is {side:g}: it must not be longer than the domain ({hi - lo:g})")
        low.append(lo + rng.random(number) * max(0.0, hi - lo - side))
    corner = np.column_stack(low)
    return Boxes(np.column_stack([corner, np.minimum(corner + side, domain.high)]))


def random_boxes(
    number: int, domain: Domain, *, seed: int = 0, rng: np.random.Generator | None = None
) -> Boxes:
    """Boxes (1-D: intervals) whose corners are uniform in the domain: ranges of any size, at any place.

    Parameters
    ----------
    number : how many. seed, or rng : a seeded generator in its place, of the public choice of places.

    >>> random_boxes(2_000, Domain((0, 0, 1, 1), (4, 4))).corners.mean(axis=0).round(1).tolist()
    [0.3, 0.3, 0.7, 0.7]
    """
    number = whole(number=number)
    low, high = np.array(domain.low), np.array(domain.high)
    rng = np.random.default_rng(seed) if rng is None else rng
    ends = np.sort(rng.random((2, number, domain.ndim)), axis=0)
    return Boxes(np.column_stack(list(low + ends * (high - low))))


def _interval_shares(low: NDArray[np.float64], high: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Share (m, n) of each cell that lies in [low, high)."""
    cell = np.arange(n)
    return np.maximum(np.minimum(high[:, None], cell + 1) - np.maximum(low[:, None], cell), 0.0)


def same_domain(domain: Domain, own: Domain) -> None:
    """Raise InputError unless all ranges belong to the domain in question."""
    if domain != own:
        raise InputError("all_ranges was made for another domain: make it from this one")


def range_gram(domain: Domain) -> NDArray[np.float64]:
    """V = QᵀQ (N, N) for all ranges: how many ranges hold each pair of cells."""
    fits_memory(16 * domain.size**2, "the Gram matrix of all ranges")
    out = np.ones((1, 1))
    for n in domain.shape:
        i = np.arange(n)
        out = np.kron(out, (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i)))
    return out
