"""Published mechanisms for 2-D range queries, from their papers. Most protect any move; `NEARBY` lists exceptions.

One point may move anywhere and the number of points is public, so a histogram has sensitivity 2. Papers that let
points appear or vanish (sensitivity 1) therefore get half of their stated ε. Grid guidelines that contain ε are read
both ways, with half of ε and with all of ε ("finer"). The better choice depends on the data. All are pure ε, except
DAWA as DPBench ships it: that has no guarantee and is listed because its figures are often quoted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist import Domain, Neighbourhood, publish
from deltahist.strategies import Identity, Strategy, Wavelet
from experiments.peers.clusters import ahp, dpcube
from experiments.peers.dawa import dawa
from experiments.peers.grids import adaptive_grid, uniform_grid
from experiments.peers.mwem import mwem
from experiments.peers.nearby import planar_laplace, policy_any_move, policy_graph
from experiments.peers.products import hdmm
from experiments.peers.trees import hb2d, privtree, quadtree


class Peer(Protocol):
    """A function from counts (nx, ny) to estimates of all cells."""

    def __call__(self, counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
        """Publish once and decode."""


#: Mechanisms that look at the data, or that are not strategies of the toolkit.
PEERS: Mapping[str, Peer] = {
    "uniform grid": uniform_grid,
    "uniform grid, finer": partial(uniform_grid, guide=1.0, equal=False),
    "adaptive grid": adaptive_grid,
    "adaptive grid, finer": partial(adaptive_grid, guide=1.0, equal=False),
    "PrivTree": privtree,
    "HDMM": hdmm,
    "DAWA": dawa,
    "DAWA as shipped in DPBench": partial(dawa, shipped=True),
    "MWEM": mwem,
    "AHP": ahp,
    "DPCube": dpcube,
}

#: Mechanisms that claim ε-differential privacy but do not provide it.
UNSOUND = ("DAWA as shipped in DPBench",)

#: Mechanisms that protect moves of up to one cell, and the most that a move of any length costs, in multiples of ε.
NEARBY: Mapping[str, tuple[Peer, Callable[[tuple[int, ...]], float]]] = {
    "policy graph": (policy_graph, policy_any_move),
    "planar Laplace": (planar_laplace, lambda shape: math.hypot(*shape)),
}

#: Mechanisms whose noise does not depend on the data, so that non-negative decoding applies too.
LINEAR = ("HDMM", "policy graph")

#: Strategies with Laplace noise and least squares. Privelet's weights give all unnormalised Haar coefficients the same
#: noise (Xiao, Wang, Gehrke 2010, section IV). That is `Wavelet`; its exact sensitivity is slightly below their bound 2
#: (1 + log₂ n)².
STRATEGIES: Mapping[str, Callable[[Domain], Strategy]] = {
    "identity": Identity,
    "quadtree": quadtree,
    "HB": hb2d,
    "Privelet": Wavelet,
}


def from_strategy(make: Callable[[Domain], Strategy]) -> Peer:
    """Make a mechanism from a strategy: publish under any move, decode by least squares."""

    @cache
    def made(shape: tuple[int, ...]) -> Strategy:
        return make(Domain((0.0,) * len(shape) + shape, shape))

    def run(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
        strategy = made(counts.shape)
        anywhere = Neighbourhood(strategy.domain, 1).anywhere()
        return publish(counts, anywhere, strategy, epsilon, rng=rng).cells()

    return run


#: All peers as functions from counts to cells.
MECHANISMS: Mapping[str, Peer] = {**{name: from_strategy(make) for name, make in STRATEGIES.items()}, **PEERS}

__all__ = [
    "LINEAR",
    "MECHANISMS",
    "NEARBY",
    "PEERS",
    "STRATEGIES",
    "UNSOUND",
    "Peer",
    "adaptive_grid",
    "from_strategy",
    "hb2d",
    "hdmm",
    "privtree",
    "quadtree",
    "uniform_grid",
]
