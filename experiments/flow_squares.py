"""Compare flows with shifted grids: squares on the stand-ins for Twitter, 1000 × 1000 cells, δ = one cell.

Both have pure ε = 1 in the same neighbourhood with fixed membership. The shifted grids are averaged as in the paper
and use, for each query size, the width that turns out best on the data, which no release could know. The flow is a
single release, tuned for squares of side 0.1. Squares consist of whole cells, except in the last column, where
most of the error is due to the unknown positions of points within cut cells. All figures are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import deltahist as dh
from deltahist.space.workloads import Boxes, box_sums
from deltahist.strategies import Flow
from experiments._common import BLUE, GREEN, ORANGE, Found, command, figure, print_table, save, write_csv
from experiments._shifted import Shifted, averaged
from experiments._squares import SEED, STAND_INS, Floats, Squares, StandIn

CELL, SIDE = 0.001, 0.1
SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
WIDTHS = (0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.02)


def run(out: Path, small: bool) -> Found:
    """Compute the errors, and write flow_squares.csv and flow_squares.png."""
    sets, sizes, widths, number = (
        (STAND_INS[1:2], (0.02, 0.1), WIDTHS[1:3], 200) if small else (STAND_INS[:2], SIZES, WIDTHS, 5000)
    )
    rows: list[dict[str, Any]] = []
    found: Found = {}
    for stand_in in sets:
        own = _compare(stand_in, sizes, widths, number)
        print(f"\nstand-in for dataset {stand_in.dataset}, {stand_in.what}")
        print_table(own)
        rows += own
        middle = next(r for r in own if r["size"] == SIDE)
        found[f"squares of {SIDE:g}, set {stand_in.dataset}: flow / shifted grids"] = (
            middle["flow"] / middle["shifted grids"]
        )
    write_csv(out / "flow_squares.csv", rows)
    _draw(rows, out / "flow_squares.png")
    return found


def _compare(stand_in: StandIn, sizes: Sequence[float], widths: Sequence[float], number: int) -> list[dict[str, Any]]:
    points = stand_in.points()
    anywhere = Squares.of(points, sizes, number)
    squares = _whole(points, anywhere)
    grids = np.array([sum(averaged(points, squares, Shifted(CELL, w, CELL))) for w in widths])
    domain = Shifted(CELL, CELL, CELL).domain
    near = dh.Neighbourhood(domain, CELL)
    counts = dh.count(points, domain).array.astype(np.float64)
    flow = Flow.tuned(near, dh.workloads.random_squares(SIDE, 2000, domain, seed=SEED))
    mse, cut = (
        s.mean((box_sums(counts, s.boxes.spans(domain)) - s.truth) ** 2)
        + s.mean(dh.expected_error(flow, near, s.boxes, 1.0))
        for s in (squares, anywhere)
    )
    return [
        {
            "dataset": stand_in.dataset,
            "size": size,
            "best width": widths[int(grids[:, i].argmin())],
            "shifted grids": float(grids[:, i].min()),
            "flow": float(mse[i]),
            "gain": float(grids[:, i].min() / mse[i]),
            "flow, cut cells": float(cut[i]),
        }
        for i, size in enumerate(sizes)
    ]


def _whole(points: Floats, squares: Squares) -> Squares:
    """Move the squares to the nearest cell edges."""
    low = np.rint(squares.boxes.corners[:, :2] / CELL) * CELL
    side = np.repeat(np.rint(np.array(squares.sizes) / CELL) * CELL, len(low) // len(squares.sizes))
    corners = np.minimum(np.column_stack([low, low + side[:, None]]), 1.0)
    boxes = Boxes(corners)
    # Count whole cells, so that a point on an edge is in the same cell as in a release.
    domain = Shifted(CELL, CELL, CELL).domain
    counts = dh.count(points, domain).array.astype(np.float64)
    return Squares(squares.sizes, boxes, box_sums(counts, boxes.spans(domain)))


def _draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    sets = sorted({r["dataset"] for r in rows})
    drawn = figure(5 * len(sets), 4.4)
    for axes, dataset in zip(drawn.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        own = [r for r in rows if r["dataset"] == dataset]
        sizes = [r["size"] for r in own]
        for name, label, colour in (
            ("shifted grids", "shifted grids, averaged (best width in hindsight)", ORANGE),
            ("flow", "flow", BLUE),
            ("flow, cut cells", "flow, squares that cut cells", GREEN),
        ):
            axes.loglog(sizes, [r[name] for r in own], "o-", color=colour, label=label)
        axes.set(xlabel="size of the query (side; 1 = domain)", ylabel="mean square error (points²)")
        axes.set_xticks(sizes, [f"{s:g}" for s in sizes])
        axes.minorticks_off()
        axes.set_title(f"stand-in for dataset {dataset}, δ = one of 1000 × 1000 cells", fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
