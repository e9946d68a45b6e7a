"""A step of a stream: what its release says of the window that it belongs to."""

from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import Clock
from deltahist.space.neighbourhood import read_lasting
from deltahist.statement import list_facts

NEAR = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1, "boundary")
DAYS = Clock.of("2010-05-01", "1d")


STEP = Step(DAYS, 2, 7, dh.Budget(1))


def mechanism(**budget):
    return dh.Mechanism(NEAR, dh.strategies.Identity(NEAR.domain), dh.Budget(**budget))


def test_a_release_says_which_step_it_is_and_what_its_window_and_longer_spans_spend(tmp_path):
    limits = [(30, 2), (np.inf, Fraction(7, 2))]
    limited = Step(DAYS, 2, 7, dh.Budget(1), read_lasting(limits, 7))
    made = mechanism(epsilon=Fraction(1, 15)).with_changes(step=limited)
    account = dh.accounts.Account(dh.accounts.Window(7, epsilon=1, limits=limits), 2)
    release = dh.publishers.publish_mechanism(made, np.ones((4, 4), dtype=int), account=account)
    release.save(tmp_path / "day.parquet")
    again = dh.load(tmp_path / "day.parquet")
    assert again.mechanism.step == limited
    assert again.describe() == release.describe()
    assert list_facts(again)["step"] == "2010-05-03"
    assert list_facts(again)["window"]["limits"] == [[30, "2"], ["any", "7/2"]]


def test_an_altered_step_is_damage(tmp_path):
    described = STEP.describe()
    assert Step.from_description(described) == STEP
    for key, value in (("every", -5), ("start", "x"), ("epsilon", "0"), ("window", 1.5), ("number", None)):
        with pytest.raises((dh.InputError, ValueError, TypeError)):
            Step.from_description(described | {key: value})


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_step_spends_no_more_than_its_window(unit):
    with pytest.raises(dh.InputError):
        mechanism(**{unit: 1.5}).with_changes(step=STEP)
