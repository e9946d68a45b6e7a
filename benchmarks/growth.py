"""Draw docs/internals/growth.png from results.json: time and memory against cells, for strategies of large maps."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.defaults import SETTINGS, SIDES
from benchmarks.table import TABLE

FILE = Path(__file__).parents[1] / "docs" / "internals" / "growth.png"
PANELS = {
    "publish": "publish, imports included (s)",
    "memory to publish": "peak memory to publish (GiB)",
    "load and first answer": "load and first answer, imports included (s)",
    "a box that cuts cells": "one box that cuts cells, warm (ms)",
}
COLOURS = ("#1f5fa8", "#3a9a3a", "#b03060", "#6f6f6f")


def main() -> None:
    """Draw a panel for each figure, with a line of slope one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    table = json.loads(TABLE.read_text())
    settings = {name: each.strategy for name, each in SETTINGS.items() if each.sides == SIDES}
    figure = Figure(figsize=(9, 7.4), layout="constrained")
    FigureCanvasAgg(figure)
    cells = [side**2 for side in SIDES]
    for axes, (name, label) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        for (setting, strategy), colour in zip(settings.items(), COLOURS, strict=True):
            found = [table[f"{name}, {setting}, {side}²"]["processor"] for side in SIDES]
            axes.loglog(cells, found, "o-", color=colour, label=f"{setting}: {strategy}")
        low, high = axes.get_ylim()
        if high < 10 * low:  # label powers of ten only
            low, high = low / 8, high * 8
        axes.loglog(cells, [high * each / cells[-1] for each in cells], ":", color="black", label="linear in cells")
        axes.set_ylim(low, high)
        axes.set_xticks(cells, [f"{side}²" for side in SIDES])
        axes.minorticks_off()
        axes.set(xlabel="cells of the map", ylabel=label)
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(FILE, dpi=130)
    print(f"{FILE} is drawn")


if __name__ == "__main__":
    main()
