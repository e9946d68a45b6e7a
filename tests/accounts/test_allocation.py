"""Offline allocation against cvxpy on the plain windows, exact feasibility, other error functions, bad input."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.accounts import solver
from deltahist.accounts.allocation import allocate_offline, window_sums
from deltahist.accounts.solver import Constraints, fill_windows, interior_point

cp = pytest.importorskip("cvxpy")


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
    """Within 10⁻⁶ of Clarabel, whose own error is part of it."""
    rng = np.random.default_rng(steps + window)
    for spread in (0.0, 1.5):
        weights = (rng.random(steps) < share) * np.exp(spread * rng.normal(size=steps))
        weights[0] = 1.0
        for past in (np.zeros(0), rng.dirichlet(np.ones(window))[1:] * 0.8):
            found = allocate_offline(weights, length=window, epsilon=1.0, power=power, past=past)
            on = weights > 0
            error = float((weights[on] * found[on] ** -power).sum())
            assert error == pytest.approx(plain(weights, window, 1.0, power, past), rel=1e-6)
            assert windows_hold(found, window, 1, past)
            assert (found[~on] == 0).all()


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1.0, 1e-6, 1e6, 3.5]), min_size=6, max_size=40),
    st.integers(1, 6),
    st.sampled_from([0.1, 1.0, 1 / 3, 7.25]),
    st.sampled_from([0.3, 1.0, 2.0, 3.0]),
)
def test_windows_hold_exactly_and_the_gap_is_certified(weights, window, epsilon, power):
    weights = np.array(weights)
    found = allocate_offline(weights, length=window, epsilon=epsilon, power=power)
    assert windows_hold(found, window, epsilon)
    steps = np.flatnonzero(weights)
    if len(steps):
        limits = Constraints.of(steps, np.zeros(0, np.int64), window, 10**9)
        amounts, gap = interior_point(weights[steps], limits, power)
        assert gap < 1e-7
        # No step that matters can be raised alone: every one lies in a window that is full.
        slack = limits.limit - limits.total(amounts)
        for i in np.flatnonzero(weights[steps] > 1e-3 * weights.max()):
            assert slack[(limits.first <= i) & (limits.last >= i)].min() < 1e-3


def held(limits):
    """The 0/1 matrix of windows and steps."""
    place = np.arange(limits.last[-1] + 1)
    return ((limits.first[:, None] <= place) & (place <= limits.last[:, None])).astype(float)


def drawn_limits(seed, length, number, reach=0):
    rng = np.random.default_rng(seed)
    weights = rng.random(number) * (rng.random(number) < 0.7)
    weights[0] = 0.5
    steps, past = np.flatnonzero(weights), (0.4e9 / length * rng.random(reach)).astype(np.int64)
    return weights[steps], Constraints.of(steps, past, length, 10**9)


@pytest.mark.parametrize(("length", "number"), [(1, 1), (1, 9), (2, 9), (7, 7), (7, 8), (8, 40), (30, 100)])
def test_sums_of_windows_of_one_length_are_those_written_out(length, number):
    rng = np.random.default_rng(length)
    limits = Constraints.of(np.arange(number), np.zeros(0, np.int64), length, 10**9)
    assert limits._even == length
    matrix, amounts, prices = (
        held(limits),
        *(10.0 ** rng.uniform(-9, 9, k) for k in (number, number - length + 1)),
    )
    assert np.allclose(limits.total(amounts), matrix @ amounts, rtol=1e-14)
    assert np.allclose(limits.spread(prices), prices @ matrix, rtol=1e-14)
    assert (limits.in_windows(np.maximum, amounts, 0.0) == (matrix * amounts).max(axis=1)).all()
    least = np.where(matrix > 0, prices[:, None], np.inf).min(axis=0)
    assert (limits.around_steps(np.minimum, prices, np.inf) == least).all()


@pytest.mark.parametrize("reach", [0, 6])
def test_bands_are_those_of_the_products_written_out(monkeypatch, reach):
    monkeypatch.setattr(solver, "_IN_CACHE", 1)
    rng = np.random.default_rng(7)
    for length in (1, 2, 7):
        weights, limits = drawn_limits(length, length, 200, min(reach, length - 1))
        matrix, stiffness, number = held(limits), rng.random(len(limits.first)), len(weights)
        out = np.empty((int((limits.last - limits.first + 1).max()), number), order="F")
        limits.fill_bands(stiffness, out)
        full = matrix.T @ (stiffness[:, None] * matrix)
        for d, band in enumerate(out):
            assert np.allclose(band[: number - d], np.diagonal(full, -d), rtol=1e-12)
        some = np.flatnonzero(rng.random(len(stiffness)) < 0.4)
        bands = limits.overlap_bands(some, weights)
        full = (matrix[some] * weights) @ matrix[some].T
        assert not np.tril(full, -len(bands)).any()
        for d, band in enumerate(bands):
            assert np.allclose(band[: len(some) - d], np.diagonal(full, -d), rtol=1e-12)


def test_full_windows_are_found_from_prices_further_away():
    """Of interior prices a thousandth above the least error, many belong to windows that are not full at the end."""
    weights = np.random.default_rng(1).random(2000)
    limits = Constraints.of(np.arange(2000), np.zeros(0, np.int64), 30, 10**9)
    point = solver.Point(weights, limits, 2.0)
    while (gap := point.gap()) > 1e-3:
        point.improve()
    assert gap > 1e-5
    prices = np.where(point.price * 0.02 > point.z, point.price, 0.0)
    amounts, found = fill_windows(limits, weights, 2.0, prices)
    assert (prices > 0).sum() > 1.05 * (found > 0).sum()
    assert found.min() >= 0
    assert solver._gap(weights, limits, 2.0, amounts, found, limits.spread(found)) < 1e-11


@pytest.mark.parametrize("pieces", [False, True])
def test_what_is_filled_counts_only_with_a_certificate(monkeypatch, pieces):
    weights, limits = drawn_limits(5, 6, 60)
    right, _ = interior_point(weights, limits, 2.0)
    wrong = 0.9 * right, np.ones(len(limits.first))
    if pieces:
        monkeypatch.setattr(solver, "_prices_by_pieces", lambda *_: wrong[1])
    monkeypatch.setattr(solver, "fill_windows", lambda *_: wrong)
    amounts, gap = interior_point(weights, limits, 2.0)
    assert gap < 1e-11
    assert np.allclose(amounts, right, rtol=1e-5)


def test_pieces_lead_to_the_same_amounts(monkeypatch):
    """Weights of one half are a thousandth of the others: pieces count prices in units of their own."""
    weights, limits = drawn_limits(7, 5, 900)
    weights[: len(weights) // 2] /= 1000
    right, _ = interior_point(weights, limits, 2.0)
    monkeypatch.setattr(solver, "_PIECE", 100)
    monkeypatch.setattr(solver, "_MARGIN", 8)
    solved, solve = [], solver._solve
    monkeypatch.setattr(solver, "_solve", lambda w, *rest: solved.append(len(w)) or solve(w, *rest))
    amounts, gap = interior_point(weights, limits, 2.0)
    assert gap < 1e-11
    assert len(solved) > 3
    assert max(solved) < len(weights) / 2
    assert np.allclose(amounts, right, rtol=1e-9)


def test_redundant_windows_are_left_out_and_no_others():
    """Constraints of positive steps against all windows written out."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        length, number = int(rng.integers(1, 6)), int(rng.integers(6, 15))
        steps = np.flatnonzero(rng.random(number) < 0.5)
        past = rng.integers(0, 10**8, int(rng.integers(0, length)))
        if not len(steps):
            continue
        limits = Constraints.of(steps, past, length, 10**9)
        amounts = rng.random(len(steps)) * rng.choice([0.1, 0.4, 1.0])
        dense = np.zeros(number)
        dense[steps] = amounts
        every = np.concatenate([past / 1e9, dense])
        all_hold = all(
            every[k : k + length].sum() <= 1 + 1e-12
            for k in range(len(every) - length + 1)
            if every[max(k, len(past)) : k + length].any()
        )
        assert all_hold == bool((limits.total(amounts) <= limits.limit + 1e-12).all())


def test_a_past_that_used_everything_leaves_nothing_for_a_while():
    found = allocate_offline([1, 1, 1, 1], length=3, epsilon=1.0, past=[0.0, 1.0])
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2] > 0
    assert allocate_offline([0, 0, 0], length=2, epsilon=1.0).tolist() == [0, 0, 0]


def test_another_error_function_goes_to_cvxpy():
    weights = np.array([1.0, 0, 2, 1, 1, 0, 3])
    usual = allocate_offline(weights, length=3, epsilon=0.7)
    same = allocate_offline(weights, length=3, epsilon=0.7, error=lambda e: cp.power(e, -2))
    assert np.allclose(usual, same, atol=1e-4)
    assert windows_hold(same, 3, 0.7)
    falling = allocate_offline(weights, length=3, epsilon=0.7, error=lambda e: cp.exp(-3 * e))
    assert windows_hold(falling, 3, 0.7)
    on = weights > 0
    value = (weights[on] * np.exp(-3 * falling[on])).sum()
    for _ in range(200):
        other = np.maximum(falling + 0.01 * np.random.default_rng(_).normal(size=7) * on, 0)
        if window_sums(np.ceil(other * 1e9).astype(int), 3).max() <= 7 * 10**8:
            assert (weights[on] * np.exp(-3 * other[on])).sum() > value - 1e-6


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ([1, -1, 1], {}, "weights are -1 at step 2"),
        ([1, np.nan], {}, "weights are nan at step 2"),
        ([1, np.inf], {}, "weights are inf"),
        ([[1, 2]], {}, "shape"),
        (["a", "b"], {}, "type"),
        ([1, 1], {"length": 3}, "longer than the data"),
        ([1, 1], {"length": 0}, "length is 0"),
        ([1, 1], {"length": 1.5}, "length is 1.5"),
        ([1, 1], {"epsilon": 0}, "epsilon is 0"),
        ([1, 1], {"epsilon": 1e-10}, "at least a billionth"),
        ([1, 1], {"power": -1}, "power is -1"),
        ([1, 1], {"past": [0.7, 0.7]}, "past spends 1.4"),
        ([1, 1], {"past": [-0.1]}, "past is -0.1"),
        ([1, 1], {"error": lambda e: cp.log(e)}, "not recognised as convex"),
        ([1, 1], {"error": 3}, "error cannot be used"),
    ],
)
def test_bad_input(weights, options, message):
    with pytest.raises(dh.InputError, match=message):
        allocate_offline(weights, **{"length": 2, "epsilon": 1.0} | options)
