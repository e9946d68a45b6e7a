"""Flows that are tuned: errors as small as they were found to be, limits that are kept, for workload and noise."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.decode.forms import mean_over_boxes
from deltahist.strategies import Flow
from deltahist.strategies.flow.decoder import HubVariance
from deltahist.strategies.flow.noise import Hubs
from deltahist.strategies.flow.tuning import MeanHubError, choose_boxes, get_variance

ANY = math.inf


def square(n, delta=1, limits=None, sources=None):
    return dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, sources, limits)


def rmse(flow, near, **budget):
    return dh.Mechanism(near, flow, dh.Budget(**budget or {"epsilon": 1})).rmse(dh.workloads.all_ranges(near.domain))


@pytest.mark.parametrize(
    ("n", "limit", "most"),
    [
        (64, None, 19.5),
        (256, None, 28.7),
        (64, 4, 21.3),
        (256, 4, 36.6),
        (128, 8, 24.0),
        (64, 1, 41.0),
    ],
)
def test_tuning_reaches_the_targets_for_all_ranges(n, limit, most):
    """Expected RMSE at ε = 1, δ = one cell, diagonal moves included."""
    near = square(n, limits=() if limit is None else [(ANY, limit)])
    flow = Flow.tuned(near)
    assert dh.sensitivity(flow, near.with_limits(())) <= Fraction(101, 100)
    assert rmse(flow, near) <= most


def test_tuning_is_for_the_workload_and_the_noise():
    near = square(64)
    small, large = (dh.workloads.random_squares(side, 300, near.domain) for side in (2, 50))
    flows = [Flow.tuned(near, small), Flow.tuned(near, large), Flow(near.domain)]
    for work, best in zip((small, large), flows, strict=False):
        errors = [dh.expected_error(flow, near, work).mean() for flow in (best, *flows)]
        assert errors[0] <= 1.02 * min(errors)
    assert flows[0].widths == ()
    gaussian = Flow.tuned(near, large, norm=2)
    errors = [dh.expected_error(f, near, large, rho=0.5).mean() for f in (gaussian, flows[1])]
    assert errors[0] <= errors[1]


@pytest.mark.parametrize(("n", "spacing", "total_known"), [(64, 3, False), (64, 1, True), (700, 5, True)])
def test_the_error_that_tuning_expects_of_hubs_is_what_they_add(n, spacing, total_known):
    """Boxes stand for all ranges in tuning, and a part of them where there are many sums."""
    flow = Flow(dh.Domain((0, 0, n, n), (n, n)), 1, ())
    mean = MeanHubError(flow, choose_boxes(None, flow.domain, 500), 1, total_known)
    found = [mean.without_sums(spacing), *mean.with_sums(spacing)]
    assert len(found) > 3
    for choice in found:
        own, *sums = (get_variance(share, 1) for share in choice.shares)
        hubs = Hubs.on_grid(flow.blocks, spacing, choice.widths, len(sums) > 1)
        hubs = replace(hubs, ratios=tuple(noise / own for noise in sums))
        added = HubVariance(hubs, [None, None], own, sums)
        exact = mean_over_boxes([added.make_variance_term(total_known)], (n, n))
        assert choice.error == pytest.approx(exact, rel=0.25), (choice, exact)


@pytest.mark.parametrize(
    ("delta", "sources", "norm", "limits"),
    [
        (1, None, 1, [(ANY, 1)]),
        (3, None, 2, [(ANY, 4)]),
        (1, "boundary", 2, [(8, 2), (ANY, 6)]),
        (3, "boundary", 1, [(12, 5), (ANY, 40)]),
        (1, None, 1, [(8, 2), (ANY, 6)]),
    ],
)
def test_limits_are_kept(delta, sources, norm, limits):
    """A tuned flow need not scale its noise: what each relation costs is its factor, but for rounding."""
    near = square(30, delta, limits, sources)
    flow, plain = Flow.tuned(near, norm=norm), Flow.tuned(near.with_limits(()), norm=norm)
    budget = {"epsilon": 1} if norm == 1 else {"rho": 1}
    mechanism = dh.Mechanism(near, flow, dh.Budget(**budget))
    for factor, relation in near.relations:
        assert mechanism.cost_under(relation) <= factor**norm
    assert mechanism.sensitivity < dh.sensitivity(plain, near, norm=norm) or flow.hubs is None
    assert rmse(flow, near, **budget) <= 1.01 * rmse(plain, near, **budget)


@pytest.mark.parametrize("shape", [(500,), (30, 3), (3, 30)])
def test_limits_on_lines_and_narrow_maps_are_kept(shape):
    near = dh.Neighbourhood(dh.Domain((0,) * len(shape) + shape, shape), 1, limits=[(ANY, 4)])
    flow = Flow.tuned(near)
    assert flow.hubs is not None
    assert dh.sensitivity(flow, near) <= 1
