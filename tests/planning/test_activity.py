"""How many points users have, from what was published of it."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.planning.advice import kept, read_released_users

MOST = 60


def published(numbers, domain=None, epsilon=1.0):
    domain = dh.Domain((0.5, MOST + 0.5), (MOST,)) if domain is None else domain
    near = dh.Neighbourhood(domain, MOST - 1)
    return dh.publish(dh.count(numbers, domain, outside="clamp"), near, epsilon=epsilon)


def test_what_is_kept_is_known_up_to_noise():
    numbers = np.minimum(np.random.default_rng(4).geometric(0.2, 20_000), MOST)
    users = read_released_users(published(numbers))
    # Noise of a cell has a standard deviation below 5 users: sums over 60 of them are off by a few in a thousand.
    for most in (1, 5, 20):
        true = int(np.minimum(numbers, most).sum())
        assert kept(users, most) == pytest.approx(true, rel=0.05)


def test_any_number_is_protected_like_any_other():
    release = published([1, 2, 3, 60] * 50)
    facts = release.facts()
    assert facts["epsilon"] == 1
    assert facts["protection"][-1]["exact"] == pytest.approx(1)  # from one end of the line to the other
    assert release.neighbourhood.fixed_membership


@pytest.mark.parametrize(
    "domain", [dh.Domain((0, 60), (60,)), dh.Domain((0.5, 60.5), (30,)), dh.Domain((0.5, 0.5, 60.5, 60.5), (60, 60))]
)
def test_other_releases_are_refused(domain):
    points = np.full((50, domain.ndim), 3.0)
    with pytest.raises(dh.InputError, match="a line with a cell for each number of points"):
        read_released_users(published(points, domain))


def test_from_a_table_of_users_to_advice(tmp_path, capsys):
    numbers = np.minimum(np.random.default_rng(4).geometric(0.3, 5_000), MOST)
    (tmp_path / "users.csv").write_text("points\n" + "\n".join(map(str, numbers)))
    line = ["publish", tmp_path / "users.csv", "--x", "points", "--bounds", f"0.5,{MOST}.5", "--cell", "1"]
    line += ["--delta", MOST - 1, "--outside", "clamp", "--epsilon", "1", "--out", tmp_path / "activity.parquet"]
    line += ["--ledger", tmp_path / "city.ledger", "--account", "checkins", "--limit", "1"]
    assert main(list(map(str, line))) == 0
    assert "checkins" in dh.load(tmp_path / "activity.parquet").statement()
    assert main([*map(str, line[:-2]), "--limit", "1", "--overwrite"]) == 2  # the price was charged
    capsys.readouterr()
    ask = ["advise", "--bounds", "0,0,40,40", "--deltas", "2", "--epsilons", "1", "--max-per-user", "1,4"]
    ask += ["--points-per-user", str(tmp_path / "activity.parquet"), "--format", "csv"]
    assert main(ask) == 0
    rows = [row.split(",") for row in capsys.readouterr().out.splitlines()]
    found = [float(row[rows[0].index("points")]) for row in rows[1:]]
    assert found == pytest.approx([5000, np.minimum(numbers, 4).sum()], rel=0.05)
