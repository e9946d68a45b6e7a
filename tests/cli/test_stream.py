"""`deltahist stream` and `allocate`, in process: tables and folders, resuming, late rows, kills, bad input."""

import re
import shutil
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.accounts.ledger import Ledger
from deltahist.cli import main
from deltahist.cli.stream import read_amounts
from deltahist.planning import on_cells, plan_cells

DAYS = 12


def write_visits(folder):
    """Write a table of visits over twelve days, and the same as a folder of files."""
    rng = np.random.default_rng(1)
    number = 600
    when = pd.Timestamp("2020-03-01", tz="UTC") + pd.to_timedelta(rng.random(number) * DAYS * 86_400, unit="s")
    table = pd.DataFrame({"when": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "x": rng.random(number) * 10})
    table["y"], table["who"] = rng.random(number) * 10, rng.integers(0, 80, number)
    table.to_csv(folder / "visits.csv", index=False)
    (folder / "daily").mkdir()
    for day, rows in table.groupby(table["when"].str[:10]):
        rows.to_csv(folder / "daily" / f"{day}.csv", index=False)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_visits(tmp_path)


@pytest.fixture(scope="module")
def first_days(tmp_path_factory):
    """A stream of which five days are published."""
    folder = write_visits(tmp_path_factory.mktemp("first"))
    assert stream(folder, until="2020-03-05") == 0
    return folder


@pytest.fixture
def begun(first_days, tmp_path):
    """The stream of five days, for a test of its own."""
    return shutil.copytree(first_days, tmp_path / "begun")


def stream(folder, *more, source="visits.csv", until="2020-03-12", drop=(), **changed):
    options = {
        "time": "when", "every": "1d", "start": "2020-03-01", "until": until, "length": "4", "epsilon": "2",
        "x": "x", "y": "y", "bounds": "0,0,10,10", "cell": "2", "delta": "2", "strategy": "identity",
        "state": folder / "city.ledger", "out": folder / "out",
    } | changed  # fmt: skip
    line = ["stream", folder / source]
    for name, value in options.items():
        if name not in drop:
            line += [f"--{name.replace('_', '-')}", value]
    return main([str(part) for part in [*line, *more]])


def files(folder):
    return sorted(p.stem for p in (folder / "out").glob("*.parquet")) if (folder / "out").exists() else []


def test_one_release_per_day_each_with_its_share(folder, capsys):
    assert stream(folder) == 0
    said = capsys.readouterr()
    assert "published    12 steps" in said.out
    assert "600 rows read" in said.err
    assert files(folder) == [f"2020-03-{d:02}" for d in range(1, 13)]
    table = pd.read_csv(folder / "visits.csv")
    for name in files(folder):
        release = dh.Release.load(folder / "out" / f"{name}.parquet")
        assert float(release.epsilon) == 0.5
        rows = table[table["when"].str[:10] == name]
        true = dh.count(rows[["x", "y"]].to_numpy(), release.domain)
        # Laplace noise of scale 2 / 0.5: a cell is off by 60 once in 3 million.
        assert np.abs(release.cells() - true).max() < 60
        assert release.total is None
    window = dh.Window(4, 2, ledger=folder / "city.ledger", name="stream", about=_about(folder))
    assert window.last == 11
    assert (folder / "city.ledger").stat().st_mode & 0o077 == 0  # it holds the exact number of rows
    assert window.available(12) == dh.Window(4, 2).equal


def _about(folder):
    return Ledger(folder / "city.ledger").accounts()["stream"]["about"]


def test_going_on_with_the_grown_table_or_with_new_rows_only(folder, capsys):
    assert stream(folder, until="2020-03-05") == 0
    first = (folder / "out" / "2020-03-03.parquet").read_bytes()
    assert stream(folder, until="2020-03-08") == 0
    assert "published    3 steps" in capsys.readouterr().out
    table = pd.read_csv(folder / "visits.csv")
    table[table["when"] >= "2020-03-09"].to_csv(folder / "new.csv", index=False)
    assert stream(folder, source="new.csv") == 0
    assert len(files(folder)) == DAYS
    assert (folder / "out" / "2020-03-03.parquet").read_bytes() == first
    assert stream(folder) == 0
    assert "published    0 steps" in capsys.readouterr().out


def test_a_ledger_in_a_database_by_its_url(folder, capsys, postgres_url):
    url = postgres_url.replace("postgres@", "postgres:s3cret@")
    assert stream(folder, until="2020-03-05", state=url) == 0
    assert f"--state {postgres_url}" in capsys.readouterr().out
    assert stream(folder, until="2020-03-05", state=url, epsilon="3") == 2
    assert "epsilon was 2, is 3" in capsys.readouterr().err
    assert stream(folder, state=url) == 0
    assert "published    7 steps" in capsys.readouterr().out
    assert max(Ledger(postgres_url).charges("stream")) == DAYS - 1
    assert not list(folder.glob("*.ledger*"))


def test_late_rows_are_refused_and_spend_nothing(begun, capsys):
    table = pd.read_csv(begun / "visits.csv")
    late = pd.DataFrame({"when": ["2020-03-02T10:00:00Z"], "x": [1.0], "y": [1.0], "who": [3]})
    pd.concat([table, late]).to_csv(begun / "visits.csv", index=False)
    before = Ledger(begun / "city.ledger").charges("stream")
    assert stream(begun) == 2
    assert "1 rows came late" in capsys.readouterr().err
    assert Ledger(begun / "city.ledger").charges("stream") == before
    assert len(files(begun)) == 5


def test_a_folder_with_a_file_per_day(folder, capsys):
    assert stream(folder, source="daily", drop=("time",)) == 0
    assert len(files(folder)) == DAYS
    (folder / "daily" / "2020-03-13.csv").write_text("x,y\n1,1\n")
    assert stream(folder, source="daily", drop=("time",), until="2020-03-14") == 2
    assert "step 2020-03-14 has no file" in capsys.readouterr().err
    assert stream(folder, "--gaps", "empty", source="daily", drop=("time",), until="2020-03-14") == 0
    assert files(folder)[-1] == "2020-03-14"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2020-03-05.tsv", "both for step 2020-03-05"),
        ("notes.csv", "belongs to no step"),
        ("2020-02-28.csv", "belongs to no step"),
    ],
)
def test_files_that_are_no_steps(folder, capsys, name, message):
    (folder / "daily" / name).write_text("x,y\n1,1\n")
    assert stream(folder, source="daily", drop=("time",)) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "city.ledger").exists()


def test_step_numbers_and_users(folder):
    table = pd.read_csv(folder / "visits.csv")
    table["when"] = pd.to_datetime(table["when"]).dt.day
    table.to_csv(folder / "numbered.csv", index=False)
    more = ("--user", "who", "--max-per-user", "2")
    numbers = {"source": "numbered.csv", "start": "1", "until": "12", "rho": "0.2"}
    assert stream(folder, *more, drop=("every",), **numbers) == 2  # both budgets
    assert stream(folder, *more, drop=("every", "epsilon"), **numbers) == 0
    assert files(folder) == sorted(map(str, range(1, 13)))
    release = dh.Release.load(folder / "out" / "7.parquet")
    assert release.contributions == 2
    assert float(release.rho) == 0.05


def test_budgets_of_the_users_own(folder, capsys):
    amounts = ["1", "0", "0", "1", "0.999999999", "0", "1e-9", "0", "0.5", "0.5", "0.5", "0.5"]
    rows = [f"2020-03-{d:02},{a}" for d, a in enumerate(amounts, start=1)]
    (folder / "budgets.csv").write_text("\n".join(["step,epsilon", *rows]))
    assert stream(folder, "--budgets", folder / "budgets.csv") == 0
    assert len(files(folder)) == 8
    assert float(dh.Release.load(folder / "out" / "2020-03-05.parquet").epsilon) == 0.999999999
    (folder / "budgets.csv").write_text(
        "\n".join(["step,epsilon", *rows]).replace("2020-03-03,0", "2020-03-02,0")
    )
    assert stream(folder, "--budgets", folder / "budgets.csv", state=folder / "other", out=folder / "o2") == 2
    assert "repeated" in capsys.readouterr().err
    (folder / "budgets.csv").write_text("\n".join(["step,epsilon", *rows[:5], *rows[6:]]))
    assert stream(folder, "--budgets", folder / "budgets.csv", state=folder / "other", out=folder / "o2") == 2
    assert "after a gap" in capsys.readouterr().err
    (folder / "budgets.csv").write_text("\n".join(["step,epsilon", *rows]).replace(",0.5", ",-1"))
    assert stream(folder, "--budgets", folder / "budgets.csv", state=folder / "other", out=folder / "o2") == 2
    assert "zero or more" in capsys.readouterr().err
    assert not (folder / "other").exists()


def test_a_step_that_was_charged_but_not_finished_is_lost(folder, capsys, monkeypatch):
    save = dh.Release.save

    def crash(self, path):
        if path.stem == "2020-03-03":
            raise RuntimeError
        save(self, path)

    monkeypatch.setattr(dh.Release, "save", crash)
    with pytest.raises(RuntimeError):
        stream(folder)
    monkeypatch.undo()
    capsys.readouterr()
    assert max(Ledger(folder / "city.ledger").charges("stream")) == 2
    # It may not be drawn again: its budget is spent, and the steps after it have theirs.
    assert stream(folder) == 0
    said = capsys.readouterr()
    assert "1 lost" in said.out
    assert "2020-03-03 was charged but never finished" in said.err
    assert files(folder) == [f"2020-03-{d:02}" for d in range(1, 13) if d != 3]


@pytest.mark.parametrize(
    ("third", "said", "message"),
    [
        ("when,user,x,y\n2020-03-03,u1,1,1\n2020-03-03,u1,here,1\n", [], "1 of 2 rows of .*03.csv' have missing"),
        ("when,user,x,y\n2020-03-03,u1,,1\n", ["--drop-bad-rows", "--outside", "clamp"], "none of the 1 rows"),
        ("when,user,east,y\n2020-03-03,u1,1,1\n", ["--outside", "clamp"], "column 'x' is not in '2020-03-03.csv'"),
    ],
)
def test_a_folder_is_looked_through_before_the_first_charge(folder, capsys, third, said, message):
    (folder / "daily" / "2020-03-03.csv").write_text(third)
    before = sorted(folder.iterdir())
    assert stream(folder, *said, source="daily", drop=("time",)) == 2
    assert re.search(message, capsys.readouterr().err)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"epsilon": "8"}, "epsilon is 8 for every window of 4 steps"), ({"epsilon": "20"}, "epsilon is 5: ")],
)
def test_a_window_that_protects_nobody_is_refused(folder, capsys, changed, message):
    before = sorted(folder.iterdir())
    assert stream(folder, **changed) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--weak-protection-accepted" in error
    assert sorted(folder.iterdir()) == before
    assert stream(folder, "--weak-protection-accepted", **changed) == 0


def test_two_runs_at_once_are_refused(begun, capsys):
    with Ledger(begun / "city.ledger").exclusive():
        assert stream(begun) == 2
    assert "another process publishes" in capsys.readouterr().err
    assert len(files(begun)) == 5


def test_longer_changes_are_limited_too(folder, capsys):
    """Eight steps in a row spend three, so that each gets 3/8 and not 1/2; going on takes the same limit."""
    limit = ["--window-limit", "8:1.5"]
    assert stream(folder, *limit) == 0
    assert "beyond       within 8 steps ε = 3;" in capsys.readouterr().out
    release = dh.Release.load(folder / "out" / "2020-03-05.parquet")
    assert (release.epsilon, release.facts()["window"]["limits"]) == (Fraction(3, 8), [[8, "3/2"]])
    assert sum(Ledger(folder / "city.ledger").charges("stream").values()) == 3 * 10**9
    assert Ledger(folder / "city.ledger").left("stream") == 0
    capsys.readouterr()
    assert main(["ledger", "show", str(folder / "city.ledger")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[-2:]]
    assert lines == ["stream in 4 steps ε = 2 ε = 1.5 ε = 0.5", "in 8 steps ε = 3 ε = 3 ε = 0"]
    assert main(["ledger", "export", str(folder / "city.ledger")]) == 0
    assert "2.0,1.5,0.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8", "--window-limit is '8': it must be a number of steps and how many times the budget"),
        ("4:2", "it must be about more steps than the window's 4"),
        ("8:0.5", "--window-limit is '8:0.5': the factor must be at least 1"),
        ("2km:2", "--window-limit '2km:2': the number of steps is '2km': it must be a whole number of at least 1"),
        ("8:many", "--window-limit '8:many': the factor is 'many'"),
    ],
)
def test_bad_limits_of_windows(folder, capsys, text, message):
    assert stream(folder, "--window-limit", text) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "city.ledger").exists()


#: What the promise of a stream rests on: options of a later run, and what is said of them.
OTHERS = {
    "another window": ([], {"length": "5"}, "length was 4, is 5"),
    "another budget": ([], {"epsilon": "1"}, "epsilon was 2, is 1"),
    "another δ": ([], {"delta": "3"}, "delta was 2.0, is 3.0"),
    "another map": ([], {"bounds": "0,0,12,12"}, "bounds"),
    "another strategy": ([], {"strategy": "wavelet"}, "strategy"),
    "another start": ([], {"start": "2020-03-02"}, "start"),
    "other steps": ([], {"every": "12h"}, "every"),
    "points, then users": (["--user", "who", "--max-per-user", "1"], {}, "unit was"),
    "points outside dropped": (["--outside", "drop"], {}, "dropped was"),
    "another time": ([], {"time": "later"}, "time was"),
    "other sources": (["--sources", "none"], {}, "neighbourhood.sources was"),
    "a condition": (["--where", "who > 3"], {}, "about.where was null"),
    "other limits": (["--window-limit", "8:1.5"], {}, "limits was"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_that_the_promise_rests_on_must_match(begun, capsys, name):
    more, changed, message = OTHERS[name]
    if "time" in changed:
        table = pd.read_csv(begun / "visits.csv")
        table.assign(later=table["when"]).to_csv(begun / "visits.csv", index=False)
    before = Ledger(begun / "city.ledger").charges("stream")
    assert stream(begun, *more, **changed) == 2
    assert message in capsys.readouterr().err
    assert Ledger(begun / "city.ledger").charges("stream") == before
    assert len(files(begun)) == 5


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([], "unit was"),
        (["--user", "x", "--max-per-user", "1"], "user was"),
        (["--user", "who", "--max-per-user", "2"], "contributions was 1, is 2"),
    ],
)
def test_users_must_match(folder, capsys, second, message):
    assert stream(folder, "--user", "who", "--max-per-user", "1", until="2020-03-01") == 0
    assert stream(folder, *second) == 2
    assert message in capsys.readouterr().err
    assert files(folder) == ["2020-03-01"]


def test_users_are_bounded_in_every_batch_and_step_together(folder, monkeypatch):
    """A user whose rows are spread over many batches keeps K of them in a step, not K of each batch."""
    from deltahist.counting import files as reading

    monkeypatch.setattr(reading, "CHUNK", 7)
    rows = 400
    frame = pd.DataFrame({"when": pd.Timestamp("2020-03-01"), "x": 1.0, "y": 1.0, "who": np.arange(rows) % 5})
    frame.loc[rows // 2 :, "when"] = pd.Timestamp("2020-03-02")
    frame.to_parquet(folder / "visits.parquet")
    users = ("--user", "who", "--max-per-user", "2")
    assert stream(folder, *users, source="visits.parquet", until="2020-03-02", sources="none") == 0
    for name in files(folder):
        release = dh.Release.load(folder / "out" / f"{name}.parquet")
        assert (release.total, release.contributions, release.counting.unit) == (10, 2, "user")


def test_another_way_to_the_map_is_refused(tmp_path, capsys):
    """Each day of a folder may say its own CRS: the same operation must bring all of them to the map."""
    (tmp_path / "daily").mkdir()
    for day in (1, 2):
        frame = pd.DataFrame({"lon": [10.2, 10.3], "lat": [48.1, 48.2]})
        frame.to_csv(tmp_path / "daily" / f"2020-03-0{day}.csv", index=False)
    line = [
        *("stream", tmp_path / "daily", "--every", "1d", "--start", "2020-03-01", "--window", "2"),
        *("--epsilon", "1", "--x", "lon", "--y", "lat", "--project", "EPSG:25832", "--cell", "1km"),
        *("--bounds", "580000,5300000,620000,5360000", "--delta", "2km", "--strategy", "identity"),
        *("--state", tmp_path / "city.ledger", "--out", tmp_path / "out"),
    ]

    def run(crs, until):
        return main([str(part) for part in [*line, "--crs", crs, "--until", until]])

    assert run("EPSG:4326", "2020-03-01") == 0
    assert run("EPSG:4230", "2020-03-02") == 2
    said = capsys.readouterr().err
    assert "rows became counts in another way" in said
    assert "ED50 to ETRS89" in said
    assert set(Ledger(tmp_path / "city.ledger").charges("stream")) == {0}
    assert run("EPSG:4326", "2020-03-02") == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"until": "2020-02-01"}, "--until is '2020-02-01'"),
        ({"start": "early"}, "--start is 'early'"),
        ({"length": "x"}, "--window is 'x'"),
        ({"time": "hour"}, "--time is 'hour': column 'hour' is not in"),
        ({"time_format": "%d/%m/%Y", "source": "daily", "drop": ("time",)}, "it must be left out"),
        ({"where": "who >"}, "cannot be read"),
        ({"gaps": "none"}, "'--gaps': 'none' is not one of 'error', 'empty'"),
        ({"source": "nowhere.csv"}, "does not exist"),
        ({"source": "daily"}, "time is 'when'"),
        ({"epsilon": "0"}, "--epsilon is '0'"),
    ],
)
def test_bad_input_spends_nothing(folder, capsys, changed, message):
    assert stream(folder, **changed) == 2
    assert message in capsys.readouterr().err
    assert files(folder) == []
    assert not (folder / "city.ledger").exists()


# allocate


def weights(tmp_path, text):
    (tmp_path / "w.csv").write_text(text)
    return str(tmp_path / "w.csv")


def test_allocate_and_stream_with_it(folder, capsys):
    demand = "\n".join(["step,weight", *(f"2020-03-{d:02},{d % 3 and 1}" for d in range(1, 13))])
    file = weights(folder, demand)
    assert main(["allocate", file, "--window", "4", "--epsilon", "2", "--out", str(folder / "b.csv")]) == 0
    assert "of that of equal shares" in capsys.readouterr().out
    assert stream(folder, "--budgets", folder / "b.csv") == 0
    assert len(files(folder)) == 8


def test_allocate_online_and_tables(folder, capsys):
    file = weights(folder, "weight\n1\n0\n0\n1\n2\n0\n1\n")
    assert main(["allocate", file, "--window", "3", "--epsilon", "1"]) == 0
    offline = capsys.readouterr().out
    assert offline.splitlines()[2].split() == ["1", "1", "1"]
    more = ["--online", "0.5", "--scenarios", "50"]
    assert main(["allocate", file, "--window", "3", "--epsilon", "1", *more]) == 0
    online = capsys.readouterr().out
    shares = [float(text.splitlines()[-1].split()[3]) for text in (offline, online)]
    assert shares[0] < shares[1] < 1.1
    assert main(["allocate", file, "--window", "3", "--rho", "1"]) == 0
    assert main(["allocate", weights(folder, "weight\n0\n0\n"), "--window", "2", "--rho", "1"]) == 0
    assert "all weights are 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("weight\n1\n-1\n1\n", [], "weights are -1 at step 2"),
        ("weight\n1\nmany\n1\n", [], "weight 'many' at step 2"),
        ("value\n1\n", [], "column weight"),
        ("step,weight\na,1\na,1\nb,1\n", [], "step 'a' more than once"),
        ("step,weight\n1,1\n3,1\n2,1\n", [], "step '2' after '3'"),
        ("weight\n1\n1\n1\n", ["--online", "1.5"], "--online is 1.5"),
        ("weight\n1\n1\n1\n", ["--power", "0"], "--power is '0'"),
    ],
)
def test_bad_weights(tmp_path, capsys, text, more, message):
    out = tmp_path / "b.csv"
    line = ["allocate", weights(tmp_path, text), "--window", "3", "--epsilon", "1", "--out", str(out), *more]
    assert main(line) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_tables_of_weights_and_budgets_that_are_no_text(folder, capsys):
    (folder / "w.csv").write_bytes(b"weight\n\xff1\n")
    assert main(["allocate", str(folder / "w.csv"), "--window", "3", "--epsilon", "1"]) == 2
    assert "cannot be read as CSV in UTF-8" in capsys.readouterr().err
    assert stream(folder, "--budgets", folder / "w.csv") == 2
    assert "cannot be read as CSV in UTF-8" in capsys.readouterr().err


def test_cells_of_a_stream_are_chosen_once_for_what_is_asked(folder):
    how = {"cell": "auto", "drop": ("strategy",), "bounds": "0,0,40,40"}
    more = ("--squares", "3", "--points", "50")
    assert stream(folder, *more, until="2020-03-03", **how) == 0
    first = dh.load(folder / "out" / "2020-03-01.parquet")
    share = dh.Budget(epsilon=2 / 4)
    work = dh.workloads.random_squares(3, 2_000, first.domain)
    best = plan_cells(on_cells((0, 0, 40, 40), 2, sources="boundary"), 50, work, epsilon=share.epsilon)[0]
    assert first.domain == best.neighbourhood.domain
    assert first.strategy.describe() == best.mechanism.strategy.describe()
    assert stream(folder, *more, until="2020-03-04", **how) == 0  # the same again, and the ledger goes on
    assert dh.load(folder / "out" / "2020-03-04.parquet").domain == first.domain
    assert stream(folder, until="2020-03-05", **how | {"cell": "1"}) == 2


def test_a_folder_of_a_stream_is_asked_for_a_sum(folder, capsys):
    assert stream(folder) == 0
    capsys.readouterr()
    period = ["--between", "2020-03-02", "2020-03-05"]
    assert main(["query", str(folder / "out"), *period, "--box", "0,0,4,4", "--format", "csv"]) == 0
    assert ",4" in capsys.readouterr().out.splitlines()[1]  # steps
    assert main(["inspect", str(folder / "out")]) == 2
    assert "name one of those in it (`deltahist query`" in capsys.readouterr().err


@pytest.mark.parametrize("amount", ["9" * 5000, "-1", "nan", "1/0"])
def test_an_amount_that_is_no_number_is_refused_at_once(tmp_path, amount):
    (tmp_path / "b.csv").write_text(f"step,epsilon\n1,0.5\n2,{amount}\n")
    with pytest.raises(dh.InputError, match="for step 2: it must be a number, zero or more") as caught:
        read_amounts(tmp_path / "b.csv", ["1", "2"], "epsilon")
    assert len(str(caught.value)) < 300


def test_amounts_are_exact(tmp_path):
    (tmp_path / "b.csv").write_text("step,epsilon\n1,0.1\n2,1/3\n3,0\n")
    assert read_amounts(tmp_path / "b.csv", ["1", "2", "3"], "epsilon") == [Fraction(1, 10), Fraction(1, 3), 0]
