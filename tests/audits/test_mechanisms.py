"""Every mechanism keeps its promise on the edges that cost most, and planted bugs are caught.

The noise is drawn for many releases at once, from the laws that the mechanism has and with the samplers that
`publish` uses; test_publish.py audits `publish` itself. Each audit has at most 0.1% false alarms; with the seeds
fixed, the outcome is the same on every run.
"""

from fractions import Fraction

import pytest

from tests.audits.cases import BUGS, MECHANISMS, SOURCES, build, plan_audit
from tests.audits.harness import at_once, audit, gaussian, pure, refuted, report, worst_pairs

#: Releases of each data set in the test sample, for Gaussian noise.
GAUSSIAN_RELEASES = 150_000
RHO = Fraction(1, 2)

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
every_source = pytest.mark.parametrize("sources", SOURCES)
every_bug = pytest.mark.parametrize("bug", BUGS)


def pure_audit(name, sources="none", points=1, times=1, seed=20140401, number=1):
    """Audit a mechanism with Laplace noise, on `times` the releases that catch a scale of 0.9."""
    strategy, near = build(name, sources)
    epsilon, releases = plan_audit(strategy, near, points)
    pairs = worst_pairs(strategy, near, points=points, number=number)
    draw = at_once(near, strategy, epsilon=epsilon, contributions=points)
    return audit(draw, pairs, pure(epsilon), releases=times * releases, seed=seed)


def gaussian_audit(name, sources="none", points=1, releases=GAUSSIAN_RELEASES, seed=20140402):
    """Audit a mechanism with Gaussian noise, on the edge that costs most: there the curve is exact."""
    strategy, near = build(name, sources)
    pairs = worst_pairs(strategy, near, norm=2, points=points)[:1]
    draw = at_once(near, strategy, rho=RHO, contributions=points)
    return audit(draw, pairs, gaussian(RHO), releases=releases, seed=seed)


every_noise = pytest.mark.parametrize("run", [pure_audit, gaussian_audit], ids=["Laplace", "Gaussian"])


def test_the_greedy_strategy_here_has_rows_of_its_own():
    strategy, near = build("CutAugmented")
    assert strategy.shape[0] > len(MECHANISMS["ShiftedGrids"][0](near).blocks) + 1
    assert strategy.shape[0] > 4


@every_mechanism
@pytest.mark.parametrize(
    ("run", "sources"),
    [
        (pure_audit, "boundary"),
        (gaussian_audit, "none"),
        pytest.param(pure_audit, "none", marks=pytest.mark.slow),
        pytest.param(gaussian_audit, "boundary", marks=pytest.mark.slow),
    ],
)
def test_the_promise_holds(run, name, sources):
    findings = run(name, sources)
    assert not refuted(findings), report(findings)


@pytest.mark.parametrize("name", ["Cumulative", "Wavelet"])
@every_noise
def test_the_promise_holds_for_users_of_three_points(run, name):
    findings = run(name, points=3)
    assert not refuted(findings), report(findings)


@every_bug
@every_noise
def test_a_bug_is_caught(run, bug, monkeypatch):
    """In one mechanism; the slow tests plant every bug in each of them."""
    BUGS[bug](monkeypatch)
    assert refuted(run("Wavelet"))


def test_a_user_of_three_points_is_not_protected_by_the_noise_for_one():
    strategy, near = build("Identity")
    pairs = worst_pairs(strategy, near, points=3)
    findings = audit(at_once(near, strategy, epsilon=1.0), pairs, pure(1.0), releases=5_000, seed=5)
    assert refuted(findings)


@pytest.mark.slow
@every_mechanism
@every_source
def test_pure_epsilon_holds_on_many_edges(name, sources):
    findings = pure_audit(name, sources, times=5, seed=7, number=6)
    findings += pure_audit(name, sources, points=2, times=5, seed=8, number=6)
    assert len(findings) >= 6
    assert not refuted(findings), report(findings)


@pytest.mark.slow
@every_mechanism
@every_source
@every_bug
def test_every_bug_is_caught_with_sources_and_users(name, sources, bug, monkeypatch):
    BUGS[bug](monkeypatch)
    assert refuted(pure_audit(name, sources, points=2, seed=9))
    assert refuted(gaussian_audit(name, sources, points=2, seed=10))


@pytest.mark.slow
@every_mechanism
def test_gaussian_noise_holds_on_a_large_sample(name):
    findings = gaussian_audit(name, releases=2_000_000, seed=11)
    assert not refuted(findings), report(findings)


@pytest.mark.slow
@every_mechanism
@every_noise
@pytest.mark.parametrize("bug", ["noise scaled by 0.9", "sensitivity understated by one"])
def test_power(run, name, bug, monkeypatch):
    """At least 95 of 100 audits catch the bug; at a power of 99% fewer would have a chance of 3 in 10,000."""
    BUGS[bug](monkeypatch)
    caught = sum(refuted(run(name, seed=1000 + seed)) for seed in range(100))
    print(f"{name}, {run.__name__}, {bug}: caught {caught} of 100")
    assert caught >= 95
