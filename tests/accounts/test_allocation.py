"""Offline allocation against cvxpy on the plain windows, exact feasibility, other error functions, bad input."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize

import deltahist as dh
from deltahist.accounts.allocation import MOST_STEPS, allocate_offline, window_sums


def plain(weights, window, epsilon, power, past=()):
    """Least error by Clarabel, with every whole window of past and future written out.

    In units of equal shares and of the mean weight, in which Clarabel is accurate.
    """
    steps = np.flatnonzero(weights)
    amounts = cp.Variable(len(weights), nonneg=True)
    spent = np.concatenate([past, np.zeros(len(weights))]) * window / epsilon
    unit = weights[steps].mean()
    limits = []
    for k in range(len(spent) - window + 1):
        held = [i - len(past) for i in range(k, k + window) if i >= len(past)]
        if held:
            limits.append(cp.sum(amounts[held]) <= window - spent[k : k + window].sum())
    goal = cp.Minimize(weights[steps] / unit @ cp.power(amounts[steps], -power))
    problem = cp.Problem(goal, limits)
    return problem.solve(solver="CLARABEL") * unit * (window / epsilon) ** power


def windows_hold(amounts, window, epsilon, past=()):
    units = np.rint(np.concatenate([past, amounts]) * 1e9).astype(int)
    assert np.allclose(units, np.concatenate([past, amounts]) * 1e9, atol=1e-3)
    return window_sums(units, window)[len(past) :].max() <= int(epsilon * 1e9)


@pytest.mark.parametrize(
    ("power", "steps", "window", "share"),
    [(4.0, 60, 7, 0.75), (1.0, 30, 30, 0.6), (2.0, 25, 1, 1.0), (0.5, 50, 4, 0.5)],
)
def test_the_error_is_the_least(power, steps, window, share):
    """Against the plain definition, whose own error is part of it."""
    rng = np.random.default_rng(steps + window)
    for spread in (0.0, 1.5):
        weights = (rng.random(steps) < share) * np.exp(spread * rng.normal(size=steps))
        weights[0] = 1.0
        for past in (np.zeros(0), rng.dirichlet(np.ones(window))[1:] * 0.8):
            found = allocate_offline(weights, length=window, epsilon=1.0, power=power, past=past)
            on = weights > 0
            error = float((weights[on] * found[on] ** -power).sum())
            assert error == pytest.approx(plain(weights, window, 1.0, power, past), rel=1e-5)
            assert windows_hold(found, window, 1, past)
            assert (found[~on] == 0).all()


def test_the_optimum_is_certified_by_its_dual():
    """Weak duality by hand: prices of full windows give a lower bound of the error that the amounts reach."""
    rng = np.random.default_rng(3)
    weights, window = rng.random(400), 7
    found = allocate_offline(weights, length=window, epsilon=1.0)
    held = np.array([[k <= i < k + window for i in range(400)] for k in range(400 - window + 1)], dtype=float)
    needed = 2 * weights * found**-3  # what the prices of the windows around each step add up to at the optimum
    full = np.flatnonzero(held @ found > 1 - 1e-5)
    prices = scipy.optimize.nnls(held[full].T / needed[:, None], np.ones(400))[0]
    step_prices = held[full].T @ prices
    amounts = (2 * weights / step_prices) ** (1 / 3)
    least = float((weights * amounts**-2 + step_prices * amounts).sum() - prices.sum())
    error = float((weights * found**-2).sum())
    assert least <= error <= least * (1 + 1e-5)


def test_more_steps_than_the_solver_is_for_are_refused():
    with pytest.raises(dh.InputError, match="10,001"):
        allocate_offline(np.ones(MOST_STEPS + 1), length=7, epsilon=1.0)


def test_a_past_that_used_everything_leaves_nothing_for_a_while():
    found = allocate_offline([1, 1, 1, 1], length=3, epsilon=1.0, past=[0.0, 1.0])
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2] > 0
    assert allocate_offline([0, 0, 0], length=2, epsilon=1.0).tolist() == [0, 0, 0]
    assert allocate_offline([1, 1], length=9, epsilon=1.0) == pytest.approx([0.5, 0.5], rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ([1, -1, 1], {}, "weights are -1 at step 2"),
        ([1, np.nan], {}, "weights are nan at step 2"),
        ([1, 1], {"length": 0}, "length is 0"),
        ([1, 1], {"epsilon": 0}, "epsilon is 0"),
        ([1, 1], {"epsilon": 1e-10}, "at least a billionth"),
        ([1, 1], {"power": -1}, "power is -1"),
        ([1, 1], {"past": [0.7, 0.7]}, "past spends 1.4"),
        ([1, 1], {"past": [-0.1]}, "past are -0.1"),
    ],
)
def test_bad_input(weights, options, message):
    with pytest.raises(dh.InputError, match=message):
        allocate_offline(weights, **{"length": 2, "epsilon": 1.0} | options)
