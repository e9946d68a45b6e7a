"""Peers: their budgets, their known figures, and what they do without noise."""

import math
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.noise import discrete_laplace
from experiments.peers import MECHANISMS, PEERS, STRATEGIES, noise, products, trees
from experiments.peers.grids import adaptive_grid, uniform_grid
from experiments.peers.products import fixed_point, mean_error, p_identity
from experiments.peers.trees import privtree
from tests.laws import calibrate

DOMAIN = dh.Domain((0, 0, 16, 16), (16, 16))
ANYWHERE = dh.Neighbourhood(DOMAIN, 100)
SMALL = dh.Domain((0, 0, 8, 8), (8, 8))
SMALL_ANYWHERE = dh.Neighbourhood(SMALL, 100)


def clumpy(n=32):
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal((8, 20), 2, (3000, 2)), rng.uniform(0, n, (500, 2))]).clip(0, n - 0.01)
    return np.histogram2d(*points.T, bins=n, range=[(0, n), (0, n)])[0].astype(np.int64)


def costliest_move(rows):
    """Largest L1 distance between two columns, by trying all pairs."""
    return max(np.abs(rows[:, [u]] - rows).sum(axis=0).max() for u in range(rows.shape[1]))


@pytest.fixture
def drawn(monkeypatch):
    """The scale and shape of every draw of the mechanisms that do not go through `publish`."""
    draws = []

    def spy(scale, shape, *, rng):
        draws.append((scale, shape))
        return discrete_laplace(scale, shape, rng=rng)

    for module in (noise, products, trees):
        monkeypatch.setattr(module, "discrete_laplace", spy)
    return draws


def much(name):
    """So large an ε that no noise is left; least squares on trees fails where the variance underflows to zero."""
    return 1e3 if name in STRATEGIES else 1e7


@pytest.mark.parametrize("name", MECHANISMS)
def test_little_noise_gives_the_counts_and_seeds_repeat(name):
    counts = clumpy()[:20, :28]  # sides may differ and need not be powers of two
    peer = MECHANISMS[name]
    found = peer(counts, much(name), rng=np.random.default_rng(2))
    assert np.allclose(found, counts, atol=0.01)
    again = [peer(counts, 0.5, rng=np.random.default_rng(3)) for _ in range(2)]
    assert np.array_equal(*again)
    assert not np.array_equal(again[0], peer(counts, 0.5, rng=np.random.default_rng(4)))
    assert again[0].shape == counts.shape
    assert again[0].sum() == pytest.approx(counts.sum(), rel=0.2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_spends_its_budget_and_no_more(name):
    """Σ |A_iu − A_iv| / b_i is ε for the costliest pair of cells, over all pairs."""
    strategy = STRATEGIES[name](SMALL)
    laws = calibrate(strategy, SMALL_ANYWHERE, epsilon=1.0)
    rows = strategy.matrix().toarray().astype(float)
    for group, law in zip(strategy.groups, laws, strict=True):
        if law.parameter:
            rows[group.members] /= float(law.parameter)
        else:
            assert np.all(rows[group.members] == rows[group.members][:, :1])
            rows[group.members] = 0
    assert costliest_move(rows) == pytest.approx(1.0, rel=1e-12)


def test_hdmm_spends_its_budget_and_no_more(drawn):
    """Its strategy is of whole numbers, or integer noise would leave their fractions bare."""
    for sides in ((8, 8), (5, 16)):
        left, right = (fixed_point(n) for n in sides)
        assert left.dtype == right.dtype == np.int64
        drawn.clear()
        PEERS["HDMM"](np.ones(sides, np.int64), 0.5, rng=np.random.default_rng(1))
        ((scale, shape),) = drawn
        assert shape == (len(left), len(right))
        cost = Fraction(int(costliest_move(np.kron(left, right)))) / scale
        assert Fraction(1, 4) < cost <= Fraction(1, 2)
        assert np.kron(left, right).sum(axis=0).max() <= products._ONE**2


def test_grids_spend_their_budget(drawn):
    """Every cell is in one block per level, so that a move costs 2 / scale per level."""
    counts = clumpy()
    uniform_grid(counts, 0.3, rng=np.random.default_rng(1))
    assert [2 / scale for scale, _ in drawn] == [Fraction(0.3)]
    drawn.clear()
    adaptive_grid(counts, 0.3, rng=np.random.default_rng(1))
    (first, blocks), *rest = drawn
    assert len(rest) == math.prod(blocks)
    assert {2 / first + 2 / scale for scale, _ in rest} == {Fraction(0.3)}


def test_privtree_spends_its_budget(drawn):
    """λ = (2 β − 1) / (β − 1) / ε₁ for one point, two points move, ε₁ = ε / 2; the leaves have the other half."""
    privtree(clumpy(), 0.3, rng=np.random.default_rng(1))
    tree, leaves = drawn[::2], drawn[1::2]
    assert {Fraction(7, 3) * 2 / scale for scale, _ in tree} == {Fraction(0.3) / 2}
    assert {2 / scale for scale, _ in leaves} == {Fraction(0.3) / 2}


@pytest.mark.parametrize("scale", [Fraction(1, 3), 2, 10])
def test_discrete_noise_keeps_privtrees_lemma(scale):
    """Log ratio of P(b + noise > 0) and P(b − 1 + noise > 0): at most 1/λ, and e^((1 − b)/λ)/λ for b above 1."""
    q = math.exp(-1 / scale)

    def above(b):
        # P(noise ≥ 1 − b), b whole.
        return 1 - q**b / (1 + q) if b >= 0 else q ** (1 - b) / (1 + q)

    for b in range(-20, 20):
        ratio = math.log(above(b) / above(b - 1))
        assert ratio <= min(1, math.exp((1 - b) / scale)) / scale + 1e-12


def test_p_identity_columns_have_norm_one_and_the_known_error():
    """Expected RMSE over all 2-D ranges under any move, ε = 1."""
    rows = p_identity(64)
    assert np.allclose(np.abs(rows).sum(axis=0), 1)
    assert rows.min() >= 0
    assert math.sqrt(8) * mean_error(64) == pytest.approx(43.6, rel=0.01)
