"""One million box answers with standard errors from saved 1000 × 1000 releases. Target: 2 s after loading."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import deltahist as dh

CELLS = 1000
QUERIES = 1_000_000


def random_boxes(number: int, seed: int, aligned: bool) -> np.ndarray:
    """Return corners (m, 4) of random boxes in the unit square, at cell edges or anywhere."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, CELLS + 1, (2 * number, 2, 2)) / CELLS if aligned else rng.random((2 * number, 2, 2))
    ends.sort(axis=1)
    ends = ends[(ends[:, 0] < ends[:, 1]).all(axis=1)][:number]
    return ends.reshape(len(ends), 4)


def main() -> None:
    """Print seconds per strategy for loading and for answering."""
    domain = dh.Domain((0, 0, 1, 1), (CELLS, CELLS))
    near = dh.Neighbourhood(domain, 1 / CELLS)
    counts = np.random.default_rng(1).poisson(2, domain.shape)
    work = {
        kind: dh.workloads.boxes(random_boxes(QUERIES, 2, kind == "aligned")) for kind in ("aligned", "cutting cells")
    }
    print(f"{QUERIES:,} boxes on {CELLS} × {CELLS} cells, seconds after loading")
    print(f"{'strategy':<28} {'publish':>8} {'load':>6} {'aligned':>8} {'again':>6} {'cutting':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for strategy in (
            dh.strategies.Identity(domain),
            dh.strategies.Hierarchical(domain, 10),
            dh.strategies.Hierarchical(domain, 2),
            dh.strategies.Wavelet(domain),
            dh.strategies.Cumulative(domain),
        ):
            path = Path(folder) / "release.parquet"
            clock = [time.perf_counter()]
            dh.publish(counts, near, strategy, epsilon=1.0).save(path)
            clock.append(time.perf_counter())
            release = dh.load(path)
            for kind in ("aligned", "aligned", "cutting cells"):
                clock.append(time.perf_counter())
                dh.answer(release, work[kind])
            clock.append(time.perf_counter())
            spent = np.diff(clock)
            print(
                f"{strategy.name + ' ' + str(getattr(strategy, 'branching', '')):<28} {spent[0]:8.2f} {spent[1]:6.2f} "
                f"{spent[2]:8.2f} {spent[3]:6.2f} {spent[4]:8.2f}"
            )


if __name__ == "__main__":
    main()
