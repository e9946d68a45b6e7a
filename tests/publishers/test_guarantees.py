"""What results promise: no failure probability is ever lost, whoever publishes and however results are added up."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.kinds.quantile import METHODS
from deltahist.privacy import Guarantee

LINE = dh.Domain((0, 1), (8,))
NEAR = dh.Neighbourhood(LINE, 1 / 8)
POINTS = np.linspace(0.05, 0.95, 19)
COUNTS = dh.count(POINTS, LINE)
A = dh.strategies.Identity(LINE)

GUARANTEES = st.one_of(
    st.builds(Guarantee, epsilon=st.fractions(Fraction(1, 1000), 20)),
    st.builds(Guarantee, rho=st.fractions(Fraction(1, 1000), 20)),
    st.builds(
        Guarantee,
        epsilon=st.fractions(Fraction(1, 1000), 20),
        probability=st.fractions(Fraction(1, 10**9), Fraction(1, 5)),
    ),
)


def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize(("epsilon", "probability"), [(Fraction(1, 2), 1e-2), (Fraction(4), 1e-9)])
def test_no_publisher_fails_with_a_probability_of_its_own(epsilon, probability):
    for found in (
        dh.publish(COUNTS, NEAR, A, epsilon=epsilon, rng=rng()),
        dh.publish(COUNTS, NEAR, A, rho=epsilon, rng=rng()),
        dh.publish_sorted(POINTS, NEAR, epsilon, rng=rng()),
        dh.publish_sorted(POINTS, NEAR, rho=epsilon, rng=rng()),
        *(dh.publish_quantile(POINTS, 0.5, NEAR, epsilon, method=method, rng=rng()) for method in METHODS),
        dh.publish_quantile(POINTS, 0.5, NEAR, rho=epsilon, rng=rng()),
    ):
        assert found.guarantee.probability == 0


def test_what_may_fail_says_so():
    guarantee = Guarantee(epsilon=Fraction(1), probability=Fraction(1, 100))
    with pytest.raises(dh.InputError, match=r"probability is 0\.005"):
        guarantee.approximate(1 / 200)
    with pytest.raises(dh.InputError, match=r"probability is 0\.01"):
        guarantee + Guarantee(rho=Fraction(1))
    assert guarantee.approximate(0.01) == 1


@given(st.lists(GUARANTEES, min_size=1, max_size=5))
def test_composition_adds_up_everything_or_refuses(parts):
    failing, in_rho = sum(g.probability for g in parts), any(g.rho is not None for g in parts)
    if (failing and in_rho) or failing >= 1:
        with pytest.raises(dh.InputError, match="probability is"):
            _total(parts)
        return
    for order in itertools.islice(itertools.permutations(parts), 3):
        total = _total(order)
        assert total.probability == failing
        if in_rho:
            # Pure parts that are added first cost more than each on its own.
            assert total.rho >= sum(g.rho if g.epsilon is None else g.epsilon**2 / 2 for g in parts)
        else:
            assert total.epsilon == sum(g.epsilon for g in parts)


def _total(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@given(GUARANTEES, st.integers(1, 6))
def test_groups_multiply_and_failures_grow_with_them(guarantee, steps):
    if guarantee.rho is not None:
        assert guarantee.times(steps) == Guarantee(rho=guarantee.rho * steps**2)
        return
    grown = float(guarantee.probability) * sum(math.exp(i * float(guarantee.epsilon)) for i in range(steps))
    if grown >= 1:
        with pytest.raises(dh.InputError, match="must be below 1"):
            guarantee.times(steps)
        return
    found = guarantee.times(steps)
    assert found.epsilon == guarantee.epsilon * steps
    assert grown * (1 - 1e-9) <= float(found.probability) <= grown * (1 + 1e-9)
    assert float(found.probability) >= grown * (1 - 1e-14)


@pytest.mark.parametrize("probability", [Fraction(1), 1.5, -0.1, float("nan")], ids=str)
def test_bad_probabilities(probability):
    with pytest.raises(dh.InputError, match="probability is"):
        Guarantee(epsilon=Fraction(1), probability=probability)
    with pytest.raises(dh.InputError, match="probability is"):
        Guarantee(rho=Fraction(1), probability=Fraction(1, 2))


def test_a_window_pays_for_what_it_promises_only():
    """A window of pure ε once paid for noise with a failure probability, and for ρ."""
    pure, concentrated = dh.Window(3, epsilon=3), dh.Window(3, rho=3)
    spend = pure.charge(1, 1)
    assert dh.publish(COUNTS, NEAR, A, epsilon=spend).guarantee == Guarantee(epsilon=Fraction(1))
    assert dh.publish(COUNTS, NEAR, A, epsilon=spend / 2).guarantee == Guarantee(epsilon=Fraction(1, 2))
    assert dh.publish(COUNTS, NEAR, A, rho=concentrated.charge(1, 0.5)).guarantee == Guarantee(rho=Fraction(1, 2))
    for refused in (
        lambda: dh.publish(COUNTS, NEAR, A, rho=spend),
        lambda: dh.publish_sorted(POINTS, NEAR, rho=spend),
        lambda: dh.publish_quantile(POINTS, 0.5, NEAR, rho=spend),
    ):
        with pytest.raises(dh.InputError, match="charged as epsilon"):
            refused()
    with pytest.raises(dh.InputError, match="charged as rho"):
        dh.publish(COUNTS, NEAR, A, epsilon=concentrated.charge(2, 0.5))
