"""planning/advice.py: what each choice of δ, ε and points per user gives."""

import pytest

import deltahist as dh
from deltahist.planning import CellChoice, advise, mechanism_for
from deltahist.preprocessing import Preprocessing

BOX = (0, 0, 20, 20)


def test_errors_are_those_of_the_mechanism_itself():
    work = dh.workloads.boxes([[0.3, 0.3, 10.2, 10.2]])
    row = advise(BOX, 50_000, work, deltas=[1], epsilons=[1], per_user=[3]).iloc[0]
    near = dh.Neighbourhood(dh.Domain(BOX, cell=row["cell"]), 1)
    strategy = mechanism_for(near, epsilon=1, workload=work).strategy
    exact = CellChoice.of(dh.Mechanism(near, strategy, dh.Budget(epsilon=1), Preprocessing(3, user=True)), 50_000, work)
    assert row["placement_error"] == pytest.approx(exact.placement_error)
    # Whole numbers, not quite to scale.
    assert row["noise_error"] == pytest.approx(exact.noise_error, rel=0.02)
