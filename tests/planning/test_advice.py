"""planning/advice.py: what each choice of δ, ε and K gives, and how many points users have."""

import math

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.planning import CellChoice, mechanism_for
from deltahist.planning.advice import kept, read_released_users, read_users
from deltahist.preprocessing import Preprocessing
from deltahist.space.workloads import random_squares

BOX, MOST = (0, 0, 20, 20), 60


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
    exact = CellChoice.of(
        dh.Mechanism(near, strategy, dh.Budget(epsilon=1), Preprocessing(3, user=True)), 50_000, work
    )
    assert row["placement_error"] == pytest.approx(exact.placement_error)
    # Whole numbers, not quite to scale.
    assert row["noise_error"] == pytest.approx(exact.noise_error, rel=0.02)


def test_distances_that_share_cells_are_each_as_alone():
    """What is asked is laid once on cells of each size, the large ones first."""
    seen = []

    def squares(domain):
        seen.append(domain)
        return random_squares(5, 200, domain)

    how = {"epsilons": [0.5, 2], "limits": [(math.inf, 3)]}
    together = dh.advise(BOX, 50_000, squares, deltas=[4, 8], **how)
    assert [domain.cell[0] for domain in seen] == [16, 8, 4, 2, 1, 1 / 2]
    alone = [dh.advise(BOX, 50_000, squares, deltas=[delta], **how) for delta in (4, 8)]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True))


def test_points_that_are_kept_of_users():
    users = {1: 1000, 4: 100, 50: 10}
    assert [kept(users, k) for k in (1, 4, 50)] == [1110, 1440, 1900]
    table = dh.advise(BOX, users, deltas=[1], epsilons=[1], per_user=[1, 4])
    assert table[["points_per_user", "points"]].to_numpy().tolist() == [[1, 1110], [4, 1440]]
    with pytest.raises(dh.InputError, match="per_user must say how many"):
        dh.advise(BOX, users)
    for wrong in ({}, {0: 5}, {3: -1}, {3: 0}):
        with pytest.raises(dh.InputError, match="numbers of users by their number of points"):
            kept(wrong, 2)
    with pytest.raises(dh.InputError, match="delta is 1000: the map has room for no two cells"):
        dh.advise(BOX, 100, deltas=[1000])


def test_users_are_read_from_a_public_table(tmp_path):
    file = tmp_path / "activity.csv"
    file.write_text("Points,Users\n1,10\n3,2\n1,5\n")
    assert read_users(file) == {1: 15, 3: 2}
    rows = ("points,users\n" + row for row in ("1,x\n", "1.5,2\n", "inf,2\n", "9" * 400 + ",2\n"))
    for text in ("a,b\n1,2\n", "", *rows):
        file.write_text(text)
        with pytest.raises(dh.InputError, match="CSV file with the columns points and users"):
            read_users(file)
    with pytest.raises(dh.InputError, match=r"missing\.csv"):
        read_users(tmp_path / "missing.csv")


def published(numbers, domain):
    return dh.publish(dh.count(numbers, domain, outside="clamp"), dh.Neighbourhood(domain, MOST - 1), epsilon=1)


def test_points_that_are_kept_of_released_users_are_known_up_to_noise():
    numbers = np.minimum(np.random.default_rng(4).geometric(0.2, 20_000), MOST)
    release = published(numbers, dh.Domain((0.5, MOST + 0.5), (MOST,)))
    users = read_released_users(release)
    # Noise of a cell has a standard deviation below 5 users: sums over 60 of them are off by a few in a thousand.
    for most in (1, 5, 20):
        assert kept(users, most) == pytest.approx(int(np.minimum(numbers, most).sum()), rel=0.05)
    facts = release.facts()
    assert facts["epsilon"] == 1
    assert facts["protection"][-1]["exact"] == pytest.approx(1)  # from one end of the line to the other


@pytest.mark.parametrize(
    "domain", [dh.Domain((0, 60), (60,)), dh.Domain((0.5, 60.5), (30,)), dh.Domain((0.5, 0.5, 60.5, 60.5), (60, 60))]
)
def test_other_releases_are_refused(domain):
    with pytest.raises(dh.InputError, match="a line with a cell for each number of points"):
        read_released_users(published(np.full((50, domain.ndim), 3.0), domain))
