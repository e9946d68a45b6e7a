"""2014, Figure 6: smooth sensitivity and error of the median of exponential points, standard and δ-neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import deltahist as dh
from deltahist.kinds.quantile import PointsAround, SmoothNoise
from experiments._common import BLUE, GREEN, ORANGE, RED, Found, command, figure, save, write_csv

DELTAS = (1.0, 0.2, 0.1, 0.05, 0.01)
NUMBERS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
EPSILON = 1
#: Two mechanisms for the median: noise scaled by the smooth sensitivity, and the inverse sensitivity mechanism.
METHODS = ("smooth", "inverse")


def run(out: Path, small: bool) -> Found:
    """Write figure6.csv and figure6.png: mean smooth sensitivity and absolute errors of 300 data sets of each size."""
    rng = np.random.default_rng(6)
    repetitions = 30 if small else 300
    numbers = NUMBERS[::3] if small else NUMBERS
    noise = SmoothNoise.for_budget(dh.Budget(EPSILON), 1)
    rows: list[dict[str, object]] = []
    for number in numbers:
        made = [rng.exponential(size=number) for _ in range(repetitions)]
        made = [points / points.max() for points in made]
        for delta in DELTAS:
            near = dh.Neighbourhood(dh.Domain((0, 1), (100,)), delta)
            smooth = [_smooth_sensitivity(points, near, noise.beta) for points in made]
            row: dict[str, object] = {
                "points": number,
                "delta": delta,
                "beta": round(noise.beta, 6),
                "mean smooth sensitivity": float(np.mean(smooth)),
            }
            for method in METHODS:
                errors = [
                    abs(
                        dh.publishers.publish_quantile(points, 0.5, near, EPSILON, method=method, rng=rng).value
                        - _median(points)
                    )
                    for points in made
                ]
                row[f"error of {method}"] = float(np.mean(errors))
            rows.append(row)
    write_csv(out / "figure6.csv", rows)
    _draw(rows, out / "figure6.png")
    found = {(r["points"], r["delta"]): float(str(r["mean smooth sensitivity"])) for r in rows}
    return {
        f"mean smooth sensitivity at {n} points, δ = 1 and 0.01": f"{found[n, 1.0]:.4g} and {found[n, 0.01]:.4g}"
        for n in (numbers[0], numbers[-1])
    }


def _smooth_sensitivity(points: np.ndarray, near: dh.Neighbourhood, beta: float) -> float:
    steps = near.domain.lattice(points)[:, 0]
    around = PointsAround(steps, (len(steps) + 1) // 2, near.domain.lattice_shape[0] - 1)
    return around.smooth_sensitivity(near.radius, beta, 1) * near.domain.step[0]


def _median(points: np.ndarray) -> float:
    return float(np.sort(points)[(len(points) + 1) // 2 - 1])


def _draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    drawn = figure(11, 4.6)
    left, right = drawn.subplots(1, 2)
    for delta, colour in zip(DELTAS, ("black", RED, ORANGE, GREEN, BLUE), strict=True):
        chosen = [r for r in rows if r["delta"] == delta]
        label = "δ = 1 (standard)" if delta == 1 else f"δ = {delta:g}"
        left.plot([r["points"] for r in chosen], [r["mean smooth sensitivity"] for r in chosen], "o-", color=colour,
                  markersize=4, label=label)  # fmt: skip
    left.set(title=f"mean smooth sensitivity of the median, β = {rows[0]['beta']:g}", ylabel="share of the domain")
    styles = zip(METHODS, (BLUE, GREEN), strict=True)
    for method, colour in styles:
        for delta, line in ((1.0, ":"), (0.05, "-")):
            chosen = [r for r in rows if r["delta"] == delta]
            label = f"{method}, δ = {delta:g}"
            right.plot([r["points"] for r in chosen], [r[f"error of {method}"] for r in chosen], line, color=colour,
                       label=label)  # fmt: skip
    right.set(title=f"mean absolute error of the median, ε = {EPSILON}", ylabel="share of the domain")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="points")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
