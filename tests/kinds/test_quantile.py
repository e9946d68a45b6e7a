"""Quantiles: noises against their laws, smooth sensitivity and moves by brute force, files, bad input."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import deltahist as dh
from deltahist.kinds.quantile import METHODS, SLACK, InverseNoise, PointsAround, SmoothNoise
from tests.moves import distances, moves_of, neighbours

LINE = dh.Domain((0, 1), (100,))
Z = np.concatenate([-np.geomspace(1e8, 1e-4, 2500), [0.0], np.geomspace(1e-4, 1e8, 2500)])


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
def test_students_noise_is_pure_and_pays_for_the_rounding_of_floats(epsilon):
    """The largest log-ratio over a dense grid, for stretches by e^±β and shifts by ±1/factor, is at most ε."""
    noise, density, worst = SmoothNoise.for_budget(dh.Budget(epsilon), 1), scipy.stats.t(2).logpdf, 0.0
    for stretch, shift in itertools.product((-noise.beta, 0.0, noise.beta), (-1, 0, 1)):
        # A neighbour's output is e^stretch Z + shift, in units of the first one's scale.
        ratio = density(Z) - density((Z - shift / float(noise.factor)) / math.exp(stretch)) + stretch
        worst = max(worst, float(np.abs(ratio).max()))
    assert 0.5 * float(epsilon) < worst <= float(epsilon) * (1 + 1e-9)
    slack = Fraction(SLACK) * Fraction(999, 1000)  # a float of ε/4 is itself rounded
    assert Fraction(noise.beta) <= epsilon / 4 - slack
    # A shift of s costs 3 s / (2 √2), and squares of fractions are exact.
    assert Fraction(9, 8) / noise.factor**2 <= (epsilon / 2 * (1 - slack)) ** 2


def test_limits_are_kept_or_refused():
    near = dh.Neighbourhood(LINE, 0.05, limits=[(0.2, 2), (math.inf, 4)])
    for method in METHODS:
        with pytest.raises(dh.InputError, match=r"ε of a move over 0\.2 is 2: it must be at least 4"):
            dh.kinds.QuantileMechanism(near, 0.5, 101, dh.Budget(epsilon=1), method)
    wide = dh.Neighbourhood(LINE, 0.05, limits=[(math.inf, 20)])
    assert float(dh.kinds.QuantileMechanism(wide, 0.5, 101, dh.Budget(epsilon=1)).cost_within(1)[0]) <= 20


def test_another_number_of_points_is_refused():
    near = dh.Neighbourhood(dh.Domain((0, 1), (10,)), 0.1)
    for points in ([0.1, 0.2], [0.1, 0.2, 0.3, 0.4]):
        with pytest.raises(dh.InputError):
            dh.publishers.publish_mechanism(dh.kinds.QuantileMechanism(near, 0.5, 3, dh.Budget(1)), points)


CASES = [(3, 8, 2, 1), (3, 7, 20, 1), (1, 9, 2, 1), (4, 5, 2, 2)]


@pytest.mark.parametrize(("number", "places", "reach", "together"), CASES)
def test_smooth_sensitivity_by_brute_force(number, places, reach, together):
    """max over all data sets of the local sensitivity times e^(−β distance), for every data set and rank."""
    sets = list(itertools.combinations_with_replacement(range(places), number))
    rng = np.random.default_rng(1)
    for rank in range(1, number + 1):
        local = {x: max(abs(y[rank - 1] - x[rank - 1]) for y in neighbours(x, places, reach, together)) for x in sets}
        for points in sets:
            away = distances(points, places, reach, together)
            window = PointsAround(rng.permutation(points), rank, places - 1)
            for beta in (0.05, 0.6, 2.0):
                plain = max(local[y] * math.exp(-beta * away[y]) for y in sets)
                assert window.smooth_sensitivity(reach, beta, together) == pytest.approx(plain, rel=1e-12)


def plain_smooth(points, rank, reach, last, beta):
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


@pytest.mark.parametrize("beta", [1.0, 0.01])
def test_branch_and_bound_finds_the_largest(beta):
    rng = np.random.default_rng(2)
    for kind in range(12):
        number = int(rng.integers(1, 200))
        points = rng.integers(0, 10 ** int(rng.integers(2, 6)), number)
        reach = int(10 ** rng.integers(0, 6))
        for rank in (1, (number + 1) // 2, number):
            window = PointsAround(points.copy(), rank, 10**5 - 1)
            expected = plain_smooth(points, rank, reach, 10**5 - 1, beta)
            assert window.smooth_sensitivity(reach, beta, 1) == pytest.approx(expected, rel=1e-12), kind


@pytest.mark.parametrize("together", [1, 2, 7])
@pytest.mark.parametrize("budget", [{"epsilon": Fraction(3, 2)}, {"rho": Fraction(1, 5)}, {"rho": Fraction(8)}])
def test_the_rate_is_that_of_the_proof_and_never_more(budget, together):
    spent = 2 * together * InverseNoise.for_budget(dh.Budget(**budget), together).rate
    if "rho" in budget:  # a log-ratio within an interval of length ε is (ε²/8)-zCDP
        spent = spent**2 / 8
    assert 1 - Fraction(2, 10**11) < spent / next(iter(budget.values())) <= 1


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("budget", [{"epsilon": Fraction(2)}, {"rho": Fraction(1, 2)}])
def test_the_law_of_places_is_as_private_as_was_promised(budget, together):
    """The largest log-ratio of the exact laws, over all data sets and neighbours of a small line."""
    number, size, reach = 3, 7, 2
    rate = float(InverseNoise.for_budget(dh.Budget(**budget), together).rate)
    laws = {}
    for x in itertools.combinations_with_replacement(range(size), number):
        weight = np.exp(-rate * moves_of(np.array(x), 2, reach, size))
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


def test_smooth_noise_follows_its_law():
    """Draws of `quantile` against the law with the brute-force smooth sensitivity. False alarms: 1 in 1,000."""
    points = np.array([10.0, 20, 21, 22, 60]) / 100
    near = dh.Neighbourhood(LINE, 0.05)
    noise = SmoothNoise.for_budget(dh.Budget(1), 1)
    steps = near.domain.lattice(points)[:, 0].tolist()
    scale = plain_smooth(steps, 3, near.radius, 100 * LINE.steps[0] - 1, noise.beta) * float(noise.factor)
    rng = np.random.default_rng(8)
    drawn = np.array(
        [dh.publishers.publish_quantile(points, 0.5, near, 1, method="smooth", rng=rng).step for _ in range(1500)]
    )
    inside = (drawn > 0) & (drawn < 100 * LINE.steps[0] - 1)
    law = scipy.stats.t(2, loc=steps[2], scale=scale)
    low, high = law.cdf([0.5, 100 * LINE.steps[0] - 1.5])
    assert scipy.stats.kstest((law.cdf(drawn[inside]) - low) / (high - low), "uniform").pvalue > 1e-3
    assert scipy.stats.binomtest(int((~inside).sum()), 1500, 1 - (high - low)).pvalue > 1e-3


@pytest.mark.parametrize(("epsilon", "contributions"), [(5e-324, 1), (1e-308, 3), (0.1, 10**30)])
def test_a_budget_that_no_sampler_can_spend_is_refused_before_the_charge(epsilon, contributions):
    account, near = dh.accounts.Account.total(epsilon=1), dh.Neighbourhood(LINE, 0.5)
    with pytest.raises(dh.InputError, match=r"epsilon is .*: it must be at least"):
        dh.publishers.publish_quantile([0.1, 0.2], 0.5, near, epsilon, contributions=contributions, account=account)
    assert account.spent == 0
    assert dh.publishers.publish_quantile([0.1, 0.2], 0.5, near, 1e-11, account=account).publishable


@pytest.mark.parametrize(
    ("points", "given"),
    [
        ([], {"epsilon": 1}),
        ([0.1, math.inf], {"epsilon": 1}),
        ([[0.1, 0.2]], {"epsilon": 1}),
        ([0.1], {"epsilon": 1, "method": "mean"}),
        ([0.1], {"rho": 1, "method": "smooth"}),
        ([0.1, 0.2], {"rho": 1e-30}),
        ([0.1], {"epsilon": 1, "near": dh.Neighbourhood(LINE, 0.5, "left")}),  # then their number is not public
    ],
)
def test_bad_input_is_refused(points, given):
    with pytest.raises(dh.InputError):
        dh.publishers.publish_quantile(points, 0.5, **{"near": dh.Neighbourhood(LINE, 0.5), **given})
