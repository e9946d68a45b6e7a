"""Entry points: blocks where mass enters and leaves with noise of its own, for arrivals and for long moves."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, whole
from deltahist.strategies.flow.lines import exact_product, hats, sums_on

#: Names of kinds of draws.
ARRIVALS, HUBS, HUB_SUMS, HUB_STRIPS = "arrivals", "hubs", "sums of hubs", "strips of hubs"
#: Axes of hubs.
_X, _Y = -2, -1
#: Eigenvalues of sums' weights below this, against the largest, are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class EntryPoints:
    """Blocks with noise on the mass that enters there.

    Parameters
    ----------
    name : of the kind of their draws. places : flat indices of the blocks, increasing.
    """

    name: str
    places: NDArray[np.int64]

    def inflow(self, draws: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the inflow at each entry point (..., points), from the draws of all kinds."""
        return draws[self.name]

    def adjoint(self, weights: NDArray[np.float64], draws: dict[str, NDArray[np.float64]]) -> None:
        """Write the weights of draws, from weights (points,) of the inflow, into `draws`."""
        draws[self.name][...] = weights


@dataclass(frozen=True, eq=False)
class HubLine:
    """Hubs along one axis of n blocks, one in the middle of every `spacing` blocks, and their sums.

    Parameters
    ----------
    n : blocks. spacing : between hubs, odd; less on an axis with fewer blocks.
    widths : between the centres of sums, in hubs, one for each level of sums, multiples of the one before; () for none.
    """

    n: int
    spacing: int
    widths: tuple[int, ...] = ()

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
        """Block of each hub; a rest at the end has one, too."""
        return np.minimum(np.arange(0, self.n, self.apart) + self.walk, self.n - 1)

    @property
    def sums(self) -> int:
        """Number of sums; one of all hubs where there are none to tell apart."""
        return len(self.level)

    @functools.cached_property
    def weights(self) -> NDArray[np.int64]:
        """Of the hubs in each sum (sums, hubs), in parts of `unit`; at every hub they add up to it, levels alike."""
        if not self.widths or len(self.places) == 1:
            return np.ones((1, len(self.places)), dtype=np.int64)
        most = self.widths[-1]
        return np.concatenate([most // w * hats(len(self.places), w, centred=True) for w in self.widths])

    @functools.cached_property
    def level(self) -> NDArray[np.int64]:
        """Level of each sum (sums,)."""
        if not self.widths or len(self.places) == 1:
            return np.zeros(1, dtype=np.int64)
        numbers = [sums_on(len(self.places), w, centred=True) for w in self.widths]
        return np.repeat(np.arange(len(self.widths)), numbers)

    @property
    def unit(self) -> int:
        """Parts that weights are counted in."""
        return int(self.weights[:, 0].sum())

    @functools.cached_property
    def squares(self) -> NDArray[np.float64]:
        """Eigenvalues λ of Θ Θᵀ for the weights Θ, those above zero."""
        return self._decomposed[0]

    @functools.cached_property
    def turn(self) -> NDArray[np.float64]:
        """Eigenvectors of Θ Θᵀ over √λ, as columns: what of each sum is in each wave."""
        return self._decomposed[1]

    @functools.cached_property
    def waves(self) -> NDArray[np.float64]:
        """An orthonormal basis of what sums of hubs see (waves, hubs): eigenvectors of Θᵀ Θ."""
        return self.turn.T @ (self.weights / self.unit)

    @functools.cached_property
    def _decomposed(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        theta = self.weights / self.unit
        values, vectors = np.linalg.eigh(theta @ theta.T)
        seen = values > _ROUNDING * values[-1]
        return values[seen], vectors[:, seen] / np.sqrt(values[seen])

    def sums_at_edges(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sums of weights of hubs (k, hubs) before each edge of blocks (n + 1, k)."""
        out = np.zeros((self.n + 1, len(weights)))
        out[self.places + 1] = weights.T
        return np.asarray(out.cumsum(axis=0))

    def onto_sums(self, hubs: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return weighted sums of numbers at hubs along the last axis or the one before, in parts of `unit`."""
        return exact_product(hubs, self.weights, axis)

    def onto_waves(self, hubs: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Return how much of each wave is in numbers at hubs along an axis."""
        sums = self.onto_sums(hubs, axis) / self.unit
        return np.asarray(sums @ self.turn if axis == _Y else self.turn.T @ sums)

    def of_waves(self, waves: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Return the number s at hubs along an axis from coefficients of waves."""
        return self.of_sums(waves @ self.turn.T if axis == _Y else self.turn @ waves, axis)

    def of_sums(self, sums: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Return at each hub along an axis the sums that it is in, by their weights."""
        each = self.weights / self.unit
        return np.asarray(sums @ each if axis == _Y else each.T @ sums)


@dataclass(frozen=True, eq=False)
class HubGrid:
    """The hubs of a grid of blocks.

    Parameters
    ----------
    axes : the hubs along each axis; a second axis of one block in 1-D.
    strips : whether there are sums along one axis alone, of the hubs in one row or column.
    """

    axes: tuple[HubLine, HubLine]
    strips: bool = False

    @classmethod
    def between(
        cls, blocks: tuple[int, ...], spacing: int, widths: tuple[int, ...] = (), strips: bool = False
    ) -> HubGrid:
        """Return the hubs of a grid: `spacing` in blocks, `widths` of the levels of sums in hubs."""
        lines = {
            n: HubLine(n, spacing, widths) for n in (*blocks, 1)[:2]
        }  # axes alike share what is worked out
        x, y = (lines[n] for n in (*blocks, 1)[:2])
        return cls((x, y), strips)

    @functools.cached_property
    def places(self) -> NDArray[np.int64]:
        """Flat indices of the hubs' blocks."""
        x, y = self.axes
        return np.add.outer(x.places * y.n, y.places).ravel()

    @property
    def sums(self) -> int:
        """Number of sums; 0 for none."""
        return math.prod(line.sums for line in self.axes) if self.axes[0].widths else 0

    @property
    def unit(self) -> int:
        """Parts that the weights of the sums are counted in."""
        return math.prod(line.unit for line in self.axes)

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Strips of hubs along x (sums, hubs), and along y (hubs, sums)."""
        x, y = self.axes
        return (x.sums, len(y.places)), (len(x.places), y.sums)

    @functools.cached_property
    def levels(self) -> list[NDArray[np.float64]]:
        """Eigenvalues of sums, and of strips, for products of waves (1 + waves, 1 + waves).

        The first along each axis stands for all that the sums there do not see.
        """
        x, y = (np.concatenate([[0.0], line.squares]) for line in self.axes)
        return [np.multiply.outer(x, y), np.add.outer(x, y)]

    def hub_of(self, block: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number along each axis (ndim, m) of the hub of blocks (ndim, m)."""
        return np.stack([b // line.apart for b, line in zip(block, self.axes, strict=False)])

    def place_of(self, hub: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return blocks (ndim, m) of hubs (ndim, m)."""
        return np.stack([line.places[h] for h, line in zip(hub, self.axes, strict=False)])


@dataclass(frozen=True, eq=False)
class Hubs(EntryPoints):
    """Entry points every few blocks, through which far moves leave and enter.

    What enters at the hubs is estimated by least squares: ζ is what the hubs' own noise says; sums s over squares of
    hubs, and over strips of them, have noise of their own. With Θ for the weights of each level of sums and ρ for the
    variance of its noise over that of a hub's own, the estimate is ζ + T Σ Θᵀ (s − Θ ζ)/ρ with T = (1 + Σ ΘᵀΘ/ρ)⁻¹.
    A move changes s and Θ ζ alike. Squares are products over the axes, and strips have the same weights along one: all
    levels have the same waves as eigenvectors, and T is a number for each product of two of them.

    Parameters
    ----------
    grid : where they are. ratios : ρ of the sums, and of the strips; () for none.
    """

    grid: HubGrid
    ratios: tuple[float, ...] = ()

    @functools.cached_property
    def trust(self) -> NDArray[np.float64]:
        """T for products of waves (1 + waves, 1 + waves), as in `HubGrid.levels`."""
        seen = (level / ratio for level, ratio in zip(self.grid.levels, self.ratios, strict=False))
        return np.asarray(1 / (1 + sum(seen, np.zeros_like(self.grid.levels[0]))))

    def estimate(self, hubs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return T of numbers at hubs (..., hubs along x, hubs along y)."""
        x, y = self.grid.axes
        weight, along_x = joint(self.trust), x.onto_waves(hubs, _X)
        on_x = y.of_waves(y.onto_waves(along_x, _Y) * weight[1:, 1:], _Y)
        out = hubs
        if self.grid.strips:
            on_x += along_x * weight[1:, :1]
            out = hubs + y.of_waves(y.onto_waves(hubs, _Y) * weight[0, 1:], _Y)
        return np.asarray(out + x.of_waves(on_x, _X))

    def inflow(self, draws: dict[str, NDArray[Any]]) -> NDArray[Any]:
        own = draws[HUBS]
        if not self.ratios:
            return own
        (x, y), before = self.grid.axes, own.shape[:-1]
        hubs = own.reshape(*before, len(x.places), len(y.places))
        on_x, on_y = x.onto_sums(hubs, _X), y.onto_sums(hubs, _Y)
        held = y.onto_sums(on_x, _Y)
        surplus = draws[HUB_SUMS].reshape(held.shape) - held
        seen = y.of_sums(surplus / (y.unit * self.ratios[0]), _Y)
        if self.grid.strips:
            strips, some = draws[HUB_STRIPS], math.prod(self.grid.shapes[0])
            seen += (strips[..., :some].reshape(on_x.shape) - on_x) / self.ratios[1]
        # T (Θxᵀ seen), and T of what strips along y say, in waves along one axis until the end.
        along_x, trust = (x.turn * x.squares).T @ (seen / x.unit), self.trust
        mixed = y.onto_waves(along_x, _Y) * (trust[1:, 1:] - trust[1:, :1])
        if self.grid.strips:
            surplus = strips[..., some:].reshape(on_y.shape) - on_y
            along_y = surplus / (y.unit * self.ratios[1]) @ (y.turn * y.squares)
            mixed += x.onto_waves(along_y, _X) * (trust[1:, 1:] - trust[0, 1:])
        more = x.of_waves(along_x * trust[1:, :1] + y.of_waves(mixed, _Y), _X)
        if self.grid.strips:
            more += y.of_waves(along_y * trust[0, 1:], _Y)
        if own.dtype.kind != "f":
            more = np.rint(more, out=more).astype(own.dtype)
        more += hubs
        return np.asarray(more.reshape(own.shape))

    def adjoint(self, weights: NDArray[np.float64], draws: dict[str, NDArray[np.float64]]) -> None:
        own = weights
        if self.ratios:
            x, y = self.grid.axes
            hubs = self.estimate(weights.reshape(len(x.places), len(y.places)))
            own, on_x, on_y = hubs.ravel(), x.onto_sums(hubs, _X), y.onto_sums(hubs, _Y)
            draws[HUB_SUMS][...] = y.onto_sums(on_x, _Y).ravel() / (self.grid.unit**2 * self.ratios[0])
            if self.grid.strips:
                strips = np.concatenate([on_x.ravel() / x.unit**2, on_y.ravel() / y.unit**2])
                draws[HUB_STRIPS][...] = strips / self.ratios[1]
        draws[HUBS][...] = own


def joint(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coefficients of products of waves, the first wave being 1, from a matrix's numbers on each product.

    The first of `values` along each axis is for all that is no wave: what a wave adds is the difference.
    """
    out = values.copy()
    out[1:] -= values[:1]
    out[:, 1:] -= out[:, :1]
    return out


def read_hubs(
    blocks: tuple[int, ...], hubs: Any, hub_widths: Any, hub_strips: Any, centred: Any
) -> dict[str, Any]:
    """Return parameters of hubs, their sums and strips, and whether sums of borders are centred, as a flow keeps them.

    Raises InputError unless they fit its blocks.
    """
    for name, value in (("centred", centred), ("hub_strips", hub_strips)):
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"{name} is {value!r}: it must be True or False")
    widths = (
        () if hub_widths is None else hub_widths if isinstance(hub_widths, list | tuple) else (hub_widths,)
    )
    widths = tuple(whole(least=2, hub_widths=w) for w in widths)
    if hub_strips and (not widths or len(blocks) == 1):
        raise InputError(
            "hub_strips is True without hub_widths or in 1-D: strips are sums of hubs along one axis of two, as far "
            "apart as sums over squares of hubs"
        )
    if hubs is None:
        if widths:
            raise InputError(
                f"hub_widths is {hub_widths!r} without hubs: it is how far apart sums of hubs are"
            )
    else:
        hubs = whole(hubs=hubs)
        if hubs % 2 == 0 or hubs > max(blocks):
            raise InputError(
                f"hubs is {hubs}: it must be odd, so that each hub is in the middle of its blocks, and at most the "
                f"{max(blocks)} blocks that there are along an axis"
            )
        numbers = [len(HubLine(n, hubs).places) for n in blocks]
        if any(b % a or a == b for a, b in itertools.pairwise(widths)) or (
            widths and widths[-1] > max(numbers)
        ):
            raise InputError(
                f"hub_widths is {hub_widths!r}: each must be a multiple of the one before, and there are only "
                f"{max(numbers)} hubs along an axis"
            )
        if hub_strips and min(numbers) == 1:
            raise InputError(
                "hub_strips is True: there is only one hub along an axis, and nothing to sum along it"
            )
    more = {"hub_widths": widths, "hub_strips": bool(hub_strips)}
    return {"hubs": hubs, **more, "centred": bool(centred)}
