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
        out = np.empty((len(wanted), len(self.cut)))
        prefix = fields.prefix.reshape(-1, len(fields.values))
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
