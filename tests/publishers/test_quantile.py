"""Quantiles: smooth sensitivity and moves against brute force over all data sets, exact laws, bad input."""

import collections
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import deltahist as dh
from deltahist.mechanisms.quantile import METHODS, exponent_of, rank_of
from deltahist.mechanisms.smooth import smooth_noise
from deltahist.noise.entropy import source
from deltahist.publishers import quantile as median

LINE = dh.Domain((0, 1), (100,))


class Steps:
    """A neighbourhood of a few lattice steps: what the private side asks of it."""

    def __init__(self, places, reach):
        self.radius = reach
        self.domain = self
        self.size, self.steps = 1, (places,)


@functools.cache
def neighbours(points, places, reach, together):
    """All data sets after at most `together` points have moved by at most `reach`."""
    out = {points}
    for which in itertools.combinations(range(len(points)), min(together, len(points))):
        ranges = [range(max(0, points[i] - reach), min(places - 1, points[i] + reach) + 1) for i in which]
        for to in itertools.product(*ranges):
            other = list(points)
            for i, place in zip(which, to, strict=True):
                other[i] = place
            out.add(tuple(sorted(other)))
    return frozenset(out)


@functools.cache
def distances(points, places, reach, together):
    """Number of moves to every other data set."""
    found, todo = {points: 0}, collections.deque([points])
    while todo:
        here = todo.popleft()
        for other in neighbours(here, places, reach, together):
            if other not in found:
                found[other] = found[here] + 1
                todo.append(other)
    return found


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
            window = median._Window(rng.permutation(points), rank, Steps(places, reach))
            for beta in (0.05, 0.6, 2.0):
                plain = max(local[y] * math.exp(-beta * away[y]) for y in sets)
                assert window.smooth(beta, together) == pytest.approx(plain, rel=1e-12)


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
            window = median._Window(points.copy(), rank, Steps(10**5, reach))
            expected = plain_smooth(points.tolist(), rank, reach, 10**5 - 1, beta)
            assert window.smooth(beta, 1) == pytest.approx(expected, rel=1e-12), kind


def test_far_points_are_fetched_when_they_are_needed():
    points = np.random.default_rng(3).permutation(np.repeat(np.arange(100) * 1000, 300))
    window = median._Window(points.copy(), 15_000, Steps(10**6, 10**5))
    assert window.smooth(1e-4, 1) == pytest.approx(
        plain_smooth_fast(points, 15_000, 10**5, 10**6 - 1, 1e-4), rel=1e-12
    )
    assert window._half > median._NEAR


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


@pytest.mark.parametrize(
    ("number", "places", "reach"), [(3, 8, 2), (4, 6, 1), (2, 9, 20), (1, 9, 2), (5, 5, 2)]
)
def test_moves_to_make_a_place_the_quantile_by_brute_force(number, places, reach):
    levels = number * places
    for points in itertools.combinations_with_replacement(range(places), number):
        for rank in range(1, number + 1):
            plain = np.full(places, 99)
            for other, moves in distances(points, places, reach, 1).items():
                plain[other[rank - 1]] = min(plain[other[rank - 1]], moves)
            window = median._Window(np.array(points), rank, Steps(places, reach))
            above = median._stretches(window.above(levels + 1), reach, levels, places - 1, 1)
            below = median._stretches(-window.below(levels + 1), reach, levels, 0, -1)
            found = np.zeros(places, dtype=int)
            for level in range(1, levels + 1):
                found[above[level - 1] + 1 : above[level] + 1] = level
                found[-below[level] : -below[level - 1]] = level
            assert found.tolist() == plain.tolist()


def moves_of(points, rank, reach, places):
    """Moves to every place, from the definition: the nearest points on the way go there."""
    x = np.sort(points)
    out = []
    for place in range(places):
        between = x[rank - 1 :][x[rank - 1 :] < place] if place > x[rank - 1] else x[:rank][x[:rank] > place]
        out.append(int(sum(-(-abs(int(place - v)) // reach) for v in between)))
    return np.array(out)


def rate_by_definition(budget, together):
    """λ of e^(−λ moves): a log-ratio of at most ε for K moves on either side; ε = √(8ρ) for zCDP."""
    epsilon = float(budget["epsilon"]) if "epsilon" in budget else math.sqrt(8 * float(budget["rho"]))
    return epsilon / (2 * together)


@pytest.mark.parametrize("together", [1, 2, 7])
@pytest.mark.parametrize(
    "budget", [{"epsilon": Fraction(3, 2)}, {"rho": Fraction(1, 5)}, {"rho": Fraction(8)}]
)
def test_the_rate_is_that_of_the_proof_and_never_more(budget, together):
    found = exponent_of(budget.get("epsilon"), budget.get("rho"), together)
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
    rate = float(exponent_of(budget.get("epsilon"), budget.get("rho"), together))
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


@pytest.mark.parametrize("method", ["inverse", "exponential"])
@pytest.mark.parametrize("budget", [{"epsilon": Fraction(3, 2)}, {"rho": Fraction(1, 5)}])
def test_places_have_their_probabilities(method, budget):
    """Chi-square over all places of a small lattice. False alarms: 1 in 1,000 each."""
    points, places, reach = np.array([3, 4, 4, 9, 15, 15, 30]), 40, 4
    rate = exponent_of(budget.get("epsilon"), budget.get("rho"), 1)
    moves = moves_of(points, 4, reach if method == "inverse" else places, places)
    chance = np.exp(-rate_by_definition(budget, 1) * moves)
    chance /= chance.sum()
    words = source(np.random.default_rng(4))
    drawn = [
        median._place(
            median._Window(points.copy(), 4, Steps(places, reach)),
            reach if method == "inverse" else places,
            rate,
            places,
            words,
        )
        for _ in range(4000)
    ]
    seen = np.bincount(drawn, minlength=places)
    large = chance * 4000 >= 5
    table = np.append(seen[large], seen[~large].sum()), np.append(chance[large], chance[~large].sum()) * 4000
    keep = table[1] > 0
    assert scipy.stats.chisquare(table[0][keep], table[1][keep]).pvalue > 1e-3


def test_far_places_are_looked_at_when_the_drawn_real_asks_for_them(monkeypatch):
    """With a tail bound that is far too short at first, the law is the same."""
    monkeypatch.setattr(median, "_TAIL", -40)
    points, places = np.array([5, 20, 21]), 60
    words = source(np.random.default_rng(5))
    drawn = [
        median._place(median._Window(points.copy(), 2, Steps(places, 2)), 2, Fraction(1, 8), places, words)
        for _ in range(4000)
    ]
    chance = np.exp(-moves_of(points, 2, 2, places) / 8)
    chance /= chance.sum()
    expected = chance * 4000
    large = expected >= 5
    seen = np.bincount(drawn, minlength=places)
    # False alarms: 1 in 1,000.
    assert (
        scipy.stats.chisquare(
            np.append(seen[large], seen[~large].sum()), np.append(expected[large], expected[~large].sum())
        ).pvalue
        > 1e-3
    )


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
    noise = smooth_noise("smooth-student", Fraction(1), None, None)
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
        return max(median._Window(np.array(x), 2, Steps(places, reach)).smooth(beta, 1), 1.0)

    values = {x: floored(x) for x in sets}
    for x in sets:
        for y in neighbours(x, places, reach, 1):
            assert values[y] <= math.exp(beta) * values[x] * (1 + 1e-12)
            assert abs(y[1] - x[1]) <= values[x]


def test_the_smooth_sensitivity_is_capped_by_delta():
    points = np.linspace(0, 1, 11)
    near = dh.Neighbourhood(LINE, 0.01)
    wide = dh.Neighbourhood(LINE, 1)
    assert dh.smooth_sensitivity(points, 0.5, near, beta=0.1) == pytest.approx(0.01)
    assert dh.smooth_sensitivity(points, 0.5, wide, beta=0.1) > 0.1
    assert dh.smooth_sensitivity(points[::-1], 0.5, wide, beta=0.1, contributions=2) > dh.smooth_sensitivity(
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
        ([[0.1]], 0.5, {"epsilon": 1}, "shape"),
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
        dh.smooth_sensitivity([0.1], 0.5, dh.Neighbourhood(LINE, 0.1), beta=0)
