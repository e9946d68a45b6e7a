"""Flow: noise that flows between neighbouring blocks, so that a box's noise grows with its rim, not its area."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import Decoder
from deltahist.errors import InputError, check_choice, check_whole
from deltahist.space.domain import Domain
from deltahist.strategies.base import (
    Group,
    Starts,
    Strategy,
    numbers_of,
    read_shares,
    spread_blocks,
    sum_blocks,
)
from deltahist.strategies.flow import costs, tuning
from deltahist.strategies.flow.decoder import FlowDecoder
from deltahist.strategies.flow.lines import Lines, sums_on
from deltahist.strategies.flow.noise import (
    ARRIVALS,
    BITS,
    DIAGONAL,
    HUB_STRIPS,
    HUB_SUMS,
    HUBS,
    STRAIGHT,
    Crossings,
    Hubs,
)

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

_ONE = 1 << BITS


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
    hub_widths: tuple[int, ...] = ()
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
        object.__setattr__(self, "block", tuple(check_whole(block=b) for b in block))
        if max(self.blocks) < 2:
            raise InputError(
                f"block is {self.block!r}: the domain of {self.domain.shape} cells must have at least two blocks"
            )
        widths = tuning.usual_widths(self.blocks) if self.widths is None else self.widths
        widths = tuple(check_whole(least=2, widths=w) for w in widths)
        object.__setattr__(self, "widths", widths)
        if list(widths) != sorted(set(widths)) or (widths and (self.domain.ndim == 1 or widths[-1] > max(self.blocks))):
            raise InputError(
                f"widths is {widths}: they must increase, and be no longer than a line of {max(self.blocks)} blocks "
                "(in 1-D there are no lines to sum along)"
            )
        if isinstance(self.arrivals, str):
            check_choice(("boundary",), arrivals=self.arrivals)
        elif self.arrivals is not None:
            cells = tuple(sorted(check_whole(least=0, arrivals=a) for a in self.arrivals))
            object.__setattr__(self, "arrivals", cells or None)
            if cells and (cells[-1] >= self.size or len(set(cells)) < len(cells)):
                raise InputError(f"arrivals is {cells[:5]}...: it must hold different blocks from 0 to {self.size - 1}")
        self._read_hubs()
        if self.shares is not None:
            object.__setattr__(self, "shares", read_shares(self.shares, len(self.kinds), "group of the flow"))

    def _read_hubs(self) -> None:
        """Check the hubs and their sums, and whether sums along lines are centred."""
        check_choice((True, False), centred=self.centred)
        check_choice((True, False), hub_strips=self.hub_strips)
        widths = tuple(check_whole(least=2, hub_widths=w) for w in self.hub_widths)
        object.__setattr__(self, "hub_widths", widths)
        if self.hubs is None:
            if widths or self.hub_strips:
                raise InputError(f"hub_widths is {widths} without hubs: it is how far apart sums of hubs are")
            return
        hubs, most = check_whole(hubs=self.hubs), max(self.blocks)
        object.__setattr__(self, "hubs", hubs)
        if hubs % 2 == 0 or hubs > most:
            raise InputError(
                f"hubs is {hubs}: it must be odd, so that each hub is in the middle of its blocks, and at most the "
                f"{most} blocks that there are along an axis"
            )
        numbers = [len(line.places) for line in Hubs.between(self.blocks, hubs).axes]
        if any(b % a or a == b for a, b in pairwise(widths)) or max(widths, default=0) > max(numbers):
            raise InputError(
                f"hub_widths is {widths}: each must be a multiple of the one before, and there are only "
                f"{max(numbers)} hubs along an axis"
            )
        if self.hub_strips and (not widths or min(numbers) == 1):
            raise InputError(
                f"hub_strips is True with hub_widths {widths}, and {min(numbers)} hubs along an axis: strips are sums "
                "along one axis of two, as far apart as sums over squares of hubs, and need several hubs along each"
            )

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
        return cls(near.domain, plain.block, **tuning.best_flow(near, bare, workload, norm))

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

    @property
    def sides(self) -> tuple[int, ...]:
        """Cells per side of a block, along each axis."""
        return self.block  # type: ignore[return-value]

    @functools.cached_property
    def starts(self) -> Starts:
        """The first cell of every block, per axis."""
        return tuple(np.arange(0, n, b) for n, b in zip(self.domain.shape, self.sides, strict=True))

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
    def sums(self) -> tuple[str, ...]:
        """Names of the kinds of draws on sums along lines, by level."""
        return tuple(f"sums {w} borders apart" for w in self.widths or ())

    @functools.cached_property
    def hub_grid(self) -> Hubs | None:
        """Where the hubs are, with their sums."""
        return None if self.hubs is None else Hubs.between(self.blocks, self.hubs, self.hub_widths, self.hub_strips)

    @functools.cached_property
    def kinds(self) -> dict[str, tuple[int, Fraction]]:
        """Number of draws, and points that a draw of one counts, by the name of their kind, in order."""
        crossing, n = Fraction(1, _ONE), self.blocks
        out = {} if self.plain else {"cells": (self.domain.size, Fraction(1))}
        if len(n) == 1:
            out[STRAIGHT] = n[0] - 1, crossing
        else:
            lines = ((n[0] - 1, n[1]), (n[1] - 1, n[0]))  # their number, and borders on each
            out[STRAIGHT] = sum(map(math.prod, lines)), crossing
            out[DIAGONAL] = 2 * (n[0] - 1) * (n[1] - 1), crossing
            for name, w in zip(self.sums, self.widths or (), strict=True):
                out[name] = sum(some * sums_on(m, w, self.centred) for some, m in lines), crossing / (2 * w)
        if self.arrivals is not None:
            out[ARRIVALS] = len(self.entries), crossing
        if self.hub_grid is not None:
            out |= {name: (some, crossing / parts) for name, (some, parts) in self.hub_grid.numbers.items()}
        return out

    @functools.cached_property
    def entries(self) -> NDArray[np.int64]:
        """Flat indices of the blocks where entities may appear."""
        if isinstance(self.arrivals, str):
            return np.flatnonzero(tuning.outermost(self.blocks))
        return np.array(self.arrivals or (), dtype=np.int64)

    @functools.cached_property
    def share_of(self) -> dict[str, Fraction]:
        """Share of each kind by name, a flow being counted in whole points."""
        if self.shares is not None:
            return dict(zip(self.kinds, self.shares, strict=True))
        usual = tuning.usual_shares(len(self.sums))
        return {name: usual.get(name, usual[tuning.SUMS]) for name in self.kinds}

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        # Draws are counted in units: a move is 1/unit of them, and each counts that much less.
        out, end = [], 0
        for name, (number, unit) in self.kinds.items():
            out.append(Group(name, slice(end, end + number), self.share_of[name] * unit, unit))
            end += number
        return tuple(out)

    @property
    def draws(self) -> int:
        return sum(number for number, _ in self.kinds.values())

    @functools.cached_property
    def lines(self) -> tuple[Lines, ...]:
        """How the flow across a line along y, and across one along x, is estimated; none in 1-D."""
        if self.domain.ndim == 1:
            return ()
        variance = {name: float(1 / share) ** 2 for name, share in self.share_of.items()}
        own = tuple(variance[name] for name in self.sums)
        usual = self.widths or (), variance[STRAIGHT], variance[DIAGONAL], own, self.centred
        along_y, along_x = (Lines(n, *usual) for n in reversed(self.blocks))
        return along_y, along_y if along_x == along_y else along_x  # lines alike share their tables

    @functools.cached_property
    def hub_noise(self) -> Hubs | None:
        """The hubs with the ratios of their noises, by which their inflow is estimated."""
        share = self.share_of
        ratios = (float(share[HUBS] / share[name]) ** 2 for name in (HUB_SUMS, HUB_STRIPS) if name in share)
        return None if self.hub_grid is None else replace(self.hub_grid, ratios=tuple(ratios))

    def split(self, noise: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], list[Crossings]]:
        """Return the draws (..., draws) by the name of their kind, and the draws on flows by direction: views."""
        draws = {g.name: noise[..., g.members] for g in self.groups}
        return draws, self._crossings(draws)

    def _crossings(self, draws: dict[str, NDArray[Any]]) -> list[Crossings]:
        return Crossings.of_draws(self.blocks, draws, self.lines, self.sums)

    @property
    def scatters_linearly(self) -> bool:
        return not self.widths and not self.hub_widths  # sums are joined to the flows by rounding

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Return R(η), also of many releases at once: draws (..., draws) to values (..., k)."""
        return self._scatter({group.name: noise[..., group.members] for group in self.groups})

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        return self._scatter({group.name: draws for group, draws in zip(self.groups, noise, strict=True)})

    def _scatter(self, draws: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """Return R(η) from the draws of each kind (..., number), floats or whole numbers of 32 or 64 bits."""
        first = draws[STRAIGHT]
        several, kind = first.shape[:-1], np.result_type(first, np.int64)
        # Hubs come first: what their inflow needs is gone from memory before the map is there.
        hubs = self.hub_noise
        inflow = None if hubs is None else hubs.inflow(draws)
        out = np.zeros((*several, self.blocks[0], math.prod(self.blocks[1:])), dtype=kind)
        for flows in self._crossings(draws):
            flows.enter(out, self.lines[flows.axis] if self.widths else None)
        flat = out.reshape(*several, -1)
        if self.arrivals is not None:
            flat[..., self.entries] += draws[ARRIVALS]
        if hubs is not None and inflow is not None:
            flat[..., hubs.places] += inflow
        return flat if self.plain else np.concatenate([draws["cells"], flat], axis=-1)

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        noise = np.zeros(self.draws)
        draws, directions = self.split(noise)
        sums = (flat := weights[self.shape[0] - self.size :]).reshape(self.blocks[0], -1)
        if len(self.blocks) == 2:
            directions[0].rising[...] = sums[1:, 1:] - sums[:-1, :-1]
            directions[0].falling[...] = sums[1:, :-1] - sums[:-1, 1:]
        for flows in directions:
            flows.straight[...] = np.diff(sums if flows.axis == 0 else sums.T, axis=0)
            if self.widths:
                spread = self.lines[flows.axis].adjoint(flows.straight, flows.sums)
                flows.straight[...] += spread
                flows.rising[...] += spread[:, :-1]
                flows.falling[...] += spread[:, 1:] if flows.axis == 0 else -spread[:, 1:]
        if self.arrivals is not None:
            draws[ARRIVALS][...] = flat[self.entries]
        if self.hub_noise is not None:
            self.hub_noise.adjoint(flat[self.hub_noise.places], draws)
        if not self.plain:
            draws["cells"][...] = weights[: self.domain.size]
        return noise

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | None:
        return costs.edge_cost(self, near, norm)

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        return costs.Routes(self, near).changes()
