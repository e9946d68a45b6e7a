"""Put noise on the borders between blocks, so that a box's noise grows with its perimeter instead of its area.

The module `noise` combines the draws, `decoder` computes estimates and errors, and `tuning` chooses sums and shares.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.decode.forms import IntArray
from deltahist.errors import InputError, check_whole
from deltahist.space.domain import Domain
from deltahist.strategies.base import Group, Starts, Strategy, read_numbers, read_shares, spread_blocks, sum_blocks
from deltahist.strategies.flow import tuning
from deltahist.strategies.flow.decoder import FlowDecoder
from deltahist.strategies.flow.noise import UNITS, Crossings, HubLine, Hubs, Kind, LineEstimator, count_sums

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload


@dataclass(frozen=True, eq=False)
class Flow(Strategy):
    """Add noise to the flows between neighbouring blocks of cells instead of to the cells.

    The release contains S c + D φ, where S sums the cells of each block, φ is noise on the borders between blocks, and
    D maps flows to the gain of each block. Without arrivals and hubs, the total is exact, and the noise in a box is the
    flow across its perimeter. This flow combines noise on single borders (straight and diagonal) with noise on weighted
    sums of neighbouring borders (`widths`), so it grows with the logarithm of the perimeter. If blocks have several
    cells, the release also contains the count of each cell with separate noise, and decoding combines the two.
    Source: docs/privacy/factorisation.md (E = K U), and He et al. 2014 and Haney et al. 2015 (noise on policy graphs).

    Parameters
    ----------
    domain : Domain
    block : the cells per side of a block, as one number or one per axis. Moves longer than a block cost more.
    widths : for each level, the distance in borders between neighbouring sums, in ascending order. () means no sums,
        as in 1-D. None means widths that suit all ranges (`Flow.tuned` finds the best for a workload).
    shares : the shares of ε, in this order: cells (if blocks have several), straight flows, diagonal flows (2-D only),
        one for each width, then arrivals, hubs, hub sums and hub strips (if any). None means the usual shares.
    arrivals : where entities may appear or vanish: None, "boundary" (the outermost blocks) or ascending block indices.
    hubs : the distance between hubs, an odd number of blocks. A long move goes through the hubs nearest to its two
        ends, which caps its cost. None means no hubs, so a move costs as much as all borders on its path.
    hub_widths : for each level, the distance in hubs between sums over squares of hubs. Each width divides the next.
    centred : whether every line has one more sum, so that sums extend equally beyond both ends (used with limits).
    hub_strips : whether there are also sums over hubs within one row or column.

    Raises InputError if the domain is a single block, or if a parameter does not suit the domain.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 0, 1, 1), (8, 8))
    >>> near = dh.Neighbourhood(domain, delta=1 / 8)
    >>> int(dh.sensitivity(Flow(domain), near))        # for straight and diagonal moves
    1
    >>> release = dh.publish([[3] * 8] * 8, near, strategy=Flow(domain), epsilon=1)
    >>> float(release.cells().sum())                   # the total is kept exactly
    192.0
    """

    domain: Domain
    block: int | tuple[int, ...] = 1
    widths: tuple[int, ...] | None = None
    shares: tuple[Fraction, ...] | None = None
    arrivals: str | tuple[int, ...] | None = None
    hubs: int | None = None
    hub_widths: tuple[int, ...] = ()
    centred: bool = False
    hub_strips: bool = False

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("flow[:block]",)
    most_axes: ClassVar[int] = 2
    point_limit: ClassVar[int] = (1 << 62) // UNITS

    def __post_init__(self) -> None:
        for name, holds, rule in self._check_fields():
            if not holds:
                raise InputError(f"{name} is {getattr(self, name)!r:.200}: {rule}")
        if self.shares is not None:
            read_shares(self.shares, len(self.draw_kinds), "group of the flow")

    def _check_fields(self) -> Iterator[tuple[str, bool, str]]:
        """Yield each field's name, whether its value is valid, and the rule. Later checks rely on earlier checks."""
        yield "block", len(self.sides) == self.domain.ndim, "it must be one number, or one per axis"
        most, widths, arrivals = max(self.blocks), self.sum_widths, self.arrivals
        yield "block", most >= 2, f"a domain of {self.domain.shape} cells needs at least two blocks"
        rising = list(widths) == sorted(set(widths)) and (not widths or (self.domain.ndim == 2 and widths[-1] <= most))
        yield "widths", rising, f"they must increase, and be at most {most} (none in 1-D)"
        cells = [] if isinstance(arrivals, str) else [check_whole(least=0, arrivals=a) for a in arrivals or ()]
        valid = cells == sorted(set(cells)) and max(cells, default=0) < self.size
        valid = arrivals == "boundary" if isinstance(arrivals, str) else valid
        yield "arrivals", valid, f'it must be "boundary", or increasing block indices from 0 to {self.size - 1}'
        yield "centred", isinstance(self.centred, bool), "it must be True or False"
        yield "hub_strips", isinstance(self.hub_strips, bool), "it must be True or False"
        sums = [check_whole(least=2, hub_widths=w) for w in self.hub_widths]
        if self.hubs is None:
            yield "hub_widths", not sums, "it requires hubs"
            yield "hub_strips", not self.hub_strips, "it requires hubs"
            return
        hubs = check_whole(hubs=self.hubs)
        yield "hubs", hubs % 2 == 1 and hubs <= most, f"it must be odd, and at most {most} (blocks along an axis)"
        numbers = [len(line.places) for line in Hubs.on_grid(self.blocks, hubs).axes]
        valid = all(b % a == 0 and a < b for a, b in itertools.pairwise(sums)) and max(sums, default=0) <= max(numbers)
        rule = f"each must be a multiple of the previous one, and at most {max(numbers)} (hubs along an axis)"
        yield "hub_widths", valid, rule
        valid = not self.hub_strips or (bool(sums) and min(numbers) > 1)
        yield "hub_strips", valid, "it requires hub_widths, and several hubs along both axes"

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"block": list(self.sides), "widths": list(self.sum_widths)}

    @classmethod
    def tuned(
        cls,
        near: Neighbourhood,
        workload: Workload | None = None,
        *,
        norm: int = 1,
        block: int | tuple[int, ...] | None = None,
    ) -> Flow:
        """Return the flow with the least expected error on a workload, after trying many choices of sums and shares.

        Parameters
        ----------
        near : the neighbourhood. Its sources determine where arrivals are, and its limits determine where hubs are.
        workload : the queries (all ranges by default). Regions are replaced by boxes of equal area.
        norm : 1 for Laplace noise, 2 for Gaussian noise.
        block : the cells per side of a block (by default, the length of the longest move within δ).

        Raises InputError if the domain is a single block.

        >>> import deltahist as dh
        >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64)
        >>> Flow.tuned(near).widths
        (14,)
        """
        plain = cls(near.domain, tuning.find_longest_move(near) if block is None else block, ())
        bare = cls(near.domain, plain.block, (), arrivals=tuning.find_arrivals(near, plain), centred=bool(near.profile))
        return cls(near.domain, plain.block, **tuning.find_best_parameters(near, bare, workload, norm))

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Flow:
        return cls.tuned(near, norm=norm, block=next(iter(read_numbers(text, 1)), None))

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        """Yield flows with blocks of one and two times the longest move within δ, and with hubs if there are limits."""
        for times in (1, 2):
            sides = tuple(times * b for b in tuning.find_longest_move(near))
            if any(2 * b <= n for b, n in zip(sides, near.domain.shape, strict=True)):
                flow = cls.tuned(near, workload, norm=norm, block=sides)
                cells = "cell" if math.prod(sides) == 1 else " × ".join(map(str, sides)) + " cells"
                sums = f", sums {', '.join(map(str, flow.sum_widths))} apart" if flow.sum_widths else ""
                hubs = f", hubs {flow.hubs} apart" if flow.hubs else ""
                yield f"Flow (blocks of {cells}{sums}{hubs})", flow

    @functools.cached_property
    def sides(self) -> tuple[int, ...]:
        """The number of cells per side of a block, along each axis."""
        block = self.block if isinstance(self.block, list | tuple) else (self.block,) * self.domain.ndim
        return tuple(check_whole(block=b) for b in block)

    @functools.cached_property
    def starts(self) -> Starts:
        """The first cell of every block, along each axis."""
        return tuple(np.arange(0, n, b) for n, b in zip(self.domain.shape, self.sides, strict=True))

    @functools.cached_property
    def blocks(self) -> tuple[int, ...]:
        """The number of blocks along each axis."""
        return tuple(len(s) for s in self.starts)

    @functools.cached_property
    def size(self) -> int:
        return math.prod(self.blocks)

    @functools.cached_property
    def blocks_are_cells(self) -> bool:
        return self.blocks == self.domain.shape

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        return (self.size + (0 if self.blocks_are_cells else self.domain.size), self.domain.size)

    @property
    def keeps_total(self) -> bool:  # type: ignore[override]
        return not self.arrivals and self.hubs is None

    @property
    def parts(self) -> tuple[Group, ...]:
        sums = Group("sums of blocks", slice(self.shape[0] - self.size, self.shape[0]))
        return (sums,) if self.blocks_are_cells else (Group("cells", slice(0, self.domain.size)), sums)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        sums = sum_blocks(X.reshape(*self.domain.shape, -1), self.starts).reshape(self.size, -1) * UNITS
        return sums if self.blocks_are_cells else np.concatenate([X, sums])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        own = X[self.shape[0] - self.size :].reshape(*self.blocks, -1) * UNITS
        out = spread_blocks(own, self.starts, self.domain.shape).reshape(-1, X.shape[1])
        return out if self.blocks_are_cells else out + X[: self.domain.size]

    def decoder_class(self) -> type[Decoder]:
        return FlowDecoder

    @functools.cached_property
    def sum_widths(self) -> tuple[int, ...]:
        """For each level, the distance in borders between neighbouring sums along a line."""
        widths = tuning.choose_usual_widths(self.blocks) if self.widths is None else self.widths
        return tuple(check_whole(least=2, widths=w) for w in widths)

    @functools.cached_property
    def sum_names(self) -> tuple[str, ...]:
        """The names of the noise draws for sums along lines, at each level."""
        return tuple(f"sums {w} borders apart" for w in self.sum_widths)

    @functools.cached_property
    def draw_kinds(self) -> dict[str, tuple[int, Fraction]]:
        """For each kind, in order, the number of draws and the number of points that one unit of a draw represents."""
        crossing, n = Fraction(1, UNITS), self.blocks
        out = {} if self.blocks_are_cells else {"cells": (self.domain.size, Fraction(1))}
        if len(n) == 1:
            out[Kind.STRAIGHT] = n[0] - 1, crossing
        else:
            lines = ((n[0] - 1, n[1]), (n[1] - 1, n[0]))  # (number of lines, borders on each)
            out[Kind.STRAIGHT] = sum(map(math.prod, lines)), crossing
            out[Kind.DIAGONAL] = 2 * (n[0] - 1) * (n[1] - 1), crossing
            for name, w in zip(self.sum_names, self.sum_widths, strict=True):
                out[name] = sum(some * count_sums(m, w, self.centred) for some, m in lines), crossing / (2 * w)
        if self.arrivals:
            out[Kind.ARRIVALS] = len(self.entry_blocks), crossing
        if self.hubs is not None:
            hubs = Hubs.on_grid(self.blocks, int(self.hubs), tuple(map(int, self.hub_widths)), self.hub_strips)
            out |= {name: (some, crossing / parts) for name, (some, parts) in hubs.draw_counts.items()}
        return out

    @functools.cached_property
    def entry_blocks(self) -> NDArray[np.int64]:
        """The flat indices of the blocks where entities may appear or vanish."""
        if isinstance(self.arrivals, str):
            return np.flatnonzero(tuning.mark_outermost(self.blocks))
        return np.array(self.arrivals or (), dtype=np.int64)

    @functools.cached_property
    def kind_shares(self) -> dict[str, Fraction]:
        """The share of ε for each kind of draw, if flows are counted in whole points."""
        if self.shares is not None:
            return dict(zip(self.draw_kinds, read_shares(self.shares, len(self.draw_kinds), "group"), strict=True))
        usual = tuning.choose_usual_shares(len(self.sum_names))
        return {name: usual.get(name, usual["sums"]) for name in self.draw_kinds}

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        # A move changes the draws of a kind by 1 / unit in total, so the group's share is the kind's share times unit.
        out, end = [], 0
        for name, (number, unit) in self.draw_kinds.items():
            out.append(Group(name, slice(end, end + number), self.kind_shares[name] * unit, unit))
            end += number
        return tuple(out)

    @property
    def draws(self) -> int:
        return sum(number for number, _ in self.draw_kinds.values())

    @functools.cached_property
    def lines(self) -> tuple[LineEstimator, ...]:
        """The flow estimators for lines along y and for lines along x, or () in 1-D."""
        if self.domain.ndim == 1:
            return ()
        variance = {name: float(1 / share) ** 2 for name, share in self.kind_shares.items()}
        own = tuple(variance[name] for name in self.sum_names)
        usual = self.sum_widths, variance[Kind.STRAIGHT], variance[Kind.DIAGONAL], own, self.centred
        along_y, along_x = (LineEstimator(n, *usual) for n in reversed(self.blocks))
        return along_y, along_y if along_x == along_y else along_x  # axes of equal length share tables

    @functools.cached_property
    def hub_grid(self) -> Hubs | None:
        """The hubs with the noise ratios that weight their estimates, or None if the flow has no hubs."""
        if self.hubs is None:
            return None
        share = self.kind_shares
        hubs = Hubs.on_grid(self.blocks, int(self.hubs), tuple(map(int, self.hub_widths)), self.hub_strips)
        sums = (name for name in (Kind.HUB_SUMS, Kind.HUB_STRIPS) if name in share)
        ratios = tuple(float(share[Kind.HUBS] / share[name]) ** 2 for name in sums)
        return replace(hubs, ratios=ratios)

    def split_draws(self, noise: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], list[Crossings]]:
        """Return views of the draws, which are on the last axis, by kind. For flows, also return views by direction."""
        draws = {g.name: noise[..., g.members] for g in self.groups}
        return draws, Crossings.of_draws(self.blocks, draws, self.lines, self.sum_names)

    @property
    def scatters_linearly(self) -> bool:
        return not self.sum_widths and not self.hub_widths  # estimates from sums are rounded

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Return R(η) for the draws of one or more releases. The draws, and the k results, are on the last axis."""
        return self.scatter_groups([noise[..., group.members] for group in self.groups])

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[Any]:
        draws = {group.name: part for group, part in zip(self.groups, noise, strict=True)}
        first = draws[Kind.STRAIGHT]
        several, kind = first.shape[:-1], np.result_type(first, np.int64)
        # Estimate hubs first, to free their intermediate arrays before allocating the map.
        hubs = self.hub_grid
        inflow = None if hubs is None else hubs.estimate_inflow(draws)
        out = np.zeros((*several, self.blocks[0], math.prod(self.blocks[1:])), dtype=kind)
        for flows in Crossings.of_draws(self.blocks, draws, self.lines, self.sum_names):
            flows.add_to_blocks(out, self.lines[flows.axis] if self.sum_widths else None)
        flat = out.reshape(*several, -1)
        if self.arrivals:
            flat[..., self.entry_blocks] += draws[Kind.ARRIVALS]
        if hubs is not None and inflow is not None:
            flat[..., hubs.places] += inflow
        return flat if self.blocks_are_cells else np.concatenate([draws["cells"], flat], axis=-1)

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        noise = np.zeros(self.draws)
        draws, directions = self.split_draws(noise)
        sums = (flat := weights[self.shape[0] - self.size :]).reshape(self.blocks[0], -1)
        if len(self.blocks) == 2:
            directions[0].rising[...] = sums[1:, 1:] - sums[:-1, :-1]
            directions[0].falling[...] = sums[1:, :-1] - sums[:-1, 1:]
        for flows in directions:
            flows.straight[...] = np.diff(sums if flows.axis == 0 else sums.T, axis=0)
            if self.sum_widths:
                spread = self.lines[flows.axis].apply_adjoint(flows.straight, flows.sums)
                flows.straight[...] += spread
                flows.rising[...] += spread[:, :-1]
                flows.falling[...] += spread[:, 1:] if flows.axis == 0 else -spread[:, 1:]
        if self.arrivals:
            draws[Kind.ARRIVALS][...] = flat[self.entry_blocks]
        if self.hub_grid is not None:
            self.hub_grid.apply_adjoint(flat[self.hub_grid.places], draws)
        if not self.blocks_are_cells:
            draws["cells"][...] = weights[: self.domain.size]
        return noise

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | None:
        costs = PathCosts(self, norm)
        most, far = costs.find_direct(near), costs.bound_far(near)
        if far > most and self.domain.size <= 400 and (self.hub_widths or self.sum_widths):
            return None  # the bound may be loose, and the exact cost is cheap on small domains
        most = max(most, far)
        if near.source_cells.any():
            block, point, by_hub = find_entrances(self, near)
            distance = (*np.abs(block - point), 0)[:2]
            seen = np.zeros((*(*self.blocks, 1)[:2], 2), dtype=bool)
            seen[(*distance, by_hub.astype(np.int64))] = True
            most = max(most, *(costs.price_arrival(x, y, bool(hub)) for x, y, hub in np.argwhere(seen).tolist()))
        return Fraction(most, costs.denominator**norm)

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        return Routes(self, near).changes()


class PathCosts:
    """The costs of a flow's steps, paths and entry points, as integers in units of 1 / denominator^norm.

    At every border, the weights of the sums on one level add up to one. The weights of the sums at a hub also add up to
    one, and so do the weights of its strips along either axis. So sums cost their share in the 1-norm, and at most the
    square of their share in the 2-norm, with equality where one sum has all the weight.
    """

    def __init__(self, flow: Flow, norm: int) -> None:
        self.flow = flow
        self.denominator = math.lcm(*(share.denominator for share in flow.kind_shares.values()))
        share = {name: int(share * self.denominator) ** norm for name, share in flow.kind_shares.items()}
        self.cells, self.arrival = share.pop("cells", 0), share.pop(Kind.ARRIVALS, 0)
        # A hub belongs to strips along both axes.
        self.hub = share.pop(Kind.HUBS, 0) + share.pop(Kind.HUB_SUMS, 0) + 2 * share.pop(Kind.HUB_STRIPS, 0)
        straight, diagonal = share.pop(Kind.STRAIGHT), share.pop(Kind.DIAGONAL, 0)
        sums = sum(share.values())
        #: The costs of a step across one border (straight) and of a step across two (diagonal).
        self.straight, self.diagonal = straight + sums, diagonal + 2 * sums

    def price_path(self, x: int, y: int) -> int:
        """Return the cost of a path to a block that is x and y blocks away. Diagonal steps precede straight steps."""
        return min(x, y) * self.diagonal + abs(x - y) * self.straight

    def price_longest(self, x: int, y: int) -> int:
        """Return the largest cost of a path to a block that is at most x and y blocks away."""
        # The cost is linear on either side of x = y.
        corners = {(i, j) for i in {0, min(x, y), x} for j in {0, min(x, y), y}}
        return max(self.price_path(i, j) for i, j in corners)

    @property
    def through_hub(self) -> int:
        """The largest cost of a path from a block to its hub, including the cost of the hub."""
        assert self.flow.hub_grid is not None
        x, y = self.flow.hub_grid.axes
        return self.price_longest(x.longest_walk, y.longest_walk) + self.hub

    def price_arrival(self, x: int, y: int, through_hub: bool) -> int:
        """Return the cost of an arrival in a block that is x and y blocks away from the entry point."""
        return self.price_path(x, y) + (self.hub if through_hub else self.arrival) + self.cells

    def find_direct(self, near: Neighbourhood) -> int:
        """Return the largest cost of a move that takes its direct path."""
        if not near.frontier.any():
            return 0
        # A move by d cells crosses up to ⌈d / block⌉ borders, and shorter moves are also allowed.
        limit = np.minimum(np.array(self.flow.blocks) - 1, find_longest_direct(self.flow))
        far = np.minimum(-(-near.frontier // self.flow.sides), limit)
        return max(self.price_longest(*(*move, 0)[:2]) for move in np.unique(far, axis=0).tolist()) + 2 * self.cells

    def bound_far(self, near: Neighbourhood) -> int:
        """Return an upper bound on the cost of moves through hubs, or 0 if no move goes through hubs.

        The cost of a move depends on how far each end is from its hub along each axis. The bound is the maximum over
        all combinations that the neighbourhood allows. A move that crosses a line in both directions costs less.
        """
        hubs, limit = self.flow.hub_grid, find_longest_direct(self.flow)
        if hubs is None or max(self.flow.blocks) <= limit + 1:
            return 0
        (least_x, far_x), (least_y, far_y) = (_find_least_distances(line, limit) for line in hubs.axes)
        walk = np.array([[self.price_path(i, j) for j in range(len(least_y))] for i in range(len(least_x))], object)
        most = -1
        for one, other in np.ndindex(least_x.shape):
            taken = self._are_moves(near, far_x[one, other], least_y)
            taken |= self._are_moves(near, least_x[one, other], far_y)
            if taken.any():
                most = max(most, *np.add.outer(walk[one], walk[other])[taken].tolist())
        return 0 if most < 0 else most + 2 * (self.hub + self.cells)

    def _are_moves(self, near: Neighbourhood, x: IntArray, y: IntArray) -> NDArray[np.bool_]:
        """Return whether the neighbourhood allows any move between blocks that are x and y blocks apart."""
        sides = (*self.flow.sides, 1)
        wide, high = (np.where(d > 0, (d - 1) * side + 1, 0) for d, side in zip((x, y), sides, strict=False))
        if near.domain.ndim == 1:
            return np.asarray((wide <= near.reach[0]) & (high == 0))
        far = near.reach[np.minimum(wide, len(near.reach) - 1)]
        return np.asarray((wide < len(near.reach)) & (high <= far))


def find_longest_direct(flow: Flow) -> int:
    """Return the largest distance along an axis, in blocks, that moves cover directly instead of through hubs.

    A direct path of this length costs about as much as the most expensive path through hubs. The distance does not
    depend on the kind of noise or on the neighbourhood, so a move always takes the same path.
    """
    if flow.hub_grid is None:
        return max(flow.blocks)
    costs = PathCosts(flow, 1)
    same = 2 * max(line.longest_walk for line in flow.hub_grid.axes)  # blocks with the same hub can be this far apart
    return max(same, 2 * costs.through_hub // max(costs.straight, costs.diagonal))


def _find_least_distances(line: HubLine, limit: int) -> tuple[IntArray, IntArray]:
    """Return tables of the least distance between two blocks, and the least above a limit, by distances from hubs."""
    never = 1 << 40  # longer than any move
    block = np.arange(line.n)
    offset = np.abs(block - line.places[block // line.blocks_apart])
    least, beyond = (np.full((line.longest_walk + 1,) * 2, never) for _ in range(2))
    # The pattern of hubs repeats, so combinations that do not occur within three hub distances never occur.
    for distance in range(min(line.n, limit + 3 * line.blocks_apart + 1)):
        seen = np.zeros(least.shape, dtype=bool)
        seen[offset[: line.n - distance], offset[distance:]] = True
        seen |= seen.T
        least[seen & (least == never)] = distance
        if distance > limit:
            beyond[seen & (beyond == never)] = distance
    return least, beyond


def find_entrances(flow: Flow, near: Neighbourhood) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Return the block of every source cell, the block where its arrivals enter, and whether that block is a hub.

    An arrival enters at the nearest block with noise for arrivals, or at the hub of its block if the hub costs less.
    """
    hubs, places = flow.hub_grid, np.nonzero(near.source_cells)
    block = np.stack([p // b for p, b in zip(places, flow.sides, strict=True)])
    if not len(flow.entry_blocks):
        if hubs is None:
            raise InputError(
                'arrivals is None, but the neighbourhood has sources: use Flow.tuned(near) or arrivals="boundary"'
            )
        return block, hubs.find_hub_blocks(block), np.ones(len(places[0]), dtype=bool)
    closed = np.ones(flow.blocks, dtype=bool)
    closed.reshape(-1)[flow.entry_blocks] = False
    how: dict[str, Any] = {"metric": "chessboard", "return_distances": False, "return_indices": True}
    nearest = scipy.ndimage.distance_transform_cdt(closed, **how)
    point = nearest[(slice(None), *block)]
    far = np.zeros(len(places[0]), dtype=bool)
    if hubs is not None:
        costs = PathCosts(flow, 1)
        most = max(0, (costs.through_hub - costs.arrival) // max(costs.straight, costs.diagonal))
        far = np.abs(point - block).max(axis=0) > most
        point[:, far] = hubs.find_hub_blocks(block[:, far])
    return block, point, far


class Routes:
    """The path of every move and arrival through the blocks of a flow, and the change in draws that hides the path.

    A move takes diagonal steps between blocks first, then straight steps. A move beyond `find_longest_direct` leaves
    the map at the hub of its first block and re-enters at the hub of its last block. An arrival starts at its entry
    block and continues like a move. Each step changes the draws at the borders that it crosses.
    """

    def __init__(self, flow: Flow, near: Neighbourhood) -> None:
        self.flow, self.near = flow, near
        #: The indices of the draws, split by `Flow.split_draws`.
        self._draws, self._crossings = flow.split_draws(np.arange(flow.draws))
        self._changes: list[tuple[IntArray, IntArray, IntArray]] = []

    def changes(self) -> scipy.sparse.csr_array:
        """Return the matrix U, whose column e is the change in the draws that hides edge e."""
        flow, edges = self.flow, self.near.edges()
        moves, every = edges[:, 0] >= 0, np.arange(len(edges))
        if not flow.blocks_are_cells:
            self._changes.append((edges[:, 1], every, np.ones_like(every)))
            self._changes.append((edges[moves, 0], every[moves], -np.ones_like(every[moves])))
        cell = np.stack(np.unravel_index(edges.clip(0), flow.domain.shape))
        here, there = np.moveaxis(cell // np.array(flow.sides)[:, None, None], 2, 0)
        if not moves.all():
            # Arrivals are in the order of the source cells.
            _, point, hub = find_entrances(flow, self.near)
            arriving = every[~moves]
            if hub.any():
                self._enter_hubs(there[:, arriving[hub]], arriving[hub], 1)
            if not hub.all():
                entry = np.searchsorted(flow.entry_blocks, np.ravel_multi_index(tuple(point[:, ~hub]), flow.blocks))
                self._add_changes(self._draws[Kind.ARRIVALS][entry], arriving[~hub], np.ones_like(entry))
            self._walk_blocks(point, there[:, arriving], arriving)
        far = moves & (np.abs(there - here).max(axis=0) > find_longest_direct(flow))
        if (hubs := flow.hub_grid) is not None and far.any():
            start, end = here[:, far], there[:, far]
            self._walk_blocks(start, hubs.find_hub_blocks(start), every[far])
            self._enter_hubs(start, every[far], -1)
            self._enter_hubs(end, every[far], 1)
            self._walk_blocks(hubs.find_hub_blocks(end), end, every[far])
        direct = moves & ~far
        self._walk_blocks(here[:, direct], there[:, direct], every[direct])
        draws, columns, values = (np.concatenate(part) for part in zip(*self._changes, strict=True))
        return scipy.sparse.csr_array((values, (draws, columns)), shape=(flow.draws, len(edges)))

    def _add_changes(self, draw: IntArray, edge: IntArray, value: IntArray) -> None:
        some = value != 0
        self._changes.append((draw[some], edge[some], value[some] * UNITS))

    def _walk_blocks(self, here: IntArray, there: IntArray, edge: IntArray) -> None:
        """Cross all borders on the paths from the m blocks `here` to the m blocks `there`."""
        here = here.copy()
        while len(going := np.flatnonzero((here != there).any(axis=0))):
            step = np.sign(there[:, going] - here[:, going])
            self._cross_borders(here[:, going], step, edge[going])
            here[:, going] += step

    def _cross_borders(self, here: IntArray, step: IntArray, edge: IntArray) -> None:
        """Step from m blocks to neighbours. This changes draws of single borders by −1 or 1, and sums by weights."""
        there = here + step
        low = np.minimum(here, there)
        for axis, crossings in enumerate(self._crossings):
            crossed = np.flatnonzero(step[axis])
            sign, line = step[axis, crossed], low[axis, crossed]
            if len(step) == 1:
                self._add_changes(crossings.straight[line, 0], edge[crossed], sign)
                return
            # Diagonal moves belong to the border at their left or lower end.
            place = np.where(sign > 0, here[1 - axis, crossed], there[1 - axis, crossed])
            straight = step[1 - axis, crossed] == 0
            self._add_changes(crossings.straight[line, place], edge[crossed], np.where(straight, sign, 0))
            if crossings.sums:
                table = np.concatenate(crossings.sums, axis=-1)
                for which, weight in self.flow.lines[axis].windows.iterate_weights(place):
                    self._add_changes(table[line, which], edge[crossed], sign * weight)
        both = np.flatnonzero(step.all(axis=0))
        diagonal = self._crossings[0].rising, self._crossings[0].falling
        rising, falling = (table[low[0, both], low[1, both]] for table in diagonal)
        draw = np.where(step[0, both] == step[1, both], rising, falling)
        self._add_changes(draw, edge[both], step[0, both])

    def _enter_hubs(self, block: IntArray, edge: IntArray, sign: int) -> None:
        """Enter (sign 1) or leave (sign −1) at the hubs of m blocks. This changes draws of hubs, squares and strips."""
        hubs = self.flow.hub_grid
        assert hubs is not None
        x, y = hubs.axes
        at_x, at_y = (*hubs.find_hubs(block), np.zeros_like(edge))[:2]
        own, *sums = hubs.split_draws(self._draws)
        self._add_changes(own[at_x, at_y], edge, np.full_like(edge, sign))
        if not sums:
            return
        on_x, on_y = (list(line.windows.iterate_weights(at)) for line, at in ((x, at_x), (y, at_y)))
        for (i, of_x), (j, of_y) in itertools.product(on_x, on_y):
            self._add_changes(sums[0][i, j], edge, sign * of_x * of_y)
        if hubs.strips:
            for i, of_x in on_x:
                self._add_changes(sums[1][i, at_y], edge, sign * of_x)
            for j, of_y in on_y:
                self._add_changes(sums[2][at_x, j], edge, sign * of_y)
