"""Strategies that count sets of cells (Identity, ShiftedGrids and CutAugmented), and the base class of all grids."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Asked, Decoder, Moments, PlainDecoder
from deltahist.decode.forms import BlockPower, BoxFunction, FloatArray, SumOfProducts
from deltahist.errors import InputError, check_memory, check_whole
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, RegionCover, Span, Workload, aligned_spans, range_gram
from deltahist.strategies.base import Group, Starts, Strategy, read_numbers, read_shares, spread_blocks, sum_blocks


class Grids(Strategy):
    """A list of grids that each divide the cells into boxes, with one row for every box.

    A move costs 2 · share for each grid with a line between its two ends, because one box loses a point and another box
    gains it. An arrival costs the sum of all shares. The sensitivity is the largest cost (2014, section 5.3).
    """

    shares: tuple[Fraction, ...] | None
    #: For each grid and axis, the first cells of the blocks, increasing from 0.
    starts: tuple[Starts, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _ = self.groups  # raises InputError if shares are invalid

    @functools.cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The number of boxes along each axis, for each grid."""
        return tuple(tuple(len(s) for s in starts) for starts in self.starts)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        return (sum(math.prod(b) for b in self.blocks), self.domain.size)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        ends = np.cumsum([0, *(math.prod(b) for b in self.blocks)]).tolist()
        shares = read_shares(self.shares, len(self.starts), "grid")
        every = zip(self.names, ends[:-1], ends[1:], shares, strict=True)
        return tuple(Group(name, slice(low, high), share) for name, low, high, share in every)

    @property
    def determines_cells(self) -> bool:  # type: ignore[override]
        lines = [np.concatenate([s[axis] for s in self.starts]) for axis in range(self.domain.ndim)]
        if self.domain.ndim == 1:  # each cumulative count up to a line is a sum of answers
            return len(np.unique(lines[0])) == self.domain.size
        return self.domain.shape in self.blocks

    def matrix(self) -> scipy.sparse.csr_array:
        rows, first = [], 0
        for starts, blocks in zip(self.starts, self.blocks, strict=True):
            axes = zip(starts, self.domain.shape, strict=True)
            places = [np.searchsorted(s, np.arange(n), side="right") - 1 for s, n in axes]
            rows.append(first + np.ravel_multi_index(np.ix_(*places), blocks).ravel())
            first += math.prod(blocks)
        ends = np.concatenate(rows), np.tile(np.arange(self.domain.size), len(rows))
        return scipy.sparse.csr_array((np.ones(len(ends[0]), dtype=np.int64), ends), shape=self.shape)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        cube = X.reshape(*self.domain.shape, -1)
        return np.concatenate([sum_blocks(cube, starts).reshape(-1, cube.shape[-1]) for starts in self.starts])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((*self.domain.shape, X.shape[1]), dtype=X.dtype)
        for group, starts, blocks in zip(self.groups, self.starts, self.blocks, strict=True):
            out += spread_blocks(X[group.members].reshape(*blocks, -1), starts, self.domain.shape)
        return out.reshape(self.domain.size, -1)

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction:
        weights, denominator = self.whole_shares
        weight = np.array([w**norm for w in weights], dtype=object)
        most = int(weight.sum()) if near.source_cells.any() else 0
        crossable = [any(len(s[axis]) > 1 for axis in range(self.domain.ndim)) for s in self.starts]
        bound = 2 * int(weight[crossable].sum())
        # A longer move crosses all lines that a shorter move crosses, so it is enough to try the frontier.
        for move in near.frontier:
            if most >= bound:
                break
            most = max(most, 2 * self._heaviest_crossing(move.tolist(), weight))
        return Fraction(most, denominator**norm)

    def _heaviest_crossing(self, move: list[int], weight: NDArray[Any]) -> int:
        """Return the largest total weight of grids with a line between the two ends of a move."""
        crossed = []  # for each axis, the distinct sets of grids that a step of this length can cross
        for axis, length in enumerate(move):
            first = np.arange(self.domain.shape[axis] - length)
            lines = [np.searchsorted(s[axis], [first, first + length], side="right") for s in self.starts]
            packed = np.unique(np.packbits([before < after for before, after in lines], axis=0).T, axis=0)
            crossed.append(np.unpackbits(packed, axis=1, count=len(self.starts)).astype(bool))
        if len(crossed) == 3:  # the sets that a step along either of two axes can cross
            either = (crossed[0][:, None] | crossed.pop()[None]).reshape(-1, len(self.starts))
            crossed[0] = np.unique(either, axis=0)
        if len(crossed) == 1:  # treat a line as a plane with one row of cells
            crossed.append(np.zeros((1, len(self.starts)), dtype=bool))
        if weight.sum() >= 1 << 52:  # floats would not be exact, so use Python's integers
            return int(max(weight[a | b].sum() for a in crossed[0] for b in crossed[1]))
        x, y, w = crossed[0].astype(float), crossed[1].astype(float), weight.astype(float)
        return int(((x @ w)[:, None] + (y @ w)[None, :] - (x * w) @ y.T).max())


@dataclass(frozen=True, eq=False)
class Identity(Grids):
    """One row per cell: I_n (2014, section 5.1, Table 1, section 5.4.1). A move of any length costs 2.

    >>> import numpy as np
    >>> (Identity(Domain((0, 1), (3,))) @ np.array([4, 0, 2])).tolist()
    [4, 0, 2]
    """

    domain: Domain
    shares: ClassVar[None] = None  # type: ignore[misc]
    texts: ClassVar[tuple[str, ...]] = ("identity",)
    on_graphs: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("cells",)  # type: ignore[misc]

    @functools.cached_property
    def starts(self) -> tuple[Starts, ...]:  # type: ignore[override]
        return (tuple(np.arange(n) for n in self.domain.shape),)

    def decoder_class(self) -> type[Decoder]:
        return CellsDecoder

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        yield "Identity", cls(near.domain)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return X

    _rmatmat = _matmat


@dataclass(frozen=True, eq=False)
class ShiftedGrids(Grids):
    """Overlapping grids of one or more widths, no two of which share a line (2014, section 5.3).

    A move that is not longer than the distance between lines crosses at most one line per axis, and that line is in
    only one grid. So the move costs at most 4 in 2-D and 2 in 1-D, for any number of grids.

    The paper has `m` grids with blocks of `width` cells, each shifted by `shift` cells along both axes from the
    previous grid. m defaults to ⌊width / shift⌋. With the paper's m = ⌈width / shift⌉, lines of the first and last
    grids may be less than `shift` apart. A move by `shift` that crosses both lines would cost 6 (4 in 1-D).

    Parameters
    ----------
    width, shift, m : the paper's parameters, in cells.
    widths, offsets : alternatively, each grid's width and offset in cells, for lines at offset, offset + width, ...

    Raises InputError if two grids share a line, or if neither set of parameters is complete.

    >>> A = ShiftedGrids(Domain((0, 0, 1, 1), (6, 6)), width=3, shift=1)
    >>> A.blocks
    ((2, 2), (3, 3), (3, 3))
    >>> ShiftedGrids(Domain((0, 1), (8,)), widths=(2, 4, 8), offsets=(1, 2, 4)).shape
    (10, 8)
    """

    domain: Domain
    width: int | None = None
    shift: int | None = None
    m: int | None = None
    widths: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None
    shares: ClassVar[None] = None  # type: ignore[misc]
    texts: ClassVar[tuple[str, ...]] = ("shifted:width,shift[,m]", "dyadic[:spacing]")

    def __post_init__(self) -> None:
        super().__post_init__()
        n = max(self.domain.shape)
        lines, times = np.unique(np.concatenate([_place_lines(*grid, n) for grid in self.grids]), return_counts=True)
        if (times > 1).any():
            raise InputError(f"several grids have a line at cell {lines[times > 1][0]}: no two grids may share a line")

    @functools.cached_property
    def grids(self) -> tuple[tuple[int, int], ...]:
        """The width and offset of each grid."""
        paper, widths, offsets = (self.width, self.shift, self.m), self.widths, self.offsets
        if widths and offsets and len(widths) == len(offsets) and paper == (None,) * 3:
            pairs = zip(widths, offsets, strict=True)
            return tuple((check_whole(widths=width), check_whole(least=0, offsets=offset)) for width, offset in pairs)
        if self.width is None or self.shift is None or widths is not None or offsets is not None:
            raise InputError("ShiftedGrids requires width and shift (m is optional), or as many widths as offsets")
        width, shift = check_whole(width=self.width), check_whole(shift=self.shift)
        m = check_whole(m=self.m if self.m is not None else max(1, width // shift))
        return tuple((width, shift * i) for i in range(m))

    @functools.cached_property
    def starts(self) -> tuple[Starts, ...]:  # type: ignore[override]
        return tuple(tuple(np.append(0, _place_lines(*grid, n)) for n in self.domain.shape) for grid in self.grids)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"blocks of {width} cells a side, shifted by {offset}" for width, offset in self.grids)

    def describe(self) -> dict[str, Any]:
        # Use only widths and offsets, so that equal strategies have equal descriptions.
        widths, offsets = map(list, zip(*self.grids, strict=True))
        return {"strategy": type(self).__name__, "widths": widths, "offsets": offsets}

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> ShiftedGrids:
        if text.startswith("dyadic"):
            return dyadic_grids(near.domain, *(read_numbers(text, 1) or [max(1, int(near.reach.max()))]))
        return cls(near.domain, *read_numbers(text, 3))  # type: ignore[arg-type]


def _place_lines(width: int, offset: int, n: int) -> NDArray[np.int64]:
    """Return a grid's lines inside an axis of n cells. The width and offset may exceed n."""
    return np.arange(min(offset % width or width, n), n, min(width, n), dtype=np.int64)


def dyadic_grids(domain: Domain, delta_cells: int) -> ShiftedGrids:
    """Return grids of widths 2δ, 4δ, 8δ, … with lines at odd multiples of δ, 2δ, 4δ, … respectively."""
    spacing = check_whole(delta_cells=delta_cells)
    widths, offsets = [2 * spacing], [spacing]
    while widths[-1] < max(domain.shape):
        offsets.append(widths[-1])
        widths.append(2 * widths[-1])
    return ShiftedGrids(domain, widths=tuple(widths), offsets=tuple(offsets))


class CellsDecoder(PlainDecoder):
    """Decode cells that have the same noise, with errors in closed form."""

    def box_cumulant(self, order: int) -> SumOfProducts:
        law, n = self.laws[0], float(self.domain.size)
        if order == 4:
            return [(law.kurtosis() * law.variance() ** 2, CentralFourth(n if self.total_known else math.inf))]
        own: SumOfProducts = [(law.variance(), (BlockPower(1, 2),) * self.domain.ndim)]
        # A `BlockPower` with the whole axis as one block is the squared length of an interval.
        squared = tuple(BlockPower(cells, 2) for cells in self.domain.shape)
        return [*own, (-law.variance() / n, squared)] if self.total_known else own

    def moments(self, work: Asked) -> Moments:
        """Return errors. For a region with shares f of cells, use the sums of (f − Σ f / n)² and (f − Σ f / n)⁴."""
        if not isinstance(work, RegionCover):
            return super().moments(work)
        area, law = np.bincount(work.whole, (work.high - work.low).prod(axis=1), work.number), self.laws[0]
        cut = (np.bincount(work.owner, work.share**power, work.number) for power in range(1, 5))
        powers = [np.asarray(area + each, dtype=np.float64) for each in cut]
        left = _compute_central_sums(powers, float(self.domain.size) if self.total_known else math.inf)
        return self._moments_of(law.variance() * left[0], law.kurtosis() * law.variance() ** 2 * left[1])

    def draws_summed(self, spans: Sequence[Span], variance: NDArray[np.float64]) -> NDArray[np.float64]:
        cells = np.ones(len(variance))
        for low, high in spans:
            cells *= high - low
        out = np.where(aligned_spans(spans), cells, 0.0)
        if self.total_known:
            # Adjusting estimates to the total subtracts a share of the noise of all cells. An answer's noise is close
            # to a whole number only if this share is well below one point.
            share = cells / self.domain.size
            spread = np.sqrt(self.laws[0].variance() * self.domain.size) * share
            out[(spread > 0.25) | (4 * share * np.sqrt(variance) > 0.25)] = 0.0
        return out


@dataclass(frozen=True)
class CentralFourth(BoxFunction):
    """Σ (q_i − s / n)⁴ over n cells, where q_i is a box's share of cell i and s = Σ q_i (Σ q_i⁴ for infinite n)."""

    size: float

    def __call__(self, spans: Sequence[Span]) -> NDArray[np.float64]:
        powers = [math.prod((BlockPower(1, power)(*span) for span in spans), start=np.ones(1)) for power in range(1, 5)]
        return _compute_central_sums(powers, self.size)[1]


def _compute_central_sums(powers: Sequence[FloatArray], size: float) -> tuple[FloatArray, FloatArray]:
    """Return Σ (q − s / n)² and Σ (q − s / n)⁴ over n cells, given the sums s = Σ q, Σ q², Σ q³ and Σ q⁴."""
    first, second, third, fourth = powers
    mean = first / size
    return second - mean * first, fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**3 * first


@dataclass(frozen=True, eq=False)
class CutAugmented(Strategy):
    """Binary rows, defined as sets of cells. `CutAugmented.greedy` finds good sets (2014, section 5.3).

    Parameters
    ----------
    sets : a tuple of flat cell indices for each row.

    >>> A = CutAugmented(Domain((0, 1), (3,)), sets=((0, 1), (2,)))
    >>> A.matrix().toarray().tolist()
    [[1, 1, 0], [0, 0, 1]]
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]
    on_graphs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        size = self.domain.size
        for row in self.sets or ((),):
            if size > 4096 or not row or min(row) < 0 or max(row) >= size or len(set(row)) < len(row):
                raise InputError(
                    f"sets has {row[:5]}...: rows need distinct cells from 0 to {size - 1}, and domains at most 4,096"
                )

    @classmethod
    def greedy(cls, base: Strategy, near: Neighbourhood, gram: NDArray[np.float64] | None = None) -> CutAugmented:
        """Extend a base strategy: repeatedly add the box that helps a workload most without raising the sensitivity.

        Parameters
        ----------
        base : a strategy with equal shares and rows of 0 and 1. Its rows come first.
        near : the neighbourhood that determines the sensitivity.
        gram : V = QᵀQ (N, N) of the workload Q (all ranges by default).

        Raises InputError if the base is not binary, or if the boxes do not fit in memory.
        """
        domain = near.domain
        boxes = math.prod(n * (n + 1) // 2 for n in domain.shape)
        check_memory(16 * boxes * domain.size, f"the greedy algorithm with {boxes:,} boxes (try ShiftedGrids)")
        rows = base.matrix().toarray()
        if not np.isin(rows, (0, 1)).all() or any(g.share != base.groups[0].share for g in base.groups):
            raise InputError(f"base is {base.name}: its rows must contain only 0 and 1, and have equal shares")
        choice = AllRanges(domain).matrix(domain).toarray().astype(np.int64)
        added = choose_greedy_rows(rows, near.incidence(), choice, range_gram(domain) if gram is None else gram)
        return cls(domain, tuple(tuple(np.flatnonzero(r).tolist()) for r in (*rows, *choice[added])))

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        domain = near.domain
        ranges = math.prod(n * (n + 1) // 2 for n in domain.shape)
        if ranges * domain.size**2 <= 40_000_000:
            rows = None if isinstance(workload, AllRanges) else workload.matrix(domain)
            gram = None if rows is None else (rows.T @ rows).toarray()
            yield "CutAugmented (cells)", cls.greedy(Identity(domain), near, gram)

    @functools.cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        ends = np.cumsum([0, *(len(row) for row in self.sets)])
        cells = np.concatenate([np.array(row) for row in self.sets])
        return scipy.sparse.csr_array((np.ones(len(cells), dtype=np.int64), cells, ends), shape=self.shape)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        return (len(self.sets), self.domain.size)

    @functools.cached_property
    def determines_cells(self) -> bool:  # type: ignore[override]
        return bool(np.linalg.matrix_rank(self._matrix.toarray()) == self.domain.size)

    def matrix(self) -> scipy.sparse.csr_array:
        return self._matrix

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._matrix @ X)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._matrix.T @ X)


def choose_greedy_rows(
    rows: NDArray[np.int64], incidence: scipy.sparse.csc_array, candidates: NDArray[np.int64], gram: NDArray[np.float64]
) -> list[int]:
    """Return the indices of candidates (c, N) in the order in which the greedy algorithm adds them to the rows (k, N).

    A candidate fits if it raises no edge's cut above the largest cut of `rows`. While any candidate fits, the algorithm
    adds the fitting one that lowers tr(V M⁻¹) most, where M = AᵀA. By Sherman and Morrison, a row r lowers tr(V M⁻¹) by
    r M⁻¹ V M⁻¹ rᵀ / (1 + r M⁻¹ rᵀ). Source: 2014, section 5.3.
    """
    cuts = np.abs(rows @ incidence).sum(axis=0)
    limit = cuts.max(initial=0)
    cut_by = np.abs(scipy.sparse.csr_array(candidates) @ incidence).tocsr()
    # A small prior precision keeps the gains finite until the rows determine all cells.
    factor = scipy.linalg.cho_factor(rows.T @ rows + 1e-6 * np.eye(rows.shape[1]))
    inverse = scipy.linalg.cho_solve(factor, np.eye(rows.shape[1]))
    # A row may be added several times, to average out its noise.
    alive = np.ones(len(candidates), dtype=bool)
    added: list[int] = []
    while True:
        alive &= (cut_by @ (cuts >= limit).astype(np.int64)) == 0
        # A row that cuts no edge measures public data.
        fits = np.flatnonzero(alive & (np.diff(cut_by.indptr) > 0))
        if not len(fits):
            return added
        reach = candidates[fits] @ inverse
        spent = 1 + np.einsum("ij,ij->i", reach, candidates[fits])
        best = int(np.argmax(np.einsum("ij,ij->i", reach @ gram, reach) / spent))
        added.append(int(fits[best]))
        inverse -= np.outer(reach[best], reach[best]) / spent[best]
        cuts = cuts + cut_by[[fits[best]]].toarray()[0]
