"""Non-negative estimates: iterations, seconds and certificate.

At 128 × 128 cells iterations are compared with plain splitting. "blocks" is the estimate that users get, with equal
cells in empty blocks.

Counts are artificial North American users, or `--data FILE.npy`, a square of counts whose cells are summed or split
(see docs/internals/experiments.md). Target: the certificate within a minute at 512 × 512, in five at 1024 × 1024.
`--sides 128,256` chooses the cells per side, `--strategies flow,spectral` the strategies.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.decode import Metric, project_nonnegative
from deltahist.decode.projection import CLOSE
from deltahist.errors import DeltaHistWarning
from deltahist.strategies import Flow, Hierarchical, Identity, Spectral, Tents
from deltahist.strategies.base import Strategy

SIDES = "128,256,512,1024"
STRATEGIES: dict[str, tuple[Callable[[dh.Neighbourhood], Strategy], dh.Budget]] = {
    "flow": (Flow.tuned, dh.Budget(1.0)),
    "spectral": (Spectral, dh.Budget(rho=0.05)),
    "identity": (lambda near: Identity(near.domain), dh.Budget(1.0)),
    "hierarchical": (lambda near: Hierarchical(near.domain, 4), dh.Budget(1.0)),
    "tents": (Tents.tuned, dh.Budget(1.0)),
}


def plain_splitting(field: NDArray[np.float64], metric: Metric, total: float, nearest: NDArray[np.float64]) -> int:
    """Return the number of iterations of plain alternating directions that attain our certificate."""
    most = np.zeros(metric.grid)
    most[metric.inside] = np.inf
    step = 2 * max(metric.grid) / float(metric.variance.mean())
    pull = step * metric.variance / (1 + step * metric.variance)
    cells, rest = np.clip(field, 0.0, most), np.zeros_like(field)
    for done in range(1, 6001):
        smooth = field + metric.filter(cells - rest - field, pull)
        rest += 1.7 * smooth - 0.7 * cells
        cells = np.clip(rest, 0.0, most)
        rest -= cells
        if done % 20 == 0:
            away = cells * (total / cells.sum())
            away[metric.inside] -= nearest
            if float((away * metric.filter(away, metric.precision)).sum()) <= CLOSE:
                break
    return done


def counts_of(data: Path | None, n: int) -> NDArray[np.int64]:
    """Return counts of n × n cells. To refine a smaller square, each point gets a random part of its cell."""
    if data is None:
        places = (datasets.twitter_like_north_america() * n).astype(np.int64).clip(0, n - 1)
        return np.bincount(places @ [1, n], minlength=n * n).reshape(n, n)
    counts = np.load(data, allow_pickle=False).astype(np.int64)
    side = min(n, len(counts))
    counts = counts.reshape(side, len(counts) // side, side, -1).sum(axis=(1, 3))
    parts = n // side
    split = np.random.default_rng(7).multinomial(counts.ravel(), np.full(parts**2, parts**-2.0))
    return split.reshape(side, side, parts, parts).swapaxes(1, 2).reshape(n, n)


def main() -> None:
    """Print a table with a row for each strategy and grid."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FILE")
    parser.add_argument("--sides", default=SIDES)
    parser.add_argument("--strategies", default="flow,spectral")
    chosen = parser.parse_args()
    columns = f"{'steps':>6} {'seconds':>8} {'distance':>9} {'blocks':>7} {'seconds':>8}  plain splitting"
    print(f"{'strategy':<13} {'side':>5} {columns}")
    for name in chosen.strategies.split(","):
        make, budget = STRATEGIES[name]
        for n in map(int, chosen.sides.split(",")):
            near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), 1)
            mechanism = dh.Mechanism(near, make(near), budget)
            release = dh.publishers.publish_mechanism(
                mechanism, counts_of(chosen.data, n), rng=np.random.default_rng(1)
            )
            field, metric = (
                release.decoder.estimate_on_grid(release.values, release.total),
                release.decoder.noise_metric(),
            )
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeltaHistWarning)
                found = project_nonnegative(field, metric, release.total)
            row = f"{name:<13} {n:5} {found.steps:6} {time.perf_counter() - start:8.2f} {found.distance**0.5:9.3f}"
            start = time.perf_counter()
            row += f" {release.projection.steps:7} {time.perf_counter() - start:8.2f}"
            if n <= 128 and release.total is not None:
                row += f"  {plain_splitting(field, metric, release.total, found.cells)} steps"
            print(row, flush=True)


if __name__ == "__main__":
    main()
