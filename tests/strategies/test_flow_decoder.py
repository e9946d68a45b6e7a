"""Variances of flows in closed form equal those of the definition, for whole and for cut cells."""

import numpy as np
import pytest
from examples import random_domain, random_neighbourhood, served_flows

import deltahist as dh
from deltahist.decode import box_sums
from deltahist.strategies import Flow, Spectral


def cases(number, seed):
    flows = served_flows(2 * number, seed, (14, 7), arrivals=lambda near: not near.fixed_membership)
    for i, (rng, near, flow) in enumerate(flows):
        budget = {"epsilon": 0.7} if i % 2 else {"rho": 0.1}
        found = dh.Mechanism(near, flow, dh.Budget(**budget)).decoder
        if found.laws[0].parameter:
            yield rng, near, flow, found


def square(n, delta=1, **how):
    return dh.Neighbourhood(dh.Domain((0, 0, n, n), (n, n)), delta, **how)


def random_boxes(rng, domain, number=25):
    low = rng.random((number, domain.ndim)) * 0.9
    high = low + (1 - low) * (0.01 + 0.98 * rng.random(low.shape))
    return dh.workloads.boxes(np.hstack([low, high]) * np.tile(domain.high, 2))


def noise_of_cells(found):
    """How the draws enter the estimate of each cell (N, draws): those of a sum of cells are sums of these."""
    return np.array([found.strategy.gather(found.answer_coefficients(cell)) for cell in np.eye(found.domain.size)])


def test_variances_equal_the_definition():
    exact = 0
    for rng, near, flow, found in cases(15, 1):
        ranges, noise = dh.workloads.all_ranges(near.domain), noise_of_cells(found)
        for work in (ranges, random_boxes(rng, near.domain)):
            expected = (work.matrix(near.domain) @ noise) ** 2 @ found.draw_variance
            variance = found.moments(work).variance
            for asked in (work, work.matrix(near.domain)):  # without kurtosis
                assert (found.answer_variance(asked) == found.moments(asked).variance).all()
            if flow.arrivals is None or (flow.blocks_are_cells and work is ranges):
                assert np.allclose(variance, expected, rtol=1e-6, atol=1e-7), (flow, near)
                exact += 1
            else:
                assert (variance >= expected * (1 - 1e-6) - 1e-7).all()
        mean = found.moments(ranges).variance.mean()
        assert found.mean_variance(ranges) == pytest.approx(mean, rel=1e-6, abs=1e-8)
    assert exact > 9


def test_estimates_are_unbiased_and_the_adjoint_is_one():
    for rng, near, flow, found in cases(25, 2):
        counts = rng.integers(0, 50, near.domain.shape)
        total = int(counts.sum()) if found.total_known else None
        assert np.allclose(found.estimate_cells(flow.measure(counts), total), counts)
        y, q = rng.normal(size=flow.shape[0]), rng.normal(size=near.domain.size)
        assert q @ found.solve(y) == pytest.approx(found.solve_adjoint(q) @ y, abs=1e-8)


@pytest.mark.parametrize(
    ("n", "block", "more"),
    [
        (12, 2, {}),
        (14, 1, {"hubs": 3, "hub_widths": (2,), "centred": True, "hub_strips": True}),
    ],
)
def test_stated_errors_are_those_of_releases(n, block, more):
    """400 releases: a variance estimate has a relative deviation of 7%; five of them are allowed."""
    near = square(n, block)
    domain, flow = near.domain, Flow(near.domain, block, **{"widths": (3,)} | more)
    found = dh.Mechanism(near, flow, dh.Budget(epsilon=1)).decoder
    assert (found.has_closed_form, found.note) == (True, "exact")
    work = dh.workloads.all_ranges(domain).sample(40, seed=5)
    counts = np.random.default_rng(1).integers(0, 9, domain.shape)
    truth = box_sums(counts.astype(float), work.spans(domain))
    errors = []
    for seed in range(400):
        release = dh.publish(counts, near, flow, 1.0, rng=np.random.default_rng(seed))
        assert release.cells().sum() == pytest.approx(counts.sum())
        errors.append(box_sums(release.cells(), work.spans(domain)) - truth)
    expected = dh.expected_error(flow, near, work, 1.0)
    some = expected > 1e-6
    ratio = np.var(errors, axis=0)[some] / expected[some]
    assert 0.65 < ratio.min() < ratio.max() < 1.35
    assert ratio.mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("width", "strips"), [((), False), ((2,), True)])
def test_hubs_alone_move_onto_a_public_total(width, strips):
    near = square(9)
    flow = Flow(near.domain, 1, (3,), None, None, 3, width, hub_strips=strips)
    found = dh.Mechanism(near, flow, dh.Budget(epsilon=1)).decoder
    ones, direction, spread = found.onto_total
    by_definition = found.solve(flow.scatter(found.draw_variance * flow.gather(ones)))
    assert np.allclose(direction, by_definition)
    assert spread == pytest.approx(by_definition.sum())
    other = np.delete(direction, flow.hub_grid.places)
    assert np.abs(other).max() < 1e-9 * direction.max()
    variance = found.moments(dh.workloads.boxes([[0, 0, 9, 9], [0, 0, 9, 4]])).variance
    assert variance[0] == pytest.approx(0, abs=1e-9)
    assert variance[1] > 1


def test_padded_spectral_variances_equal_the_definition():
    rng = np.random.default_rng(4)
    for _ in range(20):
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        found = dh.Mechanism(near, Spectral(near, pad=int(rng.integers(1, 4))), dh.Budget(rho=0.2)).decoder
        if not found.laws[0].parameter:
            continue
        ranges, noise = dh.workloads.all_ranges(domain), noise_of_cells(found)
        for work in (ranges, random_boxes(rng, domain)):
            expected = (work.matrix(domain) @ noise) ** 2 @ found.draw_variance
            assert np.allclose(found.moments(work).variance, expected, rtol=1e-5, atol=1e-6 * expected.max())
        assert found.mean_variance(ranges) == pytest.approx(found.moments(ranges).variance.mean(), rel=1e-6)


@pytest.mark.parametrize(("n", "block"), [(12, 1), (13, 3)])
def test_kurtosis_is_near_that_of_the_definition(n, block):
    """Exact for cells beside blocks; of flows only the single moves count, so that it is a little too large."""
    near = square(n, block)
    found = dh.Mechanism(near, Flow.tuned(near), dh.Budget(1.0)).decoder
    corners = np.array([[i, j, i + 1, j + 1] for i in range(0, n, 3) for j in range(1, n, 4)])
    for work in (dh.workloads.all_ranges(near.domain).sample(150, 1), dh.workloads.boxes(corners)):
        stated, truth = found.moments(work), found.solved_moments(work.matrix(near.domain))
        some = truth.variance > 1e-6
        assert stated.kurtosis[some].mean() == pytest.approx(truth.kurtosis[some].mean(), rel=0.9, abs=0.1)
        assert (stated.kurtosis[some] >= truth.kurtosis[some] - 0.1).all()
