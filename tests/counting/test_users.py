"""Bounding users: never more than K, whatever the batches; a choice that sees neither places nor other users."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from scipy import stats

import deltahist as dh
from deltahist.counting import count_file
from deltahist.counting.arrays import UserBound

KEY = bytes(range(32))
SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))


def rows_kept(users, most, key=KEY, batches=1):
    """Numbers of the rows that stay."""
    bound = UserBound(most, key)
    for part in np.array_split(np.arange(len(users)), batches):
        bound.add(pa.array([users[i] for i in part]), part)
    return sorted(bound.cells().tolist())


def ordinals_kept(users, most, who, key=KEY):
    """Which of one user's rows stay, numbered within the user."""
    own = [i for i, user in enumerate(users) if user == who]
    return [own.index(i) for i in rows_kept(users, most, key) if users[i] == who]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 5), st.integers(1, 6))
def test_nobody_keeps_more_than_k_and_few_rows_stay_all(users, most, batches):
    kept = rows_kept(users, most, batches=batches)
    assert len(set(kept)) == len(kept)
    for user in set(users):
        assert sum(users[i] == user for i in kept) == min(most, users.count(user))
    assert kept == rows_kept(users, most)  # batches make no difference


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4))
def test_the_choice_does_not_depend_on_other_users(others, most):
    alone = ordinals_kept(["z"] * 12, most, "z")
    mixed = list(others) + ["z"] * 5 + list(others) + ["z"] * 7
    assert ordinals_kept(mixed, most, "z") == alone


def test_two_zeros_are_one_user_and_change_nobody_elses_rows():
    kept = []
    for zero in (0.0, -0.0):
        bound = UserBound(1, bytes(32))
        bound.add(pa.array([0.0, zero]), np.array([0, 1]))
        bound.add(pa.array(np.repeat(np.arange(1.0, 51), 20)), np.arange(2, 1002))
        assert bound.users == 51
        kept.append(np.sort(bound.cells())[1:].tolist())
    assert kept[0] == kept[1]


def test_thinning_in_between_changes_nothing(monkeypatch):
    users = np.random.default_rng(1).integers(0, 50, 5_000).tolist()
    whole = rows_kept(users, 3)
    monkeypatch.setattr("deltahist.counting.arrays._SLACK", 10)
    assert rows_kept(users, 3, batches=40) == whole


def test_keys_differ_and_a_fresh_one_is_drawn():
    choices = {tuple(rows_kept(["a"] * 100, 5, bytes([k]) * 32)) for k in range(20)}
    assert len(choices) == 20
    assert rows_kept(["a"] * 100, 5, None) != rows_kept(["a"] * 100, 5, None)  # equal once in 75 million
    assert rows_kept(["a"] * 100, 5) == rows_kept(["a"] * 100, 5)


def test_the_choice_is_uniform():
    """Each of 20 rows is equally likely; fixed keys, so no false alarm beyond the one in 10,000 of the threshold."""
    users = [f"user {u}" for u in range(3_000)] * 20
    kept = np.bincount(np.array(rows_kept(users, 5)) // 3_000, minlength=20)
    # Without replacement within a user: the statistic is scaled by (20 - 1) / (20 - 5).
    statistic = ((kept - 750) ** 2 / 750).sum() * 19 / 15
    assert statistic < stats.chi2.isf(1e-4, 19)


def test_names_and_keys():
    assert rows_kept([7] * 50, 4) == rows_kept(["7"] * 50, 4)  # a number and text
    for key in (b"", b"short", "text" * 8, bytes(31)):
        with pytest.raises(dh.InputError, match="32 secret bytes"):
            UserBound(1, key)


@pytest.mark.parametrize("outside", ["clamp", "drop"])
def test_moving_points_does_not_change_which_rows_stay(tmp_path, outside):
    """Also when they move out of the domain: rows are chosen first, dropped afterwards."""
    path = tmp_path / "points.csv"
    place = np.arange(10) + 0.5

    how = {"x": "x", "y": "y", "user": "user", "max_per_user": 4, "outside": outside, "key": KEY}

    def kept(x):
        pd.DataFrame({"x": x, "y": 5.5, "user": "a"}).to_csv(path, index=False)
        return count_file(path, SQUARE, **how).counts[:, 5]

    stay = np.flatnonzero(kept(place))
    assert len(stay) == 4
    for row in range(10):
        moved = place.copy()
        moved[row] = -3
        there = kept(moved)
        others = [i for i in stay if i != row]
        expected = np.zeros(10, dtype=int)
        expected[others] = 1
        if row in stay and outside == "clamp":
            expected[0] += 1
        np.testing.assert_array_equal(there, expected)


@pytest.mark.parametrize("users", [[1.0, np.nan, np.nan], ["a", "", None]])
def test_rows_without_a_user_are_bad_rows(tmp_path, users):
    path = tmp_path / "points.parquet"
    pq.write_table(pa.table({"x": [1.0] * 3, "y": [1.0] * 3, "user": pa.array(users)}), path)
    how = {"x": "x", "y": "y", "user": "user", "max_per_user": 1}
    with pytest.raises(dh.InputError, match=r"2 of 3 rows .* missing user"):
        count_file(path, SQUARE, **how)
    counted = count_file(path, SQUARE, **how, drop_bad_rows=True)
    assert (counted.kept, counted.users, counted.bad_rows) == (1, 1, 2)


def test_user_ids_of_any_type(tmp_path):
    path = tmp_path / "points.parquet"
    for users in (pd.Categorical(["a", "a", "b"]), pd.to_datetime(["2024", "2024", "2025"]), [b"1", b"1", b"2"]):
        pd.DataFrame({"x": [1.0] * 3, "y": [1.0] * 3, "user": users}).to_parquet(path)
        counted = count_file(path, SQUARE, x="x", y="y", user="user", max_per_user=1)
        assert (counted.kept, counted.users) == (2, 2)
