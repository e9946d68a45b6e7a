"""Colours that say amounts: one sequence from pale to dark, read alike by all eyes and in grey."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Colours of kinds of things, which all eyes tell apart (Okabe and Ito, Color Universal Design, 2008).
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
#: Pale is little, dark is much; of its end so much is left out that lines and labels are seen on the darkest, too.
_SEQUENCE, _DARKEST = "magma_r", 0.88
#: Share of cells whose estimates the colours tell apart at the top; a few cells must not use up the scale.
_TOP = 0.9995
#: The top is the largest value unless that is more than so many times as large.
_NEAR_TOP = 1.5
#: Classes of colour on a map of regions: more cannot be told apart.
_CLASSES = 7
#: Values further apart than this many times are classed by their size, nearer ones evenly.
_APART = 6.0
#: Regions of less than this part of the largest value are all in the first class.
_LEAST = 1e-4


@dataclass(frozen=True)
class ColourScale:
    """A scale of colours: matplotlib's norm and map, ticks of the bar, and whether values lie beyond the last."""

    norm: Any
    colours: Any
    ticks: tuple[float, ...]
    beyond: bool

    @property
    def grows(self) -> bool:
        """Whether ticks grow with their values instead of being evenly spaced."""
        steps = np.diff(self.ticks)
        return len(steps) > 1 and steps[-1] > 1.5 * steps[0] and self.ticks[-1] > _APART * self.ticks[1]


def _shades(number: int, darkest: float = _DARKEST) -> Any:
    """Return some colours from pale to dark."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[_SEQUENCE](np.linspace(0.0, darkest, number)))


def smooth_scale(
    values: NDArray[np.float64], *, low: float, linear: float | None, least: float
) -> ColourScale:
    """Return a scale that is proportional for small values and logarithmic for large ones.

    Parameters
    ----------
    values : of the picture. low : values up to it are palest.
    linear : up to about where colours are proportional; None: a fiftieth of the top.
    least : the top is at least this, so that specks do not become mountains.
    """
    return scale_between(low, find_ends(values, low=low, linear=linear, least=least))


class Ends(NamedTuple):
    """Where a smooth scale is proportional, where it ends, and the largest value, which may lie beyond.

    Parameters
    ----------
    linear, top, most : in the unit of the values.
    """

    linear: float
    top: float
    most: float


def find_ends(values: NDArray[np.float64], *, low: float, linear: float | None, least: float) -> Ends:
    """Return the ends of the scale that suits values; parameters as of `smooth_scale`."""
    most = float(values.max())
    # Where all is about the same nothing is dark.
    top = max(float(np.quantile(values, _TOP)), least, 2 * low, 2 * float(np.median(values)))
    top = float(f"{top:.2g}") if most > _NEAR_TOP * top else max(most, top)
    return Ends(linear or top / 50, top, most)


def scale_between(low: float, ends: Ends) -> ColourScale:
    """Return the smooth scale from `low`, whose colour is palest, to given ends."""
    from matplotlib.colors import AsinhNorm

    top, beyond = ends.top, ends.most > ends.top
    norm = AsinhNorm(linear_width=ends.linear, vmin=low, vmax=top)
    ticks = [0.0, *_round_between(top * 1e-9, top)]
    chosen = [top] if beyond else []
    for value in (t for t in ticks if low <= t <= top):
        if all(abs(float(norm(value) - norm(other))) > 0.08 for other in chosen):
            chosen.append(value)
    return ColourScale(norm, _shades(256), tuple(sorted(chosen)), beyond)


def classed_scale(values: NDArray[np.float64], width: float) -> ColourScale:
    """Return a scale of a few classes between round values, in equal ratios for values that differ widely.

    Parameters
    ----------
    values : (m,) those that count: one of them at least is above zero.
    width : of what cannot be told apart: even classes are no narrower.
    """
    from matplotlib.colors import BoundaryNorm

    most = float(values.max())
    least = max(float(values[values > 0].min()), _LEAST * most)
    if most <= _APART * least:
        narrowest = max(width, (most - least) / _CLASSES, 1e-9 * most)
        step = next(v for v in _round_between(narrowest, narrowest) if v >= narrowest)
        breaks = (step * np.arange(np.floor(least / step), np.ceil(most / step) + 1)).tolist()
    else:
        for factors in ((1, 2, 5), (1, 3), (1,)):
            # The first class is for what is less than all that counts.
            breaks = [v for v in _round_between(least, most, factors) if v < most]
            if len(breaks) < _CLASSES:
                break
        breaks = breaks[1 - _CLASSES :]
    beyond = most > breaks[-1]
    edges = sorted({0.0, *(b for b in breaks if b > 0)})
    number = len(edges) - 1 + beyond
    norm = BoundaryNorm(edges, number, extend="max" if beyond else "neither")
    # Few classes need no dark colours to be told apart.
    return ColourScale(norm, _shades(number, min(_DARKEST, 0.3 * (number - 1))), tuple(edges), beyond)


def _round_between(low: float, high: float, factors: tuple[int, ...] = (1, 2, 5)) -> list[float]:
    """Return round values (1, 2, 5, 10, ...), from the last up to `low` to the first above `high`."""
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    series = [float(f"{factor}e{power}") for power in powers for factor in factors]
    first = max(value for value in series if value <= low)
    last = min(value for value in series if value > high)
    return [value for value in series if first <= value <= last]


def is_dark(colour: Any) -> bool:
    """Return whether white is read better on a colour than black."""
    from matplotlib.colors import to_rgb

    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5
