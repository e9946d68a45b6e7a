"""How queries lie on the cells: which share of each cell they hold, and where in the cell that share lies."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.workloads.pieces import Pieces
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

        for start in range(0, len(self.cut), _AT_A_TIME):
            some = slice(start, start + _AT_A_TIME)
            pieces = [Pieces.of(low[some], high[some]) for low, high in self.spans]
            edges = [np.stack([p.first, p.first + 1, p.last, p.last + 1], axis=1) for p in pieces]
            if len(edges) == 1:
                before = np.take(prefix, edges[0], axis=0)
            else:
                before = np.take(prefix, edges[0][:, :, None] * rows + edges[1][:, None, :], axis=0)
            rule = "mi,mi->m" if len(edges) == 1 else "mij,mi,mj->m"
            kinds = {weight for _, weight in wanted}
            weights = {kind: [_weights(p, kind, axis) for axis, p in enumerate(pieces)] for kind in kinds}
            for found, (place, kind) in zip(out, wanted, strict=True):
                found[some] = np.einsum(rule, before[..., place], *weights[kind])
        return out


def _weights(pieces: Pieces, weight: Weight, axis: int) -> Field:
    """With which sums before both edges of the first and of the last cell enter (m, 4).

    A cell's weight enters at its end, less that at its start.
    """
    head = _weigh(weight, axis, pieces.head, 2 * pieces.before + pieces.head - 1)
    tail = _weigh(weight, axis, pieces.tail, pieces.tail - 1)
    inner = _weigh(weight, axis, np.ones(1), np.zeros(1))
    apart = pieces.apart
    columns = [-head, head - inner * apart, (inner - tail) * apart, tail * apart]
    return np.stack(columns, axis=1).astype(np.float64)


def _weigh(weight: Weight, axis: int, share: Field, place: Field) -> Field:
    if weight == AXES[axis]:
        return share * place
    if weight == "square":
        return share**2
    if weight == "whole":
        return (share == 1).astype(np.float64)
    return np.ones(len(share)) if weight == "touched" else share
