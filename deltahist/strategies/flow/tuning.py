"""Tuning: which sums a flow measures, and how ε is shared among them, for a workload; public data alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import BlockPower
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Span, Workload
from deltahist.strategies.flow.entry import ARRIVALS, HUB_STRIPS, HUB_SUMS, HUBS
from deltahist.strategies.flow.lines import DIAGONAL, STRAIGHT, hats, sums_before, sums_on

if TYPE_CHECKING:
    from deltahist.strategies.flow.strategy import Flow

#: Boxes that stand for the workload; parts of a block in which their edges count.
_BOXES, _PARTS = 2000, 64
#: Widths that are tried, over the root of a line's length; how much wider a second level is; how many are refined.
_WIDTHS = (0.3, 0.45, 0.65, 0.85, 1.05, 1.25, 1.45, 1.7, 2.0, 2.5)
_TIMES = (5, 7, 10, 14)
_REFINED = 3
#: Lines shorter than this gain nothing from sums; a second level needs lines of so many borders.
_SHORT, _LONG = 16, 400
#: From so many blocks on a second level is usual.
_TWICE = 1500
_DIGITS = 1000
#: Lines from which on what their corners add is next to nothing.
_MOST_CORNERS = 400
#: Logarithms of a sum's share over what is left of a half: least and most.
_LOG_PARTS = (-4.0, 3.0)
#: Name of the sums' shares among those of all kinds.
SUMS = "sums"
#: What is left of an interval after each step: then one of two places inside is a place of the next step too.
_GOLDEN = (math.sqrt(5) - 1) / 2


def outermost(blocks: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which blocks (blocks, bool) are at the rim."""
    rim = np.ones(blocks, dtype=bool)
    rim[tuple(slice(1, -1) for _ in blocks)] = False
    return rim


class Sums(NamedTuple):
    """A flow's sums.

    widths : of each level. shares : of the groups, in order. cells : what of the budget is for the cells, and not for
    steps between blocks. error : mean variance over the workload.
    """

    widths: tuple[int, ...]
    shares: tuple[Fraction, ...]
    cells: float
    error: float


def boxes_of(workload: Workload | None, domain: Domain, number: int = _BOXES) -> Boxes:
    """Return boxes that stand for a workload, all ranges when None; boxes of their areas stand for regions."""
    if isinstance(workload, Regions):
        workload = workload.boxes()
    boxes = workload if isinstance(workload, Boxes) else AllRanges(domain).sample(_BOXES)
    return boxes.thinned(number)


def best_sums(flow: Flow, workload: Workload | None, norm: int) -> Sums:
    """Return the best widths of a flow's sums, and shares of its groups, for a workload.

    Parameters
    ----------
    flow : blocks and arrivals, and how sums are placed; its own widths and shares do not matter.
    workload : the queries; all ranges when None.
    norm : 1 for Laplace, 2 for Gaussian noise.
    """
    boxes = boxes_of(workload, flow.domain)
    spans = in_blocks(flow, boxes)
    of_cells = beside_blocks(flow, boxes, spans)
    edges = np.round(np.array(spans) * _PARTS) / _PARTS
    of_flows, sums, widths = _best_chain(flow.blocks, edges.tobytes(), norm, flow.centred)
    cells = 0.0 if flow.plain else _divide(of_flows, of_cells, norm)
    error = of_flows * noise_of(1 - cells, norm) / noise_of(1, norm)
    error += of_cells * noise_of(cells / 2, norm) if cells else 0.0
    return Sums(widths, _shares(flow, sums, cells, norm), cells, error)


@functools.lru_cache(maxsize=16)
def _best_chain(
    blocks: tuple[int, ...], edges: bytes, norm: int, centred: bool
) -> tuple[float, NDArray[np.float64], tuple[int, ...]]:
    """Return the least error of flows, with the shares and widths of sums; kept for other cells in the blocks.

    `edges` of boxes are in blocks: two arrays for each axis.
    """
    spans = [(low, high) for low, high in np.frombuffer(edges).reshape(len(blocks), 2, -1)]
    mean = MeanError(blocks, spans, norm, centred)
    # Shares are refined for the chains that are best at usual ones.
    chains = sorted(_chains(blocks), key=mean.at_usual_shares)
    found = [(*mean.best_shares(widths), widths) for widths in chains[:_REFINED]]
    return min(found, key=lambda f: (round(f[0], 9), f[2]))


def usual_widths(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return widths near the best for all ranges, from 64 to 4096 blocks a side; none in 1-D."""
    if len(blocks) == 1:
        return ()
    # A line along one axis exists where the other has two blocks.
    nx, ny = blocks
    longest = max(ny if nx > 1 else 0, nx if ny > 1 else 0)
    if longest < _SHORT:
        return ()
    if longest < _TWICE:
        return (round(1.5 * math.sqrt(longest)),)
    first = round(math.sqrt(longest) / 2)
    return (first, 10 * first)


def longest_move(near: Neighbourhood) -> tuple[int, ...]:
    """Return cells that a move within δ spans, per axis, at least one."""
    if near.domain.ndim == 1:
        return (max(1, int(near.reach[0])),)
    return (max(1, len(near.reach) - 1), max(1, int(near.reach[0])))


def blocks_reached(near: Neighbourhood, flow: Flow) -> str | tuple[int, ...] | None:
    """Return arrivals that a flow needs: the blocks that touch a source; "boundary" if they are the rim."""
    if near.fixed_membership or not near.source_cells.any():
        return None
    cells = np.nonzero(near.source_cells)
    assert isinstance(flow.block, tuple)
    block = np.unique(
        np.ravel_multi_index(tuple(c // b for c, b in zip(cells, flow.block, strict=True)), flow.blocks)
    )
    rim = np.flatnonzero(outermost(flow.blocks))
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


def _divide(flows: float, cells: float, norm: int) -> float:
    """Return the share s of the budget for cells that minimises the sum of both errors; a move changes two cells.

    f/(1 − s)² + 8 c/s² for Laplace noise, whose scale a share divides; f/(1 − s) + 2 c/s for Gaussian noise.
    """
    if norm == 1:
        a, b = flows ** (1 / 3), (8 * cells) ** (1 / 3)
    else:
        a, b = flows**0.5, (2 * cells) ** 0.5
    return min(max(b / (a + b), 0.01), 0.99)


def _shares(flow: Flow, sums: NDArray[np.float64], cells: float, norm: int) -> tuple[Fraction, ...]:
    """Return shares in the order of the strategy's groups; for Gaussian noise they are roots of shares of ρ."""
    both, rest = float(sums.sum()), 1 - cells
    out = [] if flow.plain else [cells / 2]
    out += [(1 - both) * rest]
    out += [] if len(flow.blocks) == 1 else [(1 - 2 * both) * rest, *(sums * rest)]
    out += [1 - cells / 2] if flow.arrivals is not None else []
    return tuple(_fraction(s if norm == 1 else s**0.5) for s in out)


def _fraction(value: float) -> Fraction:
    return max(Fraction(round(value * _DIGITS), _DIGITS), Fraction(1, _DIGITS))


@dataclass(frozen=True, eq=False)
class _Crossings:
    """Sides and stretches of a workload's boxes on the lines of one direction.

    A box draws from a line only where one of its sides lies on it, and asks there for the flow through the stretch of
    borders between its other two sides.

    Parameters
    ----------
    borders : on each line.
    ends : (m,) squared weights with which each box's two sides lie on lines.
    low, high : (m,) where the stretch begins and ends, in borders.
    """

    borders: int
    ends: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def at_edges(self) -> NDArray[np.bool_]:
        """Whether each box's stretch begins and ends at edges of borders (m,)."""
        return np.asarray((self.low == np.floor(self.low)) & (self.high == np.floor(self.high)))

    def asked_of_borders(self) -> float:
        """Return the mean over the boxes of |q|², for the stretch q of borders that a box asks for."""
        return float((self.ends * BlockPower(1, 2)(self.low, self.high)).mean())

    def asked_of_sums(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Θ q (m, p) for every box's stretch q: what the stretch holds of each sum."""
        before = np.zeros((self.borders + 1, len(theta)))
        np.cumsum(theta.T, axis=0, out=before[1:])
        return sums_before(before, self.high) - sums_before(before, self.low)

    def at_corners(
        self, theta: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how single moves just before, and just behind, a stretch's ends count in the estimate of it.

        The estimate is T + C (s − Θ T): a move at place p counts q_p − Σ_k weight_k Θ_kp, for weights Cᵀq (m, sums).
        """
        before, behind = np.zeros(len(self.low)), np.zeros(len(self.low))
        first, end, last = np.floor(self.low).astype(int), np.ceil(self.high).astype(int), self.borders - 1
        for edge, sign in ((first, 1.0), (end, -1.0)):
            inner = sign * ((edge > 0) & (edge <= last))
            for out, place in ((before, edge - 1), (behind, edge)):
                inside = (place >= first) & (place < end)
                out += inner * (inside - np.einsum("mk,mk->m", weight, theta.T[place.clip(0, last)]))
        return before, behind


class MeanError:
    """Mean variance over a workload's boxes of a flow's answers, as a function of its sums and their shares.

    The answer to a box is what its cells inside whole blocks add, and the flow through its sides. The flow through a
    stretch q of borders of a line has, with noise of variance v per border and W on the sums Θ, the variance
    v |q|² − v² (Θq)ᵀ (v Θ Θᵀ + W)⁻¹ Θq (least squares; `Lines`). The mean over boxes needs of them |q|² and
    the mean of Θq (Θq)ᵀ alone, which do not depend on the shares: they are made once for every choice of widths.

    Parameters
    ----------
    blocks : along each axis. spans : the workload, in blocks. norm : 1 for Laplace, 2 for Gaussian noise.
    centred : how sums are placed.
    """

    def __init__(self, blocks: tuple[int, ...], spans: Sequence[Span], norm: int, centred: bool) -> None:
        self.norm = norm
        ends = [_ends(low, high, n) for (low, high), n in zip(spans, blocks, strict=True)]
        self._on_a_line = float(ends[0].mean())
        crossings: list[_Crossings] = []
        if len(spans) == 2:
            (nx, ny), (x, y) = blocks, spans
            crossings = [_Crossings(ny, ends[0], *y), _Crossings(nx, ends[1], *x)]
        #: Mean over the boxes of |q|², both directions together.
        self._borders = sum(lines.asked_of_borders() for lines in crossings)
        # Directions with lines of one length have the same sums, so that what is asked of them adds up.
        self._sides, self._centred = crossings, centred
        self._with_corners = centred and max(blocks) < _MOST_CORNERS
        self._crossings = {
            n: [lines for lines in crossings if lines.borders == n] for n in {c.borders for c in crossings}
        }
        self._asked: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        self._blocks: dict[tuple[int, int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._diagonal: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def best_shares(self, widths: tuple[int, ...]) -> tuple[float, NDArray[np.float64]]:
        """Return the least error of flows with sums of these widths, and the sums' shares of a budget of one."""
        if not widths:
            return self.of_flows(widths, np.zeros(0)), np.zeros(0)
        parts, error = np.full(len(widths), -0.5), math.inf

        def along(level: int, part: float) -> float:
            parts[level] = part
            return self.of_flows(widths, _parts(parts))

        # One level after the other; two have little to do with each other, so that three rounds are enough.
        for _ in range(1 if len(widths) == 1 else 3):
            for level in range(len(widths)):
                error, parts[level] = lowest(functools.partial(along, level), *_LOG_PARTS, 0.04)
        return error, _parts(parts)

    def at_usual_shares(self, widths: tuple[int, ...]) -> float:
        """Return the mean variance of the flow through the boxes' sides, for sums with their usual shares."""
        return self.of_flows(widths, np.full(len(widths), float(usual_shares(len(widths))[SUMS])))

    def of_flows(self, widths: tuple[int, ...], shares: NDArray[np.float64]) -> float:
        """Return the mean variance of the flow through the boxes' sides."""
        each = noise_of(1 - shares.sum(), self.norm)
        if not self._crossings:
            return each * self._on_a_line
        each += 2 * noise_of(1 - 2 * shares.sum(), self.norm)  # two diagonals count at a border
        out = each * self._borders
        own = [noise_of(s, self.norm) for s in shares]
        for n in self._crossings:
            if len(widths) == 1:
                # With one level W is a multiple of 1: in the eigenvectors of Θ Θᵀ the inverse is a division.
                root, asked = self._decomposed(n, widths[0])
                out -= each**2 * float((asked / (each * root + own[0])).sum())
            elif widths:
                gram, asked = self._of_sums(n, widths)
                noise = np.repeat(own, [sums_on(n, w, self._centred) for w in widths])
                out -= each**2 * float(np.trace(np.linalg.solve(each * gram + np.diag(noise), asked)))
        return out + (self._of_corners(widths, shares) if self._with_corners else 0.0)

    def _of_corners(self, widths: tuple[int, ...], shares: NDArray[np.float64]) -> float:
        """Return the covariance of the sides where diagonal moves end at corners (docs/theory.md, section 5).

        Left out for sums that are not centred, which have always been chosen without, and along long lines, where it is
        next to nothing.
        """
        diagonal = noise_of(1 - 2 * shares.sum(), self.norm)
        each = noise_of(1 - shares.sum(), self.norm) + 2 * diagonal
        sides = []
        for lines in self._sides:
            n = lines.borders
            theta: NDArray[np.float64] = np.zeros((0, n))
            asked: NDArray[np.float64] = np.zeros((len(lines.low), 0))
            if widths:
                gram, _ = self._of_sums(n, widths)
                each_sum = [noise_of(s, self.norm) for s in shares]
                own = np.repeat(each_sum, [sums_on(n, w, self._centred) for w in widths])
                theta = np.concatenate([self._theta(n, w) for w in widths])
                known = self._crossings[n].index(lines)
                asked = np.concatenate([self._asked[n, w][known] for w in widths], axis=1)
                asked = np.asarray(np.linalg.solve(each * gram + np.diag(own), each * asked.T).T)
            sides.append(lines.at_corners(theta, asked))
        (x, (low_y, high_y)), (y, (low_x, high_x)) = (
            (lines.ends, side) for lines, side in zip(self._sides, sides, strict=True)
        )
        both = x * y + 2 * x * low_y + 2 * low_x * y + 2 * low_x * low_y - 2 * high_x * high_y
        # Boxes whose corners lie inside blocks ask for parts of moves: the product form is not theirs.
        whole = [lines.at_edges for lines in self._sides]
        return diagonal * float(np.where(whole[0] & whole[1], both, 0.0).mean())

    def _theta(self, n: int, width: int) -> NDArray[np.float64]:
        """Return weights of the sums (p, n) of one level."""
        return hats(n, width, self._centred) / (2 * width)

    def _decomposed(self, n: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return eigenvalues of Θ Θᵀ of one level, and the mean of (Θq)² along each eigenvector."""
        if (n, width) not in self._diagonal:
            gram, asked = self._of_sums(n, (width,))
            root, vectors = np.linalg.eigh(gram)
            self._diagonal[n, width] = root, np.einsum("ij,ij->j", vectors, asked @ vectors)
        return self._diagonal[n, width]

    def _of_sums(self, n: int, widths: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Θ Θᵀ and the mean over boxes of Θq (Θq)ᵀ (p, p), for these widths on n borders."""
        pairs = [[self._block(n, a, b) for b in widths] for a in widths]
        gram, asked = (np.block([[pair[i] for pair in row] for row in pairs]) for i in (0, 1))
        return gram, asked

    def _block(self, n: int, a: int, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the part of `_of_sums` for one level against another; every pair of levels is worked out once."""
        if a > b:
            gram, asked = self._block(n, b, a)
            return gram.T, asked.T
        if (n, a, b) not in self._blocks:
            theta = {w: self._theta(n, w) for w in (a, b)}
            for w in (a, b):
                if (n, w) not in self._asked:
                    self._asked[n, w] = [lines.asked_of_sums(theta[w]) for lines in self._crossings[n]]
            mean = np.zeros((len(theta[a]), len(theta[b])))
            for lines, one, other in zip(
                self._crossings[n], self._asked[n, a], self._asked[n, b], strict=True
            ):
                mean += (one * lines.ends[:, None]).T @ other / len(one)
            self._blocks[n, a, b] = theta[a] @ theta[b].T, mean
        return self._blocks[n, a, b]


def usual_shares(levels: int) -> dict[str, Fraction]:
    """Return shares that are near the best, by the kind of draws; `SUMS` stands for each level.

    About a quarter for the sums. straight + sums = diagonal + 2 · sums = 1: a diagonal move crosses two lines.
    """
    sums = Fraction(1, 4) if levels == 1 else Fraction(3, 10 * levels) if levels else Fraction(0)
    rest = 1 - sums * levels
    return {
        "cells": Fraction(1, 2),
        STRAIGHT: rest,
        DIAGONAL: 2 * rest - 1,
        SUMS: sums,
        ARRIVALS: Fraction(1),
        HUBS: Fraction(1),
        HUB_SUMS: Fraction(1, 2),
        HUB_STRIPS: Fraction(1, 2),
    }


def in_blocks(flow: Flow, boxes: Boxes) -> list[Span]:
    """Return boxes in blocks instead of cells, per axis."""
    out = []
    for span, n, start in zip(boxes.spans(flow.domain), flow.domain.shape, flow.starts, strict=True):
        cell, edge = np.append(start, n), np.arange(len(start) + 1.0)
        out.append((np.interp(span[0], cell, edge), np.interp(span[1], cell, edge)))
    return out


def beside_blocks(flow: Flow, boxes: Boxes, spans: Sequence[Span]) -> float:
    """Return the mean variance that cells of variance one add to their blocks' sums; `spans` are in blocks."""
    if flow.plain:
        return 0.0
    of_blocks = math.prod(
        BlockPower(1, 2)(*span) * (n / m) for span, n, m in zip(spans, flow.domain.shape, flow.blocks, strict=True)
    )
    of_cells = math.prod(BlockPower(1, 2)(*span) for span in boxes.spans(flow.domain))
    return max(0.0, float(np.mean(of_cells - of_blocks)))


def noise_of(share: float, norm: int) -> float:
    """Return the variance of noise with a share of a budget of one: of ε for Laplace noise, of ρ for Gaussian noise."""
    return 2 / share**2 if norm == 1 else 1 / share


def _parts(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares of the sums from free parameters: each above zero, together below a half."""
    weight = np.exp(x)
    return np.asarray(weight / (1 + weight.sum()) / 2)


def _ends(low: NDArray[np.float64], high: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return squared weights of the lines that an interval ends at; the domain's own ends are none."""
    out = np.zeros(len(low))
    for edge in (low, high):
        below = np.floor(edge)
        share = edge - below
        out += (1 - share) ** 2 * ((below > 0) & (below < n)) + share**2 * (below + 1 < n)
    return out


def lowest(function: Callable[[float], float], low: float, high: float, width: float) -> tuple[float, float]:
    """Return the least value of a function with one valley, and its place, by golden section to a width.

    >>> value, place = lowest(lambda x: (x - 2) ** 2 + 1, 0, 10, 1e-3)
    >>> round(value, 5), round(place, 2)
    (1.0, 2.0)
    """
    left, right = (
        (function(place), place) for place in (high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
    )
    while high - low > width:
        if left < right:
            high, right = right[1], left
            place = high - _GOLDEN * (high - low)
            left = function(place), place
        else:
            low, left = left[1], right
            place = low + _GOLDEN * (high - low)
            right = function(place), place
    return min(left, right)
