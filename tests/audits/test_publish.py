"""The real `publish`, call by call: its promise holds, and bugs planted beneath it are caught.

Every release comes from a call of its own, with seeded noise. Audits of tens of thousands of releases make the
mechanism once and pass it to every call, the others let every call make its own. The false-alarm probability is at
most 0.1% per audit.
"""

import pytest

from deltahist.domain import Domain
from deltahist.neighbourhood import Neighbourhood
from deltahist.strategies import Cumulative, Identity
from tests.audits.cases import BUGS, MECHANISMS, SOURCES, build, plan_audit
from tests.audits.harness import audit, gaussian, pure, refuted, report, through_publish, worst_pairs


def suffix_sums(sources=None):
    """C_4 with moves by one cell: every move changes a single row."""
    domain = Domain((0, 4), (4,))
    return Cumulative(domain), Neighbourhood(domain, 1, sources)


def cells(sources=None):
    """Two cells, the plainest histogram."""
    domain = Domain((0, 2), (2,))
    return Identity(domain), Neighbourhood(domain, 1, sources)


def part(bug):
    """A bug that is coarser than a scale of 0.9 takes fewer releases."""
    return 1 if bug == "noise scaled by 0.9" else 8


def publish_audit(strategy, near, points=1, seed=1, part=1):
    """Audit `publish` with Laplace noise, on 1/part of the releases that catch a scale of 0.9.

    Where that is all of them the mechanism is made once.
    """
    epsilon, enough = plan_audit(strategy, near, points)
    pairs = worst_pairs(strategy, near, points=points)
    draw = through_publish(near, strategy, made_once=part == 1, epsilon=epsilon, contributions=points)
    return audit(draw, pairs, pure(epsilon), releases=enough // part, seed=seed)


def test_users_of_three_points_end_to_end():
    findings = publish_audit(*suffix_sums(), points=3)
    assert not refuted(findings), report(findings)


def test_gaussian_noise_end_to_end():
    strategy, near = cells()
    pairs = worst_pairs(strategy, near, norm=2)
    draw = through_publish(near, strategy, made_once=True, rho=0.5)
    findings = audit(draw, pairs, gaussian(0.5), releases=6_000, seed=2)
    assert not refuted(findings), report(findings)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_beneath_publish_is_caught(bug, monkeypatch):
    BUGS[bug](monkeypatch)
    strategy, near = cells() if bug == "sensitivity understated by one" else suffix_sums()
    assert refuted(publish_audit(strategy, near, seed=3, part=part(bug)))


def test_contributions_that_are_forgotten_are_caught():
    strategy, near = suffix_sums()
    draw = through_publish(near, strategy, epsilon=1.0)
    assert refuted(audit(draw, worst_pairs(strategy, near, points=3), pure(1.0), releases=2_000, seed=4))


def test_a_total_that_is_published_despite_sources_is_caught(monkeypatch):
    strategy, near = suffix_sums("left")
    pairs = worst_pairs(strategy, near)
    draw = through_publish(near, strategy, epsilon=1.0)
    assert not refuted(audit(draw, pairs, pure(1.0), releases=1_000, seed=5))
    monkeypatch.setattr(Neighbourhood, "fixed_membership", True)
    findings = audit(draw, pairs, pure(1.0), releases=1_000, seed=5)
    assert refuted(findings)
    assert any(finding.event.score.endswith("total") for finding in findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("sources", SOURCES)
def test_every_mechanism_end_to_end(name, sources):
    findings = publish_audit(*build(name, sources), seed=6, part=4)
    assert not refuted(findings), report(findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("bug", ["noise scaled by 0.5", "sensitivity understated by one"])
def test_every_bug_in_every_mechanism_end_to_end(name, bug, monkeypatch):
    BUGS[bug](monkeypatch)
    assert refuted(publish_audit(*build(name), seed=7, part=part(bug)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Identity", "Cumulative", "Wavelet", "CutAugmented"])
def test_noise_scaled_by_nine_tenths_is_caught_end_to_end(name, monkeypatch):
    BUGS["noise scaled by 0.9"](monkeypatch)
    assert refuted(publish_audit(*build(name), seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_gaussian_noise_in_every_mechanism_end_to_end(name, monkeypatch):
    strategy, near = build(name)
    pairs = worst_pairs(strategy, near, norm=2)[:1]
    draw = through_publish(near, strategy, rho=0.5)
    findings = audit(draw, pairs, gaussian(0.5), releases=20_000, seed=8)
    assert not refuted(findings), report(findings)
    BUGS["noise scaled by 0.5"](monkeypatch)
    assert refuted(audit(draw, pairs, gaussian(0.5), releases=5_000, seed=9))
