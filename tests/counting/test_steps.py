"""Counting step by step against a plain loop; clocks; times in many forms; users bounded within each step."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deltahist as dh
from deltahist.counting.steps import count_steps, guess_formats, since_1970, step_files
from deltahist.preprocessing import Clock, check_format

DOMAIN = dh.Domain((0, 0, 4, 4), (4, 4))
HOW = {"time": "when", "x": "x", "y": "y"}
DAYS = Clock.of("2021-02-27", "1d")


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    when = pd.Timestamp("2021-02-27", tz="UTC") + pd.to_timedelta(rng.random(500) * 6 * 86_400, unit="s")
    places = rng.random((2, 500)) * 4
    return pd.DataFrame({"when": when, "x": places[0], "y": places[1], "id": rng.integers(0, 9, 500)})


FORMS = {
    "plain.csv": lambda when: when,
    "naive.csv": lambda when: when.dt.strftime("%Y-%m-%d %H:%M:%S.%f"),
    "typed.parquet": lambda when: when,
    "offset.csv": lambda when: when.dt.tz_convert("America/New_York").map(lambda t: t.isoformat()),
}


@pytest.mark.parametrize("form", FORMS)
def test_counts_are_those_of_a_plain_loop(table, tmp_path, form):
    written, path = table.assign(when=FORMS[form](table["when"])), tmp_path / form
    written.to_parquet(path) if form == "typed.parquet" else written.to_csv(path, index=False)
    found = count_steps(path, DOMAIN, Clock.of("2021-02-28", "6h"), 10, **HOW)
    step = ((table["when"] - pd.Timestamp("2021-02-28", tz="UTC")) // pd.Timedelta("6h")).to_numpy()
    for k in range(10):
        assert np.array_equal(found.counts(k), dh.count(table[step == k][["x", "y"]].to_numpy(), DOMAIN))
    assert (found.rows, found.before, found.after) == (500, (step < 0).sum(), (step >= 10).sum())
    assert found.upto.tolist() == [int(((step >= 0) & (step <= k)).sum()) for k in range(10)]


def test_users_are_bounded_within_each_step(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    found = count_steps(tmp_path / "a.csv", DOMAIN, DAYS, 6, **HOW, user="id", max_per_user=3, key=bytes(32))
    days = table.groupby([table["when"].dt.date, "id"]).size()
    for k, (_, sizes) in enumerate(days.groupby(level=0)):
        assert found.counts(k).sum() == np.minimum(sizes, 3).sum()


def test_rows_without_usable_times_are_refused(table, tmp_path):
    """They are numbered in the file, whatever a condition chooses."""
    table["when"] = table["when"].astype(str)
    table["kind"] = np.where(np.arange(500) % 5 == 0, "bus", "car")
    table.loc[[3, 7, 400], "when"] = ["yesterday", "", "someday"]
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False)
    stated = r"3 of 500 rows .* coordinates or times .*row 4.*; 3 of them .*: it is 'yesterday' in row 4: mend"
    with pytest.raises(dh.InputError, match=stated):
        count_steps(path, DOMAIN, DAYS, 6, **HOW)
    found = count_steps(path, DOMAIN, DAYS, 6, **HOW, drop_bad_rows=True)
    assert (found.rows, found.bad_rows, found.kept, found.counting.dropped) == (500, 3, 497, ("bad rows",))
    assert "'yesterday' in row 4" in found.trouble
    how = {**HOW, "where": "kind = 'bus'"}
    with pytest.raises(dh.InputError, match=r"1 of 500 rows .*row 401.*'someday' in row 401"):
        count_steps(path, DOMAIN, DAYS, 6, **how)
    found = count_steps(path, DOMAIN, DAYS, 6, **how, drop_bad_rows=True)
    assert (found.unmatched, found.kept, found.upto[-1]) == (400, 99, 99)
    with pytest.raises(dh.InputError, match=r"'when' holds the times.* first and the last step"):
        count_steps(path, DOMAIN, DAYS, 6, **HOW, where="\"when\" > '2021-02-28'")


def test_times_in_another_form_are_refused_with_the_format_that_reads_them(table, tmp_path):
    path, when = tmp_path / "a.csv", table["when"]
    table.assign(when=when.dt.strftime("%d.%m.%Y %H:%M")).to_csv(path, index=False)
    with pytest.raises(dh.InputError, match=r"row 1 \(then time_format='%d\.%m\.%Y %H:%M'\)"):
        count_steps(path, DOMAIN, Clock.of("2021-02-27", "6h"), 24, **HOW)
    found = count_steps(path, DOMAIN, Clock.of("2021-02-27", "6h", "%d.%m.%Y %H:%M"), 24, **HOW)
    step = (when - pd.Timestamp("2021-02-27", tz="UTC")) // pd.Timedelta("6h")
    assert [int(found.counts(k).sum()) for k in range(24)] == [int((step == k).sum()) for k in range(24)]


def test_step_numbers(tmp_path):
    path, clock = tmp_path / "a.csv", Clock.of("3", None)
    pd.DataFrame({"when": [3, 4, 4, 9], "x": [1, 1, 2, 3], "y": 0}).to_csv(path, index=False)
    found = count_steps(path, DOMAIN, clock, 3, **HOW)
    assert [int(found.counts(k).sum()) for k in range(3)] == [1, 2, 0]
    assert found.after == 1
    pd.DataFrame({"when": [3.5], "x": [1], "y": [0]}).to_csv(path, index=False)
    with pytest.raises(dh.InputError, match="1 of 1 rows"):
        count_steps(path, DOMAIN, clock, 3, **HOW)


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
    assert {k: v.name for k, v in step_files(tmp_path, ["9", "10"]).items()} == {"9": "9.csv", "10": "10.csv"}
    (tmp_path / "8.csv").touch()
    with pytest.raises(dh.InputError, match=r"'8\.csv' .* belongs to no step"):
        step_files(tmp_path, ["9", "10"])


# --- forms of times -----------------------------------------------------------------------------------------

WHEN = pd.to_datetime(["2010-12-31 08:15:00", "2011-01-02 20:45:00", "1969-07-20 20:17:00"])
SECONDS = [1293783300, 1294001100, -14182980]


@pytest.mark.parametrize(
    "format",
    ["%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%Y%m%d%H%M", "%d %b %Y, %H:%M:%S", "%a %b %d %H:%M:%S %z %Y"],
)
def test_a_format_reads_what_it_wrote(format):
    texts = [*WHEN.tz_localize("UTC").strftime(format), "someday", None, ""]
    seconds, good = since_1970(pa.array([f" {t}" if t else t for t in texts]), check_format(format))
    assert (seconds[:3].tolist(), good.tolist()) == (SECONDS, [True] * 3 + [False] * 3)
    assert since_1970(pa.array(WHEN), format)[0].tolist() == SECONDS  # columns of times need no format


@pytest.mark.parametrize(("format", "factor"), [("unix", 1), ("unix-ms", 1000)])
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.float64()])
def test_seconds_since_1970(format, factor, kind):
    values = pa.array([s * factor for s in SECONDS] + [None]).cast(kind)
    seconds, good = since_1970(values, format)
    assert (seconds[:3].tolist(), good.tolist()) == (SECONDS, [True, True, True, False])
    with pytest.raises(dh.InputError, match=r"time column holds numbers.*time_format='unix'"):
        since_1970(pa.array([1293783300]), None)


@pytest.mark.parametrize("format", ["%H:%M", "%d/%m", "hello", "", "%d/%m/%Y %Q", 3])
def test_formats_without_a_day_of_a_year_are_refused(format):
    with pytest.raises(dh.InputError, match=r"time_format is .*'%d/%m/%Y %H:%M'"):
        check_format(format)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["31/12/2010 08:15", "01/02/2011 09:00"], ["%d/%m/%Y %H:%M"]),
        (["12/31/2010 8:15 PM"], ["%m/%d/%Y %I:%M %p"]),
        (["31.12.2010"], ["%d.%m.%Y"]),
        (["1/2/10"], ["%d/%m/%y", "%m/%d/%y"]),  # nothing can tell
        (["Tue Apr 03 18:00:09 +0000 2012"], ["%a %b %d %H:%M:%S %z %Y"]),
        (["1293783300"], ["unix"]),
        (["1293783300000"], ["unix-ms"]),
        (["yesterday", "31.12.2010"], []),
        ([], []),
    ],
)
def test_guesses(texts, found):
    assert guess_formats(texts) == found
