"""Flows for neighbourhoods with limits: which hubs, and how ε is shared with them; public data alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.strategies import tuning
from deltahist.strategies.doors import HubGrid, HubLine
from deltahist.strategies.mean_error import Blocked, in_blocks, noise_of, squares, sums_before
from deltahist.strategies.valleys import lowest
from deltahist.workloads import Boxes, Workload

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood

#: Boxes that stand for the workload where hubs are chosen; numbers that products over them may take.
_BOXES, _WORK = 500, 4_000_000
#: Distances between sums of hubs that are tried, in hubs; sums along an axis at most.
_WIDTHS = (4, 5, 6, 8, 12, 18)
_MOST_SUMS = 200
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

    spacing : blocks between them. width : hubs between sums, or None. own : of the hubs' share, for their own noise.
    error : mean variance, their share being one.
    """

    spacing: int
    width: int | None
    own: float
    error: float


def best_flow(near: Neighbourhood, flow: Blocked, workload: Workload | None, norm: int) -> dict[str, Any]:
    """Parameters of the flow that keeps a neighbourhood's limits with the least expected error on a workload.

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
    mean = HubError(flow, boxes, norm, near.fixed_membership)
    found: dict[str, Any] = {"widths": sums.widths, "shares": sums.shares}
    least = sums.error * _scale(reached, sums.cells, 0.0, math.inf) ** (2 / norm)
    plain = [(_Hubs(spacing, None, 1.0, mean.without_sums(spacing))) for spacing in _spacings(reached, flow)]
    plain.sort(key=lambda hubs: _best_share(hubs, sums, reached, norm)[0])
    tried = [*plain, *(hubs for each in plain[:_REFINED] for hubs in mean.with_sums(each.spacing))]
    for hubs in tried:
        error, share = _best_share(hubs, sums, reached, norm)
        if error < least:
            least = error
            parts = [share * hubs.own] + ([] if hubs.width is None else [share * (1 - hubs.own)])
            own = tuple(_down(part if norm == 1 else part**0.5) for part in parts)
            found |= {"shares": sums.shares + own, "hubs": hubs.spacing, "hub_width": hubs.width}
    return found | {"arrivals": flow.arrivals, "centred": flow.centred}


def _down(share: float) -> Fraction:
    """A share in thousandths, rounded down so that limits are kept."""
    return Fraction(max(1, math.floor(share * 1000 + 1e-9)), 1000)


def _reached(near: Neighbourhood, flow: Blocked, norm: int) -> list[_Reached]:
    """The limits that hold for moves over more than one border."""
    out = []
    assert isinstance(flow.block, tuple)
    for factor, relation in near.relations:
        far = relation.frontier.max(axis=0).tolist()
        steps = max(min(-(-d // b), n - 1) for d, b, n in zip(far, flow.block, flow.blocks, strict=True))
        out.append(_Reached(steps, float(factor) ** norm))
    return out


def _spacings(reached: list[_Reached], flow: Blocked) -> Iterator[int]:
    """Odd spacings from which hubs can be walked to within the limits."""
    most = max(limit.factor for limit in reached)
    yield 1
    for walk in range(1, max(flow.blocks) // 4 + 1):
        if 2 * walk >= most or walk > 20:
            return
        yield 2 * walk + 1


def _scale(reached: list[_Reached], cells: float, walk: float, share: float) -> float:
    """How many times what limits allow the dearest move costs, cells, steps and hubs being counted in the budget."""
    step = 1 - cells
    through = 2 * walk * step + 2 * share
    direct = max(2 * walk, math.inf if share == math.inf else math.floor(through / step + 1e-9))
    return max(
        (cells + (step * limit.steps if limit.steps <= direct else max(through, step * direct)))
        / limit.factor
        for limit in reached
    )


def _best_share(hubs: _Hubs, sums: tuning.Sums, reached: list[_Reached], norm: int) -> tuple[float, float]:
    """The least error with these hubs, and their share."""
    walk = hubs.spacing // 2
    exact = [(limit.factor - sums.cells) / 2 - walk * (1 - sums.cells) for limit in reached]
    tried = [share for share in exact if share > 0.001] + np.geomspace(0.05, 50, _TRIED).tolist()

    def error(share: float) -> float:
        scale = _scale(reached, sums.cells, walk, share) ** (2 / norm)
        return scale * (sums.error + hubs.error / share ** (2 / norm))

    return min((error(share), share) for share in tried)


class HubError:
    """Mean variance that hubs add to a workload's boxes, the share of a hub being one.

    It is v (h_x · h_y) for the squared shares h of hubs inside a box, less what their sums know, and less
    what a public total does (`deltahist.decode.hubs` has the exact figures).

    Parameters
    ----------
    flow : its blocks. boxes : the workload. norm : 1 for Laplace, 2 for Gaussian noise.
    total_known : whether it is public.
    """

    def __init__(self, flow: Blocked, boxes: Boxes, norm: int, total_known: bool) -> None:
        self.blocks, self.norm, self.total_known = flow.blocks, norm, total_known
        self._spans = in_blocks(flow, boxes)

    def without_sums(self, spacing: int, every: int = 1) -> float:
        """Error with hubs so many blocks apart, from all boxes or from a part of them."""
        axes = HubGrid.between(self.blocks, spacing, None).axes
        own, held = np.ones(1), np.ones(1)
        for line, span in zip(axes, self._some(every), strict=False):
            low, high = (edge[:, 0] for edge in _held(line, np.ones((1, len(line.places))), span))
            own, held = own * squares(low, high, 1), held * (high - low)
        number = math.prod(len(line.places) for line in axes)
        less = float((held**2).mean()) / number if self.total_known else 0.0
        return noise_of(1.0, self.norm) * (float(own.mean()) - less)

    def with_sums(self, spacing: int) -> Iterator[_Hubs]:
        """Hubs with sums, and the best share of their own for each distance between them."""
        for width in _WIDTHS:
            grid = HubGrid.between(self.blocks, spacing, width)
            lengths = [len(line.places) for line in grid.axes]
            if 2 * width > max(lengths) or any(a.sums > _MOST_SUMS for a in grid.axes):
                continue
            # What is left of the variance is small beside its parts: all of them are of the same boxes.
            every = max(1, len(self._spans[0][0]) * math.prod(a.sums for a in grid.axes) // _WORK)
            plain = self.without_sums(spacing, every)
            gained = self._gained(grid, every, math.prod(lengths))

            def error(own: float, plain: float = plain, gained: Callable[[float], float] = gained) -> float:
                return plain * noise_of(own, self.norm) / noise_of(1.0, self.norm) - gained(own)

            least, own = lowest(error, 0.3, 0.97, 0.04)
            yield _Hubs(spacing, width, own, least)

    def _some(self, every: int) -> list[tuple[NDArray[np.float64], ...]]:
        """The intervals of some of the boxes, per axis."""
        return [tuple(edge[::every] for edge in span) for span in self._spans]

    def _gained(self, grid: HubGrid, every: int, number: int) -> Callable[[float], float]:
        """By how much sums lower the variance, as a function of the share of the hubs' own noise."""
        x, y = grid.axes
        ends = [_held(a, a.waves, span) for a, span in zip(grid.axes, self._some(every), strict=False)]
        held = [high - low for low, high in ends]
        if len(held) == 1:
            held.append(np.ones((len(held[0]), 1)))
        asked = (held[0] ** 2).T @ held[1] ** 2 / len(held[0])
        both = np.multiply.outer(x.squares, y.squares)
        ones = np.multiply.outer(x.waves.sum(axis=1), y.waves.sum(axis=1))
        # The sums' weights add up to one at every hub, so that all hubs together are a sum of waves as well.
        whole = math.prod([part @ line.turn.sum(axis=0) for part, line in zip(held, grid.axes, strict=True)])

        def gained(own: float) -> float:
            each, sums = noise_of(own, self.norm), noise_of(1 - own, self.norm)
            lost = each**2 / (each * both + sums)
            out = float((lost * asked).sum())
            if self.total_known:
                along = each * whole - np.einsum("mi,mi->m", held[0] @ (lost * ones), held[1])
                spread = each * number - float((lost * ones**2).sum())
                out += float((along**2).mean()) / spread - each * float((whole**2).mean()) / number
            return out

        return gained


def _held(line: HubLine, weights: NDArray[np.float64], span: tuple[NDArray[np.float64], ...]) -> list[Any]:
    """Sums of weights of hubs (k, hubs) before the ends of intervals of blocks, (m, k) each."""
    before = np.zeros((line.n + 1, len(weights)))
    before[line.places + 1] = weights.T
    before = before.cumsum(axis=0)
    return [sums_before(before, edge) for edge in span]
