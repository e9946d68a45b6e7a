"""Peers: their budgets, their known figures, and what they do without noise."""

import math

import numpy as np
import pytest

import deltahist as dh
from experiments.peers import PEERS, STRATEGIES
from experiments.peers.grids import adaptive_grid
from experiments.peers.products import mean_error, p_identity
from experiments.peers.trees import hb2d, quadtree

DOMAIN = dh.Domain((0, 0, 16, 16), (16, 16))
ANYWHERE = dh.Neighbourhood(DOMAIN, 100)


def clumpy(n=32):
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal((8, 20), 2, (3000, 2)), rng.uniform(0, n, (500, 2))]).clip(
        0, n - 0.01
    )
    return np.histogram2d(*points.T, bins=n, range=[(0, n), (0, n)])[0].astype(np.int64)


@pytest.mark.parametrize("name", PEERS)
def test_little_noise_gives_the_counts_and_seeds_repeat(name):
    counts = clumpy()
    peer = PEERS[name]
    found = peer(counts, 1e7, rng=np.random.default_rng(2))
    assert np.allclose(found, counts, atol=0.01)
    again = [peer(counts, 0.5, rng=np.random.default_rng(3)) for _ in range(2)]
    assert np.array_equal(*again)
    assert not np.array_equal(again[0], peer(counts, 0.5, rng=np.random.default_rng(4)))
    assert again[0].shape == counts.shape
    assert again[0].sum() == pytest.approx(counts.sum(), rel=0.2)


def test_p_identity_columns_have_norm_one_and_figures_are_the_known_ones():
    """Expected RMSE over all 2-D ranges under any move, ε = 1: 49 and 64 for n = 64 and 128 (here no worse)."""
    for n, known in ((64, 49), (128, 64)):
        rows = p_identity(n)
        assert np.allclose(np.abs(rows).sum(axis=0), 1)
        assert rows.min() >= 0
        assert math.sqrt(8) * mean_error(n) < 1.03 * known
        assert math.sqrt(8) * mean_error(n) > 0.8 * known


def test_strategies_have_the_published_sensitivities():
    """Under any move, twice a column's norm: the number of levels for HB, (1 + log₂ n)² for Privelet."""
    levels = len(hb2d(DOMAIN).groups)
    assert dh.sensitivity(hb2d(DOMAIN), ANYWHERE) == 2 * (levels - (hb2d(DOMAIN).blocks[0] == (1, 1)))
    privelet = dh.sensitivity(STRATEGIES["Privelet"](DOMAIN), ANYWHERE)
    assert 0.8 * 2 * (1 + 4) ** 2 < privelet <= 2 * (1 + 4) ** 2
    assert dh.sensitivity(STRATEGIES["identity"](DOMAIN), ANYWHERE) == 2


def test_the_quadtree_gives_finer_levels_more():
    shares = [float(g.share) for g in quadtree(DOMAIN).groups]
    ratio = np.array(shares[1:]) / shares[:-1]
    assert np.allclose(ratio, 2 ** (1 / 3), atol=1e-4)


def test_the_adaptive_grid_adapts():
    counts = np.zeros((64, 64), np.int64)
    counts[:8, :8] = 200
    found = adaptive_grid(counts, 1.0, rng=np.random.default_rng(5))
    assert len(np.unique(found[:8, :8].round(9))) > len(np.unique(found[32:40, 32:40].round(9)))
    assert found[:8, :8].sum() == pytest.approx(counts.sum(), rel=0.05)
