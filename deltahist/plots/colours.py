"""Colours that say amounts: one sequence from pale to dark, read alike by all eyes and in grey."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Colours of kinds of things, which all eyes tell apart (Okabe and Ito, Color Universal Design, 2008).
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
#: The dark end of the sequence that is left out, so that lines and labels are seen on the darkest colour too.
_DARKEST = 0.88
#: Most classes of colour on a map of regions.
_CLASSES = 7


@dataclass(frozen=True)
class ColourScale:
    """A scale of colours: Matplotlib's norm and map, ticks of the bar, and whether values lie beyond the last."""

    norm: Any
    colours: Any
    ticks: tuple[float, ...]
    beyond: bool


def smooth_scale(values: NDArray[np.float64], *, linear: float | None, least: float) -> ColourScale:
    """Return a scale that is proportional for small values and logarithmic for large ones.

    Parameters
    ----------
    linear : colours are proportional up to about this value, by default a fiftieth of the top.
    least : the top is at least this, so that specks do not become mountains.
    """
    from matplotlib.colors import AsinhNorm

    most = float(values.max())
    # A few cells must not use up the scale, and a map of about one value is not dark.
    top = max(float(np.quantile(values, 0.9995)), least, 2 * float(np.median(values)))
    top = float(f"{top:.2g}") if most > 1.5 * top else max(most, top)
    norm, ticks = AsinhNorm(linear_width=linear or top / 50, vmin=0.0, vmax=top), [top] if most > top else []
    for value in [0.0, *(v for v in _round_values(top * 1e-9, top) if v <= top)]:
        if all(abs(float(norm(value) - norm(other))) > 0.1 for other in ticks):
            ticks.append(value)
    return ColourScale(norm, _shades(256, _DARKEST), tuple(sorted(ticks)), most > top)


def classed_scale(values: NDArray[np.float64]) -> ColourScale:
    """Return a scale of at most seven classes between round values, which grow by ratios if the values differ widely.

    At least one of the values (m,) must be above zero.
    """
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    most = float(values.max())
    least = max(float(values[values > 0].min()), 1e-4 * most)
    if most <= 6 * least:
        breaks = [float(v) for v in MaxNLocator(_CLASSES - 2).tick_values(0.8 * least, most) if v > 0]
    else:
        for factors in ((1, 2, 5), (1, 3), (1,)):
            breaks = [v for v in _round_values(least, most, factors) if least / 5 < v < most]
            if len(breaks) < _CLASSES:
                break
        breaks = breaks[1 - _CLASSES :]
    edges, beyond = [0.0, *breaks], most > breaks[-1]
    number = len(edges) - 1 + beyond
    norm = BoundaryNorm(edges, number, extend="max" if beyond else "neither")
    # Few classes need no dark colours to be told apart.
    return ColourScale(norm, _shades(number, min(_DARKEST, 0.3 * (number - 1))), tuple(edges), beyond)


def _shades(number: int, darkest: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["magma_r"](np.linspace(0.0, darkest, number)))


def _round_values(low: float, high: float, factors: tuple[int, ...] = (1, 2, 5)) -> list[float]:
    """Return round values (1, 2, 5, 10, ...) from the last up to `low` to the first above `high`."""
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    series = [float(f"{factor}e{power}") for power in powers for factor in factors]
    first, last = max(v for v in series if v <= low), min(v for v in series if v > high)
    return [value for value in series if first <= value <= last]
