"""Published mechanisms and ours at several ε: one table for any move, one for moves of up to one cell.

`python -m experiments.compare_peers [--data FILE ...] [--side N] [--small] [--out DIR]`. FILE is a 2-D histogram (NPY).
Releases and rectangles are those of `compare_2d`. Without files, the histogram is invented.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

import deltahist as dh
from deltahist.strategies import Flow, Strategy, Tents
from deltahist.sweeping import Peer, sweep
from experiments._common import Found, figure, parser_of, print_found, save
from experiments.compare_2d import QUERIES, SEED, TRIALS, Counts, decode, invent_counts, read_counts
from experiments.peers import LINEAR, NEARBY, PEERS, STRATEGIES, UNSOUND

EPSILONS = (1, 0.1, 0.01)


def measured(counts: Counts, epsilons: Sequence[float], trials: int, queries: int) -> pd.DataFrame:
    """Return the errors of all pure mechanisms, for any move and for moves of up to one cell."""
    domain = dh.Domain((0, 0, *counts.shape), counts.shape)
    work = {"rectangles": dh.workloads.all_ranges(domain).sample(queries, SEED)}
    far: dict[str, Peer | Callable[[dh.Neighbourhood], Strategy]] = {"ours (tents)": Tents.tuned}
    near: dict[str, Peer | Callable[[dh.Neighbourhood], Strategy]] = {"ours (flow)": Flow.tuned}
    far |= {name: lambda near, make=make: make(near.domain) for name, make in STRATEGIES.items()}
    far |= {name: Peer(peer, "any move", 1) for name, peer in PEERS.items()}
    near |= {name: Peer(peer, "moves within 1 cell", most(counts.shape)) for name, (peer, most) in NEARBY.items()}
    for table in (far, near):
        chosen = {name: peer for name, peer in table.items() if name in LINEAR}
        table |= {
            f"{name}, our decoding": Peer(decode(peer.run), peer.relation, peer.any_move)
            for name, peer in chosen.items()
            if isinstance(peer, Peer)
        }
    settings = {
        "any move costs ε": (dh.Neighbourhood(domain, 1, limits=[(math.inf, 1)]), far),
        "one cell costs ε": (dh.Neighbourhood(domain, 1, limits=()), near),
    }
    return pd.concat(
        sweep({name: at}, work, epsilons, table, counts=counts, trials=trials, seed=SEED, nonnegative=True)
        for name, (at, table) in settings.items()
    )


def run(out: Path, small: bool, files: Sequence[Path] = (), side: int | None = None) -> Found:
    """Write compare_peers.csv and compare_peers.png."""
    maps = {file.stem: read_counts(file, side) for file in files} or {"invented": invent_counts(16 if small else 64)}
    size = (EPSILONS[:1], 2, 300) if small else (EPSILONS, TRIALS, QUERIES)
    table = pd.concat([measured(counts, *size).assign(map=name) for name, counts in maps.items()], ignore_index=True)
    table.to_csv(out / "compare_peers.csv", index=False)
    rows = ["neighbourhood", "mechanism", "relation", "any_move"]
    factors = table.assign(any_move=(table["any_move"] / table["epsilon"]).round(1))
    wide = factors.pivot_table("measured", rows, ["map", "epsilon"], sort=False).sort_index(axis=1, ascending=False)
    print(wide.to_string(float_format="{:.4g}".format))
    sound = table[~table["mechanism"].isin(UNSOUND)]
    first = sound[(sound["map"] == next(iter(maps))) & (sound["neighbourhood"] == "any move costs ε")]
    drawn = figure(10, 6)
    dh.plots.plot_sweep(first, "measured", drawn.subplots())
    save(drawn, out / "compare_peers.png")
    best = sound.loc[sound.groupby(["map", "neighbourhood", "epsilon"])["measured"].idxmin()]
    return {
        f"{r.map}, {r.neighbourhood}, ε = {r.epsilon:g}": f"{r.measured:.4g} ({r.mechanism})" for r in best.itertuples()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=(), metavar="FILE", help="2-D histograms")
    parser.add_argument("--side", type=int, help="coarsen the histograms to this many cells per side")
    chosen = parser.parse_args(arguments)
    print_found(run(chosen.out, chosen.small, chosen.data, chosen.side))


if __name__ == "__main__":
    main()
