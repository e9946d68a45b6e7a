"""planning/forecast.py: sums over the steps of a stream, and which window and limit it should have."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.accounts.window import Window
from deltahist.planning import CellChoice, mechanism_for
from deltahist.planning.forecast import Promise, advise_stream, forecast, sums
from deltahist.preprocessing import Clock
from deltahist.space.workloads import random_squares

BOX, YEAR = (0, 0, 40, 40), 52


def weeks(domain):
    return random_squares(8, 100, domain)


@pytest.fixture(scope="module")
def table():
    how = {"clock": Clock.of("2010-01-04", "1w"), "steps": YEAR, "deltas": [2], "epsilons": [1]}
    return advise_stream(BOX, 1500, weeks, **how)


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        ("6h", 1500, {"step": 1, "day": 4, "week": 28, "month": 120, "year": 1460, "all": 1500}),
        ("1w", 52, {"step": 1, "month": 4, "year": 52}),
        ("1d", 20, {"step": 1, "week": 7, "all": 20}),
        ("3d", 121, {"step": 1, "month": 10, "all": 121}),  # two steps are no week
        ("20d", 18, {"step": 1, "year": 18}),  # two are no month
        ("4w", 12, {"step": 1, "all": 12}),
        (None, 10, {"step": 1, "all": 10}),
        (None, 1, {"step": 1}),
    ],
)
def test_periods_are_whole_steps_that_fill_them(every, steps, expected):
    clock = Clock(1, 0) if every is None else Clock.of("2010-01-04", every)
    assert dict(sums(clock, steps)) == expected


@given(st.integers(1, 12), st.integers(0, 40), st.sampled_from([None, 4]), st.integers(1, 9))
def test_longer_steps_keep_the_promise_in_time(window, more, times, longer):
    """Whatever short steps data differ in, the long steps that hold these spend no more than was promised."""
    steps = window + 1 + more
    promise = Promise(window, steps, times)
    share = promise.share(1, longer)
    for span, limit in [(window, 1), *([(steps, times)] if times else [])]:
        touched = max(len({step // longer for step in range(at, at + span)}) for at in range(longer))
        assert touched * share <= limit
    if longer == 1:
        limits = [(steps, times)] if times else []
        assert share == Window(window, 1, limits=limits).equal


def test_choices_have_the_errors_of_their_mechanism(table):
    """One row is compared with the mechanism itself, of which sums over a month take the noise of four."""
    row = table[table["window"] == 1].iloc[0]
    near = dh.Neighbourhood(dh.Domain.from_cell(BOX, row["cell"]), 2, "boundary")
    work = weeks(near.domain)
    step = mechanism_for(near, epsilon=1, workload=work)
    assert step.strategy.name == row["strategy"]
    assert row["step_error"] == pytest.approx(CellChoice.of(step, 1500, work).rmse, rel=1e-6)
    month = CellChoice.of(step, 4 * 1500, work)
    assert row["month_error"] == pytest.approx(math.hypot(2 * month.noise_error, month.placement_error), rel=1e-6)
    assert [row["step_count"], row["month_count"], row["all_count"]] == pytest.approx([60, 240, 60 * YEAR])
    outlook = {each.period: each for each in forecast(step, Clock.of("2010-01-04", "1w"), YEAR, work, 1500)}
    assert outlook["month"].queries == pytest.approx(2 * month.noise_error)
    assert np.allclose(outlook["month"].counts, 240)


def test_choices_that_drown_come_last_and_say_which_steps_would_not(table):
    assert list(zip(table["window"], table["window_limit"], strict=True)) == [(4, ""), (1, ""), (52, ""), (4, "52:4")]
    assert table["all_epsilon"].tolist() == pytest.approx([13, 52, 1, 4], abs=1e-6)
    assert table["drowns"].tolist() == [False, False, True, True]
    assert (table["step_error"] > table["step_count"]).tolist() == [False, False, True, True]
    assert table["longer"].tolist()[:2] == [1, 1]
    assert (table["longer"][2:] > 1).all()
    row = table.iloc[2]
    share = Promise(row["window"], YEAR).share(1, row["longer"])
    how = {"clock": Clock(0, 0), "steps": 1, "deltas": [2], "epsilons": [share]}
    assert not advise_stream(BOX, row["longer"] * 1500, weeks, **how)["drowns"].iloc[0]


def test_equal_shares_are_whole_billionths():
    assert Promise(7, 365).share(1) == Fraction(142857142, 10**9)
