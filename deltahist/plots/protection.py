"""The protection at a distance, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deltahist.mechanisms.limits import told
from deltahist.mechanisms.protection import protection_curve
from deltahist.plots.drawn import figure_of, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltahist.releases.base import BaseRelease

#: Distances on the curve: more steps than a picture shows apart.
_DISTANCES = 240


def plot_protection(release: BaseRelease, ax: Axes | None = None) -> Axes:
    """What a move costs, exactly and at most, against its distance; δ and limits are marked, the curves end at the
    diameter.

    Parameters
    ----------
    release : Release
    ax : where to draw; a new figure when None.

    Returns
    -------
    The axes.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    ax = own_axes(ax)
    near, letter = release.mechanism.neighbourhood, "ε" if release.mechanism.budget.rho is None else "ρ"
    curve = protection_curve(release, _DISTANCES)
    factor, unit = 1.0, near.domain.unit
    if unit == "m" and near.diameter >= 2000:
        factor, unit = 1e-3, "km"
    distance, exact, bound = curve["distance"] * factor, curve["exact"], curve["bound"]
    promised = "promised, with limits" if near.profile else "bound, by ⌈r/δ⌉ moves"
    ax.plot(distance, bound, color="0.55", linestyle="--", drawstyle="steps-pre", label=promised)
    ax.plot(distance, exact, color="tab:blue", linewidth=2, drawstyle="steps-pre", label="exact")
    ax.set_xscale("log")
    if np.max(bound, where=np.isfinite(bound), initial=0) > 20 * exact.min() > 0:
        ax.set_yscale("log")
    delta = near.delta_ground * factor
    ax.axvline(delta, color="tab:red", linewidth=1)
    named = f"{figure_of(near.delta_ground, 6)} {near.domain.unit}"
    if factor != 1.0 and near.delta_ground >= 1000:
        named = f"{figure_of(delta, 6)} km"
    left = delta < np.sqrt(distance[0] * distance[-1])
    ax.annotate(
        f"δ = {named}",
        (delta, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(4 if left else -4, 0),
        textcoords="offset points",
        color="tab:red",
        va="top",
        ha="left" if left else "right",
    )
    mechanism = release.mechanism
    ax.margins(y=0.12 if near.profile else 0.05)
    for limit in told(near, mechanism.norm):
        far = limit["distance"]
        place = near.diameter if far is None else min(far, near.diameter)
        ax.annotate(
            f"{'any move: ' if far is None else ''}{figure_of(limit['times'] or 0)} {letter}",
            (place * factor, float(mechanism.promised_within(place))),
            xytext=(-2, 3),
            textcoords="offset points",
            color="0.35",
            fontsize=8,
            ha="right",
        )
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 30 * low:  # too short for powers of ten alone
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: figure_of(value))
    ax.set(xlabel=f"distance r ({unit})", ylabel=f"{letter} of a move over r (less is better protected)")
    ax.set_title("Protection by distance", fontsize=10, pad=24)
    ax.grid(color="0.9")
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9, borderaxespad=0.2
    )
    return ax
