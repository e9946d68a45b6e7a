"""Figure 3 of the 2014 paper, drawn from the stand-ins: one panel per data set, 5% of the points in each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets.indoor import indoor_like
from datasets.twitter import twitter_like_north_america, twitter_like_world

SHARE = 0.05  # of the points, as in the paper: "to avoid clogging"


def draw(file: str | Path, seed: int = 2014) -> None:
    """Write the picture of the three stand-ins to a PNG (or PDF, SVG) file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [
        ("stand-in for dataset 1", "Twitter users of the world", twitter_like_world(seed)),
        ("stand-in for dataset 2", "cropped to North America", twitter_like_north_america(seed)),
        ("stand-in for dataset 3", "tags of five people indoors", indoor_like(seed)),
    ]
    figure = Figure(figsize=(15, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, what, points) in zip(figure.subplots(1, 3), panels, strict=True):
        shown = _thin(points, seed)
        axes.scatter(*shown.T, s=1.5, linewidths=0, color="#1f4e79", alpha=0.6)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="x (normalised)", ylabel="y (normalised)")
        axes.set_title(f"{title}: {what}\n{len(shown):,} of {len(points):,} points shown", fontsize=11)
    figure.savefig(file, dpi=120)


def _thin(points: np.ndarray, seed: int) -> np.ndarray:
    """Return a random twentieth of the points (n, 2)."""
    keep = np.random.default_rng(seed).choice(len(points), size=round(SHARE * len(points)), replace=False)
    return points[keep]
