"""How queries lie on the cells: which share of each cell they hold, and where in the cell that share lies."""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.space.workloads.pieces import Pieces
from deltahist.space.workloads.sums import Span, aligned_spans, prefix_sums

Field: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
#: How a cell counts of which a query holds the share f: f, f², 1 if f is 1, 1, or f ξ with ξ the centroid of the part
#: inside along x or y, from the cell's centre, in half cells.
Weight: TypeAlias = Literal["share", "square", "whole", "touched", "x", "y"]
#: Of the places along each axis.
AXES: tuple[Weight, ...] = ("x", "y")
#: Boxes that are summed at a time: what is gathered for them stays near the processor.
_AT_A_TIME = 1 << 12


class CellSums:
    """Fields of cells, whose sums over boxes are made ready once.

    Parameters
    ----------
    values : fields (domain.shape).
    """

    def __init__(self, *values: Field) -> None:
        self.values = values

    @functools.cached_property
    def prefix(self) -> Field:
        """Sums from the low corner up to every cell edge; what belongs to one edge is side by side (edges, fields)."""
        return prefix_sums(*self.values)


class Cover(abc.ABC):
    """Parts of the cells inside m queries; `cut` (m,) says which queries cut cells."""

    cut: NDArray[np.bool_]

    @abc.abstractmethod
    def sums(self, fields: CellSums, *wanted: tuple[int, Weight]) -> list[Field]:
        """Σ weight · field over all cells (m,), for each of the fields and weights that are wanted."""

    @property
    @abc.abstractmethod
    def cut_share(self) -> Field:
        """Share of each query's area that lies in cells that it cuts (m,)."""

    def shares(self, values: Field) -> Field:
        """Σ f · values (m,)."""
        return self.sums(CellSums(values), (0, "share"))[0]


@dataclass(frozen=True, eq=False)
class RegionCover(Cover):
    """Queries by the cells that they cut, and by rectangles of cells that they hold whole.

    Parameters
    ----------
    number : of the queries. shape : of the grid.
    owner, x, y : (k,) query and cell of each cell that is cut, sorted by query. share : of the cell that is held.
    places : along each axis f ξ of every share; none where they are not wanted.
    whole, low, high : query (r,) and corners (r, 2) of each rectangle, sorted by query.
    """

    number: int
    shape: tuple[int, ...]
    owner: Index
    x: Index
    y: Index
    share: Field
    places: tuple[Field, ...]
    whole: Index
    low: Index
    high: Index

    @classmethod
    def of_rows(cls, rows: scipy.sparse.csr_array, shape: tuple[int, ...]) -> RegionCover:
        """Make the cover of queries (m, N) on a grid, every cell by itself."""
        owner, none = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), np.zeros((0, 2), dtype=np.int64)
        x, y = np.divmod(rows.indices, shape[1])
        return cls(rows.shape[0], shape, owner, x, y, rows.data, (), none[:, 0], none, none)

    @functools.cached_property
    def rows(self) -> scipy.sparse.csr_array:
        """The shares (m, N), every cell by itself."""
        wide, tall = (self.high - self.low).T
        column = counted(wide)
        rectangle = np.repeat(np.arange(len(wide)), wide)
        tall = tall[rectangle]
        cell = (self.low[rectangle, 0] + column) * self.shape[1] + self.low[rectangle, 1]
        cells = np.concatenate([self.x * self.shape[1] + self.y, np.repeat(cell, tall) + counted(tall)])
        owner = np.concatenate([self.owner, np.repeat(self.whole[rectangle], tall)])
        share = np.concatenate([self.share, np.ones(len(cells) - len(self.share))])
        rows = scipy.sparse.csr_array((share, (owner, cells)), shape=(self.number, math.prod(self.shape)))
        rows.sort_indices()
        return rows

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.bincount(self.owner, minlength=self.number) > 0

    @property
    def cut_share(self) -> Field:
        cut = np.bincount(self.owner, self.share, self.number)
        inside = np.bincount(self.whole, (self.high - self.low).prod(axis=1), self.number)
        return np.asarray(1 - inside / np.maximum(cut + inside, np.finfo(float).tiny))

    def sums(self, fields: CellSums, *wanted: tuple[int, Weight]) -> list[Field]:
        prefix, cell = fields.prefix, self.x * self.shape[1] + self.y
        (west, south), (east, north) = self.low.T, self.high.T
        inside = prefix[east, north] - prefix[west, north] - prefix[east, south] + prefix[west, south]
        values = {place: fields.values[place].ravel()[cell] for place, _ in wanted}
        out = []
        for place, weight in wanted:
            found = np.bincount(self.owner, self._weighed(values[place], weight), self.number).astype(np.float64)
            if weight not in AXES:
                found += np.bincount(self.whole, inside[:, place], self.number)
            out.append(found)
        return out

    def _weighed(self, values: Field, weight: Weight) -> Field:
        if weight in AXES:
            return values * self.places[AXES.index(weight)]
        if weight == "touched":
            return values
        return np.zeros_like(values) if weight == "whole" else values * _weigh(self.share, weight)


def counted(numbers: Index) -> Index:
    """0, 1, ... up to each number, one number after the other."""
    return np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)


def explicit(work: Any) -> Any:
    """Return the queries of a region's cover as rows (m, N); other queries unchanged."""
    return work.rows if isinstance(work, RegionCover) else work


@dataclass(frozen=True, eq=False)
class BoxCover(Cover):
    """Boxes, by prefix sums: along each axis at most a first and a last cell are cut, and those between are whole.

    Parameters
    ----------
    spans : along each axis, in cells.
    """

    spans: tuple[Span, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:  # type: ignore[override]
        return ~aligned_spans(self.spans)

    @property
    def cut_share(self) -> Field:
        inside = np.ones(len(self.cut))
        for low, high in self.spans:
            inside *= np.maximum(np.floor(high) - np.ceil(low), 0.0) / (high - low)
        return 1 - inside

    def listed(self, shape: tuple[int, int]) -> RegionCover:
        """Return the same by the cells that are cut, one by one, on a grid."""
        starts, ends = zip(*self.spans, strict=True)
        touched, inner = (
            [(rounded(low).astype(np.int64), other(high).astype(np.int64)) for low, high in self.spans]
            for rounded, other in ((np.floor, np.ceil), (np.ceil, np.floor))
        )
        owners, cells = [], []
        # Columns that are cut, over all rows; then rows that are cut, where columns are not.
        for axis, (first, last) in enumerate((touched[1], inner[0])):
            (begin, end), (after, before) = touched[axis], inner[axis]
            for cell, cut in ((begin, begin < after), (end - 1, (before < end) & (after < end))):
                length = np.where(cut, np.maximum(last - first, 0), 0)
                owner = np.repeat(np.arange(len(cut)), length)
                place = cell[owner], first[owner] + counted(length)
                owners.append(owner)
                cells.append(place[:: 1 - 2 * axis])
        owner, (x, y) = np.concatenate(owners), (np.concatenate(each) for each in zip(*cells, strict=True))
        if len(self.cut) > 1:
            order = np.argsort(owner, kind="stable")
            owner, x, y = owner[order], x[order], y[order]
        shares, centroids = [], []
        for low, high, cell in zip(starts, ends, (x, y), strict=True):
            near, far = np.maximum(low[owner], cell), np.minimum(high[owner], cell + 1)
            shares.append(far - near)
            centroids.append((far - near) * (near + far - 2 * cell - 1))
        whole = np.flatnonzero(np.logical_and(*(first < last for first, last in inner)))
        low, high = (np.stack([each[whole] for each in ends], axis=1) for ends in zip(*inner, strict=True))
        places = centroids[0] * shares[1], shares[0] * centroids[1]
        return RegionCover(len(self.cut), shape, owner, x, y, shares[0] * shares[1], places, whole, low, high)

    def sums(self, fields: CellSums, *wanted: tuple[int, Weight]) -> list[Field]:
        out = np.empty((len(wanted), len(self.cut)))
        prefix = fields.prefix.reshape(-1, fields.prefix.shape[-1])
        row = fields.prefix.shape[1] if len(self.spans) == 2 else 1

        for start in range(0, len(self.cut), _AT_A_TIME):
            some = slice(start, start + _AT_A_TIME)
            pieces = [Pieces.of(low[some], high[some]) for low, high in self.spans]
            x, *y = (np.stack([p.first, p.first + 1, p.last, p.last + 1]) for p in pieces)
            before = np.take(prefix, x[:, None] * row + y[0] if y else x, axis=0)
            rule = "im,jm,ijm->m" if y else "im,im->m"
            known: dict[tuple[int, str], Field] = {}
            for found, (place, kind) in zip(out, wanted, strict=True):
                factors = [(axis, _along(axis, kind)) for axis in range(len(pieces))]
                for axis, along in factors:
                    if (axis, along) not in known:
                        known[axis, along] = _weights(pieces[axis], along)
                np.einsum(rule, *(known[factor] for factor in factors), before[..., place], out=found[some])
        return list(out)


def _along(axis: int, weight: Weight) -> str:
    """Return what a weight is along one axis: a centroid along the other axis is weighed by the share."""
    if weight not in AXES:
        return weight
    return "centroid" if weight == AXES[axis] else "share"


def _weights(pieces: Pieces, along: str) -> Field:
    """Return the weights of the sums before both edges of the first and of the last cell (4, m).

    A cell's weight enters at its end, less that at its start.
    """
    head, tail, inner = _weigh(pieces.head, along), _weigh(pieces.tail, along), 1.0
    if along == "centroid":
        # What is held of the first cell is at its end, what is held of the last one at its start.
        head, tail, inner = head * (2 * pieces.before + pieces.head - 1), tail * (pieces.tail - 1), 0.0
    apart = pieces.apart
    return np.stack([-head, head - inner * apart, (inner - tail) * apart, tail * apart])


def _weigh(share: Field, along: str) -> Field:
    if along == "square":
        return share**2
    if along == "whole":
        return (share == 1).astype(np.float64)
    return np.ones(len(share)) if along == "touched" else share
