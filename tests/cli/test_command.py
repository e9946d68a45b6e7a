"""cli/app.py: help in panels, and options from a file, of `publish` and `stream`."""

import duckdb
import numpy as np
import pandas as pd
import pytest

import deltahist as dh

USUAL = ["--bounds", "--delta", "-o,", "--x", "--y", "--crs", "--project", "--cell", "--epsilon", "--dry-run"]
EVERYWHERE = ["--config", "-q,", "-v,", "-h,"]
LINE = ["--x", "x", "--y", "y", "--bounds", "0,0,8,8", "--cell", "1", "--delta", "1", "--strategy", "identity"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    places = np.random.default_rng(3).random((50, 2)) * 8
    pd.DataFrame(places, columns=["x", "y"]).assign(t=0).to_csv(tmp_path / "v.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_options_of_a_usual_run_come_first_and_all_fit_a_screen_and_a_half(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    lines = run("publish", "--help").out.splitlines()
    assert len(lines) <= 84
    panels = [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert panels[:3] == ["Arguments", "Options", "More on privacy"]
    usual = lines[lines.index("Options:") + 1 : lines.index("More on privacy:")]
    assert [line.split()[0] for line in usual if line.startswith("  -")] == [*USUAL, *EVERYWHERE]


def test_a_dry_run_writes_options_that_a_file_holds(refused, run, place):
    line = ["publish", "v.csv", *LINE, "--epsilon", "0.10", "--limit", "3:2", "--limit", "any:3", "--drop-bad-rows"]
    run(*line, "--out", "r.parquet", "--overwrite", "--dry-run", "--write-config", "c.toml")
    text = (place / "c.toml").read_text()
    assert text.splitlines()[0] == "# deltahist publish INPUT --config c.toml"
    lines = {'epsilon = "0.10"', 'limit = ["3:2", "any:3"]', "drop-bad-rows = true", 'cell = "1"'}
    assert lines < set(text.splitlines())
    assert "dry-run" not in text
    assert "overwrite" not in text
    run("publish", "v.csv", "--config", "c.toml")
    release = dh.load("r.parquet")
    assert (str(release.epsilon), release.domain.shape) == ("1/10", (8, 8))
    assert [str(limit.factor) for limit in release.neighbourhood.limits] == ["2", "3"]
    # What is typed wins, over lists too, and what was written from both is both.
    more = ["--epsilon", "2", "--limit", "any:4", "--out", "s.parquet"]
    run("publish", "v.csv", "--config", "c.toml", *more, "--dry-run", "--write-config", "d.toml")
    run("publish", "v.csv", "--config", "d.toml")
    release = dh.load("s.parquet")
    assert release.epsilon == 2
    assert [str(limit.factor) for limit in release.neighbourhood.limits] == ["4"]
    refused(["publish", "v.csv", "--config", "d.toml", "--overwrite", "--out", "d.toml"], "is the file that is read")


def test_a_table_of_a_database_is_published_by_options_without_its_address(refused, run, place, monkeypatch):
    with duckdb.connect("city.duckdb") as city:
        city.execute("CREATE TABLE visits AS SELECT *, 'bus' AS kind FROM 'v.csv'")
    options = [*LINE, "--epsilon", "1", "--table", "visits", "--where", "lower(kind) = 'bus'", "--out", "r.parquet"]
    run("publish", "postgresql://me:hidden@nowhere/city", *options, "--dry-run", "--write-config", "c.toml")
    assert "hidden" not in (place / "c.toml").read_text()
    with monkeypatch.context() as unplanned:  # a mistake is told before anything takes long
        unplanned.setattr("deltahist.planning.mechanism_for", None)
        refused(["publish", "city.duckdb", "--config", "c.toml", "--x", "up"], "--x is 'up': column 'up' is not in")
        refused(["publish", "city.duckdb", "--config", "c.toml", "--table", "none"], "has no table 'none'")
    said = run("publish", "city.duckdb", "--config", "c.toml")
    assert "50 rows read, 50 points counted" in said.err
    release = dh.load("r.parquet")
    assert (release.total, release.counting.where) == (50, "lower(kind) = 'bus'")
    line = ["publish", "postgresql://me:hidden@nowhere/city", *LINE, "--epsilon", "1", "--out", "s.parquet"]
    assert "hidden" not in refused(line, "say which of its tables, --table visits")


def test_numbers_of_a_file_are_the_decimals_that_stand_there(run, place):
    (place / "c.toml").write_text(
        'x = "x"\ny = "y"\nbounds = "0,0,8,8"\ncell = 1\ndelta = 1.0\nstrategy = "identity"\nepsilon = 0.1\n'
        'drop-bad-rows = false\nlimit = "any:none"\n[publish]\nout = "r.parquet"\n'
    )
    run("publish", "v.csv", "--config", "c.toml")
    assert str(dh.load("r.parquet").epsilon) == "1/10"
    assert dh.load("r.parquet").counting.dropped == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('epsilom = "1"', "has the key 'epsilom' above all headings: no option is called so; is 'epsilon'"),
        ('max_per_user = "1"', "is 'max-per-user' meant?"),
        ('config = "c.toml"', "has the key 'config' above all headings: no option is called so"),
        ('out = "r.parquet"', "has the key 'out' above all headings: it must stand below [publish], since only"),
        ('[publish]\noverwrite = true', "has the key 'overwrite' below [publish]: no option of `deltahist publish`"),
        ('[publsh]\nepsilon = "1"', "has the heading [publsh]: no command is called so; is 'publish' meant?"),
        ("bounds = [0, 0, 8, 8]", "it must be a text, a number or a date, as in --bounds W,S,E,N"),
        ("epsilon = true", "has epsilon = True: it must be a text, a number or a date"),
        ('epsilon = ["1"]', "it must be a text, a number or a date"),
        ('drop-bad-rows = "yes"', "it must be true or false"),
        ("limit = [[1]]", "or a list of them"),
        ('epsilon = "-1"', "--epsilon is '-1': it must be a finite number above zero"),
        ("epsilon = ", "--config 'c.toml' cannot be read as TOML: "),
    ],
)
def test_a_file_that_cannot_be_used(refused, place, text, message):
    (place / "c.toml").write_text(text)
    line = ["publish", "v.csv", *LINE, "--out", "r.parquet", "--config", "c.toml"]
    refused(line, message)
    assert not (place / "r.parquet").exists()


@pytest.mark.parametrize(("encoding", "code"), [("utf-8-sig", 0), ("utf-16", 2)])
def test_encodings_that_editors_write(run, refused, place, encoding, code):
    (place / "c.toml").write_text('epsilon = "1"', encoding=encoding)
    line = ["publish", "v.csv", *LINE, "--out", "r.parquet", "--config", "c.toml"]
    if code == 0:
        run(*line)
    else:
        refused(line, "'c.toml' cannot be read: it must be text in UTF-8")
    assert (place / "r.parquet").exists() != bool(code)


def test_files_are_not_replaced_unasked(refused, run, place):
    line = ["publish", "v.csv", *LINE, "--epsilon", "1", "--out", "r.parquet", "--write-config", "c.toml"]
    refused(line, "--write-config is given without --dry-run")
    run(*line, "--dry-run")
    refused([*line, "--dry-run"], "'c.toml', which exists already")
    run(*line, "--dry-run", "--overwrite")
    refused([*line[:-2], "--config", "nowhere.toml"], "--config 'nowhere.toml' cannot be read: No such file")


@pytest.mark.parametrize("url", ["postgresql://ann:s3cret@db/city", "postgresql://db/city?user=ann&sslPassword=s3cret"])
def test_no_file_of_options_holds_a_password(refused, place, url):
    line = ["publish", "v.csv", *LINE, "--epsilon", "1", "--out", "r.parquet", "--dry-run", "--write-config", "c.toml"]
    error = refused([*line, "--ledger", url, "--account", "a", "--limit", "2"], "--ledger holds a password")
    assert "s3cret" not in error
    assert not (place / "c.toml").exists()


def test_a_file_of_options_replaces_neither_ledger_nor_state(refused, run, place):
    line = ["publish", "v.csv", *LINE, "--epsilon", "1", "--out", "r.parquet", "--state", "r.state"]
    line += ["--ledger", "city.ledger", "--account", "a", "--limit", "2"]
    run(*line)
    before = [(place / name).read_bytes() for name in ("city.ledger", "r.state")]
    for name, message in [("city.ledger", "--ledger is 'city.ledger', as --write-config is"), ("r.state", "'r.state'")]:
        refused([*line, "--dry-run", "--overwrite", "--write-config", name], message)
    assert [(place / name).read_bytes() for name in ("city.ledger", "r.state")] == before


def test_a_stream_takes_its_options_from_a_file(run, place):
    names = dict(zip(LINE[::2], LINE[1::2], strict=True))
    names |= {"--start": "0", "--until": "1", "--window": "2", "--time": "t", "--state": "s.ledger", "--out": "steps"}
    (place / "c.toml").write_text("[stream]\n" + "".join(f'{name[2:]} = "{value}"\n' for name, value in names.items()))
    run("stream", "v.csv", "--config", "c.toml", "--epsilon", "1", "--until", "0")
    assert [file.name for file in (place / "steps").iterdir()] == ["0.parquet"]


def test_dates_of_a_file_are_those_of_a_command_line(run, place):
    (place / "daily").mkdir()
    (place / "v.csv").rename(place / "daily" / "2020-02-29.csv")
    text = 'start = 2020-02-29\nevery = "1d"\nwindow = 2\n[stream]\nuntil = 2020-02-29\nout = "steps"\n'
    (place / "c.toml").write_text(text)
    run("stream", "daily", "--config", "c.toml", *LINE, "--epsilon", "1", "--state", "s.ledger")
    assert [file.name for file in (place / "steps").iterdir()] == ["2020-02-29.parquet"]
