"""2014, Figure 5: error of range queries from sorted points, standard neighbourhood (δ = 1) and δ-neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.kinds.sorted import SortedRelease, group_size
from experiments._common import BLUE, GREEN, GREY, ORANGE, RED, Found, command, figure, save, write_csv

#: δ as a fraction of the domain; 1 is the standard neighbourhood.
DELTAS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
SIZES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
#: Points per sum when all δ use equal groups. The noise stays below the spacing of these groups.
GROUP = 2_000
EPSILON = 1.0


def run(out: Path, small: bool) -> Found:
    """Write figure5.csv (errors by data set, δ and range size) and figure5.png, from 10,000 runs for each size."""
    rng = np.random.default_rng(5)
    releases, ranges = (2, 50) if small else (100, 100)
    world = datasets.twitter_like_world()[:, 0]
    sets = {"spread evenly": rng.random(100_000), "stand-in 1, x": (world - world.min()) / (world.max() - world.min())}
    rows: list[dict[str, object]] = []
    for name, points in sets.items():
        for delta in DELTAS:
            near = dh.Neighbourhood(dh.Domain((0, 1), (1000,)), delta)
            best = group_size(near, len(points), dh.Budget(EPSILON))
            for kind, group in (("equal groups", min(GROUP, len(points) // 20)), ("groups by δ", best)):
                rows += _measured(name, points, near, kind, group, releases, ranges, rng)
    write_csv(out / "figure5.csv", rows)
    _draw(rows, out / "figure5.png")
    powers = {name: _power(rows, name) for name in sets}
    return {
        "noise error at equal groups, power of δ, evenly spread (paper: 2)": powers["spread evenly"],
        "the same, stand-in 1": powers["stand-in 1, x"],
    }


def _measured(
    name: str,
    points: NDArray[np.float64],
    near: dh.Neighbourhood,
    kind: str,
    group: int,
    releases: int,
    ranges: int,
    rng: np.random.Generator,
) -> list[dict[str, object]]:
    """Return mean square errors of random ranges per size, relative to the data and to the release without noise."""
    # Use the same ranges for every δ, so that the curves can be compared.
    same = np.random.default_rng(50)
    places = {size: same.random(ranges) * (1 - size) for size in SIZES}
    low = np.concatenate([places[s] for s in SIZES])
    high = np.concatenate([places[s] + s for s in SIZES])
    order = np.sort(points)
    true = np.searchsorted(order, high) - np.searchsorted(order, low)
    plain = _histogram_answers(_without_noise(points, near, group), low, high)
    total, noise = np.zeros(len(low)), np.zeros(len(low))
    for _ in range(releases):
        release = dh.publishers.publish_sorted(points, near, EPSILON, group=group, rng=rng)
        found = _histogram_answers(release, low, high)
        total += (found - true) ** 2 / releases
        noise += (found - plain) ** 2 / releases
    return [
        {
            "points": name,
            "delta": near.delta,
            "grouping": kind,
            "group": group,
            "size": size,
            "runs": releases * ranges,
            "mse": float(total[i * ranges : (i + 1) * ranges].mean()),
            "mse of the noise": float(noise[i * ranges : (i + 1) * ranges].mean()),
        }
        for i, size in enumerate(SIZES)
    ]


def _without_noise(points: NDArray[np.float64], near: dh.Neighbourhood, group: int) -> SortedRelease:
    """Return the release without noise, to separate the noise error from the grouping error."""
    steps = np.sort(near.domain.lattice(points)[:, 0])
    release = dh.publishers.publish_sorted(points, near, EPSILON, group=group, rng=np.random.default_rng(0))
    sums = np.add.reduceat(steps, np.arange(0, len(steps), group))
    return SortedRelease(release.mechanism, sums)


def _histogram_answers(
    release: SortedRelease, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Estimate counts between coordinates from the estimated ranks."""
    below = np.concatenate([[0.0], np.cumsum(release.cells())])
    edges = release.domain.edges(0)
    return np.asarray(np.interp(high, edges, below) - np.interp(low, edges, below))


def _power(rows: Sequence[dict[str, object]], name: str) -> float:
    """Return the slope of log(noise error) over log δ at equal groups, over all sizes."""
    chosen = [r for r in rows if r["points"] == name and r["grouping"] == "equal groups"]
    x, y = (np.log([float(str(r[k])) for r in chosen]) for k in ("delta", "mse of the noise"))
    return round(float(np.polyfit(x, y, 1)[0]), 3)


def _draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    drawn = figure(10.5, 8.2)
    panels = drawn.subplots(2, 2, sharex=True, sharey="row")
    colours = ("black", RED, ORANGE, GREEN, BLUE, GREY)
    for line, name in zip(panels, dict.fromkeys(r["points"] for r in rows), strict=True):
        for axes, kind in zip(line, ("equal groups", "groups by δ"), strict=True):
            for delta, colour in zip(DELTAS, colours, strict=True):
                chosen = [r for r in rows if (r["points"], r["delta"], r["grouping"]) == (name, delta, kind)]
                label = "δ = 1 (standard)" if delta == 1 else f"δ = {delta:g}"
                group = chosen[0]["group"]
                axes.plot(
                    [r["size"] for r in chosen], [r["mse"] for r in chosen], "o-", color=colour, markersize=3.5,
                    label=label if kind == "equal groups" else f"{label}: {group:,}",
                )  # fmt: skip
                if kind == "equal groups":
                    axes.plot([r["size"] for r in chosen], [r["mse of the noise"] for r in chosen], ":", color=colour)
            title = f"{chosen[0]['group']:,} points per sum" if kind == "equal groups" else "points per sum by δ"
            axes.set(yscale="log", title=f"{name}: {title}")
            axes.set_xlabel("range size (share of the domain)")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7.5, ncols=2)
        line[0].set_ylabel("mean square error (points²)\ndotted: of the noise alone")
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
