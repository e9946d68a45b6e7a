"""planning/advice.py: what each choice of δ, ε and points per user gives."""

import math

import pytest

import deltahist as dh
from deltahist.planning import CellChoice, mechanism_for
from deltahist.preprocessing import Preprocessing
from deltahist.space.workloads import random_squares

BOX = (0, 0, 20, 20)


def test_more_budget_is_more_exact_and_less_safe():
    table = dh.advise(BOX, 50_000, lambda d: random_squares(5, 200, d), deltas=[1, 2], epsilons=[0.5, 1, 2])
    assert table[["delta", "epsilon"]].to_numpy().tolist() == [[d, e] for d in (1, 2) for e in (0.5, 1, 2)]
    assert (table["area"].round(6) == 25).all()
    assert table["count"].tolist() == pytest.approx([50_000 * 25 / 400] * 6)
    assert (table["of_count"] * table["count"]).tolist() == pytest.approx(table["error"].tolist())
    for _, rows in table.groupby("delta"):
        assert rows["error"].is_monotonic_decreasing
        assert rows["observer"].tolist() == pytest.approx([e / (1 + e) for e in map(math.exp, (0.5, 1, 2))])


def test_errors_are_those_of_the_mechanism_itself():
    work = dh.workloads.boxes([[0.3, 0.3, 10.2, 10.2]])
    row = dh.advise(BOX, 50_000, work, deltas=[1], epsilons=[1], per_user=[3]).iloc[0]
    near = dh.Neighbourhood(dh.Domain.from_cell(BOX, row["cell"]), 1)
    strategy = mechanism_for(near, epsilon=1, workload=work).strategy
    exact = CellChoice.of(dh.Mechanism(near, strategy, dh.Budget(epsilon=1), Preprocessing(3, user=True)), 50_000, work)
    assert row["placement_error"] == pytest.approx(exact.placement_error)
    # Whole numbers, not quite to scale.
    assert row["noise_error"] == pytest.approx(exact.noise_error, rel=0.02)
