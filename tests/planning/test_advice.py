"""Choices of δ, ε, points per user and cells: what is expected of them, and what is no choice."""

import itertools
import json
import math

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.planning import CellChoice, expected_placement, on_cells, plan_cells
from deltahist.planning.advice import kept, read_users

BOUNDS = (0, 0, 16, 16)


def test_more_points_ask_for_smaller_cells():
    sides = []
    for points in (100, 1_000_000):
        ranked = plan_cells(on_cells(BOUNDS, 2), points, epsilon=1, strategy="flow")
        assert all(a.rmse <= b.rmse for a, b in itertools.pairwise(ranked))
        assert ranked[0].rmse == pytest.approx(math.hypot(ranked[0].noise_error, ranked[0].placement_error))
        sides.append(ranked[0].neighbourhood.domain.cell[0])
    assert sides[0] > sides[1]


def test_whole_cells_have_no_error_of_placement():
    domain = dh.Domain(BOUNDS, (16, 16))
    boxes = dh.workloads.boxes([[0, 0, 4, 4], [0, 0, 4.5, 4]])
    found = expected_placement(boxes, domain, 1000)
    assert found[0] == 0 < found[1]
    assert (expected_placement(boxes, domain, 2000) > found)[1]


def test_a_table_of_advice_is_what_each_choice_gives():
    table = dh.advise(BOUNDS, 10_000, deltas=[2], epsilons=[0.5, 2])
    assert (np.diff(table["error"]) < 0).all()
    assert table["observer"].tolist() == pytest.approx([1 / (1 + math.exp(-e)) for e in (0.5, 2)])
    row = table.iloc[1]
    near = next(n for n in on_cells(BOUNDS, 2) if n.domain.cell[0] == row["cell"])
    side = 16 / 20
    queries = dh.workloads.random_squares(side, 500, near.domain)
    made = CellChoice.of(dh.plan(near, queries, 2)[0].mechanism, 10_000, queries)
    assert row["error"] == pytest.approx(made.rmse, rel=0.02)


def test_users_are_kept_by_their_number_of_points(tmp_path):
    (tmp_path / "users.csv").write_text("points,users\n1,100\n7,10\n")
    users = read_users(tmp_path / "users.csv")
    assert [kept(users, most) for most in (1, 5, 9)] == [110, 150, 170]
    (tmp_path / "users.csv").write_text("points,users\n1.5,100\n")
    with pytest.raises(dh.InputError, match="whole numbers"):
        read_users(tmp_path / "users.csv")


def test_advice_on_the_command_line(capsys):
    line = ["advise", "--bounds", "0,0,16,16", "--deltas", "2", "--epsilons", "1", "--points", "10000"]
    assert main([*line, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["delta"], row["epsilon"], row["points_per_user"]) == (2, 1, 0)
    assert main(line) == 0
    assert "73%" in capsys.readouterr().out
    assert main([*line, "--ranges"]) == 2
    assert "--ranges is about whole cells" in capsys.readouterr().err
