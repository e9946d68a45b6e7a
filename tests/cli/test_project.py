"""cli/project.py: a file of choices that every command reads; what is typed takes the place of its counterparts."""

import hashlib
import io
import itertools
import json
import tomllib
from types import SimpleNamespace

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from typer.main import get_command

import deltahist as dh
from deltahist.cli import project
from deltahist.cli.app import COMMANDS, app
from deltahist.cli.demo import _run
from deltahist.cli.project import SHARED, Project, find_keys
from deltahist.preprocessing import Preprocessing

TEXT = """
x = "lon"
y = "lat"
user = "id"
max-per-user = 5
time = "day"
crs = "EPSG:4326"
project = "EPSG:32618"
bounds = "580000,4505000,590000,4515000"
cell = "2km"
delta = "4km"
strategy = "identity"
epsilon = 0.5
ledger = "city.ledger"
account = "visits"
limit = ["any:3", "9"]
regions = "districts.geojson"
start = "2020-01-01"
every = "1d"
window = 2
points = 3000
"""
#: What a map takes of it, and what pays.
MAP = "x y user max-per-user crs project bounds cell delta strategy epsilon regions points limit"
PAID = "x y user max-per-user crs project bounds cell delta strategy epsilon ledger account regions points limit"


def without(text, *parts):
    for part in parts:
        text = text.replace(part, "", 1)
    return text


#: Command lines that work in the folder of the project one after another, and what each takes from its file.
LINES = [
    ("publish visits.csv -o city.parquet", PAID),
    ("publish visits.csv -o rho.parquet --rho 0.1 --ledger=", without(MAP, " epsilon")),
    ("publish visits.csv -o a.parquet --epsilon 1 --squares 4km", without(PAID, " epsilon", " regions")),
    ("publish visits.csv -o b.parquet --grid EPSG:32618/2km --limit any:4", without(PAID, " project", " cell")),
    ("publish visits.csv -o c.parquet --cells-per-delta 2 --limit 9", without(PAID, " cell")),
    ("publish visits.csv -o d.parquet --user= --ledger=", without(MAP, " user max-per-user")),
    ("publish visits.csv -o e.parquet --x age --bounds 0,120 --delta 5 --sorted",
     "user max-per-user epsilon ledger account limit"),
    ("publish visits.csv -o f.parquet --state f.state", PAID),
    ("refine f.parquet --state f.state --epsilon 2 -o f2.parquet", "ledger account limit"),
    ("refine --state f.state -o f3.parquet", "ledger account limit"),
    ("tighten f2.parquet --state f.state --epsilon 0.1 -o f4.parquet", ""),
    ("quantile visits.csv --x age --q 0.5 --bounds 0,120 --delta 5", "user max-per-user epsilon ledger account limit"),
    ("stream visits.csv --until 2020-01-02 -o steps",
     without(MAP, " points") + " time ledger start every window"),
    ("allocate weights.csv", "epsilon window"),
    ("plan", "max-per-user project bounds cell delta epsilon regions points limit"),
    ("plan --stream --for 4d", "max-per-user project bounds cell delta epsilon regions every window limit"),
    ("advise --deltas 4km --for 4d --points 1e6", "max-per-user project bounds regions every limit"),
    ("query city.parquet", "regions"),
    ("query city.parquet --box 580000,4505000,585000,4510000", ""),
    ("query steps", "regions"),
    ("query e.parquet --quantiles 0.5", ""),
    ("inspect city.parquet", ""),
    ("statement city.parquet -o city.txt", ""),
    ("export city.parquet -o cells.csv", ""),
    ("share visits.csv --id id --value age --alpha 5 --edges friends.txt --epsilon 1:1 --all --state k -o s.csv", ""),
    ("withdraw a.parquet --reason wrong", "ledger"),
    ("withdraw rho.parquet --reason wrong", "ledger"),  # for which no account paid
    ("ledger show", "ledger"),
    ("ledger audit", "ledger"),
    ("ledger export --format json", "ledger"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a project: visits, districts and weights, and the file of their choices."""
    draw = np.random.default_rng(3)
    lon, lat, age = draw.uniform(((-74.04,), (40.71,), (0,)), ((-73.96,), (40.77,), (99,)), (3, 60))
    visits = pd.DataFrame({"id": range(60), "day": "2020-01-01", "lat": lat, "lon": lon, "age": age})
    visits.to_csv(tmp_path / "visits.csv", index=False)
    halves = [shapely.box(581000, 4506000, 585000, 4514000), shapely.box(585000, 4506000, 589000, 4514000)]
    districts = gpd.GeoDataFrame({"zone": ["west", "east"]}, geometry=halves, crs="EPSG:32618")
    districts.to_file(tmp_path / "districts.geojson")
    (tmp_path / "weights.csv").write_text("weight\n1\n2\n")
    (tmp_path / "friends.txt").write_text("0 1\n1 2\n")
    (tmp_path / "deltahist.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_works_with_a_project_and_says_what_it_takes(folder, run):
    for line, keys in LINES:
        said = run(*line.split()).err.splitlines()
        rows = [row.removeprefix("from deltahist.toml: ").split(", ") for row in said if row.startswith("from ")]
        taken = [sorted(each.split(" = ")[0] for each in row) for row in rows]
        assert taken == [sorted(keys.split())] * bool(keys), line
    release = dh.load("city.parquet")
    assert (release.domain.shape, float(release.epsilon), release.payment.account) == ((6, 6), 0.5, "visits")
    assert [str(limit.factor) for limit in release.neighbourhood.limits] == ["3"]
    assert dh.Ledger("city.ledger").standing("visits").limit == 9
    assert [str(limit.factor) for limit in dh.load("c.parquet").neighbourhood.limits] == ["3"]
    assert dh.load("d.parquet").payment is None
    assert dh.load("d.parquet").counting.unit == "point"


def commands():
    """The parameters of every command that reads the file, by its name."""
    line = get_command(app())
    found = {name: each.params for name, each in line.commands.items() if not hasattr(each, "commands")}
    found |= {name: each.params for name, each in line.commands["ledger"].commands.items() if name == "show"}
    return {name: find_keys(name, params) for name, params in found.items() if any(p.name == "config" for p in params)}


def test_choices_of_a_project_are_options_and_exceptions_are_of_commands():
    known = commands()
    assert set(SHARED) <= {key for keys in known.values() for key in keys}
    for name, keys in project._APART.items():
        assert [key for key in keys if key not in SHARED] == []
        assert name in COMMANDS
    for name in known:  # what two commands have, stands above all headings only if it means the same
        assert {"out", "state", "until", "name", "layer", "format", "title"} & set(SHARED) == set(), name


def test_what_commands_take_beside_typed_options():
    choices, own = tomllib.loads(TEXT, parse_float=str), {"query": {"name": "zone"}}
    known, file = commands(), Project(project.FILE, "", choices | {"regions-crs": "EPSG:32618"}, own)

    def take(name, **typed):
        return " ".join(file.options(name, known[name], typed))

    assert take("plot") == "regions regions-crs"
    assert take("query") == "regions regions-crs name"
    assert take("plot", only="curve") == take("plot", plain=True) == take("serve") == take("export") == ""
    assert take("plan", ranges=True, rho="0.1") == "max-per-user project bounds cell delta points limit"
    assert take("plan", bounds="0,100", epsilon="1") == "max-per-user"
    assert take("query", regions="other.gpkg") == take("export", regions="other.gpkg") == ""
    assert take("advise") == "max-per-user project bounds regions points regions-crs limit"


def test_no_two_options_exclude_each_other_of_which_one_is_typed_and_one_in_the_file():
    """All commands, all pairs of the file's choices and a typed option."""
    rivals = [{"epsilon", "rho"}, {"cell", "cells-per-delta", "grid"}, {"project", "grid"}, set(project._ASKED)]
    keys = [*SHARED, "ranges", "box", "quantiles"]
    for (name, known), key, typed in itertools.product(commands().items(), SHARED, keys):
        if key not in known or typed not in known or known[key] is known[typed]:
            continue
        flag = {each: getattr(known[each], "is_flag", False) for each in (key, typed)}
        file = Project(project.FILE, "", {key: True if flag[key] else "1"}, {})
        value = True if flag[typed] else ["1"] if getattr(known[typed], "multiple", False) else "1"
        taken = file.options(name, known, {known[typed].name: value})
        assert not any({key, typed} <= each for each in rivals) or not taken, (name, key, typed)
        assert typed not in taken or typed == "limit"


def test_another_file_takes_the_place_of_the_project(folder, run, refused):
    (folder / "other").mkdir()
    (folder / "districts.geojson").rename(folder / "other" / "districts.geojson")
    (folder / "other" / "p.toml").write_text(TEXT.replace("city.ledger", "x.ledger"))
    line = ["publish", "visits.csv", "-o", "r.parquet", "--dry-run", "--cell", "1km", "--config"]
    refused([*line, ""], "Missing option '--bounds'")
    line.append("other/p.toml")
    said = run(*line).err
    assert "regions = other/districts.geojson" in said
    assert "ledger = other/x.ledger" in said
    # What is written of it has paths from where it stands.
    (folder / "third").mkdir()
    run(*line, "--write-config", "third/p.toml")
    lines = (folder / "third" / "p.toml").read_text().splitlines()
    assert 'regions = "../other/districts.geojson"' in lines
    assert lines[-2:] == ["[publish]", 'out = "../r.parquet"']
    assert "cell = 1km" in run("publish", "visits.csv", "--config", "third/p.toml", "-v", "--dry-run").err


def test_a_limit_of_one_unit_makes_no_account_of_another(folder, refused):
    line = ["publish", "visits.csv", "-o", "r.parquet", "--rho", "0.1"]
    refused(line, "--limit is missing: account 'visits' is new in 'city.ledger'")


def test_only_the_current_folder_has_a_project(folder, run, refused, monkeypatch):
    """Data that were downloaded bring no settings along."""
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    refused(["publish", "../visits.csv", "-o", "r.parquet"], "Missing option '--bounds'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('epsilom = "1"', "deltahist.toml has the key 'epsilom' above all headings: no option is called so; is 'eps"),
        ('nonnegative = true', "above all headings: it must stand below [query]"),
        ('[plott]\naxes = "km"', "deltahist.toml has the heading [plott]: no command is called so; is 'plot' meant?"),
        ('[query]\nlevle = 1', "deltahist.toml has the key 'levle' below [query]"),
        ('ledger = "postgresql://ann:s3cret@db/city"', "deltahist.toml: ledger holds a password"),
        ('[publish]\nledger = "postgresql://db/city?password=s3cret"', "deltahist.toml: ledger holds a password"),
        ('ledger = "postgresql://ann@server:s3cret@db/city"', "deltahist.toml: ledger holds a password"),
        ('limit = ["any:2", "postgresql://ann:s3cret@db/city"]', "deltahist.toml: limit holds a password"),
        ('# ledger = "postgresql://ann:s3cret@db/city"', "deltahist.toml: a comment holds a password"),
        ("delta = 500m", '(at line 1, column 12); text stands in quotes, as delta = "500m"'),
        ("regions = 3.5\nregions = 1", "deltahist.toml cannot be read as TOML: "),
        ("regions = true", "deltahist.toml has regions = True: it must be a text"),
    ],
)  # fmt: skip
def test_a_project_that_cannot_be_used(folder, refused, run, text, message):
    (folder / "deltahist.toml").write_text(text)
    assert "s3cret" not in refused(["query", "city.parquet"], message)
    run("query", "--help")


def test_headings_hold_the_options_of_one_command(folder, run):
    run("publish", "visits.csv", "-o", "city.parquet")
    (folder / "deltahist.toml").write_text(TEXT + '[query]\nname = "zone"\nlevel = 0.5\n[allocate]\nrho = 0.1\n')
    assert "level = 0.5" in run("query", "city.parquet", "-v").err
    assert "name" not in run("query", "city.parquet", "--box", "580000,4505000,585000,4510000").err
    # What stands below a heading is nearer than what stands above all.
    assert run("allocate", "weights.csv").err.splitlines()[0] == "from deltahist.toml: window, rho = 0.1"


def test_quiet_and_verbose_are_typed_before_or_after_the_command(folder, run, refused):
    line = ["allocate", "weights.csv", "--window", "2"]
    usual = run(*line)
    assert usual.err == "from deltahist.toml: epsilon = 0.5\n"  # what is spent is always said
    for flags in (["-q"], ["--quiet"], ["-v"], ["--verbose"]):
        for typed in ([*flags, *line], [*line, *flags]):
            said = run(*typed)
            assert said.out == usual.out
            loud = said.err.splitlines()[:1] == ["from deltahist.toml: epsilon = 0.5"] and " s in all" in said.err
            assert loud if "v" in flags[0] else said.err == ""
    refused([*line, "-q", "-v"], "--quiet is given with --verbose")
    assert refused(["-q", *line, "--window", "0"], "error: --window is '0'").count("\n") == 1
    assert run(*line).err == usual.err  # nothing stays


def test_bars_and_warnings(capsys, monkeypatch):
    from deltahist import _progress
    from deltahist.cli import console

    monkeypatch.setattr(_progress, "TELLING", SimpleNamespace(quiet=True, verbose=False))
    monkeypatch.setattr(console, "TELLING", _progress.TELLING)
    with _progress.progress("counting", 3, True) as advance:
        advance(3)
    console.note("a note")
    console.note("warning: hardly protects")
    assert capsys.readouterr().err == "warning: hardly protects\n"


def test_a_release_names_the_file_and_none_without_one(folder, run):
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    run("publish", "visits.csv", "-o", "city.parquet", "--state", "city.state")
    run("refine", "city.parquet", "--state", "city.state", "--epsilon", "1", "-o", "finer.parquet")
    line = ["visits.csv", "--x", "age", "--bounds", "0,120", "--delta", "5", "-o"]
    run("publish", *line, "ages.parquet", "--sorted")
    run("stream", "visits.csv", "--until", "2020-01-01", "-o", "steps")
    run("quantile", *line, "age.json", "--q", "0.5")
    for name in ("city", "finer", "ages", "steps/2020-01-01"):
        release = dh.load(f"{name}.parquet")
        assert release.counting.project_file == digest, name
        assert f"Project file        SHA-256 {digest}: its public choices" in release.statement()
    assert json.loads((folder / "age.json").read_text())["project_file"] == digest
    # A stream goes on when the file has changed, and its steps are summed.
    (folder / "deltahist.toml").write_text(TEXT + '[query]\nname = "zone"\n')
    run("stream", "visits.csv", "--until", "2020-01-02", "-o", "steps")
    assert dh.load("steps/2020-01-02.parquet").counting.project_file not in (None, digest)
    assert run("query", "steps", "--format", "csv").out.count("\n") == 3
    (folder / "deltahist.toml").write_text("")
    run("publish", *line, "none.parquet", "--cell", "5", "--epsilon", "1")
    release = dh.load("none.parquet")
    assert "project_file" not in {**release.describe(), **release.facts()}
    with pytest.raises(dh.InputError, match="project_file is 'x': it must be a SHA-256"):
        Preprocessing(project_file="x")


def answer(monkeypatch, *lines):
    """Type lines at the questions of `init`."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_questions_make_a_project_that_commands_take(folder, run, refused, monkeypatch):
    refused(["init"], "which exists already: choose another name, or add --overwrite")
    answer(monkeypatch, "visits.csv", "", "", "", "", "", "districts.geojson", "4km", "3", "0.5", "", "visits", "9")
    said = run("init", "--overwrite")
    assert "its columns: id, day, lat, lon, age" in said.err
    assert "Its bounds are published" in said.err
    assert said.out.splitlines()[-1] == "  deltahist publish visits.csv --out city.parquet --dry-run"
    expected = {
        "x": "lon", "y": "lat", "user": "id", "max-per-user": "3", "time": "day", "crs": "EPSG:4326", "project": "auto",
        "bounds": "-74.05,40.7,-73.94,40.78", "delta": "4km", "epsilon": "0.5", "ledger": "deltahist.ledger",
        "account": "visits", "limit": "9", "regions": "districts.geojson",
    }  # fmt: skip
    assert tomllib.loads((folder / "deltahist.toml").read_text()) == expected
    run("publish", "visits.csv", "-o", "city.parquet", "--cell", "4km", "--strategy", "identity")
    assert dh.Ledger("deltahist.ledger").standing("visits").spent == 1 / 2
    assert "west" in run("query", "city.parquet").out


@pytest.mark.parametrize(
    ("line", "lines", "message"),
    [
        ([], [], "--bounds is missing: Corners W,S,E,N"),
        (["none.csv"], [], "input 'none.csv' does not exist"),
        (["visits.csv"], ["", "", "", "", "", "-74,40.7,-73.9"], "--bounds is '-74,40.7,-73.9': it must be four num"),
        (["visits.csv", "--crs", "none", "--bounds", "0,0,9,9"], ["", "", "", ""], "--delta is missing: δ"),
        (["--bounds", "-74.3,40.45,-73.6,40.95"], ["", "", "", "", "", ""], "degrees are not lengths"),
        (["--ledger", "postgresql://ann:s3cret@db/city"], ["", "", "", "", "", "", "0,0,9,9", "1"], "holds a password"),
        (["visits.csv", "--x", "up"], [], "--x is 'up': the columns are id, day, lat, lon, age"),
        (["--bounds", "0,0,9,9"], ["", "", "", "", "", "", "5 miles"], "--delta is '5 miles': it must be a number, or"),
        (["--epsilon", "-1"], [], "--epsilon is '-1': it must be a finite number above zero"),
    ],
)  # fmt: skip
def test_answers_that_make_no_project(folder, refused, monkeypatch, line, lines, message):
    (folder / "deltahist.toml").unlink()
    answer(monkeypatch, *lines)
    refused(["init", *line], message)
    assert not (folder / "deltahist.toml").exists()


def test_options_answer_all_questions_and_a_terminal_asks_again(folder, run, monkeypatch):
    line = ["init", "visits.csv", "--overwrite", "--crs", "none", "--bounds", "0,0,90,90", "--delta", "1", "--rho", "1"]
    answer(monkeypatch)
    run(*line, "--ledger", "-", "--regions", "-", "--user", "-", "--time", "-")
    project = tomllib.loads((folder / "deltahist.toml").read_text())
    assert project == {"x": "lon", "y": "lat", "crs": "none", "bounds": "0,0,90,90", "delta": "1", "rho": "1"}
    answer(monkeypatch, *[""] * 4, "no.gpkg", "districts.geojson")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    said = run(*line, "--ledger", "-", "--max-per-user", "2")
    assert "--regions is 'no.gpkg': there is no such file" in said.err
    assert tomllib.loads((folder / "deltahist.toml").read_text())["regions"] == "districts.geojson"


def test_a_demonstration_takes_nothing_of_a_project(monkeypatch):
    found = []
    monkeypatch.setattr("deltahist.cli.app.invoke", found.append)
    _run(["publish", "visits.csv"])
    assert found == [["publish", "visits.csv", "--config", ""]]
