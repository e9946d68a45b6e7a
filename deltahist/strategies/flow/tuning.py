"""Choose a flow's sums, its hubs and their shares of ε for a workload, using only public data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import BlockPower, FloatArray, cumulate_rows, interpolate_sums, sum_intervals
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, Pieces, Regions, Span, Workload
from deltahist.strategies.flow.decoder import estimated_flow
from deltahist.strategies.flow.noise import Hubs, Kind, LineEstimator, count_sums, make_hat_weights

if TYPE_CHECKING:
    from deltahist.strategies.flow import Flow

#: A limit on moves: the largest number of borders that they cross, and the multiple of the budget that they may cost.
Limit: TypeAlias = tuple[int, float]
#: Sums do not help on lines with fewer blocks than this.
_SHORT = 16
#: Optimise shares only for this many candidates, namely those that are best at the usual shares.
_REFINED = 3


def find_best_parameters(near: Neighbourhood, flow: Flow, workload: Workload | None, norm: int) -> dict[str, Any]:
    """Return the parameters of the flow that keeps the limits and has the least expected error on a workload.

    A move within δ takes one step and costs one, so limits do not change the noise on borders. A move through hubs
    costs twice the sum of its steps to a hub and the hubs' share. If this exceeds a limit, all noise is scaled up. The
    best share of the hubs balances this against their own noise. Blocks, arrivals and `centred` come from `flow`.
    """
    sums = _find_best_sums(flow, workload, norm)
    found: dict[str, Any] = {"widths": sums.widths, "shares": sums.shares}
    found |= {"arrivals": flow.arrivals, "centred": flow.centred}
    if not near.profile:
        return found
    limits = []
    for factor, relation in near.relations:
        far = relation.frontier.max(axis=0).tolist()
        steps = max(min(-(-d // b), n - 1) for d, b, n in zip(far, flow.sides, flow.blocks, strict=True))
        limits.append((steps, float(factor) ** norm))
    mean = MeanHubError(flow, choose_boxes(workload, flow.domain, 500), norm, near.fixed_membership)
    least = sums.error * _scale_noise(limits, sums.cells, 0.0, math.inf) ** (2 / norm)
    plain = [mean.without_sums(spacing) for spacing in _list_spacings(limits, flow)]
    plain.sort(key=lambda hubs: _find_best_share(hubs, sums, limits, norm)[0])
    for hubs in [*plain, *(hubs for each in plain[:_REFINED] for hubs in mean.with_sums(each.spacing))]:
        error, share = _find_best_share(hubs, sums, limits, norm)
        if error < least:
            least = error
            # Round down to thousandths, to stay within the limits.
            exact = ((share * part) ** (1 / norm) for part in hubs.shares)
            own = tuple(Fraction(max(1, math.floor(each * 1000 + 1e-9)), 1000) for each in exact)
            found |= {"shares": sums.shares + own, "hubs": hubs.spacing, "hub_widths": hubs.widths}
            found |= {"hub_strips": len(own) > 2}
    return found


def choose_usual_widths(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return widths nearly optimal for all ranges on 64 to 4096 blocks per side, or () on short lines and in 1-D."""
    # Lines along one axis exist only if the other axis has at least two blocks.
    longest = max(n if m > 1 else 0 for n, m in (blocks, blocks[::-1])) if len(blocks) == 2 else 0
    if longest < _SHORT:
        return ()
    if longest < 1500:
        return (round(1.5 * math.sqrt(longest)),)
    first = round(math.sqrt(longest) / 2)
    return (first, 10 * first)


def choose_usual_shares(levels: int) -> dict[str, Fraction]:
    """Return nearly optimal shares by kind, with "sums" for each level. straight + Σ sums = diagonal + 2 Σ sums = 1."""
    sums = Fraction(1, 4) if levels == 1 else Fraction(3, 10 * levels) if levels else Fraction(0)
    rest = 1 - sums * levels
    halves = dict.fromkeys(("cells", Kind.HUB_SUMS, Kind.HUB_STRIPS), Fraction(1, 2))
    flows = {Kind.STRAIGHT: rest, Kind.DIAGONAL: 2 * rest - 1, "sums": sums}
    return halves | flows | dict.fromkeys((Kind.ARRIVALS, Kind.HUBS), Fraction(1))


def find_longest_move(near: Neighbourhood) -> tuple[int, ...]:
    """Return the number of cells (at least one) that the longest move within δ spans along each axis."""
    if near.domain.ndim == 1:
        return (max(1, int(near.reach[0])),)
    return (max(1, len(near.reach) - 1), max(1, int(near.reach[0])))


def mark_outermost(blocks: tuple[int, ...]) -> NDArray[np.bool_]:
    rim = np.ones(blocks, dtype=bool)
    rim[tuple(slice(1, -1) for _ in blocks)] = False
    return rim


def find_arrivals(near: Neighbourhood, flow: Flow) -> str | tuple[int, ...] | None:
    """Return the blocks with source cells, "boundary" if these are the outermost blocks, or None if there are none."""
    if near.fixed_membership or not near.source_cells.any():
        return None
    cells = np.nonzero(near.source_cells)
    block = np.unique(np.ravel_multi_index(tuple(c // b for c, b in zip(cells, flow.sides, strict=True)), flow.blocks))
    return "boundary" if np.array_equal(block, np.flatnonzero(mark_outermost(flow.blocks))) else tuple(block.tolist())


class _BestSums(NamedTuple):
    """The widths of a flow's sums, the shares of all groups in order, the share of cells, and the mean variance."""

    widths: tuple[int, ...]
    shares: tuple[Fraction, ...]
    cells: float
    error: float


def choose_boxes(workload: Workload | None, domain: Domain, number: int = 2000) -> Boxes:
    """Return a sample of a workload's boxes (of all ranges if None). Regions are replaced by boxes of equal area."""
    if isinstance(workload, Regions):
        workload = workload.boxes()
    boxes = workload if isinstance(workload, Boxes) else AllRanges(domain).sample(2000)
    return boxes.take_evenly(number)


def _find_best_sums(flow: Flow, workload: Workload | None, norm: int) -> _BestSums:
    """Return the best widths of a flow's sums, and the best shares of its groups, for a workload."""
    boxes = choose_boxes(workload, flow.domain)
    spans = _convert_to_blocks(flow, boxes)
    error, sums, widths = _find_best_chain(MeanError(flow.blocks, spans, norm, flow.centred))
    cells = 0.0
    if not flow.blocks_are_cells:
        # The mean variance that is due to noise of variance one on cells.
        one = BlockPower(1, 2)
        scale = zip(spans, flow.domain.shape, flow.blocks, strict=True)
        of_blocks = math.prod(one(*span) * (n / m) for span, n, m in scale)
        of_cells = max(0.0, float(np.mean(math.prod(one(*span) for span in boxes.spans(flow.domain)) - of_blocks)))
        # A move changes two cells. If flows have error f and cells have error c, the best share s of the cells
        # minimises f/(1 − s)² + 8 c/s² for Laplace noise, and f/(1 − s) + 2 c/s for Gaussian noise.
        power, times = (1 / 3, 8) if norm == 1 else (1 / 2, 2)
        a, b = error**power, (times * of_cells) ** power
        cells = min(max(b / (a + b), 0.01), 0.99)
        error = error * get_variance(1 - cells, norm) / get_variance(1, norm) + of_cells * get_variance(cells / 2, norm)
    both, rest = float(sums.sum()), 1 - cells
    shares = [] if flow.blocks_are_cells else [cells / 2]
    shares += [(1 - both) * rest]
    shares += [] if len(flow.blocks) == 1 else [(1 - 2 * both) * rest, *(sums * rest)]
    shares += [1 - cells / 2] if flow.arrivals is not None else []
    # For Gaussian noise, shares are square roots of shares of ρ.
    exact = (max(Fraction(round(s ** (1 / norm) * 1000), 1000), Fraction(1, 1000)) for s in shares)
    return _BestSums(widths, tuple(exact), cells, error)


def _find_best_chain(mean: MeanError) -> tuple[float, FloatArray, tuple[int, ...]]:
    """Return the least error of a flow, and the shares and widths of the sums that achieve it."""
    longest = max(mean.blocks)
    chains: list[tuple[int, ...]] = [()]
    if len(mean.blocks) > 1 and longest >= _SHORT:
        over_root = (0.3, 0.45, 0.65, 0.85, 1.05, 1.25, 1.45, 1.7, 2.0, 2.5)
        for width in sorted({max(2, round(times * math.sqrt(longest))) for times in over_root}):
            if 2 * width <= longest:
                chains.append((width,))
                if longest >= 400 and width < math.sqrt(longest):  # a second level helps only on long lines
                    chains += [(width, width * times) for times in (5, 7, 10, 14) if 2 * width * times <= longest]
    chains.sort(key=mean.at_usual_shares)
    found = [(*mean.find_best_shares(widths), widths) for widths in chains[:_REFINED]]
    return min(found, key=lambda f: (round(f[0], 9), f[2]))


class MeanError:
    """The mean variance of a flow's answers over a workload's boxes, as a function of its sums and their shares.

    The noise in a box consists of the noise on cells and the flow through the box's sides. Let v be the variance of the
    noise on each border, and W that of the noise on the sums Θ. By least squares (`LineEstimator`), the flow through a
    stretch q of borders has variance v |q|² − v² (Θq)ᵀ (v Θ Θᵀ + W)⁻¹ Θq. The means of |q|² and Θq (Θq)ᵀ over the boxes
    do not depend on the shares, so they are computed once. Boxes and widths are in blocks.
    """

    def __init__(self, blocks: tuple[int, ...], spans: Sequence[Span], norm: int, centred: bool) -> None:
        self.blocks, self.norm, self.centred = blocks, norm, centred
        ends = [_weigh_ends(low, high, n) for (low, high), n in zip(spans, blocks, strict=True)]
        self._on_a_line = float(ends[0].mean())
        #: For lines along y and along x: the number of borders, the squared weights of the lines at each box's two
        #: sides, and the stretch of borders between the box's other two sides.
        self._sides = list(zip(blocks[::-1], ends, spans[::-1], strict=True)) if len(spans) == 2 else []
        #: The mean of |q|² over the boxes, summed over both directions.
        self._borders = sum(float((own * BlockPower(1, 2)(*span)).mean()) for _, own, span in self._sides)
        # Corners hardly matter on long lines, and are ignored for uncentred sums.
        self._with_corners = centred and max(blocks) < 400
        self._level, self._pair = functools.cache(self._compute_level), functools.cache(self._compute_pair)

    def find_best_shares(self, widths: tuple[int, ...]) -> tuple[float, FloatArray]:
        """Return the least error of flows with sums of these widths, and the sums' shares of a budget of one."""
        if not widths:
            return self.of_shares(widths, np.zeros(0)), np.zeros(0)
        logs, error = np.full(len(widths), -0.5), math.inf  # log of (a level's share / the unused part of one half)

        def to_shares() -> FloatArray:
            weight = np.exp(logs)
            return np.asarray(weight / (1 + weight.sum()) / 2)

        def try_log(level: int, log: float) -> float:
            logs[level] = log
            return self.of_shares(widths, to_shares())

        # Optimise one level at a time. Levels hardly interact, so three rounds are enough.
        for _ in range(1 if len(widths) == 1 else 3):
            for level in range(len(widths)):
                error, logs[level] = find_minimum(functools.partial(try_log, level), -4.0, 3.0, 0.04)
        return error, to_shares()

    def at_usual_shares(self, widths: tuple[int, ...]) -> float:
        """Return the mean variance of the flow through the boxes' sides if sums have their usual shares."""
        return self.of_shares(widths, np.full(len(widths), float(choose_usual_shares(len(widths))["sums"])))

    def of_shares(self, widths: tuple[int, ...], shares: FloatArray) -> float:
        """Return the mean variance of the flow through the boxes' sides."""
        each = get_variance(1 - shares.sum(), self.norm)
        if not self._sides:
            return each * self._on_a_line
        diagonal = get_variance(1 - 2 * shares.sum(), self.norm)
        each += 2 * diagonal  # each border has two kinds of diagonal moves
        out, own = each * self._borders, [get_variance(s, self.norm) for s in shares]
        for n in {n for n, _, _ in self._sides} if widths else ():
            pairs = [[self._pair(n, a, b) for b in widths] for a in widths]
            gram, asked = (np.block([[pair[i] for pair in row] for row in pairs]) for i in (0, 1))
            noise = np.repeat(own, [count_sums(n, w, self.centred) for w in widths])
            out -= each**2 * float(np.trace(np.linalg.solve(each * gram + np.diag(noise), asked)))
        return out + (self._of_corners(widths, each, diagonal, own) if self._with_corners else 0.0)

    def _of_corners(self, widths: tuple[int, ...], each: float, diagonal: float, own: list[float]) -> float:
        """Return what diagonal moves at corners on block borders add (docs/internals/theory.md, section 5)."""
        parts, whole = [], True
        for n, ends, (low, high) in self._sides:
            line = LineEstimator(n, widths, each, 0.0, tuple(own), self.centred)
            corners = estimated_flow(line, each, 0.0, own)[1:]
            parts.append([ends, *(form.evaluate_pieces(Pieces.of(low, high)) for form in corners)])
            whole = whole & (low == np.floor(low)) & (high == np.floor(high))
        (x, low_y, high_y), (y, low_x, high_x) = parts
        both = x * y + 2 * x * low_y + 2 * low_x * y + 2 * low_x * low_y - 2 * high_x * high_y
        return diagonal * float(np.where(whole, both, 0.0).mean())

    def _compute_level(self, n: int, width: int) -> tuple[FloatArray, list[FloatArray]]:
        """Return Θ for one level of sums on n borders, and Θ q for the stretches of these borders."""
        theta = make_hat_weights(n, width, self.centred) / (2 * width)
        before = cumulate_rows(theta.T)
        return theta, [sum_intervals(before, *span) for m, _, span in self._sides if m == n]

    def _compute_pair(self, n: int, a: int, b: int) -> tuple[FloatArray, FloatArray]:
        """Return, for two levels, Θ Θᵀ and the mean of Θq (Θq)ᵀ over the boxes."""
        if a > b:
            gram, asked = self._pair(n, b, a)
            return gram.T, asked.T
        (one, ones), (other, others) = self._level(n, a), self._level(n, b)
        ends = [own for m, own, _ in self._sides if m == n]
        means = [(x * own[:, None]).T @ y / len(x) for x, y, own in zip(ones, others, ends, strict=True)]
        return one @ other.T, np.sum(means, axis=0)


def _convert_to_blocks(flow: Flow, boxes: Boxes) -> list[Span]:
    """Convert boxes from cells to blocks, and return their spans along each axis."""
    out = []
    for span, n, start in zip(boxes.spans(flow.domain), flow.domain.shape, flow.starts, strict=True):
        cell, edge = np.append(start, n), np.arange(len(start) + 1.0)
        out.append((np.interp(span[0], cell, edge), np.interp(span[1], cell, edge)))
    return out


def get_variance(share: float, norm: int) -> float:
    """Return the variance of noise with this share of a budget of one (ε for Laplace, ρ for Gaussian noise)."""
    return 2 / share**2 if norm == 1 else 1 / share


def _weigh_ends(low: FloatArray, high: FloatArray, n: int) -> FloatArray:
    """Return, for each interval, the sum of the squared weights of the lines at its ends. The domain's ends add 0."""
    out = np.zeros(len(low))
    for edge in (low, high):
        below = np.floor(edge)
        share = edge - below
        out += (1 - share) ** 2 * ((below > 0) & (below < n)) + share**2 * (below + 1 < n)
    return out


def find_minimum(function: Callable[[float], float], low: float, high: float, width: float) -> tuple[float, float]:
    """Return the minimum of a unimodal function, and its location to within `width`, by golden-section search.

    >>> value, place = find_minimum(lambda x: (x - 2) ** 2 + 1, 0, 10, 1e-3)
    >>> round(value, 5), round(place, 2)
    (1.0, 2.0)
    """
    golden = (math.sqrt(5) - 1) / 2
    left, right = ((function(place), place) for place in (high - golden * (high - low), low + golden * (high - low)))
    while high - low > width:
        if left < right:
            high, right = right[1], left
            place = high - golden * (high - low)
            left = function(place), place
        else:
            low, left = left[1], right
            place = low + golden * (high - low)
            right = function(place), place
    return min(left, right)


class _HubChoice(NamedTuple):
    """A choice of hubs: spacing in blocks, widths in hubs, shares of noise, and the variance for a share of one."""

    spacing: int
    widths: tuple[int, ...]
    shares: tuple[float, ...]
    error: float


def _list_spacings(limits: list[Limit], flow: Flow) -> list[int]:
    """Return the odd spacings for which paths to a hub keep the limits, if possible only with at most 2048² hubs.

    With 4096² hubs, the error is a seventh lower, but publishing takes 50% longer and boxes take five times as long.
    """
    most, side = max(factor for _, factor in limits), max(flow.blocks)
    every = [1, *(2 * walk + 1 for walk in range(1, min(20, side // 4) + 1) if 2 * walk < most)]
    return [spacing for spacing in every if math.prod(n / spacing for n in flow.blocks) <= 2048**2] or every


def _scale_noise(limits: list[Limit], cells: float, walk: float, share: float) -> float:
    """Return the largest ratio of a move's cost (for its cells, steps and hubs) to its limit."""
    step = 1 - cells
    through = 2 * walk * step + 2 * share
    direct = max(2 * walk, math.inf if share == math.inf else math.floor(through / step + 1e-9))
    largest = max(through, step * direct)
    return max((cells + (step * far if far <= direct else largest)) / factor for far, factor in limits)


def _find_best_share(hubs: _HubChoice, sums: _BestSums, limits: list[Limit], norm: int) -> tuple[float, float]:
    """Return the least error with these hubs, and the hubs' share that achieves it."""
    walk = hubs.spacing // 2
    exact = [(factor - sums.cells) / 2 - walk * (1 - sums.cells) for _, factor in limits]  # shares that use up a limit
    tried = [share for share in exact if share > 0.001] + np.geomspace(0.05, 50, 60).tolist()

    def expect_error(share: float) -> float:
        scale = _scale_noise(limits, sums.cells, walk, share) ** (2 / norm)
        return scale * (sums.error + hubs.error / share ** (2 / norm))

    return min((expect_error(share), share) for share in tried)


class MeanHubError:
    """The mean variance that hubs with a share of one add to a workload's boxes.

    It is Σ V_ij a_i b_j minus the part that a public total removes. V_ij are the variances of products of waves, and a
    and b a box's squared coefficients along the axes, for the rest and the waves. `HubVariance` has the exact figures.
    """

    def __init__(self, flow: Flow, boxes: Boxes, norm: int, total_known: bool) -> None:
        self.blocks, self.norm, self.total_known = flow.blocks, norm, total_known
        self._spans = _convert_to_blocks(flow, boxes)

    def without_sums(self, spacing: int) -> _HubChoice:
        return _HubChoice(spacing, (), (1.0,), self._as_function(Hubs.on_grid(self.blocks, spacing))((1.0,)))

    def with_sums(self, spacing: int) -> Iterator[_HubChoice]:
        """For each distance between sums, yield hubs with their best shares, first without and then with strips."""
        lengths = [len(line.places) for line in Hubs.on_grid(self.blocks, spacing).axes]
        levels: list[tuple[int, ...]] = [(w,) for w in (4, 5, 6, 8, 12, 18, 27, 40)]
        if max(lengths) >= 1200:  # a second level helps only on long lines
            levels += [(w, w * times) for w in (12, 18, 27) for times in (10, 16)]
        for widths in levels:
            if 2 * widths[-1] > max(lengths):
                continue
            if any(sum(count_sums(n, w, centred=True) for w in widths) > 256 for n in lengths):
                continue
            hubs = Hubs.on_grid(self.blocks, spacing, widths)
            error = self._as_function(hubs)
            # With strips, the shares are products over the axes, because each hub is in two strips.
            divisions: list[Callable[[float], tuple[float, ...]]] = [lambda own: (own, 1 - own)]
            divisions += [lambda own: (own**2, (1 - own) ** 2, own * (1 - own))] if min(lengths) > 1 else []
            for divide in divisions:
                least, own = find_minimum(lambda own: error(divide(own)), 0.3, 0.97, 0.04)  # noqa: B023
                yield _HubChoice(spacing, widths, divide(own), least)

    def _as_function(self, hubs: Hubs) -> Callable[[tuple[float, ...]], float]:
        """Return the variance as a function of the shares of the hubs' own noise, sums and strips."""
        inside, squared = [np.ones((1, 1))] * 2, [np.array([[0.0, 1.0]])] * 2
        for axis, (line, span) in enumerate(zip(hubs.axes, self._spans, strict=False)):
            length = BlockPower(1, 2)(*(interpolate_sums(line.hubs_before, edge)[:, 0] for edge in span))
            inside[axis] = sum_intervals(line.waves_before, *span)
            waves = inside[axis] ** 2
            squared[axis] = np.column_stack([length - waves.sum(axis=1), waves])
        asked = squared[0].T @ np.broadcast_to(squared[1], (len(squared[0]), squared[1].shape[1])) / len(squared[0])
        # A public total removes little variance if there are many sums, so a sample of the boxes is enough.
        step = max(1, len(inside[0]) * asked.size // 4_000_000)
        inside = [each[::step] for each in inside]

        def expect_error(shares: tuple[float, ...]) -> float:
            each, *sums = (get_variance(share, self.norm) for share in shares)
            known = np.full(asked.shape, 1 / each)
            for level, noise in zip(hubs.level_spectra, sums, strict=False):
                known += level / noise
            out = float((asked / known).sum())
            if self.total_known:
                core = hubs.ones_in_waves / known[1:, 1:]
                along = ((inside[0] @ core) * inside[1]).sum(axis=1)
                out -= float((along**2).mean()) / float((core * hubs.ones_in_waves).sum())
            return out

        return expect_error
