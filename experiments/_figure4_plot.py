"""Draw Figure 4: mean square error by query size, one panel per data set, on linear and logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments._common import BLUE, GREEN, GREY, ORANGE, RED, figure, save
from experiments._squares import STAND_INS

_COLOURS = (ORANGE, GREEN, BLUE, RED)


def _colours(trials: Sequence[tuple[float, str]]) -> list[str]:
    """Return a colour for each trial, grey for the one without δ."""
    fresh = iter(_COLOURS)
    return [next(fresh) if delta else GREY for delta, _ in trials]


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the baseline and every trial for each data set."""
    sets = [s for s in STAND_INS if any(r["dataset"] == s.dataset for r in rows)]
    drawn = figure(4.7 * len(sets), 5.6)
    for axes, stand_in in zip(drawn.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        own = [r for r in rows if r["dataset"] == stand_in.dataset]
        trials = list(dict.fromkeys((r["delta"], r["decoder"]) for r in own))
        first = [r for r in own if (r["delta"], r["decoder"]) == trials[0]]
        sizes = [r["size"] for r in first]
        label = "best equi-width histogram, with hindsight"
        axes.semilogy(sizes, [r["best histogram"] for r in first], "s-", color="black", label=label)
        for colour, (delta, decoder) in zip(_colours(trials), trials, strict=True):
            part = [r for r in own if (r["delta"], r["decoder"]) == (delta, decoder)]
            width, grids = part[0]["width"], part[0]["grids"]
            label = f"δ = {delta:g}, {decoder} ({grids} grids of {width:g})" if delta else f"{decoder} ({width:g})"
            style = "o--" if decoder == "average" else "o-" if delta else "s:"
            axes.semilogy(sizes, [r["mse"] for r in part], style, color=colour, markersize=4, label=label)
        axes.set(xlabel="size of the query (side; 1 = domain)", ylabel="mean square error (points²)")
        axes.set_title(f"stand-in for dataset {stand_in.dataset}\n{stand_in.what}", fontsize=11)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    save(drawn, file)
