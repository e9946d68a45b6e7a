"""Publishing by default, strategy="auto", from 256 × 256 to 4096 × 4096 cells: seconds and peak memory.

Every release is made in a process of its own, without a seed. Targets for 4096 × 4096 cells: 8 s and 1.5 GiB, with the
imports of the first call. "Over a fill" is a release's time over that in which NumPy fills an array of as many draws in
the same process, so that machines can be compared.
"""

from __future__ import annotations

from benchmarks.counting import measure

SIDES = (256, 512, 1000, 1024, 2048, 4096)
ROUNDS = 3

PUBLISH = """
import json, resource, sys, time
import numpy as np
import deltahist as dh
side = int(sys.argv[1])
near = dh.Neighbourhood(dh.Domain((0, 0, side, side), (side, side)), 1)
counts = np.random.default_rng(1).poisson(0.5, (side, side))
start = time.perf_counter()
dh.publish
loaded = time.perf_counter()
mechanism = dh.plan(near, epsilon=1)[0].mechanism  # what "auto" takes
planned = time.perf_counter()
release = dh.publish(counts, mechanism)
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
again = time.perf_counter()
np.random.default_rng(2).integers(-1000, 1000, mechanism.draws)
fill = time.perf_counter() - again
print(json.dumps([end - start, loaded - start, planned - loaded, end - planned, peak, (end - start) / fill]))
"""


def main() -> None:
    """Print the fastest of three runs for each side, with its parts."""
    print(
        f"{'side':>5} {'publish s':>9} {'imports':>8} {'plan':>6} {'release':>8} {'GiB':>6} {'over a fill':>11}"
    )
    for side in SIDES:
        total, imports, plan, release, peak, ratio = min(measure(PUBLISH, str(side)) for _ in range(ROUNDS))
        print(
            f"{side:5} {total:9.2f} {imports:8.2f} {plan:6.2f} {release:8.2f} {peak:6.2f} {ratio:11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
