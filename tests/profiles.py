"""Limits beyond δ for small domains, and what they promise for every pair of cells: from the definition."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
from examples import gap_neighbours, quiet

import deltahist as dh


def limited(near, limits):
    """The same neighbourhood with limits, without advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dh.DeltaHistWarning)
        return dh.Neighbourhood(near.domain, near.delta, near.sources, limits)


def random_limits(rng, near):
    """Up to three limits, the last of them for any move at all in two of three cases."""
    number = int(rng.integers(1, 4))
    distances = near.delta + np.sort(rng.integers(1, 40, number)) / 8
    factors = np.sort(rng.integers(4, 17, number)) / 4
    limits = dict(zip(distances.tolist(), factors.tolist(), strict=True))
    if rng.random() < 2 / 3:
        limits[math.inf] = max(limits.values()) + float(rng.integers(0, 5)) / 4
    return list(limits.items())


def promised(near):
    """The least factor by pair of cells (u, v), u < v, and by (-1, v) for arrivals; for others nothing is promised."""
    relations = [(Fraction(1), near.delta)]
    relations += [(limit.factor, limit.distance) for limit in near.limits or ()]
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
    """Largest sum of |entry|^norm over the columns of A E, over its factor^norm; for rows without shares."""
    rows = np.pad(strategy.matrix().toarray(), [(0, 0), (0, 1)])  # the null vertex has no column of its own
    costs = (
        (int((abs(rows[:, v] - rows[:, u]) ** norm).sum()), factor)
        for (u, v), factor in promised(near).items()
    )
    return max((cost / factor**norm for cost, factor in costs), default=Fraction(0))
