"""Cheap mistakes are told before anything takes long: no command plans, decodes or counts first."""

import shlex

import duckdb
import numpy as np
import pytest

import deltahist as dh

# Modules that take the slow ones by their names must have them before these are replaced.
import deltahist.personal.place
import deltahist.publishers.stream
import deltahist.remote.release
import deltahist.server.queries
from deltahist.cli import main

#: What takes long, by its module and name, as commands find it.
SLOW = (
    "deltahist.planning.mechanism_for",
    "deltahist.planning.plan_cells",
    "deltahist.planning.plan",
    "deltahist.planning.frontier",
    "deltahist.planning.best_of_each_noise",
    "deltahist.planning.budget_for",
    "deltahist.planning.advice.advise",
    "deltahist.answers.answer",
    "deltahist.counting.files.count_file",
    "deltahist.counting.files.collect",
    "deltahist.network.graph.read_network",
    "deltahist.plots.save_picture",
    "deltahist.releases.export.export",
    "deltahist.releases.histogram.Release.cells",
)
MAP = "--bounds 0,0,8,8 --delta 1"
PUBLISH = f"publish pts.csv --x x --y y {MAP} --epsilon 1 --out o.parquet"
STREAM = f"stream pts.csv --time day --every 1d --start 2026-01-01 --until 2026-01-02 --window 2 --x x --y y {MAP} " \
    "--epsilon 1 --state s.ledger --out steps"  # fmt: skip
QUANTILE = "quantile pts.csv --q 0.5 --x x --bounds 0,8 --delta 1 --epsilon 1"
SHARE = "share pts.csv --id id --x x --y y --edges edges.txt --epsilon 1:2 --alpha 1 --all --state k.key --out a.csv"
ASK = "ask question.toml --database city.duckdb --ledger p.ledger --limit 1 --table visits --owner id"
REFINE = "refine city.parquet --state city.state --epsilon 2 --out o.parquet"

CASES = [
    # what is read
    (PUBLISH.replace("pts.csv", "ptz.csv"), "input 'ptz.csv' does not exist (is 'pts.csv' meant?)"),
    (PUBLISH.replace("--x x", "--x lonn"), "--x is 'lonn': column 'lonn' is not in 'pts.csv'", "(is 'lon' meant?)"),
    (PUBLISH.replace("--x x", "--x kind"), "column 'kind' holds no numbers (it starts with 'bus')"),
    (PUBLISH.replace("pts.csv", "bare.csv"), "has it no header? then give columns by their numbers"),
    (PUBLISH + " --user idd --max-per-user 2", "--user is 'idd'", "(is 'id' meant?)"),
    (PUBLISH + " --where \"kinds='bus'\"", "column 'kinds' is not in", "(is 'kind' meant?)"),
    (PUBLISH + " --layer a", "--layer is 'a', but input 'pts.csv' has no layers"),
    (PUBLISH.replace("pts.csv", "city.duckdb") + " --table vists", "it has trips, visits (is 'visits' meant?)"),
    (PUBLISH.replace("pts.csv", "city.duckdb") + " --table visits --x kind", "'kind' is of type string", "view"),
    (PUBLISH.replace("pts.csv", "postgresql://nobody@localhost:1/x") + " --table v", "does not answer"),
    (PUBLISH + " --regions none.gpkg", "--regions is 'none.gpkg': there is no such file"),
    (PUBLISH + " --boxes box.csv", "--boxes is 'box.csv': there is no such file (is 'boxes.csv' meant?)"),
    # what is written
    (PUBLISH.replace("o.parquet", "none/o.parquet"), "--out is 'none/o.parquet': its folder does not exist"),
    (PUBLISH.replace("o.parquet", "/proc/o.parquet"), "--out is '/proc/o.parquet': its folder cannot be written"),
    (PUBLISH.replace("o.parquet", "pts.csv"), "--out is 'pts.csv', which is the file that is read"),
    (PUBLISH + " --ledger none/l --account a --limit 1", "--ledger is 'none/l': its folder does not exist"),
    (PUBLISH + " --ledger pts.csv --account a --limit 1", "ledger 'pts.csv' cannot be used"),
    (PUBLISH + " --ledger city.ledger --account all --epsilon 3", "ε = 1 left"),
    (PUBLISH.replace("--epsilon", "--rho") + " --ledger city.ledger --account all", "which keeps epsilon"),
    (PUBLISH + " --state city.state", "state 'city.state' exists already"),
    # what is chosen
    (PUBLISH + " --strategy flw", "--strategy is 'flw'", "(is 'flow' meant?)"),
    (PUBLISH + " --noise gauss", "--noise is 'gauss'", "(is 'gaussian' meant?)"),
    (PUBLISH + " --epsilon 1e9", "--epsilon is 1e9: whoever", "--weak-protection-accepted"),
    # the same of a stream
    (STREAM.replace("pts.csv", "ptz.csv"), "input 'ptz.csv' does not exist (is 'pts.csv' meant?)"),
    (STREAM.replace("--x x", "--x kind"), "column 'kind' holds no numbers"),
    (STREAM.replace("--time day", "--time dya"), "--time is 'dya'", "(is 'day' meant?)"),
    (STREAM.replace("--time day", "--time kind"), "column 'kind' holds no times: it is 'bus' in row 1"),
    (STREAM.replace("steps", "none/steps"), "output folder 'none' does not exist"),
    (STREAM.replace("steps", "/proc/steps"), "--out is '/proc/steps': its folder cannot be written"),
    (STREAM.replace("steps", "pts.csv"), "--out is 'pts.csv': it must be a folder"),
    (STREAM.replace("s.ledger", "none/s"), "--state is 'none/s': its folder does not exist"),
    (STREAM.replace("--time day ", "").replace("pts.csv", "days").replace("--x x", "--x lonn"), "--x is 'lonn'"),
    (STREAM + " --strategy flw", "(is 'flow' meant?)"),
    (STREAM + " --epsilon 1e9", "--epsilon is 1e9 for every window of 2 steps"),
    (STREAM + " --budgets boxes.csv --squares 2", "--budgets 'boxes.csv' must have a header"),
    # others that read private rows
    (QUANTILE.replace("pts.csv", "ptz.csv"), "(is 'pts.csv' meant?)"),
    (QUANTILE.replace("--x x", "--x lonn"), "--x is 'lonn'", "(is 'lon' meant?)"),
    (QUANTILE + " --method invers", "--method is 'invers'", "(is 'inverse' meant?)"),
    (QUANTILE + " --out none/q.json", "--out is 'none/q.json': its folder does not exist"),
    (SHARE.replace("--id id", "--id idd"), "--id is 'idd'", "(is 'id' meant?)"),
    (SHARE.replace("edges.txt", "edge.txt"), "--edges is 'edge.txt': there is no such file (is 'edges.txt' meant?)"),
    (SHARE.replace("a.csv", "a.txt"), "--out is 'a.txt'"),
    (ASK.replace("city.duckdb", "cty.duckdb"), "--database 'cty.duckdb' does not exist (is 'city.duckdb' meant?)"),
    (ASK.replace("visits", "vists"), "has no table 'vists'"),
    (ASK.replace("p.ledger", "none/p.ledger"), "--ledger is 'none/p.ledger': its folder does not exist"),
    # chains
    (REFINE, "--ledger and --account are missing: account 'all' paid for this chain"),
    (REFINE + " --ledger city.ledger --account al", "--account is 'al': account 'all' paid for this chain"),
    (REFINE + " --ledger none.ledger --account all", "did an account of another ledger pay for this chain?"),
    (REFINE.replace("city.parquet", "cty.parquet"), "(is 'city.parquet' meant?)"),
    ("tighten city.parquet --epsilon 0.5 --out none/t.parquet", "its folder does not exist"),
    # what is asked of releases
    ("query cty.parquet --box 0,0,1,1", "'cty.parquet' does not exist (is 'city.parquet' meant?)"),
    ("query city.parquet --boxes box.csv", "(is 'boxes.csv' meant?)"),
    ("query city.parquet --box 0,0,1,1 --level 95", "--level is 95"),
    ("query city.parquet --box 0,0,1,1 --out a.xyz", "--out is 'a.xyz'"),
    ("plot city.parquet --out city.parquet", "--out is 'city.parquet': its suffix must be"),
    ("plot city.parquet --out a.png --context none.gpkg", "--context is 'none.gpkg': there is no such file"),
    ("plot city.parquet --out a.png --regions zones.geojson --axes degrees", "--axes is 'degrees', but the map is"),
    ("export city.parquet --out a.xyz", "--out is 'a.xyz'"),
    ("statement city.parquet --out none/a.html", "its folder does not exist"),
    ("serve cty.parquet --check", "cty.parquet does not exist (is 'city.parquet' meant?)"),
    ("ledger show cty.ledger", "'cty.ledger' does not exist (is 'city.ledger' meant?)"),
    # what is asked before there are data
    (f"plan {MAP} --epsilon 1 --regions none.gpkg", "--regions is 'none.gpkg'"),
    (f"plan {MAP} --epsilon 1 --cell 1 --deltas 1,250q", "--deltas is '250q': it must be a number"),
    ("advise --bounds 0,0,8,8 --deltas 250q", "--deltas is '250q': it must be a number"),
    (f"plan {MAP} --epsilon 1 --project EPSG:99999", "--project is 'EPSG:99999'"),
    ("advise --bounds 0,0,8,8 --out none/a.txt", "its folder does not exist"),
    ("advise --bounds 0,0,8,8 --max-per-user 1 --points-per-user boxes.csv", "its columns are west, south"),
    ("advise --bounds 0,0,8,8 --max-per-user 1 --points-per-user box.csv", "no such file (is 'boxes.csv' meant?)"),
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    rows = [f"{i},{i % 8},{i % 7},bus,2026-01-01" for i in range(20)]
    (folder / "days").mkdir()
    for name, header in (("pts.csv", ["id,x,y,kind,day,lon"]), ("bare.csv", []), ("days/2026-01-01.csv", ["i,lon,y"])):
        (folder / name).write_text("\n".join([*header, *(f"{row},0" for row in rows)]))
    (folder / "boxes.csv").write_text("west,south,east,north\n0,0,1,1\n")
    (folder / "edges.txt").write_text("1,2\n")
    (folder / "question.toml").write_text('[answer]\nkind = "count"\nepsilon = 0.1\n')
    ring = "[[0,0],[8,0],[8,8],[0,8],[0,0]]"
    (folder / "zones.geojson").write_text(
        '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"name": "all"}, '
        f'"geometry": {{"type": "Polygon", "coordinates": [{ring}]}}}}]}}'
    )
    with duckdb.connect(str(folder / "city.duckdb")) as city:
        for table in ("visits", "trips"):
            city.execute(f"CREATE TABLE {table} AS SELECT 1 AS id, 0.5 AS x, 0.5 AS y, 'bus' AS kind")
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), delta=1)
    account = dh.Account.total(epsilon=2, ledger=folder / "city.ledger", name="all")
    made = dh.publish(
        np.zeros((8, 8), int), near, "identity", epsilon=1, account=account, state=folder / "city.state"
    )
    made.save(folder / "city.parquet")
    return folder


@pytest.mark.parametrize(("line", "words"), [(line, words) for line, *words in CASES])
def test_a_cheap_mistake_is_told_before_anything_takes_long(data, monkeypatch, refused, line, words):
    def too_late(*given, **named):
        raise AssertionError("the mistake could have been told before this")

    monkeypatch.chdir(data)
    for name in SLOW:
        monkeypatch.setattr(name, too_late)
    before = sorted(data.rglob("*"))
    assert len(refused(shlex.split(line), *words).splitlines()) == 1
    assert sorted(data.rglob("*")) == before


def test_a_table_is_opened_once(data, monkeypatch):
    from deltahist.counting import databases, files

    monkeypatch.chdir(data)
    opened = []
    for module, name in ((files, "open_source"), (databases, "open_engine")):
        kept = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, kept=kept: opened.append(given[0]) or kept(*given))
    for line in (PUBLISH, PUBLISH.replace("pts.csv", "city.duckdb") + " --table visits", STREAM):
        assert main([*line.split(), *["--overwrite"] * (line is not STREAM), "--strategy", "identity"]) == 0
    assert list(map(str, opened)) == ["pts.csv", "city.duckdb", "pts.csv"]
