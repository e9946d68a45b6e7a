"""A researcher's tour: a custom neighbourhood, a sweep with peers, joint errors, other tools, synthetic points.

`python -m experiments.tour [--small] [--out DIR]`. The last step is left out if `mbi` (private-pgm) is not installed.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import deltahist as dh
from deltahist.answers import covariance
from deltahist.sweeping import Peer, sweep
from experiments._common import Found, command, figure, save
from experiments.compare_2d import invent_counts
from experiments.peers import NEARBY, PEERS


def run(out: Path, small: bool) -> Found:
    """Write tour.csv and tour.png."""
    side, rng = 16 if small else 64, np.random.default_rng(1)
    counts, domain = invent_counts(side), dh.Domain((0, 0, side, side), (side, side))
    cells = np.arange(side**2).reshape(side, side)
    streets = [
        *zip(cells[1:].flat, cells[:-1].flat, strict=True),
        *zip(cells[:, 1:].flat, cells[:, :-1].flat, strict=True),
    ]
    blocks = dh.Neighbourhood.of(domain, streets, limits=[("any", 4)])  # city-block distance
    near = dh.Neighbourhood(domain, 1, limits=[("any", 4)])
    policy, most = NEARBY["policy graph"]
    table = sweep(
        {"δ = 1 cell": near, "city blocks": blocks},
        {"all ranges": dh.workloads.all_ranges(domain)},
        [1, 0.1],
        {
            "auto": "auto",
            "DAWA": Peer(PEERS["DAWA"], "any move", 1),
            "policy graph": Peer(policy, "moves within 1 cell", most(counts.shape)),
        },
        counts=counts,
        trials=2 if small else 10,
    )
    table.to_csv(out / "tour.csv", index=False)
    drawn = figure(7, 4)
    dh.plots.plot_sweep(table, "measured", drawn.subplots())
    save(drawn, out / "tour.png")
    release = dh.publish(counts, blocks, epsilon=1, rng=rng)
    districts = dh.workloads.random_boxes(10, domain)
    errors = covariance(release, districts)
    spread = np.sqrt(errors.diagonal())
    points = dh.synthetic(release, rng=rng)
    found = {"largest correlation of ten districts": float((errors / np.outer(spread, spread) - np.eye(10)).max())}
    found["synthetic points"] = len(points)
    if importlib.util.find_spec("mbi"):
        with warnings.catch_warnings(action="ignore"):
            import mbi

        flat = dh.publish(counts, near, "identity", 1, rng=rng).measurements()
        given = mbi.LinearMeasurement(flat.values, ("x", "y"), float(flat.covariance.diagonal()[0] ** 0.5))
        model = mbi.estimation.MirrorDescent().estimate(mbi.Domain(["x", "y"], counts.shape), [given], iters=500)
        found["total of the graphical model"] = float(model.project(("x",)).datavector().sum())
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
