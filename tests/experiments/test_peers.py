"""Peers: their budgets, their known figures, and what they do without noise."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.noise import discrete_laplace
from experiments.peers import MECHANISMS, NEARBY, PEERS, STRATEGIES, clusters, noise, products, trees
from experiments.peers.clusters import cut_evenly, cut_sorted
from experiments.peers.dawa import hilbert_curve, least_cost, noisy_costs
from experiments.peers.grids import adaptive_grid, uniform_grid
from experiments.peers.nearby import policy_graph
from experiments.peers.products import fixed_point
from experiments.peers.trees import privtree
from tests.laws import calibrate

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


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "MWEM"])
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


@pytest.mark.parametrize("name", ["AHP", "DPCube"])
def test_two_phases_spend_their_budget_and_see_counts_through_noise_alone(name, drawn, monkeypatch):
    """Both draws are on disjoint counts, so a move costs 2 / scale in each. Fixed noisy counts fix the estimates."""
    PEERS[name](clumpy(), 0.3, rng=np.random.default_rng(1))
    (first, _), (second, _) = drawn
    assert 2 / first + 2 / second == Fraction(0.3)
    assert 2 / first in (Fraction(0.3) / 2, Fraction("0.85") * Fraction(0.3))

    def released(counts):
        rng = np.random.default_rng(2)
        monkeypatch.setattr(clusters, "add_noise", lambda sums, epsilon, *, rng: rng.poisson(9, sums.shape))
        return PEERS[name](counts, 0.3, rng=rng)

    assert np.array_equal(released(clumpy()), released(np.roll(clumpy(), 5, axis=0)))


def test_clusters_of_sorted_counts_are_cut_by_the_greedy_rule():
    assert cut_sorted(np.array([0.0, 0, 0, 50, 50, 90]), 4.0).tolist() == [0, 3, 5, 6]
    for seed in range(20):
        values, noise = np.sort(np.random.default_rng(seed).exponential(5, 30)), 8.0
        edges = [0]

        def cost(part, noise=noise):
            return ((part - part.mean()) ** 2).sum() + noise / len(part)

        for at in range(1, len(values)):
            rest = [(values[at] - values[at:end].mean()) ** 2 + noise / (end - at) ** 2 for end in range(at + 1, 31)]
            if cost(values[edges[-1] : at + 1]) >= cost(values[edges[-1] : at]) + min(rest):
                edges.append(at)
        assert cut_sorted(values, noise).tolist() == [*edges, 30]


def test_blocks_are_cut_where_the_sum_of_squares_falls_most():
    cells = np.random.default_rng(1).poisson(5, (6, 9)).astype(float)

    def deviation(part):
        return ((part - part.mean()) ** 2).sum()

    whole = deviation(cells)
    assert cut_evenly(cells, whole) == [(slice(0, 6), slice(0, 9))]
    cuts = {(axis, at): np.split(cells, [at], axis) for axis in (0, 1) for at in range(1, cells.shape[axis])}
    axis, at = min(cuts, key=lambda cut: sum(map(deviation, cuts[cut])))
    blocks = cut_evenly(cells, whole - 1e-9)
    assert {(block[axis].start, block[axis].stop) for block in blocks} == {(0, at), (at, cells.shape[axis])}
    assert len(cut_evenly(cells, -1.0)) == cells.size
    blocks = cut_evenly(cells, whole / 9)
    assert max(deviation(cells[block]) for block in blocks) <= whole / 9
    assert sum(cells[block].size for block in blocks) == cells.size


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


def exact_costs(line):
    """Bucket costs without noise: deviation, plus 1 for each bucket."""
    return noisy_costs(np.array(line, float), 1e12, 1.0, rng=np.random.default_rng(1))


def all_partitions(costs, start=0):
    """Yield the cost and the edges of every partition into intervals of length 2^k."""
    if start == len(costs[0]):
        yield 0.0, [start]
    for level, cost in enumerate(costs):
        if start < len(cost):
            for rest, edges in all_partitions(costs, start + 2**level):
                yield cost[start] + rest, [start, *edges]


def test_dawas_partition_is_the_cheapest():
    # Two even halves cost 1 each, four single cells 4, the whole line 4 · 3 + 1.
    assert least_cost(exact_costs([0, 0, 6, 6])).tolist() == [0, 2, 4]
    for seed in range(20):
        costs = noisy_costs(np.arange(8.0) ** 2, 0.5, 0.5, rng=np.random.default_rng(seed))
        assert least_cost(costs).tolist() == min(all_partitions(costs))[1]


def test_a_point_changes_a_buckets_cost_by_at_most_2_minus_2_over_its_length():
    most = np.zeros(3)
    for line in itertools.product(range(3), repeat=4):
        for cell in range(4):
            added = np.array(line) + (np.arange(4) == cell)
            change = [np.abs(a - b).max() for a, b in zip(exact_costs(added), exact_costs(line), strict=True)]
            most = np.maximum(most, change)
    assert most == pytest.approx([0, 1, 1.5])


def test_dawas_noise_as_shipped_breaks_its_guarantee():
    """Compare the chance of four buckets before and after a point is added: no longer interval may be cheaper."""
    rng, first = np.random.default_rng(1), 0.4
    wins = {}
    for shipped, line in itertools.product((False, True), ([0, 0, 0, 0], [0, 1, 0, 0])):
        draws = [noisy_costs(np.array(line, float), first, 1.0, rng=rng, shipped=shipped) for _ in range(20_000)]
        single, pair, four = (np.array([draw[level] for draw in draws]) for level in range(3))
        longer = [pair[:, i] > single[:, i] + single[:, i + 1] for i in range(3)] + [four[:, 0] > single.sum(axis=1)]
        wins[shipped, sum(line)] = np.mean(np.all(longer, axis=0))
    assert math.log(wins[True, 1] / wins[True, 0]) == pytest.approx(2.6 * first, abs=0.1)
    assert abs(math.log(wins[False, 1] / wins[False, 0])) < first


def test_peers_with_a_public_total_keep_it():
    assert (np.abs(np.diff(hilbert_curve((16, 16)), axis=0)).sum(axis=1) == 1).all()
    shipped = PEERS["DAWA as shipped in DPBench"]
    whole = (PEERS[name] for name in ("DAWA", "MWEM", "AHP", "DPCube"))
    for peer in (*whole, shipped, *(peer for peer, _ in NEARBY.values())):
        first, again = (peer(clumpy(), 0.1, rng=np.random.default_rng(1)) for _ in range(2))
        assert np.array_equal(first, again)
        assert first.sum() == pytest.approx(clumpy().sum())
    counts = clumpy()[:20, :28]
    assert policy_graph(counts, 1e7, rng=np.random.default_rng(1)) == pytest.approx(counts)
