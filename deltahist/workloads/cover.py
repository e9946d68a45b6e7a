"""How queries lie on the cells: which share of each cell they hold, and where in the cell that share lies."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist._parts import in_parts
from deltahist.workloads.sums import Span, aligned_spans, prefix_sums

Field: TypeAlias = NDArray[np.float64]
#: How a cell counts of which a query holds the share f: f, f², 1 if f is 1, 1, or f ξ with ξ the centroid of the part
#: inside along x or y, from the cell's centre, in half cells.
Weight: TypeAlias = Literal["share", "square", "whole", "touched", "x", "y"]
#: Of the places along each axis.
AXES: tuple[Weight, ...] = ("x", "y")
#: Boxes that are summed at a time: what is gathered for them stays near the processor.
_AT_A_TIME = 1 << 13


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
        shape = [n + 1 for n in self.values[0].shape]
        out = np.empty((*shape, len(self.values)))
        for place, field in enumerate(self.values):
            out[..., place] = prefix_sums(field)
        return out


class Cover(abc.ABC):
    """What m queries hold of the cells; `cut` (m,) says which queries cut cells."""

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
class RowCover(Cover):
    """Queries as sparse rows.

    Parameters
    ----------
    rows : (m, N) shares above 0.
    places : along each axis f ξ of every share in `rows.data`.
    """

    rows: scipy.sparse.csr_array
    places: tuple[Field, ...]

    @functools.cached_property
    def cut(self) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._sum(self.rows.data < 1, np.ones(self.rows.shape[1])) > 0

    @property
    def cut_share(self) -> Field:
        inside = self._sum(self.rows.data == 1, np.ones(self.rows.shape[1]))
        return 1 - inside / np.maximum(self.rows.sum(axis=1), np.finfo(float).tiny)

    def sums(self, fields: CellSums, *wanted: tuple[int, Weight]) -> list[Field]:
        return [self._sum(self._data(weight), fields.values[place].ravel()) for place, weight in wanted]

    def _data(self, weight: Weight) -> NDArray[np.float64] | NDArray[np.bool_]:
        share = self.rows.data
        if weight in AXES:
            return self.places[AXES.index(weight)]
        return {"share": share, "square": share**2, "whole": share == 1, "touched": share > 0}[weight]

    def _sum(self, data: NDArray[np.float64] | NDArray[np.bool_], values: Field) -> Field:
        rows = scipy.sparse.csr_array(
            (data.astype(np.float64, copy=False), self.rows.indices, self.rows.indptr), shape=self.rows.shape
        )
        return np.asarray(rows @ values)


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

    def sums(self, fields: CellSums, *wanted: tuple[int, Weight]) -> list[Field]:
        out = [np.empty(len(self.cut)) for _ in wanted]
        prefix = fields.prefix.reshape(-1, len(fields.values))
        rows = fields.prefix.shape[1] if len(self.spans) == 2 else 1

        def fill(some: slice) -> None:
            ends = [_Ends(low[some], high[some]) for low, high in self.spans]
            if len(ends) == 1:
                before = np.take(prefix, ends[0].edges, axis=0)
            else:
                before = np.take(prefix, ends[0].edges[:, :, None] * rows + ends[1].edges[:, None, :], axis=0)
            rule = "mi,mi->m" if len(ends) == 1 else "mij,mi,mj->m"
            kinds = {weight for _, weight in wanted}
            weights = {kind: [end.weights(kind, axis) for axis, end in enumerate(ends)] for kind in kinds}
            for found, (place, kind) in zip(out, wanted, strict=True):
                found[some] = np.einsum(rule, before[..., place], *weights[kind])

        in_parts(fill, len(self.cut), _AT_A_TIME)
        return out


class _Ends:
    """Intervals [low, high) of an axis as a first cell, whole cells after it, and a last one if it is another.

    `edges` (m, 4) are the edges of the first and of the last cell.
    """

    def __init__(self, low: Field, high: Field) -> None:
        first, last = np.floor(low), np.ceil(high) - 1
        self.edges = np.stack([first, first + 1, last, last + 1], axis=1).astype(np.int64)
        self._apart = last > first
        end = np.minimum(high, first + 1)
        # Of the first and of the last cell: the share inside, and its place.
        self._cells = [(end - low, low + end - 2 * first - 1), (high - last, high - last - 1)]

    def weights(self, weight: Weight, axis: int) -> Field:
        """With which the sums before the edges enter (m, 4): a cell's weight at its end, less that at its start."""
        head, tail = (self._weigh(weight, axis, *cell) for cell in self._cells)
        inner = self._weigh(weight, axis, np.ones(1), np.zeros(1))
        apart = self._apart
        columns = [-head, head - inner * apart, (inner - tail) * apart, tail * apart]
        return np.stack(columns, axis=1).astype(np.float64)

    @staticmethod
    def _weigh(weight: Weight, axis: int, share: Field, place: Field) -> Field:
        if weight == AXES[axis]:
            return share * place
        if weight == "square":
            return share**2
        if weight == "whole":
            return (share == 1).astype(np.float64)
        return np.ones(len(share)) if weight == "touched" else share
