"""Noise paths of every user. Targets: a few seconds for 4,000 users, then 10^6 responses per second."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from deltahist.noise.paths import BitPaths, VectorPaths

USERS = 4_000
REQUESTS = 10**6
LEAST, MOST = 500_000_000, 15_000_000_000


def seconds(task: Callable[[], object]) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def main() -> None:
    """Print the time of the first requests, which evaluate the paths, of a million more, and of exact ones."""
    key, rng = bytes(range(32)), np.random.default_rng(1)
    users, levels = rng.integers(0, USERS, REQUESTS), rng.integers(LEAST, MOST, REQUESTS)
    everyone = np.arange(USERS)
    ends = np.repeat(everyone, 2), np.tile([LEAST, MOST], USERS)
    print(f"{USERS:,} users, ε from {LEAST / 1e9:g} to {MOST / 1e9:g}")
    print(f"{'paths':<32} {'evaluated':>10} {'responses /s':>13} {'in Decimal, each':>17}")
    for dimension, reach in ((1, 1), (2, 1_000), (2, 1_000_000), (20, 1)):
        paths = VectorPaths(key, dimension, reach)
        first = seconds(lambda paths=paths: paths.at(*ends))
        later = seconds(lambda paths=paths: paths.at(users, levels))
        exact = seconds(lambda paths=paths: [paths._evaluate_exactly(user, (LEAST, MOST)) for user in range(5)]) / 5
        name = f"dimension {dimension}, reach {reach:,}"
        print(f"{name:<32} {first:8.2f} s {REQUESTS / later:13,.0f} {1000 * exact:14.0f} ms")
    bits, true = BitPaths(key), rng.integers(0, 2, REQUESTS)
    first = seconds(lambda: bits.at(*ends, np.ones(2 * USERS, dtype=int)))
    later = seconds(lambda: bits.at(users, levels, true))
    print(f"{'bits':<32} {first:8.2f} s {REQUESTS / later:13,.0f}")


if __name__ == "__main__":
    main()
