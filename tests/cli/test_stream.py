"""`deltahist stream`: tables and folders, resuming, lost steps, bad input; what is said of its folder."""

import json
import shutil
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.cli import main
from deltahist.statement import list_facts

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
        "time": "when", "every": "1d", "start": DAYS[0], "until": DAYS[-1], "window": "4", "epsilon": "2",
        "x": "x", "y": "y", "bounds": "0,0,10,10", "cell": "2", "delta": "2", "strategy": "identity",
        "state": folder / "city.ledger", "out": folder / "out",
    } | changed  # fmt: skip
    words = [(f"--{name.replace('_', '-')}", value) for name, value in options.items() if value is not None]
    return ["stream", str(folder / source), *(str(word) for pair in words for word in pair), *map(str, more)]


def files(folder):
    return sorted(p.stem for p in (folder / "out").glob("*.parquet"))


def charges(folder):
    return Ledger(folder / "city.ledger").list_charges("stream")


def test_one_release_per_day_each_with_its_share(folder, run):
    run(*stream(folder, "--title", "Visits", "--licence", "CC0"))
    assert files(folder) == DAYS
    assert dh.Series.load(folder / "out").about.licence == "CC0"
    table = pd.read_csv(folder / "visits.csv")
    for name in DAYS:
        release = dh.load(folder / "out" / f"{name}.parquet")
        assert float(release.epsilon) == 0.5
        rows = table[table["when"].str[:10] == name]
        true = np.asarray(dh.count(rows[["x", "y"]].to_numpy(), release.domain))
        # Laplace noise of scale 2 / 0.5: a cell is off by 60 once in 3 million.
        assert np.abs(release.cells() - true).max() < 60
        assert release.total is None
    assert charges(folder) == dict.fromkeys(range(12), 500_000_000)
    assert (folder / "city.ledger").stat().st_mode & 0o077 == 0
    period = ["--between", "2020-03-02", "2020-03-05"]
    said = run("query", folder / "out", *period, "--box", "0,0,4,4", "--format", "json")
    assert json.loads(said.out)["answers"][0]["steps"] == 4


def test_going_on_with_the_grown_table_or_with_new_rows_only(begun, run):
    first = (begun / "out" / "2020-03-03.parquet").read_bytes()
    table = pd.read_csv(begun / "visits.csv")
    late = int((table["when"] < "2020-03-06").sum())
    said = run(*stream(begun, until="2020-03-08")).err
    assert f"{late:,} rows left out: they lie before 2020-03-06" in said
    table[table["when"] >= "2020-03-09"].to_csv(begun / "new.csv", index=False)
    run(*stream(begun, source="new.csv"))
    assert files(begun) == DAYS
    assert (begun / "out" / "2020-03-03.parquet").read_bytes() == first
    assert "0 steps" in run(*stream(begun)).out


def test_a_ledger_in_a_database_by_its_url(folder, run, refused, postgres_url):
    url = postgres_url.replace("postgres@", "postgres:s3cret@")
    assert f"--state {postgres_url}" in run(*stream(folder, until="2020-03-05", state=url)).out
    assert "s3cret" not in refused(stream(folder, until="2020-03-05", state=url, epsilon="3"), "epsilon was 2, is 3")
    run(*stream(folder, state=url))
    assert max(Ledger(postgres_url).list_charges("stream")) == 11
    assert not list(folder.glob("*.ledger*"))


def test_a_folder_with_a_file_per_day(folder, run, refused):
    run(*stream(folder, **DAILY))
    assert files(folder) == DAYS
    (folder / "daily" / "2020-03-13.csv").write_text("x,y\n1,1\n")
    refused(stream(folder, **DAILY, until="2020-03-14"), "step 2020-03-14 has no file")
    (folder / "daily" / "2020-03-14.csv").write_text("x,y\n1,1\n")
    run(*stream(folder, **DAILY, until="2020-03-14"))
    assert files(folder)[-1] == "2020-03-14"


def test_step_numbers_and_users(folder, run, refused):
    frame = pd.DataFrame({"when": np.repeat([1, 2], 200), "x": 1.0, "y": 1.0, "who": np.arange(400) % 5})
    frame.to_parquet(folder / "numbered.parquet")
    numbers = {"source": "numbered.parquet", "start": "1", "until": "2", "rho": "0.2", "every": None}
    more = ("--user", "who", "--max-per-user", "2", "--sources", "none")
    refused(stream(folder, *more, **numbers), "--epsilon and --rho")
    run(*stream(folder, *more, **numbers, epsilon=None))
    assert files(folder) == ["1", "2"]
    for name in files(folder):
        release = dh.load(folder / "out" / f"{name}.parquet")
        assert (release.total, release.counting.contributions, release.counting.unit) == (10, 2, "user")
        assert float(release.rho) == 0.05


AMOUNTS = ["1", "0", "0", "1", "0.999999999", "0", "1e-9", "0", "0.5", "0.5", "0.5", "0.5"]
SPENT = "\n".join(["step,epsilon", *map(",".join, zip(DAYS, AMOUNTS, strict=True))])


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
    assert "2020-03-03" in said.err
    assert files(folder) == [day for day in DAYS if day != "2020-03-03"]


def test_longer_changes_are_limited_too(folder, run):
    """Eight steps in a row spend three, so that each gets 3/8 and not 1/2; going on takes the same limit."""
    said = run(*stream(folder, "--window-limit", "8:1.5")).out
    assert "in each step any move costs at most ε = 0.375\n" in said
    release = dh.load(folder / "out" / "2020-03-05.parquet")
    assert (release.epsilon, list_facts(release)["window"]["limits"]) == (Fraction(3, 8), [[8, "3/2"]])
    assert charges(folder) == dict.fromkeys(range(12), 375_000_000)
    assert Ledger(folder / "city.ledger").left("stream") == 0
    shown = run("ledger", "show", folder / "city.ledger").out
    lines = [" ".join(line.split()) for line in shown.splitlines()[2:4]]
    assert lines == ["stream in 4 steps ε = 2 ε = 1.5 ε = 0.5", "in 8 steps ε = 3 ε = 3 ε = 0"]


#: What the promise of a stream rests on: options of a later run, and what is said of them.
OTHERS = {
    "another window": ([], {"window": "5"}, "length was 4, is 5"),
    "another δ": ([], {"delta": "3"}, "delta was 2.0, is 3.0"),
    "another map": ([], {"bounds": "0,0,12,12"}, "bounds"),
    "other steps": ([], {"every": "12h"}, "every"),
    "points, then users": (USERS, {}, "unit was"),
    "points outside dropped": (["--outside", "drop"], {}, "dropped was"),
    "days of another time zone": (["--tz", "Europe/Berlin"], {}, "tz was null"),
    "other sources": (["--sources", "none"], {}, "neighbourhood.sources was"),
    "a condition": (["--where", "who > 3"], {}, "about.where was null"),
    "other limits": (["--window-limit", "8:1.5"], {}, "limits was"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_that_the_promise_rests_on_must_match(begun, refused, name):
    more, changed, message = OTHERS[name]
    table = pd.read_csv(begun / "visits.csv")
    table.assign(later=table["when"]).to_csv(begun / "visits.csv", index=False)
    before = charges(begun)
    refused(stream(begun, *more, **changed), message)
    assert charges(begun) == before
    assert len(files(begun)) == 5


def test_another_way_to_the_map_is_refused(tmp_path, run, refused):
    """Each day of a folder may say its own CRS: the same operation must bring all of them to the map."""
    (tmp_path / "daily").mkdir()
    for day in (1, 2):
        frame = pd.DataFrame({"lon": [10.2, 10.3], "lat": [48.1, 48.2]})
        frame.to_csv(tmp_path / "daily" / f"2020-03-0{day}.csv", index=False)
    place = DAILY | {"x": "lon", "y": "lat", "project": "EPSG:25832", "cell": "1km", "delta": "2km"}
    place["bounds"] = "580000,5300000,620000,5360000"
    run(*stream(tmp_path, **place, crs="EPSG:4326", until="2020-03-01"))
    refused(stream(tmp_path, **place, crs="EPSG:4230", until="2020-03-02"), "projection")
    assert set(charges(tmp_path)) == {0}
    run(*stream(tmp_path, **place, crs="EPSG:4326", until="2020-03-02"))


#: A file beside the good ones, options.
MISTAKES = [
    ("daily/2020-03-05.tsv", "x,y\n1,1\n", [], DAILY),
    ("daily/notes.csv", "x,y\n1,1\n", [], DAILY),
    # A folder is looked through before the first charge.
    ("daily/2020-03-03.csv", "when,x,y\n2020-03-03,1,1\n2020-03-03,here,1\n", [], DAILY),
    ("daily/2020-03-03.csv", "when,east,y\n2020-03-03,1,1\n", [], DAILY),
    ("b.csv", SPENT.replace("2020-03-03,0", "2020-03-02,0"), [], {}),
    ("b.csv", SPENT.replace("2020-03-06,0\n", ""), [], {}),
    ("b.csv", SPENT.replace(",0.5", ",-1"), [], {}),
    (None, "", ["--window-limit", "8"], {}),
    (None, "", ["--window-limit", "8:0.5"], {}),
    (None, "", [], {"until": "2020-02-01"}),
    (None, "", [], {"time": "who"}),
    (None, "", [], {"time": None}),
    (None, "", [], {"epsilon": "200"}),
    (None, "", [], DAILY | {"out": "daily"}),
]


@pytest.mark.parametrize(("name", "text", "more", "changed"), MISTAKES)
def test_bad_input_spends_nothing(folder, refused, name, text, more, changed):
    if name is not None:
        (folder / name).write_text(text)
    budgets = ["--budgets", folder / "b.csv"] if name == "b.csv" else []
    if "out" in changed:
        changed = changed | {"out": folder / changed["out"]}
    refused(stream(folder, *more, *budgets, **changed))
    assert not (folder / "out").exists()
    if (folder / "city.ledger").exists():
        assert Ledger(folder / "city.ledger").list_accounts() == {}


def test_a_stream_says_what_all_accounts_of_the_same_people_cost(folder, run):
    """1 for a map, 6 for twelve steps; in any window of steps at most 1 and 2. All steps cost less than one may."""
    ledger = Ledger(folder / "city.ledger")
    ledger.open("visits", epsilon=1)
    ledger.charge("visits", 1)
    said = run(*stream(folder, "--account", "days"))
    assert "'days' is new" in said.err
    people = "have spent ε = 7 together, without a limit (one window of each stream: 3)"
    assert people in said.out
    assert people in " ".join(run("statement", folder / "out" / f"{DAYS[-1]}.parquet").out.split())
    assert people in run("ledger", "show", folder / "city.ledger").out


def test_a_stream_that_costs_more_than_one_release_may_says_so(folder, run):
    """Twelve steps of 0.6 are 7.2, above ln 999 = 6.91."""
    line = stream(folder, window="5", epsilon="3")
    for more in (["--dry-run"], []):
        assert "warning: all steps together cost ε = 7.2:" in run(*line, *more).err
    assert "WEAK PROTECTION: from all 12 releases together" in " ".join(run("statement", folder / "out").out.split())


def test_a_folder_says_what_all_its_releases_cost(first_days, run, tmp_path):
    facts = json.loads(run("statement", first_days / "out", "--json").out)
    assert facts["epsilon"] == facts["series"]["together"]["epsilon"] == 2.5
    assert facts["promise"].startswith("5 releases, together ε = 2.5 for each point")
    assert facts["series"]["spent"] == dict.fromkeys(DAYS[:5], 0.5)
    line = ["--between", DAYS[2], DAYS[3], "--compare", DAYS[0], DAYS[1], "--box", "0,0,4,4", "--format", "json"]
    change = json.loads(run("query", first_days / "out", *line).out)
    assert change["promise"].startswith("4 releases, together ε = 2 for each point")
    said = " ".join(run("statement", first_days / "out").out.split())
    assert "Any 4 consecutive steps of 1 day spend at most ε = 2 together" in said
    assert "All 5 releases together cost ε = 2.5" in said
    run("statement", first_days / "out", "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("data:image/svg+xml") == 1


def test_a_dry_run_shows_figures_and_makes_nothing(folder, run):
    before = sorted(folder.iterdir())
    said = run(*stream(folder, "--dry-run", "--window-limit", "8:1.6", every="1w", until="2021-02-27")).out
    assert sorted(folder.iterdir()) == before
    rows = [line.split() for line in said.splitlines()]
    assert ["step", "1", "0.4"] in [row[:3] for row in rows]
    assert ["window", "4", "1.6", "2"] in [row[:4] for row in rows]
    assert ["window", "8", "3.2", "3.2"] in [row[:4] for row in rows]
    assert ["year", "52", "20.8"] in [row[:3] for row in rows]


def test_each_step_has_its_own_budget(folder, run):
    best = dh.accounts.allocate_offline([1, 0, 0, 1] * 3, length=4, epsilon=2)
    budgets = pd.DataFrame({"step": DAYS, "epsilon": best})
    budgets.to_csv(folder / "budgets.csv", index=False, float_format="%.9f")
    run(*stream(folder, "--budgets", folder / "budgets.csv"))
    assert files(folder) == [day for day, amount in zip(DAYS, best, strict=True) if amount]
