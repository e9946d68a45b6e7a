"""The whole choice of strategy="auto": at most 0.3 s up to 128 × 128 cells, 0.5 s for 1000 × 1000, 2 s for 4096 × 4096.

Each in a process of its own, from public figures alone; times exclude starting Python and importing.
"""

from __future__ import annotations

from benchmarks.counting import measure

PLAN = """
import json, sys, time
import deltahist as dh
side = int(sys.argv[1])
near = dh.Neighbourhood(dh.Domain((0, 0, side, side), (side, side)), 1)
dh.plan(dh.Neighbourhood(dh.Domain((0, 0, 32, 32), (32, 32)), 1))  # loads what plans need
start = time.perf_counter()
best = dh.plan(near, epsilon=1.0)[0]
print(json.dumps([time.perf_counter() - start]))
"""
ROUNDS = 3


def main() -> None:
    """Print the fastest of three runs."""
    for side in (2, 8, 16, 24, 31, 33, 48, 64, 128, 1000, 4096):
        seconds = min(measure(PLAN, str(side))[0] for _ in range(ROUNDS))
        print(f"plan, all ranges of {side} × {side} cells, ε = 1: {seconds:.2f} s")


if __name__ == "__main__":
    main()
