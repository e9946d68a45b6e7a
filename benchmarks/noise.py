"""Samples per second of the exact noise, compared with OpenDP's samplers in the same run. Target: at least 10 times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from deltahist.noise import discrete_gaussian, discrete_laplace
from deltahist.noise.exact import open_stream

DRAWS = 100_000
ROUNDS = 3


def seconds(task: Callable[[], object]) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def main() -> None:
    """Print a table of rates and ratios. The two samplers take turns."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    zeros = [0] * DRAWS
    print(f"{'law':<9} {'scale':>7} {'ours /s':>12} {'OpenDP /s':>12} {'ratio':>7}")
    for scale in (1.0, 10.0, 1000.0, 100_000.0):
        for kind in ("laplace", "gaussian"):
            if kind == "laplace":
                other = dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=scale)
                own: Callable[..., object] = discrete_laplace
            else:
                other = dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=scale)
                own = discrete_gaussian
            own(scale, 1)  # tables are made once per scale
            pairs = [
                (seconds(lambda own=own, scale=scale: own(scale, DRAWS)), seconds(lambda other=other: other(zeros)))
                for _ in range(ROUNDS)
            ]
            ours, theirs = (statistics.median(p[i] for p in pairs) for i in (0, 1))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"{kind:<9} {scale:7g} {DRAWS / ours:12,.0f} {DRAWS / theirs:12,.0f} {ratio:7.0f}")
    million()


def million() -> None:
    """Print the time of a million words, of noise for a million cells, and of first calls, which make the tables."""
    best = min(seconds(lambda: open_stream()(10**6)) for _ in range(5))
    print(f"\na million random words: {1000 * best:.1f} ms ({10**6 / (1000 * best):,.0f} words per ms)")
    print(f"{'law':<9} {'scale':>7} {'a million cells':>16} {'first call':>11}")
    for scale in (2.0, 10.0, 300.0, 10_000.0):
        for kind, own in (("laplace", discrete_laplace), ("gaussian", discrete_gaussian)):
            # Use a new scale, because tables are cached by the exact scale.
            first = seconds(lambda own=own, scale=scale: own(scale * (1 + 2**-40), 1))
            own(scale, 1)
            cells = min(seconds(lambda own=own, scale=scale: own(scale, 10**6)) for _ in range(ROUNDS))
            print(f"{kind:<9} {scale:7g} {1000 * cells:13.0f} ms {1000 * first:8.1f} ms")


if __name__ == "__main__":
    main()
