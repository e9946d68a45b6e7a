"""Flow: noise that flows between neighbouring blocks, so that a box's noise grows with its rim, not its area."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.errors import InputError, one_of, whole
from deltahist.space.domain import Domain
from deltahist.strategies.base import Group, Strategy, numbers_of, read_shares
from deltahist.strategies.flow import hub_choice, tuning
from deltahist.strategies.flow.costs import Kind, Prices, Routes
from deltahist.strategies.flow.decoder import FlowDecoder
from deltahist.strategies.flow.entry import (
    ARRIVALS,
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    EntryPoints,
    HubGrid,
    Hubs,
    read_hubs,
)
from deltahist.strategies.flow.lines import BITS, DIAGONAL, STRAIGHT, FlowDraws, Lines, strips, sums_on
from deltahist.strategies.flow.tuning import SUMS, usual_shares
from deltahist.strategies.grids import Starts, spread_blocks, sum_blocks

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

_ONE = 1 << BITS
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Flow(Strategy):
    """Noise on the moves themselves: mass that flows between neighbouring blocks of cells.

    Released are the block sums S c + D φ, where φ is noise on the borders between blocks and D takes flows to
    what each block gains: the total is kept exactly, and what a box gains is what flows through its rim.
    Along every grid line the flow across is estimated from the noise on single borders (`straight` and
    `diagonal` moves) and on weighted sums of neighbouring borders (`widths`), so that noise grows with the
    logarithm of the rim. With blocks of several cells the cells are released as well, with noise of their own,
    and joined to the sums.
    Source: docs/privacy/factorisation.md (E = K U); Blowfish (He et al. 2014; Haney et al. 2015) for the idea
    of noise on the edges of a policy graph.

    Parameters
    ----------
    domain : Domain
    block : cells per side of a block, one number or one per axis. δ of at most a block costs one crossing of a
        line per axis; longer moves cost more.
    widths : distances, in borders, between overlapping sums that get noise of their own, one level for each,
        increasing; () for none (and in 1-D). When None, what suits all ranges (`Flow.tuned` looks for the best).
    shares : of ε, for the groups in the order of `groups`: cells (blocks of several cells only), straight and
        diagonal (2-D only) flows, one for each width, arrivals, hubs, their sums and strips (if any); usual if None.
    arrivals : blocks where entities may appear or vanish: None (fixed membership), "boundary" (the outermost
        blocks) or flat indices of blocks.
    hubs : blocks between hubs, odd; long moves leave and enter at the hubs of their ends, and cost no more than these
        and the ways to them. None for none: a move across the whole domain then costs as many crossings.
    hub_widths : distances, in hubs, between overlapping sums over squares of hubs, which have noise of their own; one
        for each level of them, multiples of the one before. () for none.
    centred : whether sums along lines are placed alike at both ends, one more of them (so tuned for limits).
    hub_strips : whether hubs also have sums along one axis alone, as far apart, of the hubs in one row or column.

    Raises
    ------
    InputError
        If the domain is a single block, or a width or an index does not fit.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 0, 1, 1), (8, 8))
    >>> near = dh.Neighbourhood(domain, delta=1 / 8)
    >>> int(dh.sensitivity(Flow(domain), near))        # straight and diagonal moves alike
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
    hub_widths: int | tuple[int, ...] = ()
    centred: bool = False
    hub_strips: bool = False

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("flow[:block]",)

    def __post_init__(self) -> None:
        block = self.block if isinstance(self.block, list | tuple) else (self.block,) * self.domain.ndim
        if len(block) != self.domain.ndim:
            raise InputError(
                f"block is {self.block!r}: it must be one number, or one for each of {self.domain.ndim} axes"
            )
        object.__setattr__(self, "block", tuple(whole(block=b) for b in block))
        if max(self.blocks) < 2:
            raise InputError(
                f"block is {self.block!r}: the domain of {self.domain.shape} cells must have at least two blocks"
            )
        widths = tuning.usual_widths(self.blocks) if self.widths is None else self.widths
        widths = tuple(whole(least=2, widths=w) for w in widths)
        object.__setattr__(self, "widths", widths)
        if list(widths) != sorted(set(widths)) or (
            widths and (self.domain.ndim == 1 or widths[-1] > max(self.blocks))
        ):
            raise InputError(
                f"widths is {widths}: they must increase, and be no longer than a line of {max(self.blocks)} blocks "
                "(in 1-D there are no lines to sum along)"
            )
        if isinstance(self.arrivals, str):
            one_of(("boundary",), "or None, or flat indices of blocks", arrivals=self.arrivals)
        elif self.arrivals is not None:
            cells = tuple(sorted(whole(least=0, arrivals=a) for a in self.arrivals))
            object.__setattr__(self, "arrivals", cells or None)
            if cells and (cells[-1] >= self.size or len(set(cells)) < len(cells)):
                raise InputError(
                    f"arrivals is {cells[:5]}...: it must hold different blocks from 0 to {self.size - 1}"
                )
        for name, value in read_hubs(
            self.blocks, self.hubs, self.hub_widths, self.hub_strips, self.centred
        ).items():
            object.__setattr__(self, name, value)
        if self.shares is not None:
            object.__setattr__(self, "shares", read_shares(self.shares, len(self.kinds), "group of the flow"))

    @classmethod
    def tuned(
        cls,
        near: Neighbourhood,
        workload: Workload | None = None,
        *,
        norm: int = 1,
        block: int | tuple[int, ...] | None = None,
    ) -> Flow:
        """Return the flow with the least expected error on a workload, over the sums and shares that are tried.

        Parameters
        ----------
        near : the neighbourhood; decides which blocks have arrivals, and by its limits which are hubs.
        workload : the queries; all ranges when None (regions count as all ranges).
        norm : 1 for Laplace, 2 for Gaussian noise.
        block : cells per side; the longest move within δ when None.

        Raises
        ------
        InputError
            If the domain is a single block.

        >>> import deltahist as dh
        >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64)
        >>> Flow.tuned(near).widths
        (14,)
        """
        plain = cls(near.domain, tuning.longest_move(near) if block is None else block, ())
        arrivals = tuning.blocks_reached(near, plain)
        bare = cls(near.domain, plain.block, (), arrivals=arrivals, centred=bool(near.profile))
        if near.profile:
            return cls(near.domain, bare.block, **hub_choice.best_flow(near, bare, workload, norm))
        sums = tuning.best_sums(bare, workload, norm)
        return cls(near.domain, bare.block, sums.widths, sums.shares, bare.arrivals)

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Flow:
        return cls.tuned(near, norm=norm, block=next(iter(numbers_of(text, 1)), None))

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        """Yield flows between blocks as long as a move within δ, and twice as long; with hubs for limits."""
        for times in (1, 2):
            sides = tuple(times * b for b in tuning.longest_move(near))
            if any(2 * b <= n for b, n in zip(sides, near.domain.shape, strict=True)):
                flow = cls.tuned(near, workload, norm=norm, block=sides)
                cells = "cell" if math.prod(sides) == 1 else " × ".join(map(str, sides)) + " cells"
                sums = f", sums {', '.join(map(str, flow.widths or ()))} apart" if flow.widths else ""
                hubs = f", hubs {flow.hubs} apart" if flow.hubs else ""
                yield f"Flow (blocks of {cells}{sums}{hubs})", flow

    # -- what is measured ----------------------------------------------------------------------------------

    @functools.cached_property
    def starts(self) -> Starts:
        """The first cell of every block, per axis."""
        assert isinstance(self.block, tuple)
        return tuple(np.arange(0, n, b) for n, b in zip(self.domain.shape, self.block, strict=True))

    @functools.cached_property
    def blocks(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(len(s) for s in self.starts)

    @functools.cached_property
    def size(self) -> int:
        """Number of blocks."""
        return math.prod(self.blocks)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether blocks are single cells."""
        return self.blocks == self.domain.shape

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return (self.size + (0 if self.plain else self.domain.size), self.domain.size)

    @property
    def keeps_total(self) -> bool:  # type: ignore[override]
        return self.arrivals is None and self.hubs is None

    @property
    def parts(self) -> tuple[Group, ...]:
        sums = Group("sums of blocks", slice(self.shape[0] - self.size, self.shape[0]))
        return (sums,) if self.plain else (Group("cells", slice(0, self.domain.size)), sums)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        sums = sum_blocks(X.reshape(*self.domain.shape, -1), self.starts).reshape(self.size, -1) * _ONE
        return sums if self.plain else np.concatenate([X, sums])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        own = X[self.shape[0] - self.size :].reshape(*self.blocks, -1) * _ONE
        out = spread_blocks(own, self.starts, self.domain.shape).reshape(-1, X.shape[1])
        return out if self.plain else out + X[: self.domain.size]

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        if float(counts.sum(dtype=np.float64)) >= 2.0**62 / _ONE:
            raise InputError("counts add up to more than a flow strategy holds: at most 2^58 points")
        return super().measure(counts)

    def decoder_class(self) -> type[Decoder]:
        return FlowDecoder

    # -- how noise enters ----------------------------------------------------------------------------------

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of draws, in order."""
        crossing = Fraction(1, _ONE)
        out = [] if self.plain else [Kind("cells", self.domain.size, Fraction(1))]
        if self.domain.ndim == 1:
            out.append(Kind(STRAIGHT, self.blocks[0] - 1, crossing))
        else:
            nx, ny = self.blocks
            out.append(Kind(STRAIGHT, (nx - 1) * ny + nx * (ny - 1), crossing))
            out.append(Kind(DIAGONAL, 2 * (nx - 1) * (ny - 1), crossing))
            for w in self._widths:
                number = (nx - 1) * sums_on(ny, w, self.centred) + (ny - 1) * sums_on(nx, w, self.centred)
                out.append(Kind(f"sums {w} borders apart", number, crossing / (2 * w), width=w))
        if self.arrivals is not None:
            out.append(Kind(ARRIVALS, len(self.entries), crossing))
        if (hubs := self.hub_grid) is not None:
            out.append(Kind(HUBS, len(hubs.places), crossing))
            if hubs.sums:
                out.append(Kind(HUB_SUMS, hubs.sums, crossing / hubs.unit))
            if hubs.strips:
                number = sum(math.prod(shape) for shape in hubs.shapes)
                out.append(Kind(HUB_STRIPS, number, crossing / hubs.axes[0].unit))
        return tuple(out)

    @functools.cached_property
    def hub_grid(self) -> HubGrid | None:
        """Where the hubs are."""
        if self.hubs is None:
            return None
        assert isinstance(self.hub_widths, tuple)
        return HubGrid.between(self.blocks, self.hubs, self.hub_widths, self.hub_strips)

    @functools.cached_property
    def entry_points(self) -> tuple[EntryPoints, ...]:
        """Where mass may enter, with the noise there."""
        arrivals = () if self.arrivals is None else (EntryPoints(ARRIVALS, self.entries),)
        if (grid := self.hub_grid) is None:
            return arrivals
        share = self.share_of
        ratios = (float(share[HUBS] / share[name]) ** 2 for name in (HUB_SUMS, HUB_STRIPS) if name in share)
        return (*arrivals, Hubs(HUBS, grid.places, grid, tuple(ratios)))

    @functools.cached_property
    def entries(self) -> NDArray[np.int64]:
        """Flat indices of the blocks where entities may appear."""
        if self.arrivals is None:
            return np.zeros(0, dtype=np.int64)
        if isinstance(self.arrivals, str):
            return np.flatnonzero(tuning.outermost(self.blocks))
        return np.array(self.arrivals, dtype=np.int64)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        # Draws are counted in units: a move is 1/unit of them, and each counts that much less.
        ends = np.cumsum([0, *(kind.number for kind in self.kinds)]).tolist()
        return tuple(
            Group(kind.name, slice(lo, hi), self.share_of[kind.name] * kind.unit, kind.unit)
            for kind, lo, hi in zip(self.kinds, ends[:-1], ends[1:], strict=True)
        )

    @functools.cached_property
    def share_of(self) -> dict[str, Fraction]:
        """Share of each kind by name, a flow being counted in whole points."""
        if self.shares is not None:
            return {kind.name: share for kind, share in zip(self.kinds, self.shares, strict=True)}
        usual = usual_shares(len(self._widths))
        return {kind.name: usual.get(kind.name, usual[SUMS]) for kind in self.kinds}

    @property
    def draws(self) -> int:
        return sum(kind.number for kind in self.kinds)

    def sums_of(self, of: Callable[[Kind], T]) -> list[T]:
        """Return a figure of each level of sums, in the order of the widths."""
        return [of(kind) for kind in self.kinds if kind.width is not None]

    @functools.cached_property
    def lines(self) -> tuple[Lines, ...]:
        """How the flow across a line along y, and across one along x, is estimated; none in 1-D."""
        if self.domain.ndim == 1:
            return ()
        own = self.sums_of(lambda kind: self.share_of[kind.name])
        leaf = [float(1 / self.share_of[name]) ** 2 for name in (STRAIGHT, DIAGONAL)]
        return tuple(
            Lines(n, self._widths, leaf[0], leaf[1], tuple(float(1 / w) ** 2 for w in own), self.centred)
            for n in reversed(self.blocks)
        )

    def split(self, noise: NDArray[Any]) -> FlowDraws:
        """Return the draws (..., draws) by what they are; views of a single release's."""
        by_kind = {g.name: noise[..., g.members] for g in self.groups}
        sums = self.sums_of(lambda kind: by_kind[kind.name])
        return FlowDraws.between(self.blocks, by_kind, sums, self.lines)

    @property
    def scatters_linearly(self) -> bool:
        return not self.widths and not self.hub_widths  # sums are joined to the flows by rounding

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Return R(η), also of many releases at once: draws (..., draws) to values (..., k)."""
        draws, releases = self.split(noise), noise.shape[:-1]
        out = np.zeros((*releases, self.blocks[0], math.prod(self.blocks[1:])), dtype=noise.dtype)
        across, up = self.lines if self.widths else (None, None)
        for some, after in strips(draws.east):
            if draws.rising is not None and draws.falling is not None:
                rising, falling = draws.rising[..., some, :], draws.falling[..., some, :]
                out[..., some, :-1] -= rising
                out[..., after, 1:] += rising
                out[..., some, 1:] -= falling
                out[..., after, :-1] += falling
            east = draws.flow_east(some, across)
            out[..., some, :] -= east
            out[..., after, :] += east
        for some, after in strips(draws.north):
            north = draws.flow_north(some, up).mT
            out[..., some] -= north
            out[..., after] += north
        flat = out.reshape(*releases, -1)
        for point in self.entry_points:
            flat[..., point.places] += point.inflow(draws.by_kind)
        return flat if self.plain else np.concatenate([draws.by_kind["cells"], flat], axis=-1)

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        noise = np.zeros(self.draws)
        draws = self.split(noise)
        sums = (flat := weights[self.shape[0] - self.size :]).reshape(self.blocks[0], -1)
        draws.east[...] = np.diff(sums, axis=0)
        if draws.rising is not None and draws.falling is not None:
            draws.north[...] = np.diff(sums, axis=1).T
            draws.rising[...] = sums[1:, 1:] - sums[:-1, :-1]
            draws.falling[...] = sums[1:, :-1] - sums[:-1, 1:]
            if self.widths:
                across, up = self.lines
                on_x = across.adjoint(draws.east, draws.sums_x)
                on_y = up.adjoint(draws.north, draws.sums_y)
                draws.east[...] += on_x
                draws.north[...] += on_y
                draws.rising[...] += on_x[:, :-1] + on_y.T[:-1]
                draws.falling[...] += on_x[:, 1:] - on_y.T[1:]
        for point in self.entry_points:
            point.adjoint(flat[point.places], draws.by_kind)
        if not self.plain:
            draws.by_kind["cells"][...] = weights[: self.domain.size]
        return noise

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | None:
        prices = Prices(self, norm)
        most = prices.move(near)
        if most is not None and near.source_cells.any():
            ways = Routes(self, near).ways_in
            most = max(most, *(prices.arrival_at(x, y, bool(hub)) for x, y, hub in ways))
        return None if most is None else Fraction(most, prices.denominator**norm)

    @property
    def _widths(self) -> tuple[int, ...]:
        assert self.widths is not None
        return self.widths

    @property
    def sides(self) -> tuple[int, ...]:
        """Cells per side of a block, along each axis."""
        return self.block  # type: ignore[return-value]

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        return Routes(self, near).changes()
