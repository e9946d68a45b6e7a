"""The price of a limit on any move for flows with hubs: errors over all ranges at ε = 1 and δ = one cell.

`python -m benchmarks.hub_levels` prints a table of maps and lines.
"""

from __future__ import annotations

import math

import deltahist as dh

SHAPES = ((128, 128), (256, 256), (1000, 1000), (4096, 4096), (1000,), (4000,))


def row(shape: tuple[int, ...], limit: float | None) -> str:
    """Return the error if any move costs at most `limit` ε, and the hubs that attain this error."""
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 1, limits=None if limit is None else ((math.inf, limit),))
    flow = dh.strategies.Flow.tuned(near)
    error = dh.Mechanism(near, flow, dh.Budget(epsilon=1)).rmse(dh.workloads.all_ranges(domain))
    hubs = f"hubs {flow.hubs} apart, sums {flow.hub_widths}{', strips' * flow.hub_strips}" if flow.hubs else ""
    return f"{' x '.join(map(str, shape)):>12} {limit or 'none':>6} {error:8.2f}  {hubs}"


def main() -> None:
    """Print the table."""
    print(f"{'cells':>12} {'limit':>6} {'RMSE':>8}")
    for shape in SHAPES:
        for limit in (None, 8, 4, 2):
            print(row(shape, limit))


if __name__ == "__main__":
    main()
