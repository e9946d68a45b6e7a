"""The least budget for a target error: it meets the target, and a little less would not."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.mechanisms.sequence import Chain

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 16, 16), (16, 16)), delta=1)


@pytest.mark.parametrize("own", [Fraction(1, 100), Fraction(1), Fraction(50)])
@pytest.mark.parametrize(
    ("strategy", "unit"), [("identity", "epsilon"), ("flow", "epsilon"), ("spectral", "rho"), ("identity", "rho")]
)
@pytest.mark.parametrize("target", [60, 3.3])
def test_it_is_the_least(own, strategy, unit, target):
    from deltahist.planning import mechanism_for

    mechanism = mechanism_for(NEAR, strategy, **{unit: own})
    work = dh.workloads.random_squares(5, 50, NEAR.domain)
    found = dh.budget_for(mechanism, target, work)
    assert found.unit == unit
    assert mechanism.with_budget(found).rmse(work) <= target
    less = found.of(found.amount * Fraction(997, 1000))
    assert mechanism.with_budget(less).rmse(work) > target


def test_it_is_about_all_ranges_unless_something_is_asked():
    mechanism = dh.Mechanism(NEAR, dh.strategies.Identity(NEAR.domain), dh.Budget(1))
    assert dh.budget_for(mechanism, 20) == dh.budget_for(mechanism, 20, dh.workloads.all_ranges(NEAR.domain))


def test_the_noise_is_that_of_a_chain_where_there_is_one():
    """Rounded Gaussian noise is a little larger: the same error takes a little more."""
    plain = dh.Mechanism(NEAR, dh.strategies.Identity(NEAR.domain), dh.Budget(rho=1))
    chain = plain.with_chain(Chain("0" * 32, (Fraction(1),)))
    few = dh.workloads.boxes([[0, 0, 1, 1]])
    assert dh.budget_for(chain, 0.8, few).amount > dh.budget_for(plain, 0.8, few).amount


def test_targets_that_cannot_be_met():
    mechanism = dh.Mechanism(NEAR, dh.strategies.Identity(NEAR.domain), dh.Budget(1))
    with pytest.raises(dh.InputError, match="rmse is 0: it must be a finite number above zero"):
        dh.budget_for(mechanism, 0)
    with pytest.raises(dh.InputError, match=r"rmse is 1e\+12, but the expected error is .*: no budget"):
        dh.budget_for(mechanism, 1e12)
