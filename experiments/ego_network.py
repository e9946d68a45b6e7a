"""Share one bit in an ego network: accuracy at a distance, and the gain of coalitions (2018, section IV-B).

`python -m experiments.ego_network [--data FOLDER] [--ego ID] [--small] [--out DIR]`. FOLDER contains
facebook_combined.txt (docs/internals/experiments.md). Without it the network is artificial: four circles of friends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import deltahist as dh
from deltahist.network.mechanism import Signal, measure_distances, read_pairs
from deltahist.noise.paths import BitPaths, VectorPaths
from experiments._common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Found,
    figure,
    parser_of,
    print_found,
    print_table,
    save,
    write_csv,
)

EGO, FILE = "0", "facebook_combined.txt"
#: ε(d) as printed, and the range of ε that the paper derives from it.
EPSILON, LEAST, MOST = "exp(4-3.3d)", 0.5, 15.0
DRAWS, SEED, BINS = 2000, 3, 8
#: Lattice steps between 0 and 1 for the projection.
LATTICE = 10_000
Floats = NDArray[np.float64]


def ego_network(data: Path | None, ego: str) -> dh.network.Network:
    """Return the ego, her friends and all friendships among them. The ego is the first node."""
    whole = made_up() if data is None else dh.network.Network.from_edges(read_pairs(data / FILE))
    centre = int(whole.find_places([ego], "ego")[0])
    members = np.concatenate([[centre], whole.adjacency[[centre]].indices])
    return dh.network.Network(tuple(whole.nodes[i] for i in members), whole.adjacency[members][:, members])


def made_up() -> dh.network.Network:
    """Return an ego, called 0, with four circles of 15 friends each; some circles know each other."""
    rng = np.random.default_rng(SEED)
    friends = np.arange(1, 61)
    edges = [(0, friend) for friend in friends]
    for one, other in itertools.combinations(friends.tolist(), 2):
        if rng.random() < (0.02 + 0.03 * (one % 4) ** 2 if one % 4 == other % 4 else 0.004):
            edges.append((one, other))
    return dh.network.Network.from_edges(edges)


def fitted(distance: Floats) -> str:
    """Return ε(d) that falls exponentially from MOST at the smallest distance to LEAST at the largest."""
    rate = math.log(MOST / LEAST) / float(np.ptp(distance))
    return f"exp({math.log(MOST) + rate * distance.min():.9f}-{rate:.9f}d)"


def run(out: Path, small: bool, data: Path | None = None, ego: str = EGO) -> Found:
    """Write ego_network.csv (a row per ε(d) and range of distances), ego_coalitions.csv and ego_network.png."""
    network = ego_network(data, ego)
    distances = measure_distances(network, "resistance")
    friends = np.arange(1, len(network))
    distance = distances.between(0 * friends, friends)
    draws = 200 if small else DRAWS
    rows, gains, ranges = [], [], {}
    for name, epsilon in (("printed", EPSILON), ("fitted", fitted(distance))):
        mechanism = dh.network.DiffusionMechanism(network, epsilon, distance=distances)
        levels = mechanism.privacy_levels.round_down(distance)
        right = _right(levels, draws)
        rows += [{"epsilon(d)": name} | row for row in _by_distance(distance, levels / 1e9, right)]
        gains += [{"epsilon(d)": name} | row for row in _by_size(distance, levels / 1e9, right)]
        ranges[name] = f"{levels.min() / 1e9:.3g} to {levels.max() / 1e9:.3g}"
    for name, table in (("ego_network", rows), ("ego_coalitions", gains)):
        write_csv(out / f"{name}.csv", table)
    print_table(rows)
    # Draw two samples of ε for the picture, over the range that the paper states.
    signals = []
    for bit, seed in ((1, SEED), (0, SEED + 1)):
        shared = dh.network.Diffusion({network.nodes[0]: bit}, mechanism, rng=np.random.default_rng(seed))
        signals.append((bit, shared.signal(network.nodes[0], network.nodes[1 + int(np.argmin(distance))])))
    _draw(
        network, distance, mechanism, signals, rows[len(rows) // 2 :], gains[len(gains) // 2 :], out / "ego_network.png"
    )
    last = gains[-1]
    return {
        "friends": len(friends),
        "distances": f"{distance.min():.3g} to {distance.max():.3g}",
        f"ε by {EPSILON}": ranges["printed"],
        "ε, fitted": ranges["fitted"],
        "accuracy of the furthest, ε fitted": float(str(rows[-1]["chain"])),
        "the same by projection": float(str(rows[-1]["projection"])),
        f"accuracy of the {last['members']} furthest together": float(str(last["nearest"])),
        "the same with independent bits": float(str(last["independent"])),
    }


def _right(levels: NDArray[np.int64], draws: int) -> dict[str, NDArray[np.bool_]]:
    """Return whether responses (draws, friends) are right: by chain, the paper's projection and independent bits."""
    rng = np.random.default_rng(SEED)
    key, truth = rng.bytes(32), rng.integers(0, 2, draws)
    # Give each draw the path of a different user.
    user, level, bit = (np.repeat(np.arange(draws), len(levels)), np.tile(levels, draws), np.repeat(truth, len(levels)))
    noise = VectorPaths(key, 1, LATTICE).at(user, level)[:, 0]
    right = {
        "chain": BitPaths(key).at(user, level, bit) == bit,
        "projection": (LATTICE * bit + noise >= LATTICE / 2) == bit,
        "independent": rng.random(len(level)) >= 1 / (1 + np.exp(level / 1e9)),
    }
    return {name: found.reshape(draws, len(levels)) for name, found in right.items()}


def _by_distance(distance: Floats, epsilon: Floats, right: dict[str, NDArray[np.bool_]]) -> list[dict[str, Any]]:
    """Return the accuracies of friends by range of distance, next to the theoretical ones."""
    rows = []
    width = float(np.ptp(distance)) / BINS
    place = np.minimum((distance - distance.min()) / width, BINS - 1).astype(int)
    for each in np.unique(place):
        members = np.flatnonzero(place == each)
        e = epsilon[members]
        rows.append(
            {
                "distance": float(distance[members].mean()),
                "friends": len(members),
                "epsilon": float(e.mean()),
                "chain": float(right["chain"][:, members].mean()),
                "chain, law": float((1 / (1 + np.exp(-e))).mean()),
                "projection": float(right["projection"][:, members].mean()),
                "projection, law": float((1 - np.exp(-e / 2) / 2).mean()),
                "independent": float(right["independent"][:, members].mean()),
            }
        )
    return rows


def _by_size(distance: Floats, epsilon: Floats, right: dict[str, NDArray[np.bool_]]) -> list[dict[str, Any]]:
    """Return how often coalitions of the farthest friends are right: by nearest member's bit or independent vote."""
    furthest = np.argsort(-distance, kind="stable")
    rows = []
    for size in (1, 2, 3, 5, 8, 12, 18, 27, 40):
        members = furthest[:size]
        nearest = members[np.argmax(epsilon[members])]
        # Take the likelier bit: each member's vote is weighted by its ε.
        vote = np.where(right["independent"][:, members], 1, -1) @ epsilon[members]
        rows.append(
            {
                "members": size,
                "epsilon": float(epsilon[nearest]),
                "sum of epsilon": float(epsilon[members].sum()),
                "nearest": float(right["chain"][:, nearest].mean()),
                "independent": float((vote > 0).mean() + (vote == 0).mean() / 2),
            }
        )
    return rows


def _draw(
    network: dh.network.Network,
    distance: Floats,
    mechanism: dh.network.DiffusionMechanism,
    signals: Sequence[tuple[int, Signal]],
    rows: Sequence[dict[str, Any]],
    gains: Sequence[dict[str, Any]],
    file: Path,
) -> None:
    drawn = figure(11, 9)
    (samples, ego), (accuracy, coalition) = drawn.subplots(2, 2)
    _draw_signals(samples, signals)
    grid = np.linspace(distance.min(), distance.max(), 400)
    law = mechanism.privacy_levels.at(grid)
    _draw_ego(ego, network, distance, signals, grid, law)
    at = [row["distance"] for row in rows]
    accuracy.plot(grid, 1 / (1 + np.exp(-law)), color=BLUE, label="the bit itself, by a chain")
    accuracy.plot(at, [row["chain"] for row in rows], "o", color=BLUE)
    accuracy.plot(grid, 1 - np.exp(-law / 2) / 2, color=ORANGE, label="the paper's: the nearer of 0 and 1")
    accuracy.plot(at, [row["projection"] for row in rows], "s", color=ORANGE)
    accuracy.set(xlabel="resistance distance", title="how often a response is right (lines: the laws)")
    members = [row["members"] for row in gains]
    coalition.plot(members, [row["nearest"] for row in gains], "o-", color=BLUE, label="ours: the nearest member's bit")
    coalition.plot(
        members, [row["independent"] for row in gains], "s-", color=RED, label="independent bits: the likelier one"
    )
    coalition.set(xlabel="members, the furthest friends first", title="how often a coalition is right")
    for axes in (accuracy, coalition):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9)
    save(drawn, file)


def _draw_signals(axes: Axes, signals: Sequence[tuple[int, Signal]]) -> None:
    for (bit, signal), colour, base in zip(signals, (BLUE, RED), (2.0, 0.0), strict=True):
        levels = np.geomspace(1e-3, float(signal.epsilon) * (1 - 1e-12), 2000)
        axes.plot(levels, [base + signal.at(level)[0] for level in levels], color=colour)
        axes.text(1.1e-3, base + 1.1, f"response to a bit that is {bit}", color=colour, fontsize=9)
    axes.set(xscale="log", xlabel="ε", yticks=[0, 1, 2, 3], yticklabels=["0", "1", "0", "1"], ylim=(-0.2, 3.5))
    axes.set_title("two samples: the response at each level")
    axes.grid(alpha=0.3)


def _draw_ego(
    axes: Axes,
    network: dh.network.Network,
    distance: Floats,
    signals: Sequence[tuple[int, Signal]],
    grid: Floats,
    law: Floats,
) -> None:
    """Draw friends at their distance from the ego, who is in the corner."""
    among = network.adjacency[1:][:, 1:]
    angle = np.pi / 2 * (np.random.default_rng(SEED).permutation(len(distance)) + 0.5) / len(distance)
    places = distance[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    first, second = among.nonzero()
    ends = places[np.column_stack([first[first < second], second[first < second]])]
    axes.plot(*ends.transpose(2, 1, 0), color=GREY, linewidth=0.2, alpha=0.35, zorder=1)
    axes.scatter(*places.T, s=14, color=GREEN, edgecolors="black", linewidths=0.3, zorder=3)
    turn = np.linspace(0, np.pi / 2, 100)
    for (_, signal), colour in zip(signals, (BLUE, RED), strict=True):
        for radius in np.interp(-signal.starts[1:] / 1e9, -law, grid, left=np.nan, right=np.nan):
            axes.plot(radius * np.cos(turn), radius * np.sin(turn), color=colour, linewidth=1.2, zorder=4)
    axes.scatter([0], [0], marker="*", s=200, color=RED, zorder=3)
    axes.set(aspect="equal", title="friends at their distance, and where the samples change")
    axes.set_xlabel("resistance distance")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=f"a folder with {FILE}")
    parser.add_argument("--ego", default=EGO, metavar="ID", help="the user at the centre")
    chosen = parser.parse_args(arguments)
    print_found(run(chosen.out, chosen.small, chosen.data, chosen.ego))


if __name__ == "__main__":
    main()
