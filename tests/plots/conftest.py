"""Releases that are drawn."""

import numpy as np
import pytest

import deltahist as dh


def made(counts, *, crs="EPSG:32618", strategy=dh.strategies.Identity, budget=None, sources=None, **how):
    """A release of counts in cells of 250 m, or of one unit of a plane."""
    nx, ny = counts.shape
    bounds = (580_000, 4_500_000, 580_000 + 250 * nx, 4_500_000 + 250 * ny) if crs else (0, 0, nx, ny)
    domain = dh.Domain(bounds, counts.shape, crs)
    near = dh.Neighbourhood(domain, delta=500 if crs and counts.size > 1 else 2, sources=sources)
    return dh.publish(counts, near, strategy(domain), **(budget or {"epsilon": 1}), **how)


@pytest.fixture(scope="session")
def town():
    """A dense square of 8 × 8 cells in an empty map, and one hot cell."""
    counts = np.zeros((40, 32), dtype=np.int64)
    counts[8:16, 16:24] = 200
    counts[30, 5] = 5_000
    return made(counts, rng=np.random.default_rng(1))
