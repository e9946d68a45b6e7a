"""Closed-form prices of flows with hubs against the exact cost of every move, on small maps."""

from __future__ import annotations

import math
import warnings

import deltahist as dh
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Flow


def main() -> None:
    """Print by how much the largest ratio of price to limit, which sets the noise, exceeds the exact ratio."""
    warnings.simplefilter("ignore", dh.errors.DeltaHistWarning)
    print(f"{'cells':>7} {'ε':>7} {'ρ':>7}   largest ratio over four limits, with and without the boundary as a source")
    for n in (8, 12, 16, 20, 24, 28):
        domain = dh.Domain((0, 0, n, n), (n, n))
        many = [[(math.inf, most)] for most in (2, 4, 8)] + [[(n / 2, 3), (math.inf, 6)]]
        found = [
            max(
                _above(dh.Neighbourhood(domain, 1, sources, limits), norm)
                for limits in many
                for sources in (None, "boundary")
            )
            for norm in (1, 2)
        ]
        print(f"{n:4} ² {found[0]:9.3f} {found[1]:7.3f}")


def _above(near: dh.Neighbourhood, norm: int) -> float:
    flow = Flow.tuned(near, norm=norm)
    closed = exact = 0.0
    for factor, relation in near.relations:
        own = explicit_edge_cost(flow, relation, norm)
        price = flow.edge_cost(relation, norm)
        exact = max(exact, float(own / factor**norm))
        closed = max(closed, float((own if price is None else price) / factor**norm))
    return closed / exact


if __name__ == "__main__":
    main()
