"""Doors: blocks where mass enters and leaves with noise of its own, for arrivals and for moves too long to walk."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, whole
from deltahist.strategies.lines import exact_product, hats, sums_on

#: Names of kinds of draws.
ARRIVALS, HUBS, HUB_SUMS = "arrivals", "hubs", "sums of hubs"


@dataclass(frozen=True, eq=False)
class Doors:
    """Blocks with noise on what enters there.

    Parameters
    ----------
    name : of the kind of their draws. places : flat indices of the blocks, increasing.
    """

    name: str
    places: NDArray[np.int64]

    def entering(self, draws: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """What enters at each door (..., doors), from the draws of all kinds."""
        return draws[self.name]

    def adjoint(self, weights: NDArray[np.float64], draws: dict[str, NDArray[np.float64]]) -> None:
        """From weights (doors,) on what enters those on the draws, which are written into `draws`."""
        draws[self.name][...] = weights


@dataclass(frozen=True, eq=False)
class HubLine:
    """Hubs along one axis of n blocks, one in the middle of every `spacing` blocks, and their sums.

    Parameters
    ----------
    n : blocks. spacing : between hubs, odd; less on an axis that has not so many blocks.
    width : between the centres of sums, in hubs; None for none.
    """

    n: int
    spacing: int
    width: int | None

    @functools.cached_property
    def apart(self) -> int:
        """Blocks between hubs: odd, so that each hub is in the middle of its own, and at least one is."""
        return min(self.spacing, self.n - 1 + self.n % 2)

    @property
    def walk(self) -> int:
        """Blocks from any block to its hub, at most."""
        return self.apart // 2

    @functools.cached_property
    def places(self) -> NDArray[np.int64]:
        """Block of each hub; what is left over at the end has one, too."""
        return np.minimum(np.arange(0, self.n, self.apart) + self.walk, self.n - 1)

    @property
    def sums(self) -> int:
        """Number of sums; one of all hubs where there are none to tell apart."""
        if self.width is None or len(self.places) == 1:
            return 1
        return sums_on(len(self.places), self.width, centred=True)

    @functools.cached_property
    def weights(self) -> NDArray[np.int64]:
        """Of the hubs in each sum (sums, hubs), in parts of `unit`; at every hub they add up to it."""
        if self.width is None or len(self.places) == 1:
            return np.ones((1, len(self.places)), dtype=np.int64)
        return hats(len(self.places), self.width, centred=True)

    @property
    def unit(self) -> int:
        """Parts that weights are counted in."""
        return int(self.weights[:, 0].sum())

    @functools.cached_property
    def squares(self) -> NDArray[np.float64]:
        """Eigenvalues of Θ Θᵀ for the weights Θ."""
        return self._decomposed[0]

    @functools.cached_property
    def turn(self) -> NDArray[np.float64]:
        """Eigenvectors of Θ Θᵀ, as columns."""
        return self._decomposed[1]

    @functools.cached_property
    def waves(self) -> NDArray[np.float64]:
        """What each eigenvector weights hubs with (sums, hubs)."""
        return self.turn.T @ (self.weights / self.unit)

    @functools.cached_property
    def _decomposed(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        theta = self.weights / self.unit
        values, vectors = np.linalg.eigh(theta @ theta.T)
        return values, vectors


@dataclass(frozen=True, eq=False)
class HubGrid:
    """The hubs of a grid of blocks.

    Parameters
    ----------
    axes : the hubs along each axis; a second axis of one block in 1-D.
    """

    axes: tuple[HubLine, HubLine]

    @classmethod
    def between(cls, blocks: tuple[int, ...], spacing: int, width: int | None) -> HubGrid:
        """Hubs so many blocks apart, with sums so many hubs apart."""
        lines = {
            n: HubLine(n, spacing, width) for n in (*blocks, 1)[:2]
        }  # axes alike share what is worked out
        x, y = (lines[n] for n in (*blocks, 1)[:2])
        return cls((x, y))

    @functools.cached_property
    def places(self) -> NDArray[np.int64]:
        """Flat indices of the hubs' blocks."""
        x, y = self.axes
        return np.add.outer(x.places * y.n, y.places).ravel()

    @property
    def sums(self) -> int:
        """Number of sums; 0 for none."""
        return math.prod(line.sums for line in self.axes) if self.axes[0].width is not None else 0

    @property
    def unit(self) -> int:
        """Parts that the weights of the sums are counted in."""
        return math.prod(line.unit for line in self.axes)

    def hub_of(self, block: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number along each axis (ndim, m) of the hub of blocks (ndim, m)."""
        return np.stack([b // line.apart for b, line in zip(block, self.axes, strict=False)])

    def place_of(self, hub: NDArray[np.int64]) -> NDArray[np.int64]:
        """Blocks (ndim, m) of hubs (ndim, m)."""
        return np.stack([line.places[h] for h, line in zip(hub, self.axes, strict=False)])


@dataclass(frozen=True, eq=False)
class Hubs(Doors):
    """Doors every few blocks, through which far moves leave and enter.

    What enters at the hubs is estimated as the flow along a line is (`Lines`): ζ is what the hubs' own noise says, s
    the sums Θ ζ over squares of hubs as noise of their own has them, and the estimate is ζ + C (s − Θ ζ) with
    C = Θᵀ (Θ Θᵀ + W/V)⁻¹. A move changes s and Θ ζ alike. Θ is a product over the axes, and so is all but one division.

    Parameters
    ----------
    grid : where they are. ratio : variance of the noise on a sum over that of a hub's own; None without sums.
    """

    grid: HubGrid
    ratio: float | None

    @functools.cached_property
    def gain(self) -> NDArray[np.float64]:
        """C between the eigenvectors of both axes: 1/(λ μ + W/V)."""
        assert self.ratio is not None
        x, y = self.grid.axes
        return np.asarray(1 / (np.multiply.outer(x.squares, y.squares) + self.ratio))

    def entering(self, draws: dict[str, NDArray[Any]]) -> NDArray[Any]:
        own = draws[HUBS]
        if self.ratio is None:
            return own
        (x, y), before = self.grid.axes, own.shape[:-1]
        hubs = own.reshape(*before, len(x.places), len(y.places))
        held = exact_product(exact_product(hubs, y.weights).mT, x.weights).mT
        surplus = draws[HUB_SUMS].reshape(held.shape) - held
        waves = (x.turn.T @ (surplus / self.grid.unit) @ y.turn) * self.gain
        more = x.waves.T @ waves @ y.waves
        more = more if own.dtype.kind == "f" else np.rint(more).astype(own.dtype)
        return np.asarray((hubs + more).reshape(own.shape))

    def adjoint(self, weights: NDArray[np.float64], draws: dict[str, NDArray[np.float64]]) -> None:
        own = weights
        if self.ratio is not None:
            x, y = self.grid.axes
            hubs = weights.reshape(len(x.places), len(y.places))
            back = self.gain * (x.waves @ hubs @ y.waves.T)
            draws[HUB_SUMS][...] = (x.turn @ back @ y.turn.T).ravel() / self.grid.unit
            own = (hubs - x.waves.T @ back @ y.waves).ravel()
        draws[HUBS][...] = own


def read_hubs(blocks: tuple[int, ...], hubs: Any, hub_width: Any, centred: Any) -> dict[str, Any]:
    """Hubs so many blocks apart, sums of so many hubs, and whether sums of borders are centred, as a flow keeps them.

    Raises InputError unless they fit its blocks.
    """
    if not isinstance(centred, bool | np.bool_):
        raise InputError(f"centred is {centred!r}: it must be True or False")
    if hubs is None:
        if hub_width is not None:
            raise InputError(f"hub_width is {hub_width!r} without hubs: it is how far apart sums of hubs are")
        return {"centred": bool(centred)}
    hubs = whole(hubs=hubs)
    if hubs % 2 == 0 or hubs > max(blocks):
        raise InputError(
            f"hubs is {hubs}: it must be odd, so that each hub is in the middle of its blocks, and at most the "
            f"{max(blocks)} blocks that there are along an axis"
        )
    if hub_width is not None:
        hub_width = whole(least=2, hub_width=hub_width)
        number = max(len(HubLine(n, hubs, None).places) for n in blocks)
        if hub_width > number:
            raise InputError(f"hub_width is {hub_width}: there are only {number} hubs along an axis")
    return {"hubs": hubs, "hub_width": hub_width, "centred": bool(centred)}
