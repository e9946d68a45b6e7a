"""Draw a frontier: error against the cost of a move of any length, one panel for each δ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from experiments._common import figure, save

_COLOURS = {
    ("ours", "pure"): "#1f5fa8",
    ("ours", "approx"): "#e07b00",
    ("peer", "pure"): "#6f6f6f",
    ("peer", "approx"): "#b98b4f",
}
_NAMES = {"pure": "pure ε", "approx": "(ε, 10⁻⁶)"}


class Point(Protocol):
    """The figures that the plot shows for a mechanism."""

    family: str
    privacy: str
    delta_cells: int | None
    any_move: float
    rmse: float


def best(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return (cost of any move, error) of the mechanisms that no other beats in both, by increasing cost.

    >>> from types import SimpleNamespace as Of
    >>> best([Of(any_move=1, rmse=9), Of(any_move=2, rmse=9.5), Of(any_move=4, rmse=5)])
    [(1.0, 9), (4.0, 5)]
    """
    out: list[tuple[float, float]] = []
    # Treat costs that differ only by rounding as equal.
    for cost, error in sorted((float(f"{p.any_move:.3g}"), p.rmse) for p in points):
        if not out or error < out[-1][1]:
            out.append((cost, error))
    return out


def draw_frontier(results: Sequence[Point], file: Path) -> None:
    """Draw our best and the peers' best mechanisms, pure and approximate, against the cost of any move."""
    deltas = sorted({r.delta_cells for r in results if r.delta_cells is not None})
    columns = min(2, len(deltas))
    rows = -(-len(deltas) // columns)
    drawn = figure(4.9 * columns, 3.7 * rows + 0.5)
    panels = drawn.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, delta in zip(panels, deltas, strict=False):
        for (family, privacy), colour in _COLOURS.items():
            own = [r for r in results if r.family == family and r.privacy == privacy and r.delta_cells in (None, delta)]
            line = best(own)
            if line:
                name = ("ours" if family == "ours" else "best peer at the same multiple of ε") + f", {_NAMES[privacy]}"
                style = "-" if family == "ours" else "--"
                axes.plot(*zip(*line, strict=True), style, color=colour, marker="o", ms=4, lw=1.8, label=name)
                if family == "ours":  # a mechanism that respects a limit respects every larger one
                    axes.plot([line[-1][0], 160], [line[-1][1]] * 2, ":", color=colour, lw=1.2)
        axes.set(xscale="log", yscale="log", title=f"δ = {delta} cell{'s' if delta > 1 else ''}")
        axes.set_xlim(0.9, 160)
        axes.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
        axes.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.set(xlabel="any move costs (times ε within δ)", ylabel="RMSE of a rectangle (points)")
    for axes in panels[len(deltas) :]:
        axes.set_visible(False)
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(drawn, file)
