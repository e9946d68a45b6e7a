"""Domains, and coordinates where a rounding more or less shows, for every way to count."""

import numpy as np

import deltahist as dh

#: Square and long cells, one axis, offsets, tiny and huge units, a real map, steps finer than floats.
DOMAINS = [
    dh.Domain((0, 0, 1, 0.9), (10, 3)),
    dh.Domain((0, 0.7), (7,)),
    dh.Domain((1e6 + 0.1, -1e6 - 0.3, 1e6 + 77.7, -1e6 + 1), (97, 11)),
    dh.Domain((-3e-7, 1e-7, 5e-7, 2.3e-7), (31, 17)),
    dh.Domain((-1e200, 3e200), (1000,)),
    dh.Domain((0, 1e200), (1000,)),
    dh.Domain((583960, 4507523, 605000, 4527523), (841, 800), "EPSG:32618"),
    dh.Domain((0, 1e-200), (3,)),
    dh.Domain((1e12, 1e12 + 50), (50,)),
]


def nasty_coordinates(domain, axis, number, rng):
    """Random ones, and those where a rounding more or less shows."""
    low, high = domain.low[axis], domain.high[axis]
    edges = domain.edges(axis)
    halves = low + (rng.integers(0, domain.lattice_shape[axis], number // 8) + 0.5) * domain.step[axis]
    # One cell ends, and the next one begins, half a lattice step below the edge.
    borders = low + (np.arange(1, domain.shape[axis]) * domain.steps[axis] - 0.5) * domain.step[axis]
    close = np.concatenate([edges, borders, rng.choice(borders, number // 8), halves])
    nudged = [close]
    for towards in (-np.inf, np.inf):
        step = close
        for _ in range(3):
            step = np.nextafter(step, towards)
            nudged.append(step)
    odd = [-0.0, 0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 1e17]
    odd += [low - 1e-9, low, high, 2 * high - low]
    random = rng.uniform(low - (high - low) / 5, high + (high - low) / 5, number // 8)
    every = np.concatenate([*nudged, odd, random])
    if number > len(every):
        return rng.choice(every, number)
    return np.concatenate([odd, rng.permutation(every)])[:number]
