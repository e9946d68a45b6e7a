"""What results promise, whoever publishes and however results are added up."""

import itertools
from fractions import Fraction

from hypothesis import given, strategies as st

from deltahist.laws import Guarantee

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
