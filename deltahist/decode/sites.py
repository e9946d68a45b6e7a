"""What single cells say by themselves: a prior for counts that is learnt nearby, and the moments it leaves.

A count is zero, or exponential with one of a few means: heavy tails and many zeros, as people live. How often each of
them holds is learnt from the cells around, by the steps of expectation and maximisation (docs/theory.md, section 8).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Field = NDArray[np.float64]

#: Means of the exponential parts, in points per cell; beside them there is exactly zero.
MEANS = 4.0 ** np.arange(7)
#: Standard deviation, in cells, of the window in which the shares of the parts are learnt.
_NEAR = 2.0
#: Share of the whole map in what is learnt nearby.
_WHOLE = 0.01
#: Steps that the shares take each time that they are learnt.
_STEPS = 3
#: Standard deviations below zero from where the hazard of the normal law is as good as its asymptote.
_FAR = 30.0
#: Least share of a part, and least variance of a cell in points².
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Sites:
    """Mean and variance of every cell (shape), and the shares of the parts nearby (1 + means, *shape)."""

    mean: Field
    variance: Field
    shares: NDArray[np.float32]


def even_shares(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Shares before anything is learnt."""
    return np.full((len(MEANS) + 1, *shape), 1 / (len(MEANS) + 1), dtype=np.float32)


def sites(seen: Field, spread: Field, shares: NDArray[np.float32]) -> Sites:
    """What remains of every cell's prior after it is seen with normal noise.

    Parameters
    ----------
    seen : of each cell (shape), in points. spread : variance of the noise on it (shape). shares : to begin with.
    """
    root = np.sqrt(spread)
    fit = np.empty(shares.shape)
    fit[0] = -(seen**2) / (2 * spread) - np.log(2 * np.pi * spread) / 2
    for part, mean in zip(fit[1:], MEANS, strict=True):
        part[...] = scipy.special.log_ndtr((seen - spread / mean) / root)
        part += spread / (2 * mean**2) - seen / mean - np.log(mean)
    fit -= fit.max(axis=0)
    likelihood = np.exp(fit)
    # Shares need no more than single precision; differences of moments do.
    single = likelihood.astype(np.float32)
    for _ in range(_STEPS):
        shares = _nearby(_held(shares, single))
    held = _held(shares, likelihood)
    first, second = np.zeros(seen.shape), np.zeros(seen.shape)
    for part, own, mean in zip(fit[1:], held[1:], MEANS, strict=True):
        middle = seen - spread / mean
        z = middle / root
        far = z < -_FAR
        # Of a normal law cut at zero: its density there over the probability above, as of an empty cell over this part.
        hazard = root / mean * np.exp(np.where(far, 0.0, fit[0] - part))
        rest = root / np.maximum(-z, 1.0)
        one = np.where(far, rest, np.maximum(middle + root * hazard, _LEAST))
        two = np.where(far, 2 * rest**2, np.maximum(spread * (1 - hazard * (z + hazard)), 0.0) + one**2)
        first += own * one
        second += own * two
    return Sites(first, np.maximum(second - first**2, _LEAST), shares)


def _held(shares: NDArray[Any], likelihood: NDArray[Any]) -> NDArray[Any]:
    """How likely each part holds in each cell."""
    held = np.maximum(shares, _LEAST) * likelihood
    held /= held.sum(axis=0)
    return held


def _nearby(held: NDArray[Any]) -> NDArray[Any]:
    """Shares around each cell, its own not counted, and a little of the whole map's."""
    own = _weight_of_itself(held.ndim - 1)
    # Nothing is mirrored at the borders: cells there would count themselves.
    sides = (_window(np.ones(n)) for n in held.shape[1:])
    others = np.maximum(functools.reduce(np.multiply.outer, sides) - own, _LEAST)
    share = ((1 - _WHOLE) / others).astype(held.dtype)
    out = np.empty_like(held)
    for part, here in zip(out, held, strict=True):
        np.maximum(_window(here) - own * here, 0.0, out=part)
        part *= share
        part += _WHOLE * here.mean()
    out /= out.sum(axis=0)
    return out


def _window(field: NDArray[Any]) -> NDArray[Any]:
    """Weighted sums around each cell; there is nothing beyond the map."""
    return np.asarray(scipy.ndimage.gaussian_filter(field, _NEAR, mode="constant"))


def _weight_of_itself(ndim: int) -> float:
    """Weight of a cell in the window around it."""
    side = np.zeros(8 * int(_NEAR) + 1)
    side[side.size // 2] = 1
    return float(scipy.ndimage.gaussian_filter1d(side, _NEAR).max()) ** ndim
