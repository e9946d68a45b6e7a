"""`deltahist stream` and `allocate`, in process: tables and folders, resuming, late rows, kills, bad input."""

import json
import shutil
from fractions import Fraction

import duckdb
import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.cli import main
from deltahist.cli.stream import read_amounts
from deltahist.planning import on_cells, plan_cells

DAYS = [f"2020-03-{day:02}" for day in range(1, 13)]
DAILY = {"source": "daily", "time": None}
USERS = ("--user", "who", "--max-per-user", "1")


@pytest.fixture(scope="module")
def first_days(tmp_path_factory):
    """A table of visits over twelve days, the same as a folder of files, and a stream of the first five."""
    folder = tmp_path_factory.mktemp("first")
    rng = np.random.default_rng(1)
    number = 600
    when = pd.Timestamp("2020-03-01", tz="UTC") + pd.to_timedelta(rng.random(number) * 12 * 86_400, unit="s")
    table = pd.DataFrame({"when": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "x": rng.random(number) * 10})
    table["y"], table["who"] = rng.random(number) * 10, rng.integers(0, 80, number)
    table.to_csv(folder / "visits.csv", index=False)
    (folder / "daily").mkdir()
    for day, rows in table.groupby(table["when"].str[:10]):
        rows.to_csv(folder / "daily" / f"{day}.csv", index=False)
    assert main(stream(folder, until="2020-03-05")) == 0
    return folder


@pytest.fixture
def begun(first_days, tmp_path):
    """The stream of five days, for a test of its own."""
    return shutil.copytree(first_days, tmp_path / "begun")


@pytest.fixture
def folder(begun):
    """The data, of which nothing is published."""
    shutil.rmtree(begun / "out")
    for file in begun.glob("city.ledger*"):
        file.unlink()
    return begun


def stream(folder, *more, source="visits.csv", **changed):
    """A command line; options that are None are left out."""
    options = {
        "time": "when", "every": "1d", "start": DAYS[0], "until": DAYS[-1], "length": "4", "epsilon": "2",
        "x": "x", "y": "y", "bounds": "0,0,10,10", "cell": "2", "delta": "2", "strategy": "identity",
        "state": folder / "city.ledger", "out": folder / "out",
    } | changed  # fmt: skip
    words = [(f"--{name.replace('_', '-')}", value) for name, value in options.items() if value is not None]
    return ["stream", str(folder / source), *(str(word) for pair in words for word in pair), *map(str, more)]


def files(folder):
    return sorted(p.stem for p in (folder / "out").glob("*.parquet"))


def charges(folder):
    return Ledger(folder / "city.ledger").charges("stream")


def test_a_table_of_a_database_goes_on_where_it_was(folder, run, refused):
    """Its times are timestamps, and rows that come late are told as those of files are."""
    where = folder / "city.duckdb"
    with duckdb.connect(where) as city:
        made = 'SELECT * REPLACE ("when"::TIMESTAMPTZ AS "when") FROM read_csv(?)'
        city.execute(f"CREATE TABLE visits AS {made}", [str(folder / "visits.csv")])
        (early,) = city.execute("SELECT count(*) FROM visits WHERE \"when\" < '2020-03-04 00:00:00Z'").fetchone()
    options = ("--table", "visits", "--where", "abs(who) >= 0", *USERS)
    said = run(*stream(folder, *options, source=where.name, until="2020-03-03"))
    assert f"{600 - early} rows lie after the last" in said.err
    said = run(*stream(folder, *options, source=where.name))
    assert "published    9 steps" in said.out
    assert files(folder) == DAYS
    with duckdb.connect(where) as city:
        city.execute("INSERT INTO visits FROM visits LIMIT 1")
    refused(stream(folder, *options, source=where.name, until="2020-03-13"), "came late")
    other = folder / "other.ledger"
    refused(stream(folder, *options, source="daily", time=None, state=other), "--table is 'visits' with the folder")


def test_one_release_per_day_each_with_its_share(folder, run):
    said = run(*stream(folder))
    assert "published    12 steps" in said.out
    assert "600 rows read" in said.err
    assert files(folder) == DAYS
    table = pd.read_csv(folder / "visits.csv")
    for name in DAYS:
        release = dh.Release.load(folder / "out" / f"{name}.parquet")
        assert float(release.epsilon) == 0.5
        rows = table[table["when"].str[:10] == name]
        true = dh.count(rows[["x", "y"]].to_numpy(), release.domain)
        # Laplace noise of scale 2 / 0.5: a cell is off by 60 once in 3 million.
        assert np.abs(release.cells() - true).max() < 60
        assert release.total is None
    about = Ledger(folder / "city.ledger").accounts()["stream"]["about"]
    window = dh.Window(4, 2, ledger=folder / "city.ledger", name="stream", about=about)
    assert window.last == 11
    assert (folder / "city.ledger").stat().st_mode & 0o077 == 0  # it holds the exact number of rows
    assert window.available(12) == dh.Window(4, 2).equal
    period = ["--between", "2020-03-02", "2020-03-05"]
    said = run("query", folder / "out", *period, "--box", "0,0,4,4", "--json")
    assert json.loads(said.out)["answers"][0]["steps"] == 4


def test_going_on_with_the_grown_table_or_with_new_rows_only(begun, run):
    first = (begun / "out" / "2020-03-03.parquet").read_bytes()
    assert "published    3 steps" in run(*stream(begun, until="2020-03-08")).out
    table = pd.read_csv(begun / "visits.csv")
    table[table["when"] >= "2020-03-09"].to_csv(begun / "new.csv", index=False)
    run(*stream(begun, source="new.csv"))
    assert files(begun) == DAYS
    assert (begun / "out" / "2020-03-03.parquet").read_bytes() == first
    assert "published    0 steps" in run(*stream(begun)).out


def test_a_ledger_in_a_database_by_its_url(folder, run, refused, postgres_url):
    url = postgres_url.replace("postgres@", "postgres:s3cret@")
    assert f"--state {postgres_url}" in run(*stream(folder, until="2020-03-05", state=url)).out
    refused(stream(folder, until="2020-03-05", state=url, epsilon="3"), "epsilon was 2, is 3")
    assert "published    7 steps" in run(*stream(folder, state=url)).out
    assert max(Ledger(postgres_url).charges("stream")) == 11
    assert not list(folder.glob("*.ledger*"))


def test_a_folder_with_a_file_per_day(folder, run, refused):
    run(*stream(folder, **DAILY))
    assert files(folder) == DAYS
    (folder / "daily" / "2020-03-13.csv").write_text("x,y\n1,1\n")
    refused(stream(folder, **DAILY, until="2020-03-14"), "step 2020-03-14 has no file")
    run(*stream(folder, "--gaps", "empty", **DAILY, until="2020-03-14"))
    assert files(folder)[-1] == "2020-03-14"


def test_step_numbers_and_users(folder, run, refused):
    """A user whose rows are spread over many batches keeps K of them in a step, not K of each batch."""
    from deltahist.counting import reading

    frame = pd.DataFrame({"when": np.repeat([1, 2], 200), "x": 1.0, "y": 1.0, "who": np.arange(400) % 5})
    frame.to_parquet(folder / "numbered.parquet")
    numbers = {"source": "numbered.parquet", "start": "1", "until": "2", "rho": "0.2", "every": None}
    more = ("--user", "who", "--max-per-user", "2", "--sources", "none")
    refused(stream(folder, *more, **numbers), "both --epsilon and --rho")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_ROWS", 7)
        run(*stream(folder, *more, **numbers, epsilon=None))
    assert files(folder) == ["1", "2"]
    for name in files(folder):
        release = dh.Release.load(folder / "out" / f"{name}.parquet")
        assert (release.total, release.contributions, release.counting.unit) == (10, 2, "user")
        assert float(release.rho) == 0.05


AMOUNTS = ["1", "0", "0", "1", "0.999999999", "0", "1e-9", "0", "0.5", "0.5", "0.5", "0.5"]
SPENT = "\n".join(["step,epsilon", *map(",".join, zip(DAYS, AMOUNTS, strict=True))])


def test_budgets_of_the_users_own(folder, run):
    (folder / "budgets.csv").write_text(SPENT)
    said = run(*stream(folder, "--budgets", folder / "budgets.csv", "--window-limit", "8:1.5", "--dry-run")).out
    assert "each step    ε = 0 to 1\nany 4 steps  ε = 2 of 2 (`--window 4`) at most, by --budgets\n" in said
    assert "any 8 steps  ε = 3.5 of 3 (`--window-limit 8:1.5`) at most, by --budgets, which is too much\n" in said
    run(*stream(folder, "--budgets", folder / "budgets.csv"))
    assert len(files(folder)) == 8
    assert float(dh.Release.load(folder / "out" / "2020-03-05.parquet").epsilon) == 0.999999999


def test_a_step_that_was_charged_but_not_finished_is_lost(folder, run, monkeypatch):
    save = dh.Release.save

    def crash(self, path):
        if path.stem == "2020-03-03":
            raise RuntimeError
        save(self, path)

    with monkeypatch.context() as broken:
        broken.setattr(dh.Release, "save", crash)
        with pytest.raises(RuntimeError):
            main(stream(folder))
    assert max(charges(folder)) == 2
    # It may not be drawn again: its budget is spent, and the steps after it have theirs.
    said = run(*stream(folder))
    assert "1 lost" in said.out
    assert "2020-03-03 was charged but never finished" in said.err
    assert files(folder) == [day for day in DAYS if day != "2020-03-03"]


def test_two_runs_at_once_are_refused(begun, refused):
    with Ledger(begun / "city.ledger").exclusive():
        refused(stream(begun), "another process publishes")
    assert len(files(begun)) == 5


def test_longer_changes_are_limited_too(folder, run):
    """Eight steps in a row spend three, so that each gets 3/8 and not 1/2; going on takes the same limit."""
    assert "beyond       within 8 steps ε = 3;" in run(*stream(folder, "--window-limit", "8:1.5")).out
    release = dh.Release.load(folder / "out" / "2020-03-05.parquet")
    assert (release.epsilon, release.facts()["window"]["limits"]) == (Fraction(3, 8), [[8, "3/2"]])
    assert sum(charges(folder).values()) == 3 * 10**9
    assert Ledger(folder / "city.ledger").left("stream") == 0
    shown = run("ledger", "show", folder / "city.ledger").out
    lines = [" ".join(line.split()) for line in shown.splitlines()[-2:]]
    assert lines == ["stream in 4 steps ε = 2 ε = 1.5 ε = 0.5", "in 8 steps ε = 3 ε = 3 ε = 0"]
    assert "2.0,1.5,0.0" in run("ledger", "export", folder / "city.ledger").out


#: What the promise of a stream rests on: options of a later run, and what is said of them.
OTHERS = {
    "another window": ([], {"length": "5"}, "length was 4, is 5"),
    "another budget": ([], {"epsilon": "1"}, "epsilon was 2, is 1"),
    "another δ": ([], {"delta": "3"}, "delta was 2.0, is 3.0"),
    "another map": ([], {"bounds": "0,0,12,12"}, "bounds"),
    "another strategy": ([], {"strategy": "wavelet"}, "strategy"),
    "another start": ([], {"start": "2020-03-02"}, "start"),
    "other steps": ([], {"every": "12h"}, "every"),
    "points, then users": (USERS, {}, "unit was"),
    "points outside dropped": (["--outside", "drop"], {}, "dropped was"),
    "another time": ([], {"time": "later"}, "time was"),
    "other sources": (["--sources", "none"], {}, "neighbourhood.sources was"),
    "a condition": (["--where", "who > 3"], {}, "about.where was null"),
    "other limits": (["--window-limit", "8:1.5"], {}, "limits was"),
    "late rows": ([], {"source": "late.csv"}, "1 rows came late"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_that_the_promise_rests_on_must_match(begun, refused, name):
    more, changed, message = OTHERS[name]
    table = pd.read_csv(begun / "visits.csv")
    late = pd.DataFrame({"when": ["2020-03-02T10:00:00Z"], "x": [1.0], "y": [1.0], "who": [3]})
    pd.concat([table, late]).to_csv(begun / "late.csv", index=False)
    table.assign(later=table["when"]).to_csv(begun / "visits.csv", index=False)
    before = charges(begun)
    refused(stream(begun, *more, **changed), message)
    assert charges(begun) == before
    assert len(files(begun)) == 5


def test_users_must_match(folder, run, refused):
    run(*stream(folder, *USERS, until=DAYS[0]))
    for more, message in [
        ([], "unit was"),
        (["--user", "x", "--max-per-user", "1"], "user was"),
        (["--user", "who", "--max-per-user", "2"], "contributions was 1, is 2"),
    ]:
        refused(stream(folder, *more), message)
    assert files(folder) == [DAYS[0]]


def test_another_way_to_the_map_is_refused(tmp_path, run, refused):
    """Each day of a folder may say its own CRS: the same operation must bring all of them to the map."""
    (tmp_path / "daily").mkdir()
    for day in (1, 2):
        frame = pd.DataFrame({"lon": [10.2, 10.3], "lat": [48.1, 48.2]})
        frame.to_csv(tmp_path / "daily" / f"2020-03-0{day}.csv", index=False)
    place = DAILY | {"x": "lon", "y": "lat", "project": "EPSG:25832", "cell": "1km", "delta": "2km"}
    place["bounds"] = "580000,5300000,620000,5360000"
    run(*stream(tmp_path, **place, crs="EPSG:4326", until="2020-03-01"))
    line = stream(tmp_path, **place, crs="EPSG:4230", until="2020-03-02")
    refused(line, "rows became counts in another way", "ED50 to ETRS89")
    assert set(charges(tmp_path)) == {0}
    run(*stream(tmp_path, **place, crs="EPSG:4326", until="2020-03-02"))


#: A file beside the good ones, options, and what is said of them.
MISTAKES = [
    ("daily/2020-03-05.tsv", "x,y\n1,1\n", [], DAILY, "both for step 2020-03-05"),
    ("daily/notes.csv", "x,y\n1,1\n", [], DAILY, "belongs to no step"),
    ("daily/2020-02-28.csv", "x,y\n1,1\n", [], DAILY, "belongs to no step"),
    # A folder is looked through before the first charge.
    ("daily/2020-03-03.csv", "when,x,y\n2020-03-03,1,1\n2020-03-03,here,1\n", [], DAILY, "03.csv' have missing"),
    ("daily/2020-03-03.csv", "when,x,y\n2020-03-03,,1\n", ["--drop-bad-rows", "--outside", "clamp"], DAILY,
     "none of the 1 rows"),
    ("daily/2020-03-03.csv", "when,east,y\n2020-03-03,1,1\n", [], DAILY, "column 'x' is not in '2020-03-03.csv'"),
    ("b.csv", SPENT.replace("2020-03-03,0", "2020-03-02,0"), [], {}, "repeated"),
    ("b.csv", SPENT.replace("2020-03-06,0\n", ""), [], {}, "after a gap"),
    ("b.csv", SPENT.replace(",0.5", ",-1"), [], {}, "zero or more"),
    ("b.csv", "step,epsilon\n\xff1\n", [], {}, "cannot be read as CSV in UTF-8"),
    (None, "", ["--window-limit", "8"], {}, "--window-limit is '8': it must be a number of steps and how many times"),
    (None, "", ["--window-limit", "any:4"], {}, "--window-limit is any:4 without --budgets: equal shares would be"),
    (None, "", ["--window-limit", "4:2"], {}, "it must be about more steps than the window's 4"),
    (None, "", ["--window-limit", "8:0.5"], {}, "--window-limit is '8:0.5': the factor must be at least 1"),
    (None, "", ["--window-limit", "2km:2"], {}, "the number of steps is '2km': it must be a whole number of at"),
    (None, "", ["--window-limit", "8:many"], {}, "--window-limit '8:many': the factor is 'many'"),
    (None, "", [], {"until": "2020-02-01"}, "--until is '2020-02-01'"),
    (None, "", [], {"start": "early"}, "--start is 'early'"),
    (None, "", [], {"length": "x"}, "--window is 'x'"),
    (None, "", [], {"time": "hour"}, "--time is 'hour': column 'hour' is not in"),
    (None, "", [], DAILY | {"time_format": "%d/%m/%Y"}, "it must be left out"),
    (None, "", [], {"where": "who >"}, "cannot be read"),
    (None, "", [], {"gaps": "none"}, "'--gaps': 'none' is not one of 'error', 'empty'"),
    (None, "", [], {"source": "nowhere.csv"}, "does not exist"),
    (None, "", [], {"source": "daily"}, "then leave out the times"),
    (None, "", [], {"epsilon": "0"}, "--epsilon is '0'"),
    (None, "", [], {"epsilon": "8"}, "epsilon is 8 for every window of 4 steps"),
    (None, "", [], {"epsilon": "20"}, "epsilon is 20 for every window of 4 steps"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "more", "changed", "message"), MISTAKES)
def test_bad_input_spends_nothing(folder, refused, name, text, more, changed, message):
    if name is not None:
        (folder / name).write_text(text, encoding="latin-1")
        more = ["--budgets", folder / name] if name == "b.csv" else more
    before = sorted(folder.rglob("*"))
    refused(stream(folder, *more, **changed), message)
    assert sorted(folder.rglob("*")) == before


def test_a_window_that_protects_nobody_can_be_accepted(folder, run, refused):
    refused(stream(folder, epsilon="20"), "--weak-protection-accepted")
    run(*stream(folder, "--weak-protection-accepted", epsilon="20"))


# allocate


def test_allocate_and_stream_with_it(folder, run):
    demand = [f"{day},{number % 3 and 1}" for number, day in enumerate(DAYS, start=1)]
    (folder / "w.csv").write_text("\n".join(["step,weight", *demand]))
    line = ["allocate", folder / "w.csv", "--window", "4", "--epsilon", "2", "--out", folder / "b.csv"]
    assert "of that of equal shares" in run(*line).out
    run(*stream(folder, "--budgets", folder / "b.csv"))
    assert len(files(folder)) == 8


def test_allocate_online_and_tables(tmp_path, run):
    file = tmp_path / "w.csv"
    file.write_text("weight\n1\n0\n0\n1\n2\n0\n1\n")
    offline = run("allocate", file, "--window", "3", "--epsilon", "1").out
    assert offline.splitlines()[2].split() == ["1", "1", "1"]
    more = ["--online", "0.5", "--scenarios", "50"]
    online = run("allocate", file, "--window", "3", "--epsilon", "1", *more).out
    shares = [float(text.splitlines()[-1].split()[3]) for text in (offline, online)]
    assert shares[0] < shares[1] < 1.1
    run("allocate", file, "--window", "3", "--rho", "1")
    file.write_text("weight\n0\n0\n")
    assert "all weights are 0" in run("allocate", file, "--window", "2", "--rho", "1").out


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("weight\n1\n-1\n1\n", [], "weights are -1 at step 2"),
        ("weight\n1\nmany\n1\n", [], "weight 'many' at step 2"),
        ("weight\n\xff1\n", [], "cannot be read as CSV in UTF-8"),
        ("value\n1\n", [], "column weight"),
        ("step,weight\na,1\na,1\nb,1\n", [], "step 'a' more than once"),
        ("step,weight\n1,1\n3,1\n2,1\n", [], "step '2' after '3'"),
        ("weight\n1\n1\n1\n", ["--online", "1.5"], "--online is 1.5"),
        ("weight\n1\n1\n1\n", ["--power", "0"], "--power is '0'"),
    ],
)
def test_bad_weights(tmp_path, refused, text, more, message):
    (tmp_path / "w.csv").write_text(text, encoding="latin-1")
    line = ["allocate", tmp_path / "w.csv", "--window", "3", "--epsilon", "1", "--out", tmp_path / "b.csv", *more]
    refused(line, message)
    assert not (tmp_path / "b.csv").exists()


def test_cells_of_a_stream_are_chosen_once_for_what_is_asked(folder, run, refused):
    how = {"cell": "auto", "strategy": None, "bounds": "0,0,20,20"}
    more = ("--squares", "3", "--points", "50")
    run(*stream(folder, *more, until="2020-03-03", **how))
    first = dh.load(folder / "out" / "2020-03-01.parquet")
    share = dh.Budget(epsilon=2 / 4)
    work = dh.workloads.random_squares(3, 2_000, first.domain)
    best = plan_cells(on_cells((0, 0, 20, 20), 2, sources="boundary"), 50, work, epsilon=share.epsilon)[0]
    assert first.domain == best.neighbourhood.domain
    assert first.strategy.describe() == best.mechanism.strategy.describe()
    run(*stream(folder, *more, until="2020-03-04", **how))  # the same again, and the ledger goes on
    assert dh.load(folder / "out" / "2020-03-04.parquet").domain == first.domain
    refused(stream(folder, until="2020-03-05", **how | {"cell": "1"}), "was")


def test_cells_are_chosen_for_the_share_that_a_limit_leaves(folder, run):
    """Much less for a step makes larger cells the best ones."""
    line = stream(folder, "--squares", "3", "--points", "2000", "--dry-run", cell="auto", strategy=None, epsilon="4")
    found = [run(*line, *more).out.splitlines()[0] for more in ([], ["--window-limit", "400:4"])]
    assert found == ["cells        20 × 20 of 0.5 × 0.5 units", "cells        5 × 5 of 2 × 2 units"]


@pytest.mark.parametrize("amount", ["9" * 5000, "-1", "nan", "1/0"])
def test_an_amount_that_is_no_number_is_refused_at_once(tmp_path, amount):
    (tmp_path / "b.csv").write_text(f"step,epsilon\n1,0.5\n2,{amount}\n")
    with pytest.raises(dh.InputError, match="for step 2: it must be a number, zero or more") as caught:
        read_amounts(tmp_path / "b.csv", ["1", "2"], "epsilon")
    assert len(str(caught.value)) < 300


def test_amounts_are_exact(tmp_path):
    (tmp_path / "b.csv").write_text("step,epsilon\n1,0.1\n2,1/3\n3,0\n")
    assert read_amounts(tmp_path / "b.csv", ["1", "2", "3"], "epsilon") == [Fraction(1, 10), Fraction(1, 3), 0]


def test_a_dry_run_tells_the_cost_and_errors_of_a_year(folder, run, refused):
    pd.DataFrame({"west": [0, 4], "south": [0, 4], "east": [4, 10], "north": [6, 10]}).to_csv(folder / "b.csv")
    before = sorted(folder.iterdir())
    said = run(*stream(folder, "--dry-run", "--boxes", folder / "b.csv", "--window-limit", "8:1.6", every="1w",
                       until="2021-02-27")).out  # fmt: skip
    assert sorted(folder.iterdir()) == before
    assert "steps        52 of 1 week each, 2020-03-01 to 2021-02-21 (UTC)\n" in said
    assert "each step    ε = 0.4: `--window-limit 8:1.6` binds, any 8 steps spend at most 3.2\n" in said
    assert "any 4 steps  ε = 1.6 of 2 (`--window 4`), since `--window-limit 8:1.6` leaves no more\n" in said
    assert "cannot be judged without --points" in said
    near = dh.Neighbourhood(dh.Domain((0, 0, 10, 10), (5, 5)), delta=2, sources="boundary")
    step = dh.Mechanism(near.capped(), dh.strategies.Identity(near.domain), dh.Budget(0.4))
    boxes = dh.workloads.boxes([[0, 0, 4, 6], [4, 4, 10, 10]])
    rows = {" ".join(line.split()[:2]): line.split()[2:] for line in said.splitlines()}
    for name, steps in (("a step", 1), ("a month", 4), ("a year", 52)):
        number, *spends, cell, query, least, _, most = rows[name]
        assert (int(number), spends[2]) == (steps, f"{0.4 * steps:g}")
        assert float(cell) == pytest.approx(step.noise_of_a_cell * steps**0.5, rel=1e-3)
        assert float(query) == pytest.approx(step.rmse(boxes) * steps**0.5, rel=1e-3)
        errors = np.sqrt(steps * step.variance(boxes))
        assert [float(least), float(most)] == pytest.approx([errors.min(), errors.max()], rel=1e-3)
    run(*stream(folder, until=DAYS[1]))
    assert "left         ε = 1 for step 2020-03-03" in run(*stream(folder, "--dry-run")).out


def test_steps_of_a_shifted_zone_are_called_by_their_start_in_utc(folder, run):
    shifted = {"start": "2020-03-01T00:00-05:00", "until": "2020-03-02T00:00-05:00", "every": "6h"}
    said = run(*stream(folder, "--dry-run", **shifted)).out
    assert "steps        5 of 6 hours each, 2020-03-01T050000 to 2020-03-02T050000 (UTC)\n" in said
    run(*stream(folder, **shifted))
    assert files(folder)[0] == "2020-03-01T050000"


PERIODS = ("step", "week", "month", "year")


@pytest.fixture
def districts(folder):
    """One large district and nine small ones."""
    shapes = [shapely.box(0, 1, 10, 10), *(shapely.box(i, 0, i + 1, 1) for i in range(9))]
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        gpd.GeoDataFrame({"name": ["large", *"abcdefghi"]}, geometry=shapes).to_file(folder / "d.gpkg")
    return folder / "d.gpkg"


def test_unequal_districts_drown_one_by_one(folder, run, refused, districts):
    """A mean hides that nine of ten have fewer points than noise: points are spread by area."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 10, 10), (5, 5)), delta=2, sources="boundary")
    step = dh.Mechanism(near.capped(), dh.strategies.Identity(near.domain), dh.Budget(0.5))
    small = float(np.sqrt(step.variance(dh.workloads.regions([shapely.box(0, 0, 1, 1)])))[0])
    asked = ("--dry-run", "--regions", districts)
    said = run(*stream(folder, *asked, "--points", 95 * small, until="2021-02-28")).out
    rows = {" ".join(line.split()[:2]): line.split()[-4:] for line in said.splitlines()}
    points = [95 * small * 99 / 100 / 10 * steps for steps in (1, 7, 30, 365)]
    assert [float(rows[f"a {name}"][0].replace(",", "")) for name in PERIODS] == pytest.approx(points, rel=1e-3)
    (drowned,) = (line for line in said.splitlines() if line.startswith("In a "))
    assert drowned.startswith("In a step drown ")
    assert drowned.endswith(" and 4 others.")
    assert "large" not in drowned
    assert [rows[f"a {name}"][1:] for name in PERIODS] == [[number, "of", "10"] for number in "9000"]
    assert "Which of them drown in noise cannot be judged without --points" in run(*stream(folder, *asked)).out
    refused(stream(folder, *asked, "--points", "0"), "--points is '0': it must be a finite number above zero")


def test_regions_that_would_drown_are_refused_before_rows_are_read(folder, run, refused):
    squares = [shapely.box(i, j, i + 1, j + 1) for i in range(10) for j in range(10)]
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        gpd.GeoDataFrame(geometry=squares).to_file(folder / "d.gpkg")
    asked = ("--regions", folder / "d.gpkg", "--points", "90")
    refused(stream(folder, *asked), "--points is 90 in a step, 0.9 on average in 100 regions, but the noise")
    assert not (folder / "city.ledger").exists()
    assert "published    12 steps" in run(*stream(folder, *asked, "--anyway")).out


def test_a_column_with_hardly_any_time_is_asked_about(folder, refused):
    table = pd.read_csv(folder / "visits.csv")
    table.loc[5:, "when"] = "23261"
    table.to_csv(folder / "visits.csv", index=False)
    refused(stream(folder), "595 of them have no time that can be read: it is '23261' in row 6", "the right column?")
