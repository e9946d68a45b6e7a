"""A mechanism: all that will be published but the numbers, each figure computed once."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.kinds import QuantileMechanism, SortedMechanism
from deltahist.preprocessing import Preprocessing
from deltahist.publishers import publish_mechanism, publish_quantile, publish_sorted

SQUARE = dh.Domain((0, 0, 4, 4), (4, 4))
NEAR = dh.Neighbourhood(SQUARE, 1)
LINE = dh.Neighbourhood(dh.Domain((0, 100), (50,)), 5)
CELLS = dh.strategies.Identity(SQUARE)


def test_every_publisher_takes_its_mechanism():
    points, seed = np.linspace(3, 97, 21), lambda: np.random.default_rng(5)
    made = SortedMechanism(LINE, 21, dh.Budget(1), 3)
    assert publish_mechanism(made, points).mechanism == made
    short = publish_sorted(points, LINE, 1, group=3, rng=seed())
    assert (publish_mechanism(made, points[:, None], rng=seed()).values == short.values).all()
    found = QuantileMechanism(LINE, 0.5, 21, dh.Budget(1), "inverse")
    one = publish_mechanism(found, points, rng=seed())
    assert one.mechanism == found
    assert one.value == publish_quantile(points[:, None], 0.5, LINE, 1, method="inverse", rng=seed()).value
    parked = SortedMechanism(replace(LINE, sources="left"), 30, dh.Budget(1), 3)
    assert publish_mechanism(parked, points).mechanism == parked
    for mechanism, given in ((made, points[:20]), (found, points[:20]), (parked, np.linspace(0, 1, 31))):
        with pytest.raises(dh.InputError):
            publish_mechanism(mechanism, given)
    three = QuantileMechanism(LINE, 0.5, 21, dh.Budget(1), "inverse", Preprocessing(3))
    assert publish_mechanism(three, points).mechanism.counting == Preprocessing(3)


KINDS = {
    "counts": lambda budget, *counting: dh.Mechanism(NEAR, CELLS, budget, *counting),
    "sorted": lambda budget, *counting: SortedMechanism(LINE, 50, budget, 2, *counting),
    "quantile": lambda budget, *counting: QuantileMechanism(LINE, 0.5, 9, budget, "inverse", *counting),
}


@pytest.mark.parametrize("counting", [Preprocessing(), Preprocessing(5), Preprocessing(2, user=True)])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_mechanism_is_what_it_would_be_from_the_start(kind, unit, counting):
    amount, other = (dh.Budget(**{unit: Fraction(1, n)}) for n in (2, 7))
    known, wanted = KINDS[kind](amount), KINDS[kind](other, counting)
    known.describe(), known.laws, dh.write_statement(known)  # everything that is computed once is computed now
    found = known.with_changes(counting=counting).with_budget(other)
    assert found == wanted
    assert found.describe() == wanted.describe()
    assert found.laws == wanted.laws
    assert dh.write_statement(found) == dh.write_statement(wanted)
    assert known.budget == amount


def test_what_would_give_people_away_is_no_mechanism():
    flow = dh.strategies.Flow(SQUARE)
    with pytest.raises(dh.InputError, match="has sources"):
        dh.Mechanism(replace(NEAR, sources="boundary"), flow, dh.Budget(1))
    with pytest.raises(dh.InputError, match="rows were dropped"):
        dh.Mechanism(NEAR, flow, dh.Budget(1), Preprocessing(dropped=("bad rows",)))
    with pytest.raises(dh.InputError, match="a plain Neighbourhood"):
        dh.Mechanism(NEAR, dh.strategies.Identity(LINE.domain), dh.Budget(1))
