"""The audit itself: its bounds, its claims and its false alarms."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from tests.audits.cases import MECHANISMS, build
from tests.audits.harness import (
    ERROR,
    Pair,
    at_once,
    audit,
    edge_costs,
    gaussian,
    gaussian_losses,
    hockey_stick,
    learn,
    log_ratio_bound,
    pure,
    refuted,
    worst_pairs,
)


def test_the_bound_is_below_the_truth_as_often_as_it_should_be():
    p, q, n, error = 0.4, 0.1, 500, 0.1
    rng = np.random.default_rng(1)
    draws = zip(rng.binomial(n, p, 2000), rng.binomial(n, q, 2000), strict=True)
    above = sum(log_ratio_bound(int(x), int(y), n, 0.05, error) > math.log((p - 0.05) / q) for x, y in draws)
    # Two one-sided bounds, each with error 5%; the chance that the union bound allows is 10%.
    assert above / 2000 < error


@pytest.mark.parametrize(("hits", "false_hits"), [(0, 0), (0, 10), (10, 0), (10, 10)])
def test_the_bound_at_the_ends(hits, false_hits):
    bound = log_ratio_bound(hits, false_hits, 10, 0.0, ERROR)
    assert bound < (math.log(10) if hits else -1e300)


def test_the_learned_event_is_the_worst_one():
    strategy, near = build("Identity")
    pair = worst_pairs(strategy, near)[0]
    draw, rng = at_once(near, strategy, epsilon=2.0), np.random.default_rng(2)
    # Against a claim of ε = 1 the exact worst event, with the ratio e², is the best evidence.
    event = learn(pair, draw(pair.first, 50_000, rng), draw(pair.second, 50_000, rng), [(1.0, 0.0)])
    assert event.threshold == 0
    assert event.score in ("all moved", "likelihood")


@pytest.mark.parametrize("name", MECHANISMS)
def test_worst_pairs_change_as_much_as_the_dearest_edge(name):
    strategy, near = build(name, "boundary")
    costs, _ = edge_costs(strategy, near, 1)
    pairs = worst_pairs(strategy, near, points=2)
    assert (np.abs(pairs[0].change) * pairs[0].weight).sum() == 2 * max(costs)
    assert any(p.first.sum() != p.second.sum() for p in pairs)  # an arrival
    assert all((np.minimum(p.first, p.second) >= 0).all() for p in pairs)


def simple_pair(change, weight=None):
    """A pair that changes these rows."""
    change = np.array(change)
    weight = np.ones_like(change) if weight is None else np.array(weight)
    none = np.zeros(1, dtype=np.int64)
    return Pair("simple", none, none, np.zeros_like(change), change, weight)


@pytest.mark.parametrize("rho", [0.02, 0.1])
def test_the_gaussian_curve_is_the_known_one_for_wide_noise(rho):
    loss, chance = gaussian_losses(simple_pair([1, -1, 2], [1, 2, 1]), rho)
    mu = math.sqrt(2 * rho)
    phi = scipy.stats.norm.cdf
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    assert (loss * chance).sum() == pytest.approx(rho, rel=1e-6)  # the divergence is the cost
    for epsilon in (0.0, 0.2, 0.5):
        known = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
        assert hockey_stick(loss, chance, epsilon) == pytest.approx(known, rel=0.02)


def test_the_gaussian_curve_by_enumeration():
    change, rho = np.array([1, -2]), 0.7
    variance = (change**2).sum() / (2 * rho)
    k = np.arange(-40, 41)
    pmf = np.exp(-(k**2) / (2 * variance))
    pmf /= pmf.sum()
    near = np.multiply.outer(pmf, pmf)
    far = np.multiply.outer(np.roll(pmf, 1), np.roll(pmf, -2))
    loss, chance = gaussian_losses(simple_pair(change), rho)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        direct = np.maximum(far - math.exp(epsilon) * near, 0).sum()
        assert hockey_stick(loss, chance, epsilon) == pytest.approx(direct, abs=1e-10)


def test_one_row_without_noise_is_caught():
    strategy, near = build("Hierarchical")
    right = at_once(near, strategy, epsilon=1.0)

    def partly(counts, number, rng):
        values = right(counts, number, rng)
        values[:, 4] = strategy.measure(counts)[4]
        return values

    pairs = worst_pairs(strategy, near)
    assert not refuted(audit(right, pairs, pure(1), releases=2_000, seed=2))
    assert refuted(audit(partly, pairs, pure(1), releases=2_000, seed=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_false_alarms_are_as_rare_as_promised(kind):
    """1,000 audits of mechanisms that spend exactly what they promise, at an error of 5% instead of 0.1%.

    The promised error is an upper bound; more than 8.1% would have a chance below 10⁻⁵ at exactly 5%.
    """
    strategy, near = build("Identity")
    if kind == "laplace":
        draw, claims = at_once(near, strategy, epsilon=Fraction(2)), pure(2)
    else:
        draw, claims = at_once(near, strategy, rho=Fraction(1, 2)), gaussian(Fraction(1, 2))
    pairs = worst_pairs(strategy, near)
    rejected = sum(refuted(audit(draw, pairs, claims, releases=4_000, seed=seed, error=0.05)) for seed in range(1000))
    print(f"false alarms with {kind} noise: {rejected} of 1,000 at a promised 50")
    assert rejected <= 81
