"""Exact sensitivities of structured strategies on grids up to 4096 × 4096, in seconds."""

from __future__ import annotations

import time

import deltahist as dh


def main() -> None:
    """Print a table of seconds."""
    print(f"{'cells':>6} {'δ (cells)':>10} {'strategy':<22} {'Δ':>10} {'seconds':>8}")
    for n in (1024, 4096):
        domain = dh.Domain((0, 0, 1, 1), (n, n))
        for cells in (1, 8, n // 10, 2 * n):
            near = dh.Neighbourhood(domain, cells / n, "boundary")
            for strategy in (
                dh.strategies.Identity(domain),
                dh.strategies.Cumulative(domain),
                dh.strategies.Hierarchical(domain),
                dh.strategies.Wavelet(domain),
                dh.strategies.dyadic_grids(domain, 1),
            ):
                start = time.perf_counter()
                value = dh.sensitivity(strategy, near)
                spent = time.perf_counter() - start
                print(f"{n:6} {cells:10} {strategy.name:<22} {float(value):10g} {spent:8.3f}")


if __name__ == "__main__":
    main()
