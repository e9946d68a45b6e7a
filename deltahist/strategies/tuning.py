"""Tuning: which sums a flow measures, and how ε is shared among them, for a workload; public data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from deltahist.strategies.flow import Flow
from deltahist.strategies.lines import hats, sums_on
from deltahist.workloads import AllRanges, Boxes

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.workloads.polygons import Regions

#: Boxes that stand for the workload.
_BOXES = 2000
#: Widths that are tried, over the root of a line's length; how much wider a second level is; how many are refined.
_WIDTHS = (0.3, 0.45, 0.65, 0.85, 1.05, 1.25, 1.45, 1.7, 2.0, 2.5)
_TIMES = (5, 7, 10, 14)
_REFINED = 3
#: Lines shorter than this gain nothing from sums; a second level needs lines of so many borders.
_SHORT, _LONG = 16, 400
_DIGITS = 1000


def tuned(
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions | None = None,
    *,
    norm: int = 1,
    block: int | tuple[int, ...] | None = None,
) -> Flow:
    """The flow strategy with the least expected error on a workload, over the sums and shares that are tried.

    Parameters
    ----------
    near : the neighbourhood; decides which blocks have arrivals.
    work : the queries; all ranges when None (regions count as all ranges).
    norm : 1 for Laplace, 2 for Gaussian noise.
    block : cells per side; the longest move within δ when None.

    Raises
    ------
    InputError
        If the domain is a single block.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64)
    >>> tuned(near).widths
    (14,)
    """
    domain = near.domain
    if block is None:
        block = longest_move(near)
    plain = Flow(domain, block, ())
    arrivals = _arrivals(near, plain)
    boxes = work if isinstance(work, Boxes) else AllRanges(domain).sample(_BOXES)
    if len(boxes) > _BOXES:
        boxes = Boxes(boxes.corners[:: -(-len(boxes) // _BOXES)])
    figures = _Figures(plain, boxes)
    # Shares are refined for the chains that are best at usual ones.
    chains = sorted(
        _chains(plain.blocks), key=lambda widths: figures.error(widths, _usual(len(widths)), norm)
    )
    found = [(*figures.best_sums(widths, norm), widths) for widths in chains[:_REFINED]]
    flow_error, sums, widths = min(found, key=lambda f: (round(f[0], 9), f[2]))
    cells = 0.0 if plain.plain else _divide(flow_error, figures.cells, norm)
    return Flow(domain, block, widths, _shares(plain, sums, cells, norm, arrivals is not None), arrivals)


def longest_move(near: Neighbourhood) -> tuple[int, ...]:
    """Cells that a move within δ spans, per axis, at least one."""
    if near.domain.ndim == 1:
        return (max(1, int(near.reach[0])),)
    return (max(1, len(near.reach) - 1), max(1, int(near.reach[0])))


def _arrivals(near: Neighbourhood, flow: Flow) -> str | tuple[int, ...] | None:
    if near.fixed_membership or not near.source_cells.any():
        return None
    cells = np.nonzero(near.source_cells)
    assert isinstance(flow.block, tuple)
    block = np.unique(
        np.ravel_multi_index(tuple(c // b for c, b in zip(cells, flow.block, strict=True)), flow.blocks)
    )
    rim = Flow(flow.domain, flow.block, (), arrivals="boundary").entries
    return "boundary" if np.array_equal(block, rim) else tuple(block.tolist())


def _chains(blocks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield ()
    longest = max(blocks)
    if len(blocks) == 1 or longest < _SHORT:
        return
    tried = sorted({max(2, round(times * math.sqrt(longest))) for times in _WIDTHS})
    for width in tried:
        if 2 * width <= longest:
            yield (width,)
            if longest >= _LONG and width < math.sqrt(longest):
                yield from ((width, width * times) for times in _TIMES if 2 * width * times <= longest)


#: Low and high ends of intervals.
_Ranges = tuple[NDArray[np.float64], NDArray[np.float64]]


class _Figures:
    """Means over the workload of what variances are made of."""

    def __init__(self, flow: Flow, boxes: Boxes) -> None:
        self.flow = flow
        self.spans = []
        shared = np.ones(len(boxes))
        inside = np.ones(len(boxes))
        for (low, high), n, start in zip(
            boxes.spans(flow.domain), flow.domain.shape, flow.starts, strict=True
        ):
            cell, edge = np.append(start, n), np.arange(len(start) + 1.0)
            self.spans.append((np.interp(low, cell, edge), np.interp(high, cell, edge)))
            shared *= _squares(*self.spans[-1], 1) * (n / len(start))
            inside *= _squares(low, high, 1)
        #: Variance that cells add beside their blocks' sums, for a variance of one per cell.
        self.cells = 0.0 if flow.plain else max(0.0, float((inside - shared).mean()))
        self.ends = [_ends(low, high, n) for (low, high), n in zip(self.spans, flow.blocks, strict=True)]
        self._sums: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._grams: dict[tuple[int, tuple[int, ...]], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def _directions(
        self,
    ) -> list[tuple[int, NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """Lines along each axis: borders, squared weights of the lines that boxes use, and ranges on them."""
        if len(self.spans) == 1:
            return []
        nx, ny = self.flow.blocks
        return [(ny, self.ends[0], self.spans[1]), (nx, self.ends[1], self.spans[0])]

    def _on_boxes(self, direction: int, width: int) -> NDArray[np.float64]:
        """Θ q (boxes, sums) of one level for the boxes' ranges q."""
        if (direction, width) not in self._sums:
            n, _, (low, high) = self._directions()[direction]
            theta = hats(n, width) / (2 * width)
            before = np.concatenate([np.zeros((len(theta), 1)), theta.cumsum(axis=1)], axis=1)
            edge = np.arange(n + 1.0)
            self._sums[direction, width] = np.array(
                [np.interp(high, edge, b) - np.interp(low, edge, b) for b in before]
            ).T
        return self._sums[direction, width]

    def best_sums(self, widths: tuple[int, ...], norm: int) -> tuple[float, NDArray[np.float64]]:
        """Least flow error with sums of these widths, and their shares, the whole budget being one."""
        if not widths:
            return self.error(widths, np.zeros(0), norm), np.zeros(0)
        found = scipy.optimize.minimize(
            lambda x: self.error(widths, _parts(x), norm),
            np.full(len(widths), -0.5),
            method="Nelder-Mead",
            options={"xatol": 1e-2, "fatol": 1e-5, "maxfev": 60},
        )
        return float(found.fun), _parts(found.x)

    def error(self, widths: tuple[int, ...], shares: NDArray[np.float64], norm: int) -> float:
        """Mean variance of the flow through the boxes' sides.

        On a line, with noise of variance v per border: v |q|² − v² (Θq)ᵀ (v Θ Θᵀ + W)⁻¹ Θq.
        """
        leaf = _noise(1 - shares.sum(), norm)
        if len(self.spans) == 1:
            return leaf * float(self.ends[0].mean())
        leaf += 2 * _noise(1 - 2 * shares.sum(), norm)
        total = 0.0
        for direction, (n, ends, (low, high)) in enumerate(self._directions()):
            total += leaf * float((ends * _squares(low, high, 1)).mean())
            if widths:
                key = (direction, widths)
                if key not in self._grams:
                    theta = np.concatenate([hats(n, w) / (2 * w) for w in widths])
                    asked = np.concatenate([self._on_boxes(direction, w) for w in widths], axis=1)
                    weighted = (asked * ends[:, None]).T @ asked / len(ends)
                    self._grams[key] = (theta @ theta.T, weighted)
                gram, weighted = self._grams[key]
                own = np.repeat([_noise(s, norm) for s in shares], [sums_on(n, w) for w in widths])
                total -= leaf**2 * float(np.trace(np.linalg.solve(leaf * gram + np.diag(own), weighted)))
        return total


def _usual(levels: int) -> NDArray[np.float64]:
    """Shares that are near the best for sums of so many levels."""
    return np.full(levels, 0.25 if levels == 1 else 0.3 / max(levels, 1))


def _parts(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of the sums from free parameters: each above zero, together below a half."""
    weight = np.exp(x)
    return np.asarray(weight / (1 + weight.sum()) / 2)


def _noise(share: float, norm: int) -> float:
    """Variance of noise that gets a share of a budget of one: of ε for Laplace noise, of ρ for Gaussian noise."""
    return 2 / share**2 if norm == 1 else 1 / share


def _divide(flows: float, cells: float, norm: int) -> float:
    """Share of the budget for cells that minimises the sum of both errors; a move changes two cells."""
    if norm == 1:
        a, b = flows ** (1 / 3), (8 * cells) ** (1 / 3)
    else:
        a, b = flows**0.5, (2 * cells) ** 0.5
    return min(max(b / (a + b), 0.01), 0.99)


def _shares(
    flow: Flow, sums: NDArray[np.float64], cells: float, norm: int, arrivals: bool
) -> tuple[Fraction, ...]:
    """Shares in the order of the strategy's groups; for Gaussian noise they are roots of shares of ρ."""
    both, rest = float(sums.sum()), 1 - cells
    out = [] if flow.plain else [cells / 2]
    out += [(1 - both) * rest]
    out += [] if len(flow.blocks) == 1 else [(1 - 2 * both) * rest, *(sums * rest)]
    out += [1 - cells / 2] if arrivals else []
    return tuple(_fraction(s if norm == 1 else s**0.5) for s in out)


def _fraction(value: float) -> Fraction:
    return max(Fraction(round(value * _DIGITS), _DIGITS), Fraction(1, _DIGITS))


def _squares(low: NDArray[np.float64], high: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Σ over stretches of `width` of (length of the interval inside)²."""
    first, last = np.floor(low / width), np.ceil(high / width) - 1
    cut = ((first + 1) * width - low) ** 2 + (high - last * width) ** 2
    inner = np.maximum(last - first - 1, 0.0) * float(width) ** 2
    return np.where(first >= last, (high - low) ** 2, cut + inner)


def _ends(low: NDArray[np.float64], high: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Squared weights of the lines that an interval ends at; the domain's own ends are none."""
    out = np.zeros(len(low))
    for edge in (low, high):
        below = np.floor(edge)
        share = edge - below
        out += (1 - share) ** 2 * ((below > 0) & (below < n)) + share**2 * (below + 1 < n)
    return out
