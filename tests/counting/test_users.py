"""Whole users: each keeps a uniform K-subset of its rows, chosen without a look at places, in every engine."""

from collections import Counter

import numpy as np
import pandas as pd
import psycopg
import pytest
from postgres import postgres_url  # noqa: F401
from scipy import stats

import deltahist as dh
from deltahist.counting import counts as module
from deltahist.counting.counts import UserBound
from deltahist.noise.exact import seeded_words
from deltahist.preprocessing import Clock, Preprocessing

LINE = dh.Domain((0, 8), (8,))


def _frame(places, extra):
    """One user's rows at some places, those of `extra` others between them."""
    rows = [("ann", place + 0.5) for place in places] + [(f"u{i}", 7.5) for i in range(extra)]
    return pd.DataFrame(rows, columns=["who", "x"])


def _kept(counts):
    return set(np.flatnonzero(np.asarray(counts)[:7]))


def _by_array(frame, folder):
    return dh.count(frame[["x"]].to_numpy(), LINE, user=frame["who"].to_numpy(), max_per_user=2)


def _by_file(frame, folder):
    if not (folder / "p.csv").exists():
        frame.to_csv(folder / "p.csv", index=False)
    return dh.count_file(folder / "p.csv", LINE, x="x", user="who", max_per_user=2).counts


@pytest.mark.audit
@pytest.mark.parametrize(("count", "trials"), [(_by_array, 2000), (_by_file, 150)])
def test_a_user_keeps_a_uniform_subset(tmp_path, count, trials):
    """Chi-square of the ten pairs of five rows."""
    frame = _frame(range(5), 20)
    found = Counter(tuple(sorted(_kept(count(frame, tmp_path)))) for _ in range(trials))
    assert {len(pair) for pair in found} == {2}
    assert len(found) == 10
    assert stats.chisquare(list(found.values())).pvalue > 1e-6


def test_postgresql_keeps_a_uniform_subset_in_all_and_in_each_step(request):
    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows AS SELECT u, k + 0.5 AS x, day FROM generate_series(0, 4) AS k, "
                           "generate_series(1, 400) AS u, generate_series(0, 2) AS day")  # fmt: skip
    how = {"table": "rows", "x": "x", "user": "u", "max_per_user": 2}
    found = dh.count_file(url, LINE, **how)
    assert (found.users, found.kept) == (400, 800)
    assert stats.chisquare(found.counts.array[:5]).pvalue > 1e-6
    found = dh.count_file(url, LINE, clock=Clock.of("0", None), steps=3, time="day", **how)
    assert [found.counts_of(step).sum() for step in range(3)] == [800, 800, 800]


def test_one_user_is_one_in_all_forms_of_the_name_on_postgresql(request):
    """NFC, and without what `str.strip` takes away, whatever the server's locale calls a space."""
    url = request.getfixturevalue("postgres_url")
    spaces = [chr(code) for code in range(1, 0x3001) if chr(code).isspace()]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE named (u text, x float)")
        names = ["José", "Jose\u0301", *(f"{each}José{each}" for each in spaces), "Jos\u200be\u0301"]
        connection.cursor().executemany("INSERT INTO named VALUES (%s, 0.5)", [(name,) for name in names])
    found = dh.count_file(url, LINE, table="named", x="x", user="u", max_per_user=1)
    assert (found.rows, found.users, found.kept) == (len(names), 2, 2)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("batch", [1 << 17, 3])
def test_the_choice_does_not_look_at_places(monkeypatch, order, batch):
    """With the same random numbers the same rows stay, wherever they lie: the places are those of these rows."""
    monkeypatch.setattr("deltahist.noise.exact.open_stream", lambda: seeded_words(np.random.default_rng(0)))
    monkeypatch.setattr("deltahist.counting.counts.ROWS", batch)
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(20), 6)
    seen = []
    for _ in range(6):
        places = np.concatenate([rng.permutation(6) for _ in range(20)])
        kept = []
        for user in (3, 4):
            own = places[who == user]
            counts = dh.count(own + 0.5, LINE, user=who[who == user], max_per_user=2).array
            kept.append({int(np.flatnonzero(own == place)[0]) for place in np.flatnonzero(counts)})
        seen.append(kept)
    assert all(each == seen[0] for each in seen)
    assert [len(each) for each in seen[0]] == [2, 2]


def test_no_user_changes_the_choice_of_another(monkeypatch):
    """Of rows with the same numbers, what a user keeps is the same whoever else is there."""
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 60).astype(np.uint64)
    users = np.arange(60) % 6

    def kept(chosen):
        bound = UserBound(3)
        bound._draw = lambda number: numbers[chosen]
        bound.add_rows(users[chosen], np.flatnonzero(chosen))
        return set(bound.list_kept()[1].tolist())

    every = kept(np.ones(60, dtype=bool))
    for user in range(6):
        assert kept(users == user) == {row for row in every if users[row] == user}
        assert kept(users == user) == set(sorted(np.flatnonzero(users == user), key=lambda row: numbers[row])[:3])


def test_k_rows_stay_over_all_batches_whatever_is_thinned_out(monkeypatch):
    monkeypatch.setattr(module, "_WAITING", 10)
    rng, bound, rows = np.random.default_rng(2), UserBound(4), []
    for _ in range(50):
        users = rng.integers(0, 9, 13)
        bound.add_rows(users, np.arange(len(rows), len(rows) + 13))
        rows += users.tolist()
    number, kept = bound.list_kept()
    assert number == 9
    assert Counter(np.array(rows)[kept].tolist()) == dict.fromkeys(range(9), 4)
    assert len(set(kept.tolist())) == 36


def test_rows_are_chosen_before_points_outside_are_dropped():
    """A user whose other points lie outside keeps none of them in their stead."""
    points = np.array([0.5] * 2 + [99.0] * 98)
    found = [dh.count(points, LINE, user=[1] * 100, max_per_user=1, outside="drop").sum() for _ in range(60)]
    assert np.mean(found) < 0.25


def test_bad_rows_take_no_room(tmp_path):
    points = [np.nan] * 50 + [0.5] * 2
    with pytest.raises(dh.InputError):
        dh.count(points, LINE, user=[1] * 52, max_per_user=2)
    pd.DataFrame({"who": "ann", "x": points}).to_csv(tmp_path / "p.csv", index=False)
    how = {"x": "x", "user": "who", "max_per_user": 2, "drop_bad_rows": True}
    assert dh.count_file(tmp_path / "p.csv", LINE, **how).kept == 2


@pytest.mark.parametrize("bad", [True, False])
def test_what_may_be_left_out_is_declared_whether_or_not_anything_was(tmp_path, bad):
    """Else the number of rows that stay would be published as if nothing could be missing."""
    pd.DataFrame({"who": "ann", "x": [0.5, np.nan if bad else 1.5]}).to_csv(tmp_path / "p.csv", index=False)
    for more, dropped in (({}, ("bad rows",)), ({"outside": "drop"}, ("bad rows", "points outside"))):
        found = dh.count_file(tmp_path / "p.csv", LINE, x="x", drop_bad_rows=True, **more)
        assert found.preprocessing == Preprocessing(dropped=dropped)
    found = dh.count_file(tmp_path / "p.csv", LINE, x="x", drop_bad_rows=True, user="who", max_per_user=1)
    assert found.preprocessing == Preprocessing(1, user=True, dropped=("bad rows",))
    assert found.preprocessing.unit == "user"


def test_arithmetic_with_counts_is_refused():
    """Its result would be taken for points of which each is somebody's only one."""
    counts = dh.count([[0.5], [0.6]], LINE, user=["ann", "ann"], max_per_user=2)
    for work in (lambda: counts + 1, lambda: 2 * counts, lambda: np.add(1, counts), lambda: np.maximum(counts, 0)):
        with pytest.raises(TypeError):
            work()
    assert np.asarray(counts).sum() == 2
