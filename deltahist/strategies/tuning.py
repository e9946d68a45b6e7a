"""Tuning: which sums a flow measures, and how ε is shared among them, for a workload; public data alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies.mean_error import Blocked, MeanError, beside_blocks, in_blocks, noise_of
from deltahist.workloads import AllRanges, Boxes, Regions, Workload

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


def outermost(blocks: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which blocks (blocks, bool) are at the rim."""
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
    """Boxes that stand for a workload, all ranges when None; boxes of their areas stand for regions."""
    if isinstance(workload, Regions):
        workload = workload.boxes()
    boxes = workload if isinstance(workload, Boxes) else AllRanges(domain).sample(_BOXES)
    return boxes.thinned(number)


def best_sums(flow: Blocked, workload: Workload | None, norm: int) -> Sums:
    """Widths of the sums of a flow, and the shares of its groups, with the least expected error on a workload.

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
    """The least error of flows, with the shares and widths of the sums; kept for cells of other sizes in the blocks.

    `edges` are those of boxes in blocks: two arrays for each axis.
    """
    spans = [(low, high) for low, high in np.frombuffer(edges).reshape(len(blocks), 2, -1)]
    mean = MeanError(blocks, spans, norm, centred)
    # Shares are refined for the chains that are best at usual ones.
    chains = sorted(_chains(blocks), key=mean.at_usual_shares)
    found = [(*mean.best_shares(widths), widths) for widths in chains[:_REFINED]]
    return min(found, key=lambda f: (round(f[0], 9), f[2]))


def usual_widths(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Widths near the best for all ranges, from 64 to 4096 blocks a side; none in 1-D, where there are no lines."""
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
    """Cells that a move within δ spans, per axis, at least one."""
    if near.domain.ndim == 1:
        return (max(1, int(near.reach[0])),)
    return (max(1, len(near.reach) - 1), max(1, int(near.reach[0])))


def blocks_reached(near: Neighbourhood, flow: Blocked) -> str | tuple[int, ...] | None:
    """Arrivals that a flow needs: the blocks that touch a source; "boundary" if they are the rim."""
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
    """Share s of the budget for cells that minimises the sum of both errors; a move changes two cells.

    f/(1 − s)² + 8 c/s² for Laplace noise, whose scale a share divides; f/(1 − s) + 2 c/s for Gaussian noise.
    """
    if norm == 1:
        a, b = flows ** (1 / 3), (8 * cells) ** (1 / 3)
    else:
        a, b = flows**0.5, (2 * cells) ** 0.5
    return min(max(b / (a + b), 0.01), 0.99)


def _shares(flow: Blocked, sums: NDArray[np.float64], cells: float, norm: int) -> tuple[Fraction, ...]:
    """Shares in the order of the strategy's groups; for Gaussian noise they are roots of shares of ρ."""
    both, rest = float(sums.sum()), 1 - cells
    out = [] if flow.plain else [cells / 2]
    out += [(1 - both) * rest]
    out += [] if len(flow.blocks) == 1 else [(1 - 2 * both) * rest, *(sums * rest)]
    out += [1 - cells / 2] if flow.arrivals is not None else []
    return tuple(_fraction(s if norm == 1 else s**0.5) for s in out)


def _fraction(value: float) -> Fraction:
    return max(Fraction(round(value * _DIGITS), _DIGITS), Fraction(1, _DIGITS))
