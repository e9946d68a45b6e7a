"""Online allocation: the stochastic program against cvxpy, windows that hold whatever comes, models, bad input."""

import cvxpy as cp
import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts.allocation import allocate_offline, allocate_online, decide, limits_ahead, window_sums


def plain(now, ahead, past, length, power):
    """The stochastic program written out: (N, H − 1) futures share the first amount."""
    first = cp.Variable()
    later = cp.Variable(ahead.shape, nonneg=True)
    error, limits = len(ahead) * now * cp.power(first, -power), []
    for s, weights in enumerate(ahead):
        row = [*past, first, *(later[s, j] for j in range(len(weights)))]
        limits += [sum(row[max(0, k - length + 1) : k + 1]) <= 1 for k in range(len(past), len(row))]
        error += sum(w * cp.power(later[s, j], -power) for j, w in enumerate(weights) if w)
    cp.Problem(cp.Minimize(error), limits).solve(solver="CLARABEL")
    return float(first.value)


@pytest.mark.parametrize(
    ("length", "power", "horizon"), [(4, 2.0, 9), (3, 1.0, 3), (5, 3.0, 4), (1, 2.0, 3), (7, 0.5, 10)]
)
def test_the_program_against_cvxpy(length, power, horizon):
    rng = np.random.default_rng(length)
    past = rng.dirichlet(np.ones(length))[1:] * 0.9
    ahead = (rng.random((5, horizon - 1)) < 0.6) * rng.choice([1.0, 4.0], (5, horizon - 1))
    limits = limits_ahead(past[None], length, horizon)
    found = decide(np.array([2.0]), ahead.T[:, None, :], limits, length, power)[0]
    assert found == pytest.approx(plain(2.0, ahead, past, length, power), abs=2e-3)


def test_one_scenario_is_the_offline_optimum():
    weights = np.array([1.0, 0, 1, 1, 0, 1, 1, 0, 0, 1])
    model = lambda known, steps, scenarios, rng: np.tile(weights[len(known) :][:steps], (scenarios, 1))  # noqa: E731
    spent = []
    for step in range(10):
        spent.append(
            allocate_online(spent, weights[: step + 1], length=3, epsilon=1.0, model=model, steps=10, scenarios=1)
        )
    best = allocate_offline(weights, length=3, epsilon=1.0)
    on = weights > 0
    assert (np.array(spent)[on] ** -2.0).sum() == pytest.approx((best[on] ** -2.0).sum(), rel=0.01)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_no_window_is_exceeded_whatever_the_weights(window):
    """Weights that the model never expected; exact sums in billionths."""
    rng = np.random.default_rng(4)
    every = (np.ones(16), np.append(np.ones(15) * 1e-3, 1e9), rng.exponential(size=16) * (rng.random(16) < 0.5))
    how = {"length": window, "epsilon": 0.3, "model": 0.1, "scenarios": 20, "steps": None if window == 3 else 16}
    for weights in every:
        spent = []
        for step in range(16):
            spent.append(allocate_online(spent, weights[: step + 1], **how))
            assert (spent[-1] == 0) == (weights[step] == 0)
        units = np.rint(np.array(spent) * 1e9).astype(int)
        assert window_sums(units, window).max() <= 300_000_000


@pytest.mark.slow
def test_it_comes_near_the_best_policy():
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


ONE = {"past": [], "weights": [1], "length": 3, "epsilon": 1.0, "scenarios": 5}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": lambda w, s, n, r: np.full((n, s), -1.0)}, "weights that the model draws are -1"),
        ({"weights": []}, "one less than the weights"),
        ({"weights": [-1]}, "weights are -1"),
        ({"past": [2.0], "weights": [1, 1]}, "past spends 2"),
        ({"length": 0}, "length is 0"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(dh.InputError, match=message):
        allocate_online(**{**ONE, "model": 0.5, **given})


def test_it_gives_what_is_left_at_the_last_step():
    given = {"length": 3, "epsilon": 1, "model": 0.5}
    assert allocate_online([0.25, 0.5], [1, 1, 2], steps=3, **given) == 0.25
    assert allocate_online([0.5, 0.5], [1, 1, 2], steps=3, **given) == 0.0
