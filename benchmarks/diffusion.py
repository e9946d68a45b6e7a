"""Diffusion over a network of 4,039 users: seconds and memory for distances, responses and signals."""

from __future__ import annotations

import resource

import numpy as np
import pandas as pd

import deltahist as dh
from benchmarks.points import timed
from deltahist.network.mechanism import measure_distances

USERS, EDGES, RESPONSES = 4_039, 88_234, 1_000_000


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(1)
    network = dh.network.Network.from_edges(rng.integers(0, USERS, (EDGES, 2)), range(USERS))
    print(network)
    everybody = np.arange(len(network))
    first = 0 * everybody
    resistance = measure_distances(network, "resistance")
    timed("resistance distances, all pairs", lambda: resistance.between(first, everybody))
    some = everybody[:100].repeat(len(network))
    timed("hops of 100 users to all", lambda: measure_distances(network).between(some, np.tile(everybody, 100)))
    places = pd.DataFrame(rng.uniform(0, 1e5, (len(network), 2)), columns=["x", "y"], index=network.nodes)
    bits = pd.Series(rng.integers(0, 2, len(network)), index=network.nodes)
    names = np.array(network.nodes, dtype=object)
    friends = names[0], names[network.adjacency[[0]].indices[0]]
    owners, others = rng.integers(0, len(network), (2, RESPONSES))
    pairs = pd.DataFrame({"owner": names[owners], "requester": names[np.where(owners == others, owners - 1, others)]})
    for what, data, how in (("places", places, {"alpha": 100, "columns": ("x", "y")}), ("bits", bits, {})):
        mechanism = dh.network.DiffusionMechanism(network, "exp(2-20d)", distance=resistance, **how)
        diffusion = dh.network.Diffusion(data, mechanism, weak_protection_accepted=True)
        timed(f"{what}: {RESPONSES:,} responses, the first time", lambda made=diffusion: made.responses(pairs))  # type: ignore[misc]
        timed(f"{what}: {RESPONSES:,} responses again", lambda made=diffusion: made.responses(pairs))  # type: ignore[misc]
        timed(f"{what}: one user's answers", lambda made=diffusion: made.to(network.nodes[0]))  # type: ignore[misc]
        timed(f"{what}: a signal", lambda made=diffusion: made.signal(*friends))  # type: ignore[misc]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{'largest memory of the process':<58}{memory:8.2f} GiB")


if __name__ == "__main__":
    main()
