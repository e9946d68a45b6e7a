"""Share places over a network of neighbours: the error at a distance, and the gain of coalitions (2018, section IV-A).

`python -m experiments.proximity_network [--small] [--out DIR]`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

import deltahist as dh
from deltahist.network.mechanism import measure_distances
from experiments._common import BLUE, GREY, ORANGE, RED, Found, command, figure, print_table, save, write_csv

#: As in the paper: users, friendships, and ε of the nearest and of the farthest user.
USERS, EDGES, NEAREST, FURTHEST = 150, 1256, 15.0, 0.5
#: In metres: the side of the square in which users live, and α. The paper measures errors in units of α.
SIDE, ALPHA = 10_000, 100.0
DRAWS, SEED = 400, 1
Floats = NDArray[np.float64]


def proximity(seed: int) -> tuple[Floats, dh.network.Network]:
    """Draw places (USERS, 2) and the network of the EDGES closest pairs, from the first connected draw after `seed`."""
    while True:
        places = np.random.default_rng(seed).uniform(0, SIDE, (USERS, 2))
        first, second = np.triu_indices(USERS, 1)
        closest = np.argsort(pdist(places), kind="stable")[:EDGES]
        network = dh.network.Network.from_edges(np.column_stack([first, second])[closest], range(USERS))
        order = network.find_places(range(USERS))
        if np.isfinite(_hops(network, int(order[0]))).all():
            return places[np.argsort(order)], network
        seed += 1


def _hops(network: dh.network.Network, start: int) -> Floats:
    everybody = np.arange(USERS)
    return measure_distances(network).between(np.full(USERS, start), everybody)


def run(out: Path, small: bool) -> Found:
    """Write proximity_network.csv (a row per distance), proximity_coalitions.csv and proximity_network.png."""
    places, network = proximity(SEED)
    hops = np.array([_hops(network, place) for place in range(USERS)])
    # The star lives at one end of the network, and the coalition around the user who is farthest away.
    star, diamond = (int(place) for place in np.unravel_index(np.argmax(hops), hops.shape))
    distance, furthest = hops[star], int(hops.max())
    rate = math.log(NEAREST / FURTHEST) / (furthest - 1)
    mechanism = dh.network.DiffusionMechanism(
        network, f"{NEAREST:g}*exp({rate:.9f}-{rate:.9f}d)", ALPHA, columns=("x", "y"), step=0.1
    )
    others = np.flatnonzero(np.arange(USERS) != star)
    coalition = others[np.argsort(np.linalg.norm(places[others] - places[diamond], axis=1))]
    epsilon = np.zeros(USERS)
    epsilon[others] = mechanism.privacy_levels.at(distance[others])

    draws = 40 if small else DRAWS
    ours, independent = np.empty((draws, USERS, 2)), np.empty((draws, USERS, 2))
    pairs = [(network.nodes[star], network.nodes[place]) for place in others]
    data = {network.nodes[star]: places[star]}
    rng = np.random.default_rng(SEED)
    for draw in range(draws):
        answers = dh.network.Diffusion(data, mechanism, rng=rng).responses(pairs)
        ours[draw, others] = answers[["x", "y"]].to_numpy() - places[star]
        independent[draw, others] = _noise(epsilon[others], rng)
    rows = _by_distance(ours, distance, others, mechanism)
    gains = _by_size(ours, independent, epsilon, coalition)
    for name, table in (("proximity_network", rows), ("proximity_coalitions", gains)):
        write_csv(out / f"{name}.csv", table)
    print_table(rows)
    _draw(places, network, star, diamond, ours[0], rows, gains, out / "proximity_network.png")
    last = gains[-1]
    together = float(epsilon[others].sum())
    return {
        "largest distance": furthest,
        "rmse at distance 1, m": float(rows[0]["rmse"]),
        f"rmse at distance {furthest}, m": float(rows[-1]["rmse"]),
        "largest deviation from √6 α/ε": float(max(abs(r["rmse"] / r["stated"] - 1) for r in rows)),
        f"rmse of a coalition of {last['members']}, m": float(last["nearest"]),
        "the same with independent noise": float(last["independent"]),
        "ε of all others together": float(epsilon.max()),
        "the same with independent noise, by composition": together,
    }


def _noise(epsilon: Floats, rng: np.random.Generator) -> Floats:
    """Draw independent noise of the same law for each user: a direction and a Gamma distributed length."""
    way = rng.normal(size=(len(epsilon), 2))
    way /= np.linalg.norm(way, axis=1)[:, None]
    return way * rng.gamma(2, ALPHA / epsilon)[:, None]


def _rms(errors: Floats) -> float:
    return float(np.sqrt((errors**2).sum(axis=-1).mean()))


def _by_distance(
    ours: Floats, distance: Floats, others: NDArray[np.int64], mechanism: dh.network.DiffusionMechanism
) -> list[dict[str, float]]:
    rows = []
    for hops in np.unique(distance[others]):
        at = others[distance[others] == hops]
        level = mechanism.privacy_levels.round_down([hops])
        rows.append(
            {
                "distance": int(hops),
                "users": len(at),
                "epsilon": float(level[0] / 1e9),
                "rmse": _rms(ours[:, at[0]]),
                "stated": float(mechanism.rmse(level)[0]),
            }
        )
    return rows


def _by_size(
    ours: Floats, independent: Floats, epsilon: Floats, coalition: NDArray[np.int64]
) -> list[dict[str, float]]:
    """Return the errors of coalitions by size. A coalition of n consists of the first n members."""
    rows = []
    for size in (1, 2, 3, 5, 8, 12, 18, 27, 40, 60):
        members = coalition[:size]
        weight = epsilon[members] ** 2 / (epsilon[members] ** 2).sum()
        nearest = members[np.argmax(epsilon[members])]
        rows.append(
            {
                "members": size,
                "largest epsilon": float(epsilon[nearest]),
                "sum of epsilon": float(epsilon[members].sum()),
                "nearest": _rms(ours[:, nearest]),
                "averaged": _rms(np.einsum("dmx,m->dx", ours[:, members], weight)),
                "independent": _rms(np.einsum("dmx,m->dx", independent[:, members], weight)),
            }
        )
    return rows


def _draw(
    places: Floats,
    network: dh.network.Network,
    star: int,
    diamond: int,
    errors: Floats,
    rows: Sequence[dict[str, float]],
    gains: Sequence[dict[str, float]],
    file: Path,
) -> None:
    drawn = figure(13.5, 4.6)
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1.15, 1, 1))
    _draw_network(left, places, network, star, diamond, np.linalg.norm(errors, axis=1))
    frame = pd.DataFrame(rows)
    middle.plot(frame["distance"], frame["stated"], color=GREY, label="√6 α/ε(d)")
    middle.plot(frame["distance"], frame["rmse"], "o", color=BLUE, label="measured")
    middle.set(yscale="log", xlabel="hops from the star", ylabel="root mean square error, m", title="one response")
    frame = pd.DataFrame(gains)
    for name, style, colour, label in (
        ("nearest", "o-", BLUE, "ours: the nearest member's response"),
        ("averaged", "o--", ORANGE, "ours: the weighted mean of all members"),
        ("independent", "s-", RED, "independent noise: the weighted mean"),
    ):
        right.plot(frame["members"], frame[name], style, color=colour, markersize=4, label=label)
    right.set(xscale="log", yscale="log", xlabel="members around the diamond", title="a coalition's error, m")
    right.set_xticks([1, 3, 10, 30, 60], ["1", "3", "10", "30", "60"], minor=False)
    right.xaxis.minorticks_off()
    for axes in (middle, right):
        _plain(axes.yaxis)
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    save(drawn, file)


def _draw_network(
    axes: Axes, places: Floats, network: dh.network.Network, star: int, diamond: int, errors: Floats
) -> None:
    first, second = network.adjacency.nonzero()
    once = first < second
    ends = places[np.column_stack([first[once], second[once]])] / 1000
    axes.plot(*ends.transpose(2, 1, 0), color=GREY, linewidth=0.25, alpha=0.5, zorder=1)
    others = np.arange(len(places)) != star
    shown = axes.scatter(
        *places[others].T / 1000,
        c=errors[others],
        s=26,
        cmap="viridis_r",
        norm=LogNorm(),
        edgecolors="black",
        linewidths=0.3,
        zorder=2,
    )
    for place, mark, size in ((star, "*", 240), (diamond, "D", 60)):
        face = RED if place == star else "none"
        axes.scatter(
            *places[place] / 1000, marker=mark, s=size, facecolor=face, edgecolor=RED, linewidths=1.5, zorder=3
        )
    axes.set(aspect="equal", xlabel="km", ylabel="km", title="how far off the star's place is for each, m")
    _plain(axes.figure.colorbar(shown, ax=axes, shrink=0.85).ax.yaxis)


def _plain(axis: Axis) -> None:
    """Label a logarithmic axis with numbers such as 20 and 500 instead of powers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
