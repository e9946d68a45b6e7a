"""Limits on small domains, what they promise for every pair of cells, and what that costs: from the definition."""

import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
from examples import gap_neighbours, quiet

import deltahist as dh


def limited(near, limits):
    """The same neighbourhood with limits, without advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dh.errors.DeltaHistWarning)
        return replace(near, limits=limits)


def random_limits(rng, near):
    """One to four steps, perhaps one for any move."""
    kind, delta = rng.integers(4), float(near.delta)
    factors = np.sort(rng.integers(2, 12, kind + 1)) / 2
    lengths = delta * (1 + np.sort(rng.choice(np.arange(1, 30), kind + 1, replace=False)) / 6)
    ends = [*lengths.tolist()[:-1], math.inf] if rng.random() < 0.6 else lengths.tolist()
    return list(zip(ends, factors.tolist(), strict=True))


def promised(near):
    """The least factor by pair of cells (u, v), u < v, and by (-1, v) for arrivals; for others nothing is promised."""
    relations = [(Fraction(1), near.delta)]
    relations += [(limit.factor, limit.distance) for limit in near.profile]
    cells = range(near.domain.size)
    out = {}
    for factor, distance in reversed(relations):
        if distance == math.inf:
            pairs, entries = itertools.combinations(cells, 2), () if near.sources is None else cells
        else:
            pairs, entries = gap_neighbours(quiet(near.domain, distance, near.sources))
        out |= dict.fromkeys([*pairs, *((-1, v) for v in entries)], factor)
    return out


def dearest(strategy, near, norm):
    """Largest sum of |share × change of a draw|^norm that makes up for a move or an arrival, over its factor^norm."""
    share = np.empty(strategy.draws, dtype=object)
    for group in strategy.groups:
        share[group.members] = group.share
    scale = math.lcm(*(s.denominator for s in share))
    kind = np.int64 if norm == 1 else object
    everywhere = near.anywhere()
    change = abs(strategy.changes(everywhere)).toarray().astype(kind)
    costs = ((change * np.array([int(s * scale) for s in share], dtype=kind)[:, None]) ** norm).sum(axis=0)
    cost_of = dict(zip(map(tuple, everywhere.edges().tolist()), costs.tolist(), strict=True))
    most = {}
    for edge, factor in promised(near).items():
        most[factor] = max(most.get(factor, 0), cost_of[edge])
    return max((Fraction(cost, scale**norm) / factor**norm for factor, cost in most.items()), default=Fraction(0))
