"""Ten million points on a line: cost of sorted releases, their decoding, smooth sensitivity and quantiles."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import deltahist as dh
from deltahist.kinds.quantile import PointsAround

POINTS = 10_000_000


def timed(what: str, call: Callable[[], Any]) -> Any:
    """Print the time and memory of a call, and return its result."""
    start = time.perf_counter()
    found = call()
    print(f"{what:<58}{time.perf_counter() - start:8.2f} s")
    return found


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(1)
    points = np.sort(rng.exponential(size=POINTS))
    points /= points[-1]
    near = dh.Neighbourhood(dh.Domain((0, 1), (100,)), 0.01)
    print(f"{POINTS:,} points, δ = 0.01 of the domain")
    for group in (1, "auto"):
        release = timed(
            f"publish_sorted, ε = 1, group {group}",
            lambda group=group: dh.publishers.publish_sorted(points, near, 1.0, group=group),  # type: ignore[misc]
        )
        timed(f"  decoded to cells ({len(release.values):,} sums)", release.histogram)
        timed("  three quantiles with intervals", lambda r=release: r.quantiles([0.25, 0.5, 0.75]))  # type: ignore[misc]
    around = PointsAround(near.domain.lattice(points)[:, 0], (POINTS + 1) // 2, near.domain.lattice_shape[0] - 1)
    for beta in (1.0, 0.1, 1e-2, 1e-4, 1e-6):
        timed(f"smooth sensitivity, β = {beta:g}", lambda b=beta: around.smooth_sensitivity(near.radius, b, 1))  # type: ignore[misc]
    for method in ("inverse", "smooth"):
        timed(
            f"quantile, ε = 0.1, {method}",
            lambda m=method: dh.publishers.publish_quantile(points, 0.5, near, 0.1, method=m),
        )  # type: ignore[misc]
    print(f"{'largest memory of the process':<58}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:8.2f} GiB")


if __name__ == "__main__":
    main()
