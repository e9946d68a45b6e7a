"""What results promise, whoever publishes and however results are added up."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.privacy import Guarantee

LINE = dh.Domain((0, 1), (8,))
NEAR = dh.Neighbourhood(LINE, 1 / 8)
POINTS = np.linspace(0.05, 0.95, 19)
COUNTS = dh.count(POINTS, LINE)
A = dh.strategies.Identity(LINE)

GUARANTEES = st.one_of(
    st.builds(Guarantee, epsilon=st.fractions(Fraction(1, 1000), 20)),
    st.builds(Guarantee, rho=st.fractions(Fraction(1, 1000), 20)),
)


@given(st.lists(GUARANTEES, min_size=1, max_size=5))
def test_composition_adds_up_everything(parts):
    for order in itertools.islice(itertools.permutations(parts), 3):
        total = order[0]
        for part in order[1:]:
            total = total + part
        if any(g.rho is not None for g in parts):
            # Pure parts that are added first cost more than each on its own.
            assert total.rho >= sum(g.rho if g.epsilon is None else g.epsilon**2 / 2 for g in parts)
        else:
            assert total.epsilon == sum(g.epsilon for g in parts)


@given(GUARANTEES, st.integers(1, 6))
def test_groups_multiply(guarantee, steps):
    if guarantee.rho is not None:
        assert guarantee.times(steps) == Guarantee(rho=guarantee.rho * steps**2)
    else:
        assert guarantee.times(steps) == Guarantee(guarantee.epsilon * steps)


def test_a_window_pays_for_what_it_promises_only():
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
