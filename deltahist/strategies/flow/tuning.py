"""Tuning: which sums and hubs a flow measures, and how ε is shared among them, for a workload; public data alone."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import BlockPower, FloatArray, cumulate_rows, interpolate_sums, sum_intervals
from deltahist.space.cover import Pieces, Span
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Regions, Workload
from deltahist.strategies.flow.decoder import estimated_flow
from deltahist.strategies.flow.lines import Lines, hats, sums_on
from deltahist.strategies.flow.noise import (
    ARRIVALS,
    DIAGONAL,
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    STRAIGHT,
    Hubs,
)

if TYPE_CHECKING:
    from deltahist.strategies.flow import Flow

#: Boxes that stand for the workload, and where hubs are chosen; parts of a block in which their edges count.
_BOXES, _HUB_BOXES, _PARTS = 2000, 500, 64
#: Widths that are tried, over the root of a line's length; how much wider a second level is; how many are refined.
_WIDTHS = (0.3, 0.45, 0.65, 0.85, 1.05, 1.25, 1.45, 1.7, 2.0, 2.5)
_TIMES = (5, 7, 10, 14)
_REFINED = 3
#: Lines shorter than this gain nothing from sums; a second level needs lines of so many borders.
_SHORT, _LONG = 16, 400
#: From so many blocks on a second level is usual.
_TWICE = 1500
#: Lines from which on what their corners add is next to nothing.
_MOST_CORNERS = 400
#: Logarithms of a sum's share over what is left of a half: least and most.
_LOG_PARTS = (-4.0, 3.0)
#: Name of the sums' shares among the shares of all kinds.
SUMS = "sums"
#: What is left of an interval after each step: then one of two places inside is a place of the next step too.
_GOLDEN = (math.sqrt(5) - 1) / 2
#: Distances between sums of hubs that are tried, in hubs; sums along an axis at most.
_HUB_WIDTHS, _MOST_SUMS = (4, 5, 6, 8, 12, 18, 27, 40), 256
#: Hubs at most, where fewer will do: one in every cell of 4096 × 4096 lowers the error by a seventh (90, not 106), but
#: publishing then takes half as much again, and boxes five times as long.
_MOST_HUBS = 2048**2
#: Of the first of two levels; how much further apart the second is; from how many hubs along an axis on it is tried.
_NEAR, _HUB_TIMES, _MANY_HUBS = (12, 18, 27), (10, 16), 1200
#: Numbers that products of waves over boxes may take.
_WORK = 4_000_000
#: Shares of hubs that are tried beside those that just meet a limit.
_TRIED = 60


def best_flow(near: Neighbourhood, flow: Flow, workload: Workload | None, norm: int) -> dict[str, Any]:
    """Return parameters of the flow that keeps a neighbourhood's limits with the least expected error on a workload.

    Moves within δ take a step, which costs one, so that noise on borders is as without limits; moves through hubs cost
    2 (steps to a hub + share of a hub). Where that is more than a limit all noise is scaled, and the error with it: the
    share of the hubs makes the best of both. Blocks and arrivals, and how sums are placed, are the given flow's.
    """
    sums = _best_sums(flow, workload, norm)
    found: dict[str, Any] = {"widths": sums.widths, "shares": sums.shares}
    found |= {"arrivals": flow.arrivals, "centred": flow.centred}
    if not near.profile:
        return found
    limits = _limits_of(near, flow, norm)
    mean = MeanHubError(flow, boxes_of(workload, flow.domain, _HUB_BOXES), norm, near.fixed_membership)
    least = sums.error * _scale(limits, sums.cells, 0.0, math.inf) ** (2 / norm)
    plain = [mean.without_sums(spacing) for spacing in _spacings(limits, flow)]
    plain.sort(key=lambda hubs: _best_share(hubs, sums, limits, norm)[0])
    for hubs in [*plain, *(hubs for each in plain[:_REFINED] for hubs in mean.with_sums(each.spacing))]:
        error, share = _best_share(hubs, sums, limits, norm)
        if error < least:
            least = error
            # Rounded down to thousandths, so that limits are kept.
            own = tuple(
                Fraction(max(1, math.floor((share * part) ** (1 / norm) * 1000 + 1e-9)), 1000) for part in hubs.shares
            )
            found |= {"shares": sums.shares + own, "hubs": hubs.spacing, "hub_widths": hubs.widths}
            found |= {"hub_strips": len(own) > 2}
    return found


# -- what is usual, and what a neighbourhood asks for ----------------------------------------------------------


def usual_widths(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return widths near the best for all ranges, from 64 to 4096 blocks a side; none in 1-D."""
    # A line along one axis exists where the other has two blocks.
    longest = max(n if m > 1 else 0 for n, m in (blocks, blocks[::-1])) if len(blocks) == 2 else 0
    if longest < _SHORT:
        return ()
    if longest < _TWICE:
        return (round(1.5 * math.sqrt(longest)),)
    first = round(math.sqrt(longest) / 2)
    return (first, 10 * first)


def usual_shares(levels: int) -> dict[str, Fraction]:
    """Return shares that are near the best, by the kind of draws; `SUMS` stands for each level.

    About a quarter for the sums. straight + sums = diagonal + 2 · sums = 1: a diagonal move crosses two lines.
    """
    sums = Fraction(1, 4) if levels == 1 else Fraction(3, 10 * levels) if levels else Fraction(0)
    rest = 1 - sums * levels
    halves = dict.fromkeys(("cells", HUB_SUMS, HUB_STRIPS), Fraction(1, 2))
    return halves | {STRAIGHT: rest, DIAGONAL: 2 * rest - 1, SUMS: sums, ARRIVALS: Fraction(1), HUBS: Fraction(1)}


def longest_move(near: Neighbourhood) -> tuple[int, ...]:
    """Return cells that a move within δ spans, per axis, at least one."""
    if near.domain.ndim == 1:
        return (max(1, int(near.reach[0])),)
    return (max(1, len(near.reach) - 1), max(1, int(near.reach[0])))


def outermost(blocks: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which blocks (blocks, bool) are at the rim."""
    rim = np.ones(blocks, dtype=bool)
    rim[tuple(slice(1, -1) for _ in blocks)] = False
    return rim


def blocks_reached(near: Neighbourhood, flow: Flow) -> str | tuple[int, ...] | None:
    """Return arrivals that a flow needs: the blocks that touch a source; "boundary" if they are the rim."""
    if near.fixed_membership or not near.source_cells.any():
        return None
    cells = np.nonzero(near.source_cells)
    block = np.unique(np.ravel_multi_index(tuple(c // b for c, b in zip(cells, flow.sides, strict=True)), flow.blocks))
    rim = np.flatnonzero(outermost(flow.blocks))
    return "boundary" if np.array_equal(block, rim) else tuple(block.tolist())


# -- sums along lines ------------------------------------------------------------------------------------------


class _BestSums(NamedTuple):
    """A flow's sums: widths and shares of the groups, in order; the share of cells, and the mean variance."""

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


def _best_sums(flow: Flow, workload: Workload | None, norm: int) -> _BestSums:
    """Return the best widths of a flow's sums, and shares of its groups, for a workload."""
    boxes = boxes_of(workload, flow.domain)
    spans = _in_blocks(flow, boxes)
    edges = np.round(np.array(spans) * _PARTS) / _PARTS
    error, sums, widths = _best_chain(flow.blocks, edges.tobytes(), norm, flow.centred)
    cells = 0.0
    if not flow.plain:
        of_cells = _beside_blocks(flow, boxes, spans)
        # The share s of the budget for cells that minimises the sum of both errors; a move changes two cells.
        # f/(1 − s)² + 8 c/s² for Laplace noise, whose scale a share divides; f/(1 − s) + 2 c/s for Gaussian noise.
        power, times = (1 / 3, 8) if norm == 1 else (1 / 2, 2)
        a, b = error**power, (times * of_cells) ** power
        cells = min(max(b / (a + b), 0.01), 0.99)
        error = error * noise_of(1 - cells, norm) / noise_of(1, norm) + of_cells * noise_of(cells / 2, norm)
    both, rest = float(sums.sum()), 1 - cells
    shares = [] if flow.plain else [cells / 2]
    shares += [(1 - both) * rest]
    shares += [] if len(flow.blocks) == 1 else [(1 - 2 * both) * rest, *(sums * rest)]
    shares += [1 - cells / 2] if flow.arrivals is not None else []
    # For Gaussian noise they are roots of shares of ρ.
    exact = (max(Fraction(round(s ** (1 / norm) * 1000), 1000), Fraction(1, 1000)) for s in shares)
    return _BestSums(widths, tuple(exact), cells, error)


@functools.lru_cache(maxsize=16)
def _best_chain(
    blocks: tuple[int, ...], edges: bytes, norm: int, centred: bool
) -> tuple[float, FloatArray, tuple[int, ...]]:
    """Return the least error of flows, with the shares and widths of sums; kept for other cells in the blocks.

    `edges` of boxes are in blocks: two arrays for each axis.
    """
    spans = [(low, high) for low, high in np.frombuffer(edges).reshape(len(blocks), 2, -1)]
    mean = MeanError(blocks, spans, norm, centred)
    # Shares are refined for the chains that are best at usual ones.
    chains = sorted(_chains(blocks), key=mean.at_usual_shares)
    found = [(*mean.best_shares(widths), widths) for widths in chains[:_REFINED]]
    return min(found, key=lambda f: (round(f[0], 9), f[2]))


def _chains(blocks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield ()
    longest = max(blocks)
    if len(blocks) == 1 or longest < _SHORT:
        return
    for width in sorted({max(2, round(times * math.sqrt(longest))) for times in _WIDTHS}):
        if 2 * width <= longest:
            yield (width,)
            if longest >= _LONG and width < math.sqrt(longest):
                yield from ((width, width * times) for times in _TIMES if 2 * width * times <= longest)


class MeanError:
    """Mean variance over a workload's boxes of a flow's answers, as a function of its sums and their shares.

    The answer to a box is what its cells inside whole blocks add, and the flow through its sides. The flow through a
    stretch q of borders of a line has, with noise of variance v per border and W on the sums Θ, the variance
    v |q|² − v² (Θq)ᵀ (v Θ Θᵀ + W)⁻¹ Θq (least squares; `Lines`). The mean over boxes needs of them |q|² and
    the mean of Θq (Θq)ᵀ alone, which do not depend on the shares: they are made once for every choice of widths.
    Workload and widths are in blocks.
    """

    def __init__(self, blocks: tuple[int, ...], spans: Sequence[Span], norm: int, centred: bool) -> None:
        self.norm, self.centred = norm, centred
        ends = [_ends(low, high, n) for (low, high), n in zip(spans, blocks, strict=True)]
        self._on_a_line = float(ends[0].mean())
        #: For the lines along y, and along x: their borders, squared weights of the lines on which each box's sides
        #: lie, and the stretch of borders between its other two sides.
        self._sides = list(zip(blocks[::-1], ends, spans[::-1], strict=True)) if len(spans) == 2 else []
        #: Mean over the boxes of |q|², both directions together.
        self._borders = sum(float((own * BlockPower(1, 2)(*span)).mean()) for _, own, span in self._sides)
        self._with_corners = centred and max(blocks) < _MOST_CORNERS
        self._level, self._pair = functools.cache(self._find_level), functools.cache(self._find_pair)

    def best_shares(self, widths: tuple[int, ...]) -> tuple[float, FloatArray]:
        """Return the least error of flows with sums of these widths, and the sums' shares of a budget of one."""
        if not widths:
            return self.of_flows(widths, np.zeros(0)), np.zeros(0)
        parts, error = np.full(len(widths), -0.5), math.inf

        def along(level: int, part: float) -> float:
            parts[level] = part
            return self.of_flows(widths, _shares_of(parts))

        # One level after the other; two have little to do with each other, so that three rounds are enough.
        for _ in range(1 if len(widths) == 1 else 3):
            for level in range(len(widths)):
                error, parts[level] = lowest(functools.partial(along, level), *_LOG_PARTS, 0.04)
        return error, _shares_of(parts)

    def at_usual_shares(self, widths: tuple[int, ...]) -> float:
        """Return the mean variance of the flow through the boxes' sides, for sums with their usual shares."""
        return self.of_flows(widths, np.full(len(widths), float(usual_shares(len(widths))[SUMS])))

    def of_flows(self, widths: tuple[int, ...], shares: FloatArray) -> float:
        """Return the mean variance of the flow through the boxes' sides."""
        each = noise_of(1 - shares.sum(), self.norm)
        if not self._sides:
            return each * self._on_a_line
        diagonal = noise_of(1 - 2 * shares.sum(), self.norm)
        each += 2 * diagonal  # two diagonals count at a border
        out, own = each * self._borders, [noise_of(s, self.norm) for s in shares]
        for n in {n for n, _, _ in self._sides} if widths else ():
            pairs = [[self._pair(n, a, b) for b in widths] for a in widths]
            gram, asked = (np.block([[pair[i] for pair in row] for row in pairs]) for i in (0, 1))
            noise = np.repeat(own, [sums_on(n, w, self.centred) for w in widths])
            out -= each**2 * float(np.trace(np.linalg.solve(each * gram + np.diag(noise), asked)))
        return out + (self._of_corners(widths, each, diagonal, own) if self._with_corners else 0.0)

    def _of_corners(self, widths: tuple[int, ...], each: float, diagonal: float, own: list[float]) -> float:
        """Return the covariance of the sides where diagonal moves end at corners (docs/internals/theory.md, section 5).

        Left out for sums that are not centred, which have always been chosen without, and along long lines, where it is
        next to nothing. Boxes whose corners lie inside blocks ask for parts of moves: the product form is not theirs.
        """
        parts, whole = [], True
        for n, ends, (low, high) in self._sides:
            line = Lines(n, widths, each, 0.0, tuple(own), self.centred)
            parts.append(
                [
                    ends,
                    *(form.evaluate_pieces(Pieces.of(low, high)) for form in estimated_flow(line, each, 0.0, own)[1:]),
                ]
            )
            whole = whole & (low == np.floor(low)) & (high == np.floor(high))
        (x, low_y, high_y), (y, low_x, high_x) = parts
        both = x * y + 2 * x * low_y + 2 * low_x * y + 2 * low_x * low_y - 2 * high_x * high_y
        return diagonal * float(np.where(whole, both, 0.0).mean())

    def _find_level(self, n: int, width: int) -> tuple[FloatArray, list[FloatArray]]:
        """Return Θ (p, n) of one level on n borders, and Θ q (m, p) for the stretches there."""
        theta = hats(n, width, self.centred) / (2 * width)
        before = cumulate_rows(theta.T)
        stretches = [span for m, _, span in self._sides if m == n]
        return theta, [sum_intervals(before, *stretch) for stretch in stretches]

    def _find_pair(self, n: int, a: int, b: int) -> tuple[FloatArray, FloatArray]:
        """Return Θ Θᵀ and the mean over boxes of Θq (Θq)ᵀ for one level against another."""
        if a > b:
            gram, asked = self._pair(n, b, a)
            return gram.T, asked.T
        (one, ones), (other, others) = self._level(n, a), self._level(n, b)
        ends = [own for m, own, _ in self._sides if m == n]
        means = [(x * own[:, None]).T @ y / len(x) for x, y, own in zip(ones, others, ends, strict=True)]
        return one @ other.T, np.sum(means, axis=0)


def _in_blocks(flow: Flow, boxes: Boxes) -> list[Span]:
    """Return boxes in blocks instead of cells, per axis."""
    out = []
    for span, n, start in zip(boxes.spans(flow.domain), flow.domain.shape, flow.starts, strict=True):
        cell, edge = np.append(start, n), np.arange(len(start) + 1.0)
        out.append((np.interp(span[0], cell, edge), np.interp(span[1], cell, edge)))
    return out


def _beside_blocks(flow: Flow, boxes: Boxes, spans: Sequence[Span]) -> float:
    """Return the mean variance that cells of variance one add to their blocks' sums; `spans` are in blocks."""
    of_blocks = math.prod(
        BlockPower(1, 2)(*span) * (n / m) for span, n, m in zip(spans, flow.domain.shape, flow.blocks, strict=True)
    )
    of_cells = math.prod(BlockPower(1, 2)(*span) for span in boxes.spans(flow.domain))
    return max(0.0, float(np.mean(of_cells - of_blocks)))


def noise_of(share: float, norm: int) -> float:
    """Return the variance of noise with a share of a budget of one: of ε for Laplace noise, of ρ for Gaussian noise."""
    return 2 / share**2 if norm == 1 else 1 / share


def _shares_of(x: FloatArray) -> FloatArray:
    """Return shares of the sums from free parameters: each above zero, together below a half."""
    weight = np.exp(x)
    return np.asarray(weight / (1 + weight.sum()) / 2)


def _ends(low: FloatArray, high: FloatArray, n: int) -> FloatArray:
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
    left, right = ((function(place), place) for place in (high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)))
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


# -- hubs ------------------------------------------------------------------------------------------------------


#: A limit as a flow sees it: borders that its moves cross at most, and a factor of the budget, as shares count.
_Limit: TypeAlias = tuple[int, float]


class _HubChoice(NamedTuple):
    """Hubs that may be taken: blocks between them, hubs between sums, by level, and their mean variance.

    Of the hubs' share, which is one, `shares` are for their own noise, for sums, and for strips, if any.
    """

    spacing: int
    widths: tuple[int, ...]
    shares: tuple[float, ...]
    error: float


def _limits_of(near: Neighbourhood, flow: Flow, norm: int) -> list[_Limit]:
    """Return the limits that hold for moves over more than one border."""
    out = []
    for factor, relation in near.relations:
        far = relation.frontier.max(axis=0).tolist()
        steps = max(min(-(-d // b), n - 1) for d, b, n in zip(far, flow.sides, flow.blocks, strict=True))
        out.append((steps, float(factor) ** norm))
    return out


def _spacings(limits: list[_Limit], flow: Flow) -> list[int]:
    """Return odd spacings from which hubs can be walked to within the limits, if these allow for few enough hubs."""
    most, side = max(factor for _, factor in limits), max(flow.blocks)
    every = [1, *(2 * walk + 1 for walk in range(1, min(20, side // 4) + 1) if 2 * walk < most)]
    return [spacing for spacing in every if math.prod(n / spacing for n in flow.blocks) <= _MOST_HUBS] or every


def _scale(limits: list[_Limit], cells: float, walk: float, share: float) -> float:
    """Return the cost of the dearest move over its limit, with cells, steps and hubs in the budget."""
    step = 1 - cells
    through = 2 * walk * step + 2 * share
    direct = max(2 * walk, math.inf if share == math.inf else math.floor(through / step + 1e-9))
    dearest = max(through, step * direct)
    return max((cells + (step * far if far <= direct else dearest)) / factor for far, factor in limits)


def _best_share(hubs: _HubChoice, sums: _BestSums, limits: list[_Limit], norm: int) -> tuple[float, float]:
    """Return the least error with these hubs, and their share."""
    walk = hubs.spacing // 2
    exact = [(factor - sums.cells) / 2 - walk * (1 - sums.cells) for _, factor in limits]
    tried = [share for share in exact if share > 0.001] + np.geomspace(0.05, 50, _TRIED).tolist()

    def error(share: float) -> float:
        scale = _scale(limits, sums.cells, walk, share) ** (2 / norm)
        return scale * (sums.error + hubs.error / share ** (2 / norm))

    return min((error(share), share) for share in tried)


class MeanHubError:
    """Mean variance that hubs add to a workload's boxes, the share of a hub being one.

    It is Σ V_ij a_i b_j for what the waves along each axis, and all that is no wave, hold of a box, squared, less what
    a public total takes away (`HubVariance` has the exact figures).
    """

    def __init__(self, flow: Flow, boxes: Boxes, norm: int, total_known: bool) -> None:
        self.blocks, self.norm, self.total_known = flow.blocks, norm, total_known
        self._spans = _in_blocks(flow, boxes)

    def without_sums(self, spacing: int) -> _HubChoice:
        """Return hubs at this spacing, with noise of their own alone."""
        return _HubChoice(spacing, (), (1.0,), self._of_shares(Hubs.between(self.blocks, spacing))((1.0,)))

    def with_sums(self, spacing: int) -> Iterator[_HubChoice]:
        """Yield hubs with sums, and with strips as well, with the best shares for each distance between them."""
        lengths = [len(line.places) for line in Hubs.between(self.blocks, spacing).axes]
        one_level = [(w,) for w in _HUB_WIDTHS]
        for widths in [*one_level, *((w, w * times) for w, times in itertools.product(_NEAR, _HUB_TIMES))]:
            if 2 * widths[-1] > max(lengths) or (len(widths) > 1 and max(lengths) < _MANY_HUBS):
                continue
            if any(sum(sums_on(n, w, centred=True) for w in widths) > _MOST_SUMS for n in lengths):
                continue
            hubs = Hubs.between(self.blocks, spacing, widths)
            error = self._of_shares(hubs)
            for shares in (_squares, _squares_and_strips)[: 1 + (min(lengths) > 1)]:
                least, own = lowest(lambda own: error(shares(own)), 0.3, 0.97, 0.04)  # noqa: B023
                yield _HubChoice(spacing, widths, shares(own), least)

    def _of_shares(self, hubs: Hubs) -> Callable[[tuple[float, ...]], float]:
        """Return the variance as a function of the shares of the hubs' own noise, their sums, and strips."""
        inside, squared = [np.ones((1, 1))] * 2, [np.array([[0.0, 1.0]])] * 2
        for axis, (line, span) in enumerate(zip(hubs.axes, self._spans, strict=False)):
            length = BlockPower(1, 2)(*(interpolate_sums(line.before, edge)[:, 0] for edge in span))
            inside[axis] = sum_intervals(line.waves_before, *span)
            waves = inside[axis] ** 2
            squared[axis] = np.column_stack([length - waves.sum(axis=1), waves])
        asked = squared[0].T @ np.broadcast_to(squared[1], (len(squared[0]), squared[1].shape[1])) / len(squared[0])
        # A total takes little from many sums: some of the boxes are enough.
        step = max(1, len(inside[0]) * asked.size // _WORK)
        inside = [each[::step] for each in inside]

        def error(shares: tuple[float, ...]) -> float:
            each, *sums = (noise_of(share, self.norm) for share in shares)
            known = np.full(asked.shape, 1 / each)
            for level, noise in zip(hubs.levels, sums, strict=False):
                known += level / noise
            out = float((asked / known).sum())
            if self.total_known:
                core = hubs.ones / known[1:, 1:]
                along = ((inside[0] @ core) * inside[1]).sum(axis=1)
                out -= float((along**2).mean()) / float((core * hubs.ones).sum())
            return out

        return error


def _squares(own: float) -> tuple[float, ...]:
    """Return shares of hubs and of sums over squares of them, which are one together."""
    return own, 1 - own


def _squares_and_strips(own: float) -> tuple[float, ...]:
    """Return shares of hubs, of squares and of strips, each hub being in two: products of the best on a line."""
    return own**2, (1 - own) ** 2, own * (1 - own)
