"""A window of δ steps jointly: what all its releases say together keeps ε, and planted bugs are caught.

One entity's data differ in all of the window's steps, within δ in space in each. The amounts are charged to the
accountant, and noise is drawn with the laws and samplers of `publish`. At most 0.1% false alarms per audit; the
releases are those at which the harness's design catches noise of 0.9 times the scale, if the worst edge changed as
many rows as the window does altogether.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts import ledger
from deltahist.publishers import publication
from tests.audits.cases import end_to_end, scaled_noise
from tests.audits.harness import Pair, at_once, audit, design, gaussian, mechanism_of, pure, refuted, report

LENGTH = 3
NEAR = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
STRATEGY = dh.strategies.Identity(NEAR.domain)


def window_pair():
    """Counts of every step, side by side: somebody is in cell 1 on all days, or in cells 2, 0 and 2."""
    rows = STRATEGY.matrix().toarray().astype(int)
    first, second = [], []
    for here, there in ((1, 2), (1, 0), (1, 2)):
        base = np.full(4, 2)
        first.append(base + np.eye(4, dtype=int)[here])
        second.append(base + np.eye(4, dtype=int)[there])
    centre = np.concatenate([rows @ c for c in second])
    change = np.concatenate([rows @ c for c in first]) - centre
    return Pair("a window", np.array(first), np.array(second), centre, change, np.ones_like(centre))


def stream_of(window, shares, unit):
    """Releases of all steps (how many, rows of all steps + 1), each paid from the window."""
    paid = [window.charge(step, share) for step, share in enumerate(shares)]

    def draw(counts, number, rng):
        made = [
            at_once(NEAR, STRATEGY, **{unit: amount})(c, number, rng)[:, :-1]
            for amount, c in zip(paid, counts, strict=True)
        ]
        return np.column_stack([*made, np.full(number, -1)])

    return draw


PAIR = window_pair()
EPSILON, RELEASES = design(int(np.count_nonzero(PAIR.change)))


def pure_audit(length=LENGTH, shares=None, seed=20140601):
    """Audit of equal or other shares of a window that is believed to be `length` steps long."""
    window = dh.accounts.Window(length=length, epsilon=EPSILON)
    draw = stream_of(window, shares or [window.equal_share] * LENGTH, "epsilon")
    return audit(draw, [PAIR], pure(EPSILON), releases=RELEASES, seed=seed)


@pytest.mark.parametrize("eighths", [None, (4, 1, 3)])
def test_a_window_keeps_epsilon(eighths):
    findings = pure_audit(shares=eighths and [EPSILON * s / 8 for s in eighths])
    assert not refuted(findings), report(findings)


def test_a_window_keeps_rho():
    rho = Fraction(1, 2)
    window = dh.accounts.Window(length=LENGTH, rho=rho)
    draw = stream_of(window, [window.equal_share] * LENGTH, "rho")
    findings = audit(draw, [PAIR], gaussian(rho), releases=150_000, seed=20140602)
    assert not refuted(findings), report(findings)


def test_a_tenth_less_noise_is_caught(monkeypatch):
    scaled_noise(monkeypatch, Fraction(9, 10))
    assert refuted(pure_audit())


def test_a_window_that_forgets_a_step_is_caught():
    assert refuted(pure_audit(length=LENGTH - 1))


def test_an_accountant_that_forgets_charges_is_caught(monkeypatch):
    """As if nothing had been spent before each step: the whole budget is allowed three times."""
    limits = ledger.list_limits
    monkeypatch.setattr(ledger, "list_limits", lambda *given: [replace(each, spent=0) for each in limits(*given)])
    assert refuted(pure_audit(shares=[EPSILON] * LENGTH))


def through_publish_itself(counts, number, rng):
    """Releases of the public function, paid from the window."""
    window = dh.accounts.Window(length=LENGTH, epsilon=EPSILON)
    steps = []
    for step, c in enumerate(counts):
        paid = window.charge(step, window.equal_share)
        assert publication.publish(c, NEAR, STRATEGY, epsilon=paid).mechanism == mechanism_of(
            NEAR, STRATEGY, epsilon=paid
        )
        steps.append(end_to_end(STRATEGY, NEAR, epsilon=paid)(c, number, rng)[:, :-1])
    return np.column_stack([*steps, np.full(number, -1)])


@pytest.mark.parametrize("factor", [1, Fraction(1, 2)])
def test_through_publish_itself(factor, monkeypatch):
    scaled_noise(monkeypatch, Fraction(factor))
    findings = audit(through_publish_itself, [PAIR], pure(EPSILON), releases=5000, seed=20140605)
    assert refuted(findings) == (factor != 1), report(findings)


@pytest.mark.slow
def test_the_power_and_the_false_alarms(monkeypatch):
    """Of 40 audits each: all bugs are caught, no sound window is refuted."""
    assert not any(refuted(pure_audit(seed=seed)) for seed in range(40))
    assert all(refuted(pure_audit(length=LENGTH - 1, seed=seed)) for seed in range(40))
    scaled_noise(monkeypatch, Fraction(9, 10))
    assert sum(refuted(pure_audit(seed=seed)) for seed in range(40)) >= 39
