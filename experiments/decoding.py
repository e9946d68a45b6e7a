"""Decode one release with and without negative estimates: both maps, and intervals of some ranges next to the truth.

`python -m experiments.decoding [--small] [--out DIR]`. The truth is a stand-in (docs/internals/experiments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import datasets
import deltahist as dh
from experiments._common import BLUE, ORANGE, Found, command, figure, print_table, save, write_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

CELLS, EPSILON, SEED = 64, 0.2, 5
KINDS = {"unbiased": ORANGE, "non-negative": BLUE}
#: The number of range queries, and their smallest and largest sides in cells.
RANGES, SIDES = 20, (2, 24)
#: Tick marks of the colour bar in points per cell, and the value up to which its scale is about linear.
TICKS, LINEAR = (-100, -30, 0, 30, 100, 300, 1_000), 30
Floats = NDArray[np.float64]


def truth(cells: int) -> NDArray[np.int64]:
    """Return counts of the stand-in for North American Twitter users: the middle `cells` of 64 cells per side."""
    everywhere = dh.Domain((0, 0, 1, 1), (CELLS, CELLS))
    counts = np.asarray(dh.count(datasets.twitter_like_north_america(), everywhere))
    part = slice((CELLS - cells) // 2, (CELLS + cells) // 2)
    return counts[part, part]


def squares(cells: int, rng: np.random.Generator) -> dh.workloads.Boxes:
    """Return random squares of whole cells, so noise is the only error."""
    side = np.rint(np.geomspace(*SIDES, RANGES)).astype(int)
    corner = rng.integers(0, cells - side[:, None] + 1, (RANGES, 2))
    return dh.workloads.boxes(np.column_stack([corner, corner + side[:, None]]))


def answers(release: dh.Release, counts: NDArray[np.int64], work: dh.workloads.Boxes) -> list[dict[str, Any]]:
    """Return a row per range, ordered by true count: the truth, and the estimates with their intervals."""
    true = work.matrix(release.domain) @ counts.ravel()
    columns: dict[str, Floats] = {"side": work.corners[:, 2] - work.corners[:, 0], "truth": true}
    for kind in KINDS:
        found = dh.answer(release, work, nonnegative=kind == "non-negative")
        columns |= {f"{kind} {name}": found[name].to_numpy() for name in ("estimate", "low", "high")}
    return [{name: float(column[i]) for name, column in columns.items()} for i in np.argsort(true, kind="stable")]


def run(out: Path, small: bool) -> Found:
    """Write decoding.csv (a row per range) and decoding.png."""
    counts, rng = truth(CELLS // 2 if small else CELLS), np.random.default_rng(SEED)
    near = dh.Neighbourhood(dh.Domain((0, 0, *counts.shape), counts.shape), delta=1)
    release = dh.publish(counts, near, epsilon=EPSILON, rng=rng)
    rows = answers(release, counts, squares(len(counts), rng))
    write_csv(out / "decoding.csv", rows)
    print_table(rows)
    _draw(release, counts, rows, out / "decoding.png")
    found: Found = {}
    for kind in KINDS:
        true, estimate, low, high = (
            np.array([row[name] for row in rows])
            for name in ("truth", *(f"{kind} {what}" for what in ("estimate", "low", "high")))
        )
        cells = release.cells(nonnegative=kind == "non-negative")
        found |= {
            f"{kind}: error of a cell": float(np.sqrt(np.mean((cells - counts) ** 2))),
            f"{kind}: error of a range": float(np.sqrt(np.mean((estimate - true) ** 2))),
            f"{kind}: mean width of an interval": float((high - low).mean()),
            f"{kind}: ranges within their intervals": f"{int(((low <= true) & (true <= high)).sum())} of {RANGES}",
        }
    return found


def _draw(release: dh.Release, counts: NDArray[np.int64], rows: Sequence[dict[str, Any]], file: Path) -> None:
    drawn = figure(9.6, 6.5)
    above, below = drawn.subfigures(2, 1, height_ratios=(3.2, 3.3))
    maps = {
        "truth (never published)": counts,
        "unbiased: right on average, cell by cell": release.cells(),
        "non-negative: possible counts": release.cells(nonnegative=True),
    }
    panels = above.subplots(1, len(maps))
    for ax, (title, cells) in zip(panels, maps.items(), strict=True):
        shown = _map(ax, np.asarray(cells, dtype=np.float64))
        ax.set_title(title, fontsize=9)
    bar = above.colorbar(shown, ax=panels, ticks=TICKS, extend="both", shrink=0.8, pad=0.01)
    bar.ax.set_yticklabels([f"{tick:,}".replace("-", "−") for tick in TICKS])
    bar.minorticks_off()
    bar.set_label("points per cell")
    _intervals(below.subplots(), rows)
    save(drawn, file)


def _map(ax: Axes, cells: Floats) -> AxesImage:
    """Draw one map: cells below zero in blue, all others from pale to dark."""
    from matplotlib import colormaps
    from matplotlib.colors import AsinhNorm, ListedColormap

    norm = AsinhNorm(LINEAR, TICKS[0], TICKS[-1])
    zero = round(256 * float(norm(0.0)))
    blue = colormaps["Blues"](np.linspace(0.9, 0.25, zero))
    shades = np.vstack([blue, colormaps["magma_r"](np.linspace(0.0, 0.95, 256 - zero))])
    ax.set_xticks([])
    ax.set_yticks([])
    return ax.imshow(cells.T, origin="lower", cmap=ListedColormap(shades), norm=norm, interpolation="nearest")


def _intervals(ax: Axes, rows: Sequence[dict[str, Any]]) -> None:
    place, true = np.arange(len(rows)), np.array([row["truth"] for row in rows])
    for (kind, colour), aside in zip(KINDS.items(), (-0.16, 0.16), strict=True):
        middle, low, high = (
            np.array([row[f"{kind} {name}"] for row in rows]) - true for name in ("estimate", "low", "high")
        )
        ax.vlines(place + aside, low, high, color=colour, linewidth=3, alpha=0.45)
        ax.plot(place + aside, middle, "o", color=colour, markersize=4, label=f"{kind}, with its 95% interval")
    ax.axhline(0, color="0.2", linewidth=1)
    ax.set_xticks(place, [f"{value:,.0f}" for value in true], rotation=45, ha="right", fontsize=8)
    ax.set_xlabel("true number of points in each of twenty squares")
    ax.set_ylabel("error, in points")
    ax.grid(axis="y", alpha=0.3)
    ax.set_xlim(-0.6, len(rows) - 0.4)
    ax.legend(frameon=False, loc="lower left", ncols=2, bbox_to_anchor=(0, 1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
