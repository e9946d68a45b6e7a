"""The price of limits on moves of any length for the Gaussian optimum: RMSE relative to a promise within δ alone.

Queries are all ranges, with a public total. Targets: a limit of 2 noise units on any move costs at most 3% at δ = 1
cell; the certified gap is below 0.5%; choosing, publishing and decoding take at most 3 s on 1000 × 1000 cells and 60 s
on 4096 × 4096. `--markdown` prints only the first table.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import deltahist as dh
from benchmarks.processes import figures
from deltahist.strategies import Spectral

CASES = ((64, 1), (128, 1), (128, 2), (128, 8))
LIMITS = (1, 1.2, 1.5, 2, 3)

LARGE = """
import json, math, resource, sys, time
import numpy as np
import deltahist as dh
from deltahist.strategies import Spectral
n, limits = int(sys.argv[1]), json.loads(sys.argv[2])
if isinstance(limits, list):
    limits = [(math.inf if far == "any" else far, factor) for far, factor in limits]
near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), 1, limits=limits)
counts = np.random.default_rng(1).poisson(0.5, (n, n))
start = time.perf_counter()
strategy = Spectral(near)
strategy.kernel
chosen = time.perf_counter()
release = dh.publish(counts, near, strategy, rho=0.03)
published = time.perf_counter()
release.cells()
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([chosen - start, published - chosen, end - published, strategy.solution.gap, peak]))
"""
PROFILES = {"none": [], "any:2": [["any", 2]], "any:4": [["any", 4]], "10 cells:1.5, any:2": [[10, 1.5], ["any", 2]]}


def prices(n: int, cells: int) -> tuple[list[float], float]:
    """Return the ratio of the RMSE under each limit to that without a limit, and the largest certified gap."""
    near = dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), cells, limits=())
    work = dh.workloads.all_ranges(near.domain)
    found, gaps = [], []
    for limits in ((), *([(math.inf, limit)] for limit in LIMITS)):
        strategy = Spectral(replace(near, limits=limits))
        found.append(dh.Mechanism(strategy.near, strategy, dh.Budget(rho=0.5)).rmse(work))
        gaps.append(strategy.solution.gap)
    return [rmse / found[0] for rmse in found[1:]], max(gaps)


def main() -> None:
    """Print the price of limits, and the time for large grids."""
    markdown = "--markdown" in sys.argv
    heads = ["n, δ in cells", *(f"{limit:g}" for limit in LIMITS), "gap"]
    print("| " + " | ".join(heads) + " |" if markdown else "  ".join(f"{head:>13}" for head in heads))
    if markdown:
        print("|" + "---|" * len(heads))
    for n, cells in CASES:
        found, gap = prices(n, cells)
        row = [f"{n}, {cells}", *(f"{price:.3f}" for price in found), f"{gap:.2%}"]
        print("| " + " | ".join(row) + " |" if markdown else "  ".join(f"{entry:>13}" for entry in row))
    if markdown:
        return
    print(f"\n{'side':>5} {'limits':<22} {'choose s':>8} {'publish s':>9} {'decode s':>8} {'gap':>6} {'GiB':>5}")
    for n in (1000, 4096):
        for name, limits in PROFILES.items():
            choose, publish, decode, gap, peak = figures(LARGE, str(n), json.dumps(limits))
            print(f"{n:5} {name:<22} {choose:8.2f} {publish:9.2f} {decode:8.2f} {gap:6.2%} {peak:5.2f}", flush=True)


if __name__ == "__main__":
    main()
