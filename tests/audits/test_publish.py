"""The real `publish`: its promise holds, and bugs planted beneath it are caught.

Coarse audits make every release with a call of its own, and every call makes its own mechanism. Audits of tens of
thousands of releases take a hundred from each call: copies of a line, end to end. The false-alarm probability is at
most 0.1% per audit.
"""

import numpy as np
import pytest

from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import Cumulative, Identity
from tests.audits.cases import BUGS, COPIES, MECHANISMS, SOURCES, build, end_to_end, line, plan_audit
from tests.audits.harness import audit, gaussian, pure, refuted, report, through_publish, worst_pairs

#: Releases of coarse audits in the test sample, and those to learn from; docs/privacy/audits.md has their power.
COARSE = {"releases": 1000, "learning": 250}


def suffix_sums(sources=None):
    """C_4 with moves by one cell: every move changes a single row."""
    return Cumulative(line(4)), Neighbourhood(line(4), 1, sources)


def cells(sources=None):
    """Two cells, the plainest histogram."""
    return Identity(line(2)), Neighbourhood(line(2), 1, sources)


def fine_audit(strategy, near, points=1, seed=1):
    """Audit `publish` with Laplace noise, on the releases that catch a scale of 0.9."""
    epsilon, enough = plan_audit(strategy, near, points)
    pairs = worst_pairs(strategy, near, points=points)
    draw = end_to_end(strategy, near, epsilon=epsilon, contributions=points)
    return audit(draw, pairs, pure(epsilon), releases=enough, seed=seed)


def publish_audit(strategy, near, points=1, seed=1, made_once=False, **size):
    """Audit `publish` with Laplace noise, call by call."""
    epsilon, _ = plan_audit(strategy, near, points)
    draw = through_publish(near, strategy, made_once=made_once, epsilon=epsilon, contributions=points)
    return audit(draw, worst_pairs(strategy, near, points=points), pure(epsilon), seed=seed, **size)


@pytest.mark.parametrize("make", [suffix_sums, cells])
def test_copies_end_to_end_are_as_many_releases(make):
    """Without noise every one of them is what the strategy measures; with it no two are the same."""
    strategy, near = make()
    counts = np.arange(1, near.domain.size + 1)
    draw = end_to_end(strategy, near, epsilon=1e9)
    exact = np.append(strategy.measure(counts), counts.sum())
    assert (draw(counts, COPIES + 1, np.random.default_rng(1)) == exact).all()
    drawn = end_to_end(strategy, near, epsilon=1e-6)(counts, 2 * COPIES, np.random.default_rng(1))
    assert len(np.unique(drawn[:, 1])) > 2 * COPIES - 3


def test_users_of_three_points_end_to_end_and_call_by_call():
    for findings in (
        fine_audit(*suffix_sums(), points=3),
        publish_audit(*suffix_sums(), points=3, made_once=True, **COARSE),
    ):
        assert not refuted(findings), report(findings)


def test_gaussian_noise_end_to_end():
    strategy, near = cells()
    pairs = worst_pairs(strategy, near, norm=2)
    draw = end_to_end(strategy, near, rho=0.5)
    findings = audit(draw, pairs, gaussian(0.5), releases=6_000, seed=2)
    assert not refuted(findings), report(findings)


def test_a_tenth_less_noise_beneath_publish_is_caught(monkeypatch):
    BUGS["noise scaled by 0.9"](monkeypatch)
    assert refuted(fine_audit(*suffix_sums(), seed=3))


def test_an_understated_sensitivity_beneath_publish_is_caught(monkeypatch):
    BUGS["sensitivity understated by one"](monkeypatch)
    assert refuted(publish_audit(*cells(), seed=3, **COARSE))


def test_contributions_that_are_forgotten_are_caught():
    strategy, near = suffix_sums()
    draw = through_publish(near, strategy, epsilon=1.0)
    assert refuted(audit(draw, worst_pairs(strategy, near, points=3), pure(1.0), seed=4, **COARSE))


def test_a_total_that_is_published_despite_sources_is_caught(monkeypatch):
    strategy, near = suffix_sums("left")
    pairs, size = worst_pairs(strategy, near), {"releases": 500, "learning": 250}
    draw = through_publish(near, strategy, made_once=True, epsilon=1.0)
    assert not refuted(audit(draw, pairs, pure(1.0), seed=5, **size))
    monkeypatch.setattr(Neighbourhood, "fixed_membership", True)
    findings = audit(draw, pairs, pure(1.0), seed=5, **size)
    assert refuted(findings)
    assert any(finding.event.score.endswith("total") for finding in findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("sources", SOURCES)
def test_every_mechanism_end_to_end(name, sources):
    strategy, near = build(name, sources)
    findings = publish_audit(strategy, near, seed=6, releases=plan_audit(strategy, near)[1] // 4)
    assert not refuted(findings), report(findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("bug", ["noise scaled by 0.5", "sensitivity understated by one"])
def test_every_bug_in_every_mechanism_end_to_end(name, bug, monkeypatch):
    BUGS[bug](monkeypatch)
    strategy, near = build(name)
    assert refuted(publish_audit(strategy, near, seed=7, releases=plan_audit(strategy, near)[1] // 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Identity", "Cumulative", "Wavelet", "CutAugmented"])
def test_noise_scaled_by_nine_tenths_is_caught_end_to_end(name, monkeypatch):
    BUGS["noise scaled by 0.9"](monkeypatch)
    strategy, near = build(name)
    enough = plan_audit(strategy, near)[1]
    assert refuted(publish_audit(strategy, near, seed=7, made_once=True, releases=enough))


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
