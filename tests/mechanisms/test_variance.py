"""Expected error: the paper's figures, and what releases really do."""

import numpy as np
import pytest

import deltahist as dh

FOUR = dh.Domain((0, 1), (4,))
SOURCE = dh.Neighbourhood(FOUR, 0.25, "left")


@pytest.mark.parametrize(("name", "continuous", "discrete"), [("Identity", 160, 156.71), ("Cumulative", 32, 29.46)])
def test_table_3s_totals(name, continuous, discrete):
    A = getattr(dh.strategies, name)(FOUR)
    work = dh.workloads.all_ranges(FOUR)
    assert dh.expected_error(A, SOURCE, work, 1.0, continuous=True).sum() == pytest.approx(continuous, abs=1e-9)
    assert dh.expected_error(A, SOURCE, work, 1.0).sum() == pytest.approx(discrete, abs=0.005)
    assert dh.expected_error(A, SOURCE, work).sum() == pytest.approx(discrete, abs=0.005)


@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"rho": 0.1}])
@pytest.mark.parametrize("name", ["Identity", "Hierarchical", "Wavelet", "Cumulative"])
def test_releases_err_as_expected(name, budget):
    # 400 releases × 36 ranges, correlated within a release: each range's mean square is within six standard
    # errors (kurtosis at most 3: relative standard error at most √(5/400)), a false alarm below 10⁻⁶ in all.
    domain = dh.Domain((0, 8), (8,))
    near = dh.Neighbourhood(domain, 1.0)
    A = getattr(dh.strategies, name)(domain)
    work = dh.workloads.all_ranges(domain)
    counts = np.array([5, 0, 3, 40, 2, 2, 9, 1])
    mechanism = dh.Mechanism(near, A, dh.Budget(**budget))  # whose decoder serves all releases
    releases = [dh.publish_mechanism(mechanism, counts, rng=np.random.default_rng(s)) for s in range(400)]
    errors = np.array([release.cells() - counts for release in releases]) @ work.matrix(domain).T
    assert np.allclose(dh.answer(releases[0], work)["estimate"] - work.matrix(domain) @ counts, errors[0])
    expected = dh.expected_error(A, near, work, **budget)
    some = expected > 0
    assert np.abs(errors[:, ~some]).max(initial=0) < 1e-9
    assert np.abs((errors[:, some] ** 2).mean(axis=0) / expected[some] - 1).max() < 6 * np.sqrt(5 / 400)
