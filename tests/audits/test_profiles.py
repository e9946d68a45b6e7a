"""What is promised within δ and what is promised however far, audited at once through `publish`; bugs are caught.

The false-alarm probability is at most 0.1% per audit of both distances.
"""

from fractions import Fraction

import pytest

from deltahist.mechanisms import histogram as mechanism
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import Cumulative, Identity
from tests.audits.cases import BUGS, end_to_end, ignored_limits, line, quick
from tests.audits.harness import ERROR, audit, gaussian, pure, refuted, report, worst_pairs

SIZE = {"releases": 30_000, "learning": 7500, "error": ERROR / 2}


#: Strategy, cells in a row and limits of moves by one cell.
CASES = {
    # A move changes as many rows as it is long, so that the longest costs four times.
    "sums": (Cumulative, 5, [(4, 4)]),
    # Less for long moves: they decide the noise, and moves within δ cost half of what they may.
    "tight sums": (Cumulative, 5, [(2, 2), (4, 2)]),
    # Moves within δ cost as much as any.
    "cells": (Identity, 4, [(3, 1)]),
}


def at_both_distances(name, seed, *, budget="epsilon", amount=Fraction(1, 2)):
    """Findings for a move within δ, and for the dearest one of all."""
    kind, cells, limits = CASES[name]
    near = Neighbourhood(line(cells), 1, limits=limits)
    strategy = kind(near.domain)
    draw = end_to_end(strategy, near, **{budget: amount})
    norm, claims = (1, pure) if budget == "epsilon" else (2, gaussian)
    out = []
    for factor, relation in (near.relations[0], near.relations[-1]):
        pairs = worst_pairs(strategy, relation, norm=norm)
        out += audit(draw, pairs, claims(amount * factor**norm), seed=seed, **SIZE)
    return out


@pytest.mark.parametrize("name", CASES)
def test_both_promises_hold(name):
    findings = at_both_distances(name, 1)
    assert len(findings) == 2
    assert not refuted(findings), report(findings)


def test_both_promises_hold_for_gaussian_noise():
    findings = at_both_distances("sums", 2, budget="rho", amount=Fraction(1, 8))
    assert not refuted(findings), report(findings)


def test_a_limit_that_is_ignored_is_caught_far_away_only(monkeypatch):
    ignored_limits(monkeypatch)
    near, far = at_both_distances("tight sums", 3)
    assert not near.rejected
    assert far.rejected


def test_a_factor_that_counts_once_in_rho_is_caught(monkeypatch):
    """The square of the factor is promised, so that noise must not be made for more than that."""
    right = mechanism.sensitivity

    def lenient(strategy, near, *, norm=1):
        whole = right(strategy, near.relations[-1][1], norm=2).squared / near.relations[-1][0] ** 3
        return mechanism.Root.of(whole)

    monkeypatch.setattr(mechanism, "sensitivity", lenient)
    assert at_both_distances("tight sums", 4, budget="rho", amount=Fraction(1, 8))[1].rejected


@pytest.mark.parametrize("name", quick(CASES, "sums"))
def test_half_the_noise_is_caught_at_one_of_both_distances(name, monkeypatch):
    BUGS["noise scaled by 0.5"](monkeypatch)
    assert refuted(at_both_distances(name, 5))
