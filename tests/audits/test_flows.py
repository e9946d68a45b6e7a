"""Flow and spectral strategies end to end through `publish`, with planted bugs; false alarms at most 0.1% per audit.

On a line the flows between cells are the sums of what is released from the left end: outputs and noise draws determine
each other, so that the audit of sums with that noise loses nothing. On the plane what is released says less than
the draws; there single cells are audited, and the bugs that are planted are coarser.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from deltahist.mechanisms import histogram as mechanism
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import Cumulative, Flow, GraphFlow, Spectral
from deltahist.strategies.base import Strategy
from deltahist.strategies.flow.noise import Hubs, Kind
from tests.audits.cases import BUGS, line, plan_audit, scaled_noise, square
from tests.audits.harness import (
    at_once,
    audit,
    gaussian,
    gaussian_losses,
    make_pair,
    mechanism_of,
    pure,
    refuted,
    report,
    worst_pairs,
)

UNIT = 16
RELEASES = 40_000


class Read(Strategy):
    """What is read of a flow's releases in its own units, 16 per point: rows of a matrix of sums of blocks."""

    def __init__(self, domain, rows):
        self.domain, self.rows, self.shape = domain, np.asarray(rows, dtype=np.int64), np.shape(rows)

    def _matmat(self, X):
        return UNIT * self.rows @ X

    def _rmatmat(self, Y):
        return UNIT * self.rows.T @ Y


def sums_from_the_left(domain):
    return Read(domain, np.tri(domain.size, dtype=int)[:-1])


def on_a_line(points=1, seed=1, part=1, **budget):
    """Audit of a flow on five cells."""
    near = Neighbourhood(line(5), 1)
    flow, seen = Flow(near.domain), sums_from_the_left(near.domain)
    draw = at_once(near, flow, lambda v: v.cumsum(axis=1)[:, :-1], contributions=points, **budget)
    pairs = worst_pairs(seen, near, points=points)
    claims = gaussian(budget["rho"]) if "rho" in budget else pure(budget["epsilon"])
    number = plan_audit(Cumulative(near.domain), near, points)[1] // part
    return audit(draw, pairs, claims, releases=number, seed=seed)


EPSILON = Fraction(plan_audit(Cumulative(line(5)), Neighbourhood(line(5), 1))[0])


@pytest.mark.parametrize("points", [1, 3])
def test_a_flow_on_a_line_keeps_its_promise(points):
    findings = on_a_line(points, epsilon=EPSILON)
    assert not refuted(findings), report(findings)


def understated(patch):
    """Plant a bug: a move is taken to cost 9/10 of what it does."""
    right = mechanism.sensitivity

    def less(strategy, near, *, norm=1):
        value = right(strategy, near, norm=norm)
        return value * Fraction(9, 10) if norm == 1 else mechanism.Root.of(value.squared * Fraction(81, 100))

    patch.setattr(mechanism, "sensitivity", less)


ON_A_LINE = {"noise": BUGS["noise scaled by 0.9"], "sensitivity": understated}


@pytest.mark.parametrize("bug", ON_A_LINE)
def test_bugs_on_a_line_are_caught(bug, monkeypatch):
    ON_A_LINE[bug](monkeypatch)
    assert refuted(on_a_line(epsilon=EPSILON, seed=2))


def in_the_plane(flow, near, number=RELEASES, seed=3, points=1):
    """Audit of the count of one cell that a diagonal move leaves: three to eight draws of noise on it."""
    draw = at_once(near, flow, lambda v: v[:, :1], contributions=points, epsilon=1)
    pairs = worst_pairs(Read(near.domain, np.eye(1, near.domain.size)), near, points=points)
    return audit(draw, pairs, pure(1.0), releases=number, seed=seed)


@pytest.mark.parametrize("flow", ["plain", "sums"])
def test_a_flow_in_the_plane_keeps_its_promise_and_too_little_noise_is_caught(flow, monkeypatch):
    near = Neighbourhood(square(3), 1)
    strategy, factor = (Flow(near.domain), 2) if flow == "plain" else (Flow(near.domain, 1, (3,)), 3)
    findings = in_the_plane(strategy, near)
    assert not refuted(findings), report(findings)
    scaled_noise(monkeypatch, Fraction(1, factor))
    assert refuted(in_the_plane(strategy, near, seed=4))


@pytest.mark.parametrize("chosen", [Flow.tuned, GraphFlow.suited])
def test_arrivals_are_hidden_and_halved_noise_is_caught(monkeypatch, chosen):
    near = Neighbourhood(line(4), 1, "left")
    if chosen == GraphFlow.suited:
        near = Neighbourhood.of(line(4), [(0, 1), (1, 2), (2, 3)], sources=[0], limits=())
    draw = at_once(near, chosen(near), lambda v: np.cumsum(v[:, ::-1], axis=1)[:, ::-1], epsilon=1)
    pairs = worst_pairs(Read(near.domain, np.tri(4, dtype=int).T), near)
    assert any(pair.name.startswith("1 from outside") for pair in pairs)
    findings = audit(draw, pairs, pure(1.0), releases=10_000, seed=5)
    assert not refuted(findings), report(findings)
    scaled_noise(monkeypatch, Fraction(1, 2))
    assert refuted(audit(draw, pairs, pure(1.0), releases=10_000, seed=6))


def hub_audit(edge, seed, epsilon=Fraction(1, 2)):
    """Audit of a move between two of four cells in a row: one within δ, or one that is too long to walk.

    With hubs on every cell a step costs 1, and so does a hub: the way over three borders would cost 3, through hubs it
    costs 2. What is claimed is what each of the two moves costs.
    """
    near = Neighbourhood(line(4), 1)
    flow = Flow(near.domain, hubs=1, shares=(1, 1))
    cost, _ = mechanism_of(near, flow, epsilon=epsilon).cost_within(abs(edge[1] - edge[0]))
    assert cost == epsilon * (1 if edge[1] - edge[0] == 1 else 2)
    pair = make_pair(Read(near.domain, np.eye(4)), near.anywhere(), np.array(edge), 1, 2)
    draw = at_once(near, flow, epsilon=epsilon)
    return audit(draw, [pair], pure(float(cost)), releases=RELEASES, seed=seed)


@pytest.mark.parametrize("edge", [(0, 1), (0, 3)])
def test_flows_with_hubs_keep_their_promise_at_two_distances(edge, monkeypatch):
    findings = hub_audit(edge, 11)
    assert not refuted(findings), report(findings)
    scaled_noise(monkeypatch, Fraction(1, 3))
    assert refuted(hub_audit(edge, 12))


def test_hubs_without_noise_are_caught(monkeypatch):
    """Sums from the left end of eight cells: a move over all borders would cost 7 times a step, and 2 are claimed."""
    near = Neighbourhood(line(8), 1)
    flow, seen = Flow(near.domain, hubs=1, shares=(1, 1)), sums_from_the_left(near.domain)
    pair = make_pair(seen, near.anywhere(), np.array((0, 7)), 1, 2)

    def findings(seed):
        draw = at_once(near, flow, lambda v: v.cumsum(axis=1)[:, :-1], epsilon=Fraction(1, 2))
        return audit(draw, [pair], pure(1.0), releases=RELEASES, seed=seed)

    assert not refuted(findings(13)), report(findings(13))
    monkeypatch.setattr(Hubs, "estimate_inflow", lambda hubs, draws: 0 * draws[Kind.HUBS])
    assert refuted(findings(14))


def strips_audit(seed):
    """Audit of a move from corner to corner of nine cells, each of them a hub in a square and in two strips.

    Steps cost so much that every move goes through hubs, and strips are all that is known well. A row sees those of one
    of two hubs, along one of two axes: a quarter of what the move costs.
    """
    near = Neighbourhood(square(3), 1).anywhere()
    flow = Flow(near.domain, 1, (), (40, 40, Fraction(1, 10), Fraction(1, 10), 1), None, 1, (3,), True, True)
    pair = make_pair(Read(near.domain, np.arange(9)[None] < 3), near, np.array((0, 8)), 1, 2)
    draw = at_once(near, flow, lambda v: v[:, :3].sum(axis=1, keepdims=True), epsilon=1)
    return audit(draw, [pair], pure(1.0), releases=RELEASES // 4, seed=seed)


@pytest.mark.parametrize("bug", ["none", "noise", "strips without noise"])
def test_strips_of_hubs_keep_their_promise_and_bugs_in_them_are_caught(bug, monkeypatch):
    if bug == "noise":
        scaled_noise(monkeypatch, Fraction(1, 8))
    elif bug == "strips without noise":
        inflow = Hubs.estimate_inflow
        monkeypatch.setattr(
            Hubs,
            "estimate_inflow",
            lambda door, draws: inflow(door, draws | {Kind.HUB_STRIPS: 0 * draws[Kind.HUB_STRIPS]}),
        )
    findings = strips_audit(15)
    assert refuted(findings) == (bug != "none"), report(findings)


def spectral_audit(seed, number=100_000, **budget):
    """Audit of a spectral strategy with its own rows; its statistic is the Gaussian likelihood."""
    near = Neighbourhood(line(4), 1)
    spectral = Spectral(near)
    # A torus without a margin and a coarse kernel make the exact law of the statistic a short sum.
    spectral.__dict__.update(torus=(4,), kernel=np.array([3, -1, 0, -1]))
    pairs = worst_pairs(spectral, near, norm=2)[:1]
    assert len(gaussian_losses(pairs[0], 0.5)[0]) > 10
    draw = at_once(near, spectral, rho=Fraction(1, 2))
    return audit(draw, pairs, gaussian(Fraction(1, 2)), releases=number, seed=seed)


def test_a_spectral_strategy_keeps_its_promise_and_bugs_are_caught(monkeypatch):
    findings = spectral_audit(7)
    assert not refuted(findings), report(findings)
    with monkeypatch.context() as patch:
        scaled_noise(patch, Fraction(9, 10))
        assert refuted(spectral_audit(8))
    understated(monkeypatch)
    assert refuted(spectral_audit(9))


@pytest.mark.slow
@pytest.mark.parametrize("bug", [*ON_A_LINE, "none"])
def test_power_and_false_alarms(bug, monkeypatch):
    """At least 38 of 40 audits catch a bug; without one at most two of 200 sound (0.2 are expected)."""
    ON_A_LINE.get(bug, lambda patch: None)(monkeypatch)
    runs = 200 if bug == "none" else 40
    found = sum(refuted(on_a_line(epsilon=EPSILON, seed=100 + s)) for s in range(runs))
    print(f"flow on a line, {bug}: {found} of {runs}")
    assert found <= 2 if bug == "none" else found >= 38


@pytest.mark.slow
def test_gaussian_flows_hold_on_a_large_sample():
    findings = on_a_line(rho=Fraction(1, 2), seed=10)
    assert not refuted(findings), report(findings)
