"""Flows for neighbourhoods with limits: which hubs, and how ε is shared with them; public data alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.forms import BlockPower
from deltahist.space.workloads import Boxes, Span, Workload
from deltahist.strategies.flow import tuning
from deltahist.strategies.flow.entry import HubGrid, HubLine
from deltahist.strategies.flow.lines import sums_before
from deltahist.strategies.flow.tuning import in_blocks, lowest, noise_of

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.strategies.flow.strategy import Flow

#: Boxes that stand for the workload where hubs are chosen; numbers that products of waves over them may take.
_BOXES, _WORK = 500, 4_000_000
#: Distances between sums of hubs that are tried, in hubs; sums along an axis at most.
_WIDTHS = (4, 5, 6, 8, 12, 18, 27, 40)
_MOST_SUMS = 256
#: Hubs at most, where fewer will do: one in every cell of 4096 × 4096 lowers the error by a seventh (90, not 106), but
#: publishing then takes half as much again, and boxes five times as long.
_MOST_HUBS = 2048**2
#: Of the first of two levels; how much further apart the second is; from how many hubs along an axis on it is tried.
_NEAR, _TIMES = (12, 18, 27), (10, 16)
_LONG = 1200
#: Spacings that are looked at with sums, of those that are best without.
_REFINED = 3
#: Shares of hubs that are tried beside those that just meet a limit.
_TRIED = 60


class _Reached(NamedTuple):
    """A limit as a flow sees it.

    steps : borders that its moves cross at most. factor : of the budget, as shares count.
    """

    steps: int
    factor: float


class _Hubs(NamedTuple):
    """Hubs that may be taken.

    spacing : blocks between them. widths : hubs between sums, by level.
    shares : of the hubs' share, for their own noise, that of sums, and that of strips, if any.
    error : mean variance, their share being one.
    """

    spacing: int
    widths: tuple[int, ...]
    shares: tuple[float, ...]
    error: float


def best_flow(near: Neighbourhood, flow: Flow, workload: Workload | None, norm: int) -> dict[str, Any]:
    """Return parameters of the flow that keeps a neighbourhood's limits with the least expected error on a workload.

    Moves within δ take a step, which costs one, so that noise on borders is as without limits; moves through hubs cost
    2 (steps to a hub + share of a hub). Where that is more than a limit all noise is scaled, and the error with it: the
    share of the hubs makes the best of both.

    Parameters
    ----------
    near : with limits. flow : blocks and arrivals. workload : the queries; all ranges when None.
    norm : 1 for Laplace, 2 for Gaussian noise.
    """
    sums = tuning.best_sums(flow, workload, norm)
    reached = _reached(near, flow, norm)
    boxes = tuning.boxes_of(workload, flow.domain, _BOXES)
    mean = MeanHubError(flow, boxes, norm, near.fixed_membership)
    found: dict[str, Any] = {"widths": sums.widths, "shares": sums.shares}
    least = sums.error * _scale(reached, sums.cells, 0.0, math.inf) ** (2 / norm)
    plain = [_Hubs(spacing, (), (1.0,), mean.without_sums(spacing)) for spacing in _spacings(reached, flow)]
    plain.sort(key=lambda hubs: _best_share(hubs, sums, reached, norm)[0])
    tried = [*plain, *(hubs for each in plain[:_REFINED] for hubs in mean.with_sums(each.spacing))]
    for hubs in tried:
        error, share = _best_share(hubs, sums, reached, norm)
        if error < least:
            least = error
            own = tuple(_down((share * part) ** (1 / norm)) for part in hubs.shares)
            found |= {"shares": sums.shares + own, "hubs": hubs.spacing, "hub_widths": hubs.widths}
            found |= {"hub_strips": len(own) > 2}
    return found | {"arrivals": flow.arrivals, "centred": flow.centred}


def _down(share: float) -> Fraction:
    """Return a share in thousandths, rounded down so that limits are kept."""
    return Fraction(max(1, math.floor(share * 1000 + 1e-9)), 1000)


def _reached(near: Neighbourhood, flow: Flow, norm: int) -> list[_Reached]:
    """Return the limits that hold for moves over more than one border."""
    out = []
    assert isinstance(flow.block, tuple)
    for factor, relation in near.relations:
        far = relation.frontier.max(axis=0).tolist()
        steps = max(min(-(-d // b), n - 1) for d, b, n in zip(far, flow.block, flow.blocks, strict=True))
        out.append(_Reached(steps, float(factor) ** norm))
    return out


def _spacings(reached: list[_Reached], flow: Flow) -> Iterator[int]:
    """Return odd spacings from which hubs can be walked to within the limits, if these allow for few enough hubs."""
    most, side = max(limit.factor for limit in reached), max(flow.blocks)
    every = [1, *(2 * walk + 1 for walk in range(1, min(20, side // 4) + 1) if 2 * walk < most)]
    few = [spacing for spacing in every if math.prod(n / spacing for n in flow.blocks) <= _MOST_HUBS]
    yield from few or every


def _scale(reached: list[_Reached], cells: float, walk: float, share: float) -> float:
    """Return the cost of the dearest move over its limit, with cells, steps and hubs in the budget."""
    step = 1 - cells
    through = 2 * walk * step + 2 * share
    direct = max(2 * walk, math.inf if share == math.inf else math.floor(through / step + 1e-9))
    return max(
        (cells + (step * limit.steps if limit.steps <= direct else max(through, step * direct)))
        / limit.factor
        for limit in reached
    )


def _best_share(hubs: _Hubs, sums: tuning.Sums, reached: list[_Reached], norm: int) -> tuple[float, float]:
    """Return the least error with these hubs, and their share."""
    walk = hubs.spacing // 2
    exact = [(limit.factor - sums.cells) / 2 - walk * (1 - sums.cells) for limit in reached]
    tried = [share for share in exact if share > 0.001] + np.geomspace(0.05, 50, _TRIED).tolist()

    def error(share: float) -> float:
        scale = _scale(reached, sums.cells, walk, share) ** (2 / norm)
        return scale * (sums.error + hubs.error / share ** (2 / norm))

    return min((error(share), share) for share in tried)


class MeanHubError:
    """Mean variance that hubs add to a workload's boxes, the share of a hub being one.

    It is Σ V_ij a_i b_j for what the waves along each axis, and all that is no wave, hold of a box, squared, less what
    a public total takes away (`HubVariance` has the exact figures).

    Parameters
    ----------
    flow : its blocks. boxes : the workload. norm : 1 for Laplace, 2 for Gaussian noise.
    total_known : whether it is public.
    """

    def __init__(self, flow: Flow, boxes: Boxes, norm: int, total_known: bool) -> None:
        self.blocks, self.norm, self.total_known = flow.blocks, norm, total_known
        self._spans = in_blocks(flow, boxes)

    def without_sums(self, spacing: int) -> float:
        """Return the error with hubs at this spacing, without sums."""
        axes = HubGrid.between(self.blocks, spacing).axes
        own, held = np.ones(1), np.ones(1)
        for line, span in zip(axes, self._spans, strict=False):
            low, high = (edge[:, 0] for edge in _held(line, np.ones((1, len(line.places))), span))
            own, held = own * BlockPower(1, 2)(low, high), held * (high - low)
        number = math.prod(len(line.places) for line in axes)
        less = float((held**2).mean()) / number if self.total_known else 0.0
        return noise_of(1.0, self.norm) * (float(own.mean()) - less)

    def with_sums(self, spacing: int) -> Iterator[_Hubs]:
        """Return hubs with sums, and with strips as well, with the best shares for each distance between them."""
        lengths = [len(line.places) for line in HubGrid.between(self.blocks, spacing).axes]
        for widths in [(w,) for w in _WIDTHS] + [(w, w * times) for w in _NEAR for times in _TIMES]:
            if 2 * widths[-1] > max(lengths) or (len(widths) > 1 and max(lengths) < _LONG):
                continue
            grid = HubGrid.between(self.blocks, spacing, widths)
            if any(line.sums > _MOST_SUMS for line in grid.axes):
                continue
            error = self._of_shares(grid)
            for shares in (_squares, _squares_and_strips)[: 1 + (min(lengths) > 1)]:
                least, own = lowest(lambda own: error(shares(own)), 0.3, 0.97, 0.04)  # noqa: B023
                yield _Hubs(spacing, widths, shares(own), least)

    def _of_shares(self, grid: HubGrid) -> Callable[[tuple[float, ...]], float]:
        """Return the variance as a function of the shares of the hubs' own noise, their sums, and strips."""
        held, squared = [], []
        for line, span in zip(grid.axes, self._spans, strict=False):
            low, high = _held(line, np.ones((1, len(line.places))), span)
            length = BlockPower(1, 2)(low[:, 0], high[:, 0])
            low, high = _held(line, line.waves, span)
            held.append(high - low)
            squared.append(np.column_stack([length - (held[-1] ** 2).sum(axis=1), held[-1] ** 2]))
        if len(held) == 1:
            held.append(np.ones((len(held[0]), 1)))
            squared.append(np.tile([0.0, 1.0], (len(held[0]), 1)))
        asked = squared[0].T @ squared[1] / len(held[0])
        # A total takes little from many sums: some of the boxes are enough.
        held = [each[:: max(1, len(each) * asked.size // _WORK)] for each in held]
        ones = np.multiply.outer(*(line.waves.sum(axis=1) for line in grid.axes))

        def error(shares: tuple[float, ...]) -> float:
            each, *sums = (noise_of(share, self.norm) for share in shares)
            known = np.full(asked.shape, 1 / each)
            for level, noise in zip(grid.levels, sums, strict=False):
                known += level / noise
            out = float((asked / known).sum())
            if self.total_known:
                core = ones / known[1:, 1:]
                along = np.einsum("mi,mi->m", held[0] @ core, held[1])
                out -= float((along**2).mean()) / float((core * ones).sum())
            return out

        return error


def _squares(own: float) -> tuple[float, ...]:
    """Return shares of hubs and of sums over squares of them, which are one together."""
    return own, 1 - own


def _squares_and_strips(own: float) -> tuple[float, ...]:
    """Return shares of hubs, of squares and of strips, each hub being in two: products of the best on a line."""
    return own**2, (1 - own) ** 2, own * (1 - own)


def _held(line: HubLine, weights: NDArray[np.float64], span: Span) -> list[NDArray[np.float64]]:
    """Return sums of weights of hubs (k, hubs) before the ends of intervals of blocks, (m, k) each."""
    return [sums_before(line.sums_at_edges(weights), edge) for edge in span]
