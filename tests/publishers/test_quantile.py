"""Quantiles: smooth sensitivity and moves against brute force over all data sets, exact laws, bad input."""

import collections
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import deltahist as dh
from deltahist.mechanisms.quantile import METHODS, rank_of, rate_of
from deltahist.mechanisms.smooth import smooth_noise
from deltahist.publishers import quantile
from deltahist.publishers.quantile import smooth_sensitivity
from tests.moves import distances, moves_of, neighbours

LINE = dh.Domain((0, 1), (100,))


CASES = [(3, 8, 2, 1), (4, 7, 3, 1), (5, 5, 1, 1), (3, 7, 20, 1), (1, 9, 2, 1), (4, 5, 2, 2), (4, 6, 1, 3)]


@pytest.mark.parametrize(("number", "places", "reach", "together"), CASES)
def test_smooth_sensitivity_by_brute_force(number, places, reach, together):
    """max over all data sets of the local sensitivity times e^(−β distance), for every data set and rank."""
    sets = list(itertools.combinations_with_replacement(range(places), number))
    rng = np.random.default_rng(1)
    for rank in range(1, number + 1):
        local = {
            x: max(abs(y[rank - 1] - x[rank - 1]) for y in neighbours(x, places, reach, together))
            for x in sets
        }
        for points in sets:
            away = distances(points, places, reach, together)
            window = quantile._PointsAround(rng.permutation(points), rank, places - 1)
            for beta in (0.05, 0.6, 2.0):
                plain = max(local[y] * math.exp(-beta * away[y]) for y in sets)
                assert window.smooth(reach, beta, together) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("near_first", [1, 4096])
def test_the_window_holds_the_points_around_the_quantile(near_first, monkeypatch):
    """Distances and stretches against the sorted list, whatever was fetched before."""
    monkeypatch.setattr(quantile, "_NEAR", near_first)
    rng = np.random.default_rng(4)
    for number in (1, 2, 3, 10, 60):
        points = rng.integers(0, 50, number)
        x = np.sort(points)
        for rank in {1, 2, (number + 1) // 2, number} & set(range(1, number + 1)):
            window = quantile._PointsAround(rng.permutation(points), rank, 49)
            assert window.quantile == x[rank - 1]
            assert window.room == (49 - x[rank - 1], x[rank - 1])
            for most in (1, 2, 7, 10**30):
                above, below = window.nearest(most)
                assert above.tolist() == (x[rank - 1 :] - x[rank - 1])[:most].tolist()
                assert below.tolist() == (x[rank - 1] - x[:rank])[::-1][:most].tolist()


def plain_smooth(points, rank, reach, last, beta):
    """The formula, every t and s of it."""
    x = [0] * (len(points) + 1) + sorted(points) + [last] * (len(points) + 1)
    r = len(points) + rank
    return max(
        math.exp(-beta * t) * min(reach, max(x[r + s] - x[r + s - t - 1] for s in range(t + 2)))
        for t in range(len(points) + 1)
    )


@pytest.mark.parametrize("beta", [1.0, 0.1, 0.01])
def test_branch_and_bound_finds_the_largest(beta):
    rng = np.random.default_rng(2)
    for kind in range(12):
        number = int(rng.integers(1, 200))
        points = rng.integers(0, 10 ** int(rng.integers(2, 6)), number)
        reach = int(10 ** rng.integers(0, 6))
        for rank in (1, (number + 1) // 2, number):
            window = quantile._PointsAround(points.copy(), rank, 10**5 - 1)
            expected = plain_smooth(points.tolist(), rank, reach, 10**5 - 1, beta)
            assert window.smooth(reach, beta, 1) == pytest.approx(expected, rel=1e-12), kind


def test_far_points_are_fetched_when_they_are_needed():
    points = np.random.default_rng(3).permutation(np.repeat(np.arange(100) * 1000, 300))
    window = quantile._PointsAround(points.copy(), 15_000, 10**6 - 1)
    assert window.smooth(10**5, 1e-4, 1) == pytest.approx(
        plain_smooth_fast(points, 15_000, 10**5, 10**6 - 1, 1e-4), rel=1e-12
    )
    assert window._half > quantile._NEAR


def plain_smooth_fast(points, rank, reach, last, beta):
    """All t, the maximum over s by one pass each."""
    n = len(points)
    x = np.concatenate([np.zeros(n + 1), np.sort(points), np.full(n + 1, last)])
    r, best = n + rank, 0.0
    for t in range(n + 1):
        longest = min(reach, float((x[r : r + t + 2] - x[r - t - 1 : r + 1]).max()))
        best = max(best, math.exp(-beta * t) * longest)
        if longest == reach:
            break
    return best


def rate_by_definition(budget, together):
    """λ of e^(−λ moves): a log-ratio of at most ε for K moves on either side; ε = √(8ρ) for zCDP."""
    epsilon = float(budget["epsilon"]) if "epsilon" in budget else math.sqrt(8 * float(budget["rho"]))
    return epsilon / (2 * together)


@pytest.mark.parametrize("together", [1, 2, 7])
@pytest.mark.parametrize(
    "budget", [{"epsilon": Fraction(3, 2)}, {"rho": Fraction(1, 5)}, {"rho": Fraction(8)}]
)
def test_the_rate_is_that_of_the_proof_and_never_more(budget, together):
    found = rate_of(dh.Budget(**budget), together)
    assert float(found) == pytest.approx(rate_by_definition(budget, together), rel=1e-11)
    if "rho" in budget:  # a log-ratio within an interval of length ε is (ε²/8)-zCDP
        assert (2 * found * together) ** 2 / 8 <= budget["rho"]
    else:
        assert 2 * found * together <= budget["epsilon"]


def test_a_rho_that_no_rate_holds_is_refused():
    with pytest.raises(dh.InputError, match="rho is 1e-30"):
        dh.quantile([0.1, 0.2], 0.5, dh.Neighbourhood(LINE, 0.1), rho=1e-30, method="inverse")


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("budget", [{"epsilon": Fraction(2)}, {"rho": Fraction(1, 2)}])
@pytest.mark.parametrize("method", ["inverse", "exponential"])
def test_the_law_of_places_is_as_private_as_was_promised(method, budget, together):
    """The largest log-ratio of the exact laws, over all data sets and neighbours of a small line."""
    number, size, reach = 3, 7, 2
    rate = float(rate_of(dh.Budget(**budget), together))
    moved = reach if method == "inverse" else size
    laws = {}
    for x in itertools.combinations_with_replacement(range(size), number):
        weight = np.exp(-rate * moves_of(np.array(x), 2, moved, size))
        laws[x] = np.log(weight / weight.sum())
    worst = spread = 0.0
    for x, law in laws.items():
        for y in neighbours(x, size, reach, together):
            ratio = law - laws[y]
            worst, spread = max(worst, float(np.abs(ratio).max())), max(spread, float(np.ptp(ratio)))
    if "epsilon" in budget:
        assert 0.49 * float(budget["epsilon"]) < worst <= float(budget["epsilon"]) * (1 + 1e-12)
    else:
        assert 0.5 * float(budget["rho"]) < spread**2 / 8 <= float(budget["rho"]) * (1 + 1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_quantile(method):
    """With plenty of budget all are near; the released value lies on the lattice, within the domain."""
    points = np.random.default_rng(6).random(2001)
    near = dh.Neighbourhood(LINE, 0.01)
    options = {"epsilon": 200.0} | (
        {"probability": 1e-6} if method in ("smooth-laplace", "smooth-lognormal") else {}
    )
    for q in (0.0, 0.25, 0.5, 1.0):
        found = dh.quantile(points, q, near, method=method, rng=np.random.default_rng(7), **options)
        true = np.sort(points)[rank_of(q, 2001) - 1]
        assert abs(found.value - true) < 0.003
        assert not found.publishable
        assert float(found) == found.value
        assert 0 <= found.step < LINE.size * LINE.steps[0]
        assert (found.value - LINE.low[0]) / LINE.step[0] == pytest.approx(found.step)


def test_smooth_noise_follows_its_law():
    """Draws of `quantile` against the law with the brute-force smooth sensitivity. False alarms: 1 in 1,000."""
    points = np.array([10.0, 20, 21, 22, 60]) / 100
    near = dh.Neighbourhood(LINE, 0.05)
    noise = smooth_noise("smooth-student", dh.Budget(1))
    steps = near.domain.lattice(points)[:, 0].tolist()
    scale = plain_smooth(steps, 3, near.radius, 100 * LINE.steps[0] - 1, noise.beta) * float(noise.factor)
    rng = np.random.default_rng(8)
    drawn = np.array(
        [dh.quantile(points, 0.5, near, 1, method="smooth-student", rng=rng).step for _ in range(3000)]
    )
    inside = (drawn > 0) & (drawn < 100 * LINE.steps[0] - 1)
    law = scipy.stats.t(2, loc=steps[2], scale=scale)
    low, high = law.cdf([0.5, 100 * LINE.steps[0] - 1.5])
    assert scipy.stats.kstest((law.cdf(drawn[inside]) - low) / (high - low), "uniform").pvalue > 1e-3
    assert scipy.stats.binomtest(int((~inside).sum()), 3000, 1 - (high - low)).pvalue > 1e-3


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 0.3}])
@pytest.mark.parametrize("method", ["inverse", "exponential"])
def test_drawn_places_have_the_rate_of_the_budget(method, budget, together):
    """Through `quantile` itself: how often the places within the first move are drawn. False alarms: 1 in 1,000."""
    line = dh.Domain((0, 1), (1,))
    near, size = dh.Neighbourhood(line, 0.02), line.steps[0]
    points = np.linspace(0.01, 0.99, 49)
    moved = near.radius if method == "inverse" else size
    steps = line.lattice(points)[:, 0]
    moves = _moves_on_stretches(steps, 25, moved, size)
    weight = {m: width * math.exp(-rate_by_definition(budget, together) * m) for m, width in moves.items()}
    chance = weight[1] / sum(weight.values())
    drawn = [
        dh.quantile(
            points,
            0.5,
            near,
            method=method,
            contributions=together,
            rng=np.random.default_rng(seed),
            **budget,
        ).step
        for seed in range(600)
    ]
    first = int(sum((_passed(steps, 25, step, moved) == 1) for step in drawn))
    assert scipy.stats.binomtest(first, 600, chance).pvalue > 1e-3


def _passed(steps, rank, place, reach):
    """Moves that make a place the quantile, from the definition."""
    x = np.sort(steps)
    on_way = x[rank - 1 :][x[rank - 1 :] < place] if place > x[rank - 1] else x[:rank][x[:rank] > place]
    return int((-(-np.abs(place - on_way) // reach)).sum())


def _moves_on_stretches(steps, rank, reach, size):
    """How many places of the lattice take each number of moves."""
    marks = {0, size, *(int(s) + k for s in steps for k in (0, 1))}
    marks |= {
        int(s) + sign * j * reach + k for s in steps for sign in (1, -1) for j in range(40) for k in (0, 1)
    }
    marks = sorted(m for m in marks if 0 <= m <= size)
    out = collections.Counter()
    for low, high in itertools.pairwise(marks):
        out[_passed(steps, rank, low, reach)] += high - low
    return out


@pytest.mark.parametrize(
    ("method", "budget"),
    [
        ("smooth-student", {"epsilon": 1}),
        ("smooth-laplace", {"epsilon": 1, "probability": 1e-6}),
        ("smooth-lognormal", {"rho": 0.5}),
    ],
)
@pytest.mark.parametrize("number", [1500, 40_000])
def test_many_equal_points_are_published_with_noise(method, budget, number):
    """At β = ¼ and more, e^(−β · 20,000) is zero in floats: the value went out as it was."""
    near = dh.Neighbourhood(LINE, 0.05)
    points = np.full(number, 0.37)
    drawn = {dh.quantile(points, 0.5, near, method=method, **budget).step for _ in range(12)}
    assert len(drawn) > 1
    assert max(abs(step - near.domain.lattice([0.37])[0, 0]) for step in drawn) < 10**6


def test_the_floor_is_smooth_and_hardly_ever_matters():
    """The larger of a smooth bound and a constant changes by at most e^β between neighbours, as both do."""
    number, places, reach, beta = 3, 8, 2, 0.9
    sets = list(itertools.combinations_with_replacement(range(places), number))

    def floored(x):
        return max(quantile._PointsAround(np.array(x), 2, places - 1).smooth(reach, beta, 1), 1.0)

    values = {x: floored(x) for x in sets}
    for x in sets:
        for y in neighbours(x, places, reach, 1):
            assert values[y] <= math.exp(beta) * values[x] * (1 + 1e-12)
            assert abs(y[1] - x[1]) <= values[x]


def test_the_smooth_sensitivity_is_capped_by_delta():
    points = np.linspace(0, 1, 11)
    near = dh.Neighbourhood(LINE, 0.01)
    wide = dh.Neighbourhood(LINE, 1)
    assert smooth_sensitivity(points, 0.5, near, beta=0.1) == pytest.approx(0.01)
    assert smooth_sensitivity(points, 0.5, wide, beta=0.1) > 0.1
    assert smooth_sensitivity(points[::-1], 0.5, wide, beta=0.1, contributions=2) > smooth_sensitivity(
        points, 0.5, wide, beta=0.1
    )


@pytest.mark.parametrize(
    ("points", "q", "options", "message"),
    [
        ([], 0.5, {"epsilon": 1}, "no points"),
        ([0.1, math.inf], 0.5, {"epsilon": 1}, "infinite"),
        ([0.1], 1.5, {"epsilon": 1}, "q is 1.5"),
        ([0.1], math.nan, {"epsilon": 1}, "q is nan"),
        ([0.1], 0.5, {}, "one of them"),
        ([0.1], 0.5, {"epsilon": 0}, "epsilon is 0"),
        ([0.1], 0.5, {"epsilon": 1, "method": "mean"}, "method is 'mean'"),
        ([0.1], 0.5, {"epsilon": 1, "method": "smooth-laplace"}, "takes epsilon and a probability"),
        ([0.1], 0.5, {"rho": 1, "method": "smooth-student"}, "smooth-student takes epsilon"),
        ([0.1], 0.5, {"rho": 1, "probability": 1e-6}, "probability goes with epsilon"),
        ([0.1], 0.5, {"epsilon": 1, "probability": 1.5}, "between 0 and 1"),
        ([[0.1, 0.2]], 0.5, {"epsilon": 1}, "2 dimensions"),
    ],
)
def test_bad_input(points, q, options, message):
    with pytest.raises(dh.InputError, match=message):
        dh.quantile(points, q, dh.Neighbourhood(LINE, 0.1), **options)


def test_bad_membership_and_beta():
    with pytest.raises(dh.InputError, match="n must be public"):
        dh.quantile([0.1], 0.5, dh.Neighbourhood(LINE, 0.1, sources="left"), 1.0)
    with pytest.raises(dh.InputError, match="2 dimensions"):
        dh.quantile([0.1], 0.5, dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (2, 2)), 0.5), 1.0)
    with pytest.raises(dh.InputError, match="beta is 0"):
        smooth_sensitivity([0.1], 0.5, dh.Neighbourhood(LINE, 0.1), beta=0)
