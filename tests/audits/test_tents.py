"""Tents at two distances at once, within δ and anywhere, with planted bugs; false alarms at most 0.1% per audit."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import Tents
from tests.audits.cases import ignored_limits, line, scaled_noise, square
from tests.audits.harness import at_once, audit, edge_costs, pure, refuted, report, worst_pairs

EPSILON = Fraction(3)
RELEASES = 60_000


def near_and_far(limit, domain, seed, **shares):
    """Audits of the dearest move within δ against ε, and of the dearest one anywhere against its limit."""
    near = Neighbourhood(domain, 1, limits=[(math.inf, limit)])
    tents = Tents(domain, 3, 1, **shares)
    draw = at_once(near, tents, epsilon=EPSILON)
    return [
        audit(draw, worst_pairs(tents, relation), pure(factor * EPSILON), releases=RELEASES, seed=seed, error=0.0005)
        for factor, relation in near.relations
    ]


@pytest.mark.parametrize("domain", [line(6), square(4)], ids=["line", "plane"])
def test_they_keep_both_promises_and_too_little_noise_is_caught_at_both(domain, monkeypatch):
    near = Neighbourhood(domain, 1, limits=())
    tents = Tents(domain, 3, 1)
    # A limit that is just reached, so that neither promise has slack.
    far, close = (max(edge_costs(tents, relation, 1)[0]) for relation in (near.anywhere(), near))
    limit = Fraction(far, close)
    findings = near_and_far(limit, domain, 1)
    assert not any(refuted(found) for found in findings), "\n".join(map(report, findings))
    scaled_noise(monkeypatch, Fraction(3, 4))
    findings = near_and_far(limit, domain, 2)
    assert all(refuted(found) for found in findings), "\n".join(map(report, findings))


def test_a_limit_that_is_ignored_is_caught(monkeypatch):
    shares = {"shares": (Fraction(1), Fraction(3))}
    findings = near_and_far(Fraction(5, 4), line(6), 3, **shares)
    assert not any(refuted(found) for found in findings), "\n".join(map(report, findings))
    ignored_limits(monkeypatch)
    within, anywhere = near_and_far(Fraction(5, 4), line(6), 4, **shares)
    assert not refuted(within)
    assert refuted(anywhere)
