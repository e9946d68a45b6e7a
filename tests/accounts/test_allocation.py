"""Allocation over steps: offline and online against cvxpy on the plain windows, and windows that hold exactly."""

import cvxpy as cp
import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts import allocation
from deltahist.accounts.allocation import allocate_offline, allocate_online, limits_ahead, window_sums


def find_least_error(weights, window, power, past):
    """The least error at ε = 1 by Clarabel, with every whole window of past and future written out.

    In units of equal shares and of the mean weight, in which Clarabel is accurate.
    """
    steps = np.flatnonzero(weights)
    amounts = cp.Variable(len(weights), nonneg=True)
    spent = np.concatenate([past, np.zeros(len(weights))]) * window
    unit = weights[steps].mean()
    limits = []
    for k in range(len(spent) - window + 1):
        held = [i - len(past) for i in range(k, k + window) if i >= len(past)]
        if held:
            limits.append(cp.sum(amounts[held]) <= window - spent[k : k + window].sum())
    goal = cp.Minimize(weights[steps] / unit @ cp.power(amounts[steps], -power))
    return cp.Problem(goal, limits).solve(solver="CLARABEL") * unit * window**power


def windows_hold(amounts, window, epsilon, past=()):
    units = np.rint(np.concatenate([past, amounts]) * 1e9).astype(int)
    assert np.allclose(units, np.concatenate([past, amounts]) * 1e9, atol=1e-3)
    return window_sums(units, window)[len(past) :].max() <= int(epsilon * 1e9)


@pytest.mark.parametrize(
    ("power", "steps", "window", "share"),
    [(4.0, 60, 7, 0.75), (1.0, 30, 30, 0.6), (2.0, 25, 1, 1.0), (0.5, 50, 4, 0.5)],
)
def test_the_offline_error_is_the_least(power, steps, window, share):
    rng = np.random.default_rng(steps + window)
    for spread in (0.0, 1.5):
        weights = (rng.random(steps) < share) * np.exp(spread * rng.normal(size=steps))
        weights[0] = 1.0
        for past in (np.zeros(0), rng.dirichlet(np.ones(window))[1:] * 0.8):
            found = allocate_offline(weights, length=window, epsilon=1.0, power=power, past=past)
            on = weights > 0
            error = float((weights[on] * found[on] ** -power).sum())
            assert error == pytest.approx(find_least_error(weights, window, power, past), rel=1e-5)
            assert windows_hold(found, window, 1, past)
            assert (found[~on] == 0).all()


def test_a_past_that_used_everything_leaves_nothing_for_a_while():
    found = allocate_offline([1, 1, 1, 1], length=3, epsilon=1.0, past=[0.0, 1.0])
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2] > 0
    assert allocate_offline([1, 1], length=9, epsilon=1.0) == pytest.approx([0.5, 0.5], rel=1e-6)


@pytest.mark.parametrize(
    ("length", "power", "horizon"), [(4, 2.0, 9), (3, 1.0, 3), (5, 3.0, 4), (1, 2.0, 3), (7, 0.5, 10)]
)
def test_the_online_program_against_cvxpy(length, power, horizon):
    """The stochastic program written out: five futures share the first amount."""
    rng = np.random.default_rng(length)
    past = rng.dirichlet(np.ones(length))[1:] * 0.9
    ahead = (rng.random((5, horizon - 1)) < 0.6) * rng.choice([1.0, 4.0], (5, horizon - 1))
    left = limits_ahead(past[None], length, horizon)
    found = allocation.allocate_current_step(np.array([2.0]), ahead.T[:, None, :], left, length, power)[0]
    first = cp.Variable()
    later = cp.Variable(ahead.shape, nonneg=True)
    error, limits = len(ahead) * 2.0 * cp.power(first, -power), []
    for s, weights in enumerate(ahead):
        row = [*past, first, *(later[s, j] for j in range(len(weights)))]
        limits += [sum(row[max(0, k - length + 1) : k + 1]) <= 1 for k in range(len(past), len(row))]
        error += sum(w * cp.power(later[s, j], -power) for j, w in enumerate(weights) if w)
    cp.Problem(cp.Minimize(error), limits).solve(solver="CLARABEL")
    assert found == pytest.approx(float(first.value), abs=2e-3)


def test_one_scenario_is_the_offline_optimum():
    weights = np.array([1.0, 0, 1, 1, 0, 1, 1, 0, 0, 1])
    model = lambda known, steps, scenarios, rng: np.tile(weights[len(known) :][:steps], (scenarios, 1))  # noqa: E731
    options, spent = {"length": 3, "epsilon": 1.0}, []
    for step in range(10):
        spent.append(allocate_online(spent, weights[: step + 1], model=model, steps=10, scenarios=1, **options))
    best = allocate_offline(weights, **options)
    on = weights > 0
    assert (np.array(spent)[on] ** -2.0).sum() == pytest.approx((best[on] ** -2.0).sum(), rel=0.01)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_no_window_is_exceeded_whatever_the_weights(window):
    """Weights that the model never expected; exact sums in billionths."""
    rng = np.random.default_rng(4)
    every = (np.append(np.ones(15) * 1e-3, 1e9), rng.exponential(size=16) * (rng.random(16) < 0.5))
    options = {"length": window, "epsilon": 0.3, "model": 0.1, "scenarios": 20, "steps": None if window == 3 else 16}
    for weights in every:
        spent = []
        for step in range(16):
            spent.append(allocate_online(spent, weights[: step + 1], **options))
            assert (spent[-1] == 0) == (weights[step] == 0)
        assert windows_hold(np.array(spent), window, 0.3)


def test_the_last_step_gets_what_is_left():
    options = {"length": 3, "epsilon": 1, "model": 0.5}
    assert allocate_online([0.25, 0.5], [1, 1, 2], steps=3, **options) == 0.25
    assert allocate_online([0.5, 0.5], [1, 1, 2], steps=3, **options) == 0.0


@pytest.mark.slow
def test_online_comes_near_the_best_policy():
    """δ = 4, p = ½, 20 steps: within 4% of the best policy's expected error (300 draws: one standard error is 2%)."""
    from experiments._policy import best_policy
    from experiments.figure7 import error
    from experiments.figure8 import online

    rng = np.random.default_rng(5)
    weights = (rng.random((300, 20)) < 0.5).astype(float)
    spent = online(weights, 4, 0.5, 50, rng)
    made = np.array([error(w, e) for w, e in zip(weights, spent, strict=True)])
    best = best_policy(0.5, 20, 4, 36)[-1] * weights.sum() / (300 * 10)
    assert made.mean() == pytest.approx(best, rel=0.04)


def test_the_best_policy_on_two_steps():
    """δ = 2, two steps: spend e now, and the rest if the second weight is 1: least e^−2 + p (1 − e)^−2 on the grid."""
    from experiments._policy import best_policy

    grid = np.arange(1, 20) / 20
    found = best_policy(0.5, 2, 2, 20)
    assert found[0] == pytest.approx(0.5)  # alone: everything
    assert best_policy(0.5, 2, 2, 20, bound=True)[1] < found[1] < best_policy(0.5, 2, 2, 10)[1] + 1e-9
    asked = np.min(grid**-2.0 + 0.5 * (1 - grid) ** -2.0)
    assert found[1] == pytest.approx(0.5 * asked + 0.5 * 0.5)


OFFLINE = {"weights": [1, 1], "length": 2, "epsilon": 1.0}
ONLINE = {"past": [], "weights": [1], "length": 3, "epsilon": 1.0, "scenarios": 5, "model": 0.5}


@pytest.mark.parametrize(
    ("allocate", "good", "wrong", "value"),
    [
        (allocate_offline, OFFLINE, {"weights": [1, -1, 1]}, "-1"),
        (allocate_offline, OFFLINE, {"weights": [1, np.nan]}, "nan"),
        (allocate_offline, OFFLINE, {"epsilon": 0}, "0"),
        (allocate_offline, OFFLINE, {"past": [0.7, 0.7]}, "1.4"),
        (allocate_online, ONLINE, {"past": [2.0], "weights": [1, 1]}, "2"),
    ],
)
def test_bad_input_is_refused(allocate, good, wrong, value):
    with pytest.raises(dh.InputError, match=value):
        allocate(**(good | wrong))


@pytest.mark.parametrize(("window", "power"), [(2, 2), (3, 2), (4, 1)])
def test_weights_that_grow_fast_cost_any_online_rule_nearly_a_power_of_the_window(window, power):
    """docs/internals/allocation.md: stop at the first amount of at most ε/δ."""
    options, weights, spent = {"length": window, "epsilon": 1.0, "power": power}, 10.0 ** (4 * np.arange(window)), []
    while not spent or spent[-1] > 1 / window:
        future = weights[len(spent) + 1 :]
        model = lambda known, steps, scenarios, rng, f=future: np.tile(f[:steps], (scenarios, 1))  # noqa: E731
        spent.append(
            allocate_online(spent, weights[: len(spent) + 1], model=model, steps=window, scenarios=2, **options)
        )
    known = weights[: len(spent)]
    best = (known * allocate_offline(known, **options) ** -power).sum()
    with np.errstate(divide="ignore"):
        assert (known * np.array(spent) ** -power).sum() > 0.95 * window**power * best
    assert (known * float(window) ** power).sum() <= window**power * best * (1 + 1e-9)
