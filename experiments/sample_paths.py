"""Sample paths of the real-valued noise process in 1, 2 and 20 dimensions, as in 2018, Figure 2, Figure 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments._common import BLUE, GREY, ORANGE, Found, command, figure, save, write_csv
from experiments._euclidean import Euclidean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST, MOST = 0.1, 20.0
DIMENSIONS = (1, 2, 20)
#: A path: levels, and the value (K, n) from each level to the next, or to MOST.
Path_ = tuple[np.ndarray, np.ndarray]


def run(out: Path, small: bool) -> Found:
    """Write sample_paths.csv (two paths for each dimension) and sample_paths.png, and count the jumps of many more."""
    rng = np.random.default_rng(2018)
    drawn = {n: [path(n, rng) for _ in range(2)] for n in DIMENSIONS}
    rows = [
        {
            "dimension": n,
            "sample": sample,
            "from level": float(level),
            "radius": float(np.linalg.norm(value)),
            "first coordinate": float(value[0]),
        }
        for n, paths in drawn.items()
        for sample, (levels, values) in enumerate(paths, start=1)
        for level, value in zip(levels, values, strict=True)
    ]
    write_csv(out / "sample_paths.csv", rows)
    _draw(drawn, out / "sample_paths.png")
    paths = 5 if small else 200
    found: Found = {}
    for n in DIMENSIONS:
        jumps = np.mean([len(path(n, rng)[0]) - 1 for _ in range(paths)])
        expected = (n + 1) * math.log(MOST / LEAST)
        found[f"jumps from ε = {LEAST:g} to {MOST:g}, n = {n} ({expected:.1f} expected)"] = float(jumps)
    return found


def path(dimension: int, rng: np.random.Generator) -> Path_:
    """Draw one path from LEAST up to MOST."""
    noise = Euclidean(dimension)
    first = noise.start(LEAST, 1, rng=rng)[0]
    levels, values = noise.jumps(first, LEAST, MOST, rng=rng)
    return np.append(LEAST, levels), np.concatenate([first[None], values])


def _draw(drawn: dict[int, list[Path_]], file: Path) -> None:
    canvas = figure(10, 7)
    (line, radius), (angle, many) = canvas.subplots(2, 2, sharex=True)
    for n, axes in ((1, line), (2, radius), (2, angle), (20, many)):
        for (levels, values), colour in zip(drawn[n], (BLUE, ORANGE), strict=True):
            if axes is line:
                shown = values[:, 0]
            elif axes is angle:
                shown = np.degrees(np.arctan2(values[:, 1], values[:, 0]))
            else:
                shown = np.linalg.norm(values, axis=1)
            axes.stairs(shown, np.append(levels, MOST), baseline=None, color=colour, linewidth=1.4)
        if n > 1 and axes is not angle:
            _mean(axes, n)
    line.set(title="n = 1", ylabel="V", yscale="symlog")
    radius.set(title="n = 2, length", ylabel="|V|", yscale="log")
    angle.set(title="n = 2, direction", ylabel="angle, degrees", ylim=(-185, 185), yticks=range(-180, 181, 90))
    many.set(title="n = 20, length", ylabel="|V|", yscale="log")
    for axes in (line, radius, angle, many):
        axes.set(xscale="log", xlim=(LEAST, MOST))
        axes.grid(alpha=0.3)
    for axes in (angle, many):
        axes.set_xlabel("level ε (more privacy on the left)")
    save(canvas, file)


def _mean(axes: Axes, n: int) -> None:
    levels = np.array([LEAST, MOST])
    axes.plot(levels, n / levels, "--", color=GREY, linewidth=1, label="mean n/ε")
    axes.legend(fontsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
