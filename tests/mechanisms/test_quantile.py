"""What quantiles cost and are expected to miss: calibration against the laws themselves, the ranking, files."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import scipy.stats

import deltahist as dh
from deltahist.mechanisms.quantile import QuantileMechanism, _mean_of_places, quantile_methods, rank_of
from deltahist.mechanisms.smooth import smooth_noise

LINE = dh.Domain((0, 1), (100,))
Z = np.concatenate([-np.geomspace(1e8, 1e-4, 4000), [0.0], np.geomspace(1e-4, 1e8, 4000)])


def log_density(method, z):
    if method == "smooth-student":
        return scipy.stats.t(2).logpdf(z)
    if method == "smooth-laplace":
        return -np.abs(z) - math.log(2)
    return lognormal_log_density(np.abs(z))


def lognormal_log_density(z):
    """ln E[½ e^(−y/2) exp(−z e^(−y/2))] over a standard normal y, by the trapezoid rule.

    The integrand's logarithm bends down by at least 1 everywhere, so that nine to either side of its peak hold all of
    it. The peak is where v = y + ½ has v e^(v/2) = z e^(¼)/2.
    """
    peak = 2 * scipy.special.lambertw(z * math.exp(0.25) / 4).real - 0.5
    step = 0.1
    y = peak[:, None] + np.arange(-9, 9 + step, step)
    logarithm = -z[:, None] * np.exp(-y / 2) - y / 2 - y * y / 2
    return scipy.special.logsumexp(logarithm, axis=1) + math.log(step / (2 * math.sqrt(2 * math.pi)))


def neighbour(method, noise, z, stretch, shift):
    """log-density of e^stretch Z + shift, the output of a neighbour in units of the first one's scale."""
    return log_density(method, (z - shift) / math.exp(stretch)) - stretch


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
def test_students_noise_is_pure(epsilon):
    """The largest log-ratio over a dense grid, for stretches by e^±β and shifts by ±1/factor, is at most ε."""
    noise = smooth_noise("smooth-student", dh.Budget(epsilon))
    worst = 0.0
    for stretch in (-noise.beta, 0.0, noise.beta):
        for shift in (-1 / float(noise.factor), 0.0, 1 / float(noise.factor)):
            ratio = log_density("smooth-student", Z) - neighbour("smooth-student", noise, Z, stretch, shift)
            worst = max(worst, float(np.abs(ratio).max()))
    assert worst <= float(epsilon) * (1 + 1e-9)
    assert worst > 0.5 * float(epsilon)


def mass(density):
    """Trapezoid weights times density."""
    return np.exp(density) * np.gradient(Z)


@pytest.mark.parametrize("method", ["smooth-laplace", "smooth-lognormal"])
@pytest.mark.parametrize(("epsilon", "probability"), [(1.0, 1e-2), (2.0, 1e-4)])
def test_approximate_noises_keep_their_failure_probability(method, epsilon, probability):
    """∫ (p − e^ε p')₊ over a dense grid is at most δ_prob."""
    noise = smooth_noise(method, dh.Budget(epsilon, probability=probability))
    shift = 1 / float(noise.factor)
    own = mass(log_density(method, Z))

    def failure(stretch, move):
        return np.maximum(own - math.exp(epsilon) * mass(neighbour(method, noise, Z, stretch, move)), 0).sum()

    stretches, moves = (-noise.beta, noise.beta), (-shift, 0.0, shift)
    assert max(failure(stretch, move) for stretch in stretches for move in moves) <= probability * 1.01
    # Half the noise would not do.
    assert max(failure(2 * noise.beta, 2 * shift), failure(-4 * noise.beta, 2 * shift)) > probability


@pytest.mark.parametrize("rho", [Fraction(1, 50), Fraction(1, 2)])
def test_lognormal_noise_is_concentrated(rho):
    """Rényi divergences by quadrature, for a few orders, are at most ρ α."""
    noise = smooth_noise("smooth-lognormal", dh.Budget(rho=rho))
    shift = 1 / float(noise.factor)
    p = log_density("smooth-lognormal", Z)
    for stretch in (-noise.beta, noise.beta):
        for move in (0.0, shift):
            q = neighbour("smooth-lognormal", noise, Z, stretch, move)
            # Where both densities vanish the order's power of them does so too.
            good = (p > -600) & (q > -600)
            for order in (1.5, 2.0, 8.0):
                power = np.exp(order * p[good] + (1 - order) * q[good]) * np.gradient(Z)[good]
                divergence = math.log(float(power.sum())) / (order - 1)
                assert divergence <= float(rho) * order * (1 + 1e-3)


def test_noises_that_do_not_go_with_a_budget():
    assert smooth_noise("smooth-student", dh.Budget(rho=1)) is None
    assert smooth_noise("smooth-laplace", dh.Budget(1)) is None
    assert smooth_noise("smooth-laplace", dh.Budget(rho=1)) is None
    assert smooth_noise("smooth-lognormal", dh.Budget(1)) is None


@pytest.mark.parametrize(("spacing", "reach"), [(10.0, 1000.0), (300.0, 40.0), (100.0, 100.0), (1.0, 10**6)])
def test_expected_errors_of_places_against_the_sum(spacing, reach):
    """Within a tenth of the sum over all places."""
    size, rate = 20_000.0, 0.2
    z = np.arange(1, 20_000)
    # Each point on the way makes ⌈(z − i s)/D⌉ moves: as many as there are i s, i s + D, … below z.
    marks = np.arange(0, size, spacing)[:, None] + np.arange(0, size, reach)
    moves = np.searchsorted(np.sort(marks.ravel()), z)
    weight = np.exp(-rate * moves)
    plain = float((weight * z).sum() / (0.5 + weight.sum()))
    assert _mean_of_places(spacing, reach, rate, size) == pytest.approx(plain, rel=0.1)


@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"rho": 0.5}, {"epsilon": 1.0, "probability": 1e-6}])
@pytest.mark.parametrize(("number", "delta"), [(100, 0.01), (1000, 0.1)])
def test_expected_errors_are_near_the_measured_ones(number, delta, budget):
    """Evenly spread points, 150 releases each: within a factor of two, with heavy tails and random places."""
    near = dh.Neighbourhood(LINE, delta)
    rng = np.random.default_rng(1)
    points = (np.arange(number) + 0.5) / number
    for method, expected in quantile_methods(near, number, **budget).itertuples(index=False):
        found = [dh.quantile(points, 0.5, near, method=method, rng=rng, **budget).value for _ in range(150)]
        true = points[rank_of(0.5, number) - 1]
        assert 0.5 < np.mean(np.abs(np.array(found) - true)) / expected < 2.0, method


def test_the_ranking():
    dense = quantile_methods(dh.Neighbourhood(LINE, 0.1), 10**6, epsilon=1.0)
    assert dense["method"][0] == "inverse"
    assert dense["expected_error"].is_monotonic_increasing
    sparse = quantile_methods(dh.Neighbourhood(LINE, 0.001), 20, epsilon=1.0)
    assert sparse["method"][0] == "global"
    users = quantile_methods(dh.Neighbourhood(LINE, 0.1), 10**6, epsilon=1.0, contributions=4)
    assert users["expected_error"][0] == pytest.approx(4 * dense["expected_error"][0], rel=0.05)


def test_limits_are_kept_by_what_can_keep_them_and_else_refused():
    near = dh.Neighbourhood(LINE, 0.05, limits=[(0.2, 2), (math.inf, 4)])
    budget = dh.Budget(epsilon=1)
    for method in ("inverse", "smooth-student"):
        words = f"method is '{method}', which cannot keep a limit: a move over 0.2 may cost ε = 2, and by it costs 4"
        with pytest.raises(dh.InputError, match=words):
            QuantileMechanism(near, 0.5, 101, budget, method)
    made = QuantileMechanism(near, 0.5, 101, budget, "global")
    assert [float(made.cost_within(r)[0]) for r in (0.05, 0.2, 1)] == pytest.approx([0.2, 0.8, 4], rel=1e-5)
    assert QuantileMechanism(near, 0.5, 101, budget).method in ("global", "exponential")
    assert set(quantile_methods(near, 101, epsilon=1)["method"]) == {"global", "exponential"}
    wide = dh.Neighbourhood(LINE, 0.05, limits=[(math.inf, 20)])
    assert QuantileMechanism(wide, 0.5, 101, budget).method == "inverse"


def test_a_limit_does_not_fail_more_often_than_what_is_promised_within_delta():
    near = dh.Neighbourhood(LINE, 0.05, limits=[(math.inf, 20)])
    with pytest.raises(
        dh.InputError, match="any move at all may fail with the same probability as within delta"
    ):
        QuantileMechanism(near, 0.5, 101, dh.Budget(1, probability=1e-6), "smooth-laplace")


def test_ranks():
    assert [rank_of(q, 10) for q in (0, 0.1, 0.5, 0.55, 1)] == [1, 1, 5, 6, 10]
    assert rank_of(0.3, 1) == 1


def test_the_description_has_no_scale(tmp_path):
    near = dh.Neighbourhood(LINE, 0.1)
    found = dh.quantile([0.2, 0.4, 0.9], 0.5, near, 1.0, method="smooth-student")
    found.save(tmp_path / "median.json")
    said = json.loads((tmp_path / "median.json").read_text())
    assert said.pop("sha256") == found.digest
    assert said == found.describe()
    assert said["epsilon"] == "1"
    assert set(said) == {
        *("format", "version", "q", "value", "step", "number", "method", "epsilon", "rho", "probability"),
        *(
            "contributions",
            "unit",
            "dropped",
            "projection",
            "domain",
            "neighbourhood",
            "publishable",
            "account",
        ),
    }
    assert found.methods()["method"].tolist() == quantile_methods(near, 3, epsilon=1.0)["method"].tolist()
    with pytest.raises(dh.InputError, match="method is 'mean'"):
        QuantileMechanism(near, 0.5, 3, dh.Budget(1), "mean")
