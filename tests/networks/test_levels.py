"""ε(d): texts, tables and functions; rounding down; what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import deltahist as dh
from deltahist.networks import PrivacyLevels


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("exp(4-3.3d)", lambda d: math.exp(4 - 3.3 * d)),
        (" EXP( 4 - 3.3 * d ) ", lambda d: math.exp(4 - 3.3 * d)),
        ("exp(-0.5d)", lambda d: math.exp(-0.5 * d)),
        ("exp(-1-d)", lambda d: math.exp(-1 - d)),
        ("15*exp(-.5d)", lambda d: 15 * math.exp(-0.5 * d)),
        ("15 exp(-d/2)", lambda d: 15 * math.exp(-d / 2)),
    ],
)
def test_an_exponential_is_what_it_says(text, function):
    levels = PrivacyLevels(text)
    np.testing.assert_allclose(levels.at([0, 0.5, 3]), [function(d) for d in (0, 0.5, 3)], rtol=1e-14)
    assert levels.words == text


def test_a_table_never_promises_more_than_its_farther_entry():
    for levels in (PrivacyLevels("1:15, 2:8, 4:0.5"), PrivacyLevels({4: 0.5, 1: 15, 2: 8})):
        assert levels.at([0, 1, 1.001, 2, 3, 4, 99]).tolist() == [15, 15, 8, 8, 0.5, 0.5, 0.5]


def test_limits_cut_and_the_least_is_for_whoever_is_not_connected():
    levels = PrivacyLevels(lambda d: 10 / (1 + d), least=1, most=5)
    assert levels.at([0, 1, 4, 99, np.inf]).tolist() == [5, 5, 2, 1, 1]
    assert levels.words == "a function of the distance, at least 1, at most 5"
    with pytest.raises(dh.InputError, match=r"not connected.*least"):
        PrivacyLevels("exp(-d)").at([1, np.inf])


@given(st.floats(1e-9, 1e6))
@example(8.2)
@example(0.3)
def test_levels_are_never_above_what_is_promised(epsilon):
    (level,) = PrivacyLevels(lambda d: epsilon + 0 * d).billionths([1]).tolist()
    assert Fraction(level, 10**9) <= Fraction(repr(epsilon)) < Fraction(level + 1, 10**9)


def test_levels_are_a_billionth_at_least():
    assert PrivacyLevels("exp(-d)").billionths([0, 1000]).tolist() == [10**9, 1]


def test_a_function_that_grows_names_the_two_distances():
    with pytest.raises(
        dh.InputError, match=r"grows from 1 at distance 1 to 3 at distance 3: whoever is further"
    ):
        PrivacyLevels(lambda d: d).at([3, 1])
    assert PrivacyLevels(lambda d: 2 + 0 * d).at([3, 1]).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        ("exp(4+3.3d)", "epsilon is 'exp.4.3.3d.': it must be a function that falls with the distance, such as"),
        ("exp(4-0d)", "must fall"),
        ("exp(99-d)", "at distance 0 it must be at most 10"),
        ("1:15,2:x", "such as exp"),
        ("1:15,1:8", "twice"),
        ("1:8,2:15", "grows from 8 at distance 1 to 15 at distance 2"),
        ("1:15,2:0", "epsilon is 0 at distance 2"),
        ("-1:15", "15 at distance -1"),
        ("1:inf", "epsilon is inf at distance 1"),
        ({}, "empty table"),
        (3, "epsilon is 3: it must be a function"),
    ],
)
def test_what_is_no_privacy_level_is_refused(epsilon, said):
    with pytest.raises(dh.InputError, match=said):
        PrivacyLevels(epsilon)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda d: 0 * d, "epsilon is 0 at distance 1"),
        (lambda d: -d, "epsilon is -1 at distance 1"),
        (lambda d: d * np.nan, "epsilon is nan at distance 1"),
        (lambda d: 1e7 + d, r"1e\+07 at distance 1"),
        (lambda d: d[:1], "one for each"),
    ],
)
def test_a_function_must_be_finite_and_above_zero(function, said):
    with pytest.raises(dh.InputError, match=said):
        PrivacyLevels(function).at([1, 2])


@pytest.mark.parametrize("distance", [-1.0, math.nan])
def test_distances_are_zero_or_more(distance):
    with pytest.raises(dh.InputError, match=f"a distance is {distance:g}: it must be zero or more"):
        PrivacyLevels("exp(-d)").at([1, distance])


def test_limits_are_checked():
    with pytest.raises(dh.InputError, match="least is 2 and most 1"):
        PrivacyLevels("exp(-d)", least=2, most=1)
    with pytest.raises(dh.InputError, match="least is 0: it must be a finite number above zero"):
        PrivacyLevels("exp(-d)", least=0)


@pytest.mark.parametrize("text", ["0*exp(4-d)", "0.0*exp(4-d)", "1e-400*exp(4-d)"])
def test_a_factor_of_nothing_is_refused(text):
    with pytest.raises(dh.InputError, match="must be above zero"):
        PrivacyLevels(text)
