"""Counting step by step against a plain loop; clocks; users bounded within each step; files of steps."""

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.counting.steps import count_steps, step_files
from deltahist.preprocessing import Clock

DOMAIN = dh.Domain((0, 0, 4, 4), (4, 4))


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    when = pd.Timestamp("2021-02-27", tz="UTC") + pd.to_timedelta(rng.random(500) * 6 * 86_400, unit="s")
    return pd.DataFrame(
        {"when": when, "x": rng.random(500) * 4, "y": rng.random(500) * 4, "id": rng.integers(0, 9, 500)}
    )


@pytest.mark.parametrize("form", ["plain.csv", "naive.csv", "typed.parquet", "offset.csv"])
def test_counts_are_those_of_a_plain_loop(table, tmp_path, form):
    path = tmp_path / form
    written = table.copy()
    if form == "naive.csv":
        written["when"] = table["when"].dt.strftime("%Y-%m-%d %H:%M:%S.%f")
    if form == "offset.csv":
        written["when"] = table["when"].dt.tz_convert("America/New_York").map(lambda t: t.isoformat())
    if form == "typed.parquet":
        written.to_parquet(path)
    else:
        written.to_csv(path, index=False)
    clock = Clock.of("2021-02-28", "6h")
    found = count_steps(path, DOMAIN, clock, 10, time="when", x="x", y="y")
    step = ((table["when"] - pd.Timestamp("2021-02-28", tz="UTC")) // pd.Timedelta("6h")).to_numpy()
    for k in range(10):
        assert np.array_equal(found.counts(k), dh.count(table[step == k][["x", "y"]].to_numpy(), DOMAIN))
    assert (found.rows, found.before, found.after) == (500, (step < 0).sum(), (step >= 10).sum())
    assert found.upto.tolist() == [int(((step >= 0) & (step <= k)).sum()) for k in range(10)]


def test_users_are_bounded_within_each_step(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    clock = Clock.of("2021-02-27", "1d")
    found = count_steps(
        tmp_path / "a.csv",
        DOMAIN,
        clock,
        6,
        time="when",
        x="x",
        y="y",
        user="id",
        max_per_user=3,
        key=bytes(32),
    )
    days = table.groupby([table["when"].dt.date, "id"]).size()
    for k, (_, sizes) in enumerate(days.groupby(level=0)):
        assert found.counts(k).sum() == np.minimum(sizes, 3).sum()


def test_rows_without_usable_times_are_refused(table, tmp_path):
    table["when"] = table["when"].astype(str)
    table.loc[[3, 7], "when"] = ["yesterday", ""]
    table.to_csv(tmp_path / "a.csv", index=False)
    how = {"time": "when", "x": "x", "y": "y"}
    said = r"2 of 500 rows .* coordinates or times .*row 4.*; 2 of them .*: it is 'yesterday' in row 4: mend"
    with pytest.raises(dh.InputError, match=said):
        count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("2021-02-27", "1d"), 6, **how)
    found = count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("2021-02-27", "1d"), 6, **how, drop_bad_rows=True)
    assert (found.rows, found.bad_rows, len(found.keys)) == (500, 2, 498)
    assert found.counting.dropped == ("bad rows",)
    assert "'yesterday' in row 4" in found.trouble


def test_times_in_another_form_are_refused_with_the_format_that_reads_them(table, tmp_path):
    expected, path = table.copy(), tmp_path / "a.csv"
    table["when"] = table["when"].dt.strftime("%d.%m.%Y %H:%M")
    table.to_csv(path, index=False)
    how = {"time": "when", "x": "x", "y": "y"}
    with pytest.raises(dh.InputError, match=r"row 1 \(then time_format='%d\.%m\.%Y %H:%M'\)"):
        count_steps(path, DOMAIN, Clock.of("2021-02-27", "6h"), 24, **how)
    found = count_steps(path, DOMAIN, Clock.of("2021-02-27", "6h", "%d.%m.%Y %H:%M"), 24, **how)
    step = (expected["when"] - pd.Timestamp("2021-02-27", tz="UTC")) // pd.Timedelta("6h")
    assert [int(found.counts(k).sum()) for k in range(24)] == [int((step == k).sum()) for k in range(24)]


def test_rows_are_numbered_in_the_file_whatever_is_chosen(table, tmp_path):
    table["when"] = table["when"].astype(str)
    table["kind"] = np.where(np.arange(500) % 5 == 0, "bus", "car")
    table.loc[[3, 400], "when"] = ["never", "someday"]
    table.to_csv(tmp_path / "a.csv", index=False)
    how = {"time": "when", "x": "x", "y": "y", "where": "kind = 'bus'"}
    with pytest.raises(dh.InputError, match=r"1 of 500 rows .*row 401.*'someday' in row 401"):
        count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("2021-02-27", "1d"), 6, **how)
    found = count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("2021-02-27", "1d"), 6, **how, drop_bad_rows=True)
    assert (found.unmatched, len(found.keys), found.upto[-1]) == (400, 99, 99)


def test_a_condition_on_the_time_is_refused(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    how = {"time": "when", "x": "x", "y": "y", "where": "\"when\" > '2021-02-28'"}
    with pytest.raises(dh.InputError, match=r"'when' holds the times.* first and the last step"):
        count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("2021-02-27", "1d"), 6, **how)


def test_step_numbers(tmp_path):
    pd.DataFrame({"t": [3, 4, 4, 9], "x": [1, 1, 2, 3], "y": 0}).to_csv(tmp_path / "a.csv", index=False)
    found = count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("3", None), 3, time="t", x="x", y="y")
    assert [int(found.counts(k).sum()) for k in range(3)] == [1, 2, 0]
    assert found.after == 1
    pd.DataFrame({"t": [3.5], "x": [1], "y": [0]}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(dh.InputError, match="1 of 1 rows"):
        count_steps(tmp_path / "a.csv", DOMAIN, Clock.of("3", None), 3, time="t", x="x", y="y")


def test_numbers_are_no_dates(tmp_path):
    pd.DataFrame({"t": [1.0], "x": [1.0], "y": [0.0]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(dh.InputError, match="time column holds numbers"):
        count_steps(tmp_path / "a.parquet", DOMAIN, Clock.of("2021-01-01", "1d"), 3, time="t", x="x", y="y")


def test_clocks():
    assert Clock.of("2021-02-28", "1d").label(1) == "2021-03-01"
    assert Clock.of("2021-02-28T12:00", "1d").label(0) == "2021-02-28T120000"
    assert Clock.of("2021-02-28", "15min").label(5) == "2021-02-28T011500"
    assert Clock.of("2021-02-28", "1w").step("2021-03-10") == 1
    assert Clock.of("2021-02-28", "1d").step("2021-02-27T23:59") == -1
    assert Clock.of("2021-02-28T00:00+02:00", "1h").step("2021-02-28") == 2
    assert Clock.of("-5", None).label(2) == "-3"
    for start, every, message in (
        ("2021-02-30", "1d", "start is '2021-02-30'"),
        ("2021-02-28", None, "every is missing"),
        ("7", "1d", "no period"),
        ("2021-02-28", "d", "every is 'd'"),
    ):
        with pytest.raises(dh.InputError, match=message):
            Clock.of(start, every)
    with pytest.raises(dh.InputError, match="whole number, as start is"):
        Clock.of("7", None).step("2021-01-01")


def test_files_of_steps(tmp_path):
    for name in ("9.csv", "10.csv", "11.parquet", ".hidden"):
        (tmp_path / name).touch()
    labels = ["9", "10"]
    assert {k: v.name for k, v in step_files(tmp_path, labels).items()} == {"9": "9.csv", "10": "10.csv"}
    (tmp_path / "8.csv").touch()
    with pytest.raises(dh.InputError, match=r"'8\.csv' .* belongs to no step"):
        step_files(tmp_path, labels)
