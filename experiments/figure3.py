"""2014, Figure 3: the distributions of the three data sets, drawn from the stand-ins (5% of the points)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import datasets
from datasets.picture import draw
from experiments._common import Found, command, write_csv

#: The number of points in the paper's sets.
PRINTED = {"1": 193_841, "2": 183_072, "3": 164_860}


def run(out: Path, small: bool) -> Found:
    """Write figure3.csv (the distribution of points over 100 × 100 cells) and figure3.png."""
    draw(out / "figure3.png")
    sets = {"1": datasets.twitter_like_world(), "2": datasets.twitter_like_north_america(), "3": datasets.indoor_like()}
    rows = [_spread(name, points) for name, points in sets.items()]
    write_csv(out / "figure3.csv", rows)
    return {f"stand-in for dataset {r['dataset']}, points (paper)": f"{r['points']} ({r['paper']})" for r in rows}


def _spread(name: str, points: np.ndarray) -> dict[str, object]:
    cells = np.floor(points * 100).astype(int)
    counts = np.sort(np.bincount(cells[:, 0] * 100 + cells[:, 1], minlength=10_000))
    return {
        "dataset": name,
        "points": len(points),
        "paper": PRINTED[name],
        "share in the fullest 1 % of cells": round(float(counts[-100:].sum() / len(points)), 4),
        "share of cells that are empty": float((counts == 0).mean()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
