"""Counting inside a database: cells bit for bit as NumPy has them, and counts as `count` gives them."""

import os
import re
import sys

import duckdb
import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest
from points import DOMAINS, nasty_coordinates

import deltahist as dh
from deltahist.counting.arrays import UserBound
from deltahist.counting.databases import _bounded, cell_of
from deltahist.counting.engines import sql_of
from deltahist.counting.opening import open_engine


def _same_cells(engine, domain, columns):
    names = [f"v{axis}" for axis in range(domain.ndim)]
    table = ibis.table({"number": "int64", **dict.fromkeys(names, "float64")}, name="points")
    with engine.change() as change:
        change.execute("DROP TABLE IF EXISTS points")
        made = ", ".join(f"{name} DOUBLE PRECISION" for name in names)
        change.execute(f"CREATE TABLE points (number BIGINT, {made})")
        number = pa.array(np.arange(len(columns[0])))
        change.append("points", pa.table({"number": number, **dict(zip(names, columns, strict=True))}))
    with engine.snapshot() as look:
        found = look.fetch(table.select("number", cell=cell_of(domain, *(table[name] for name in names))))
    found = found.sort_by("number")["cell"].to_numpy()
    good = np.isfinite(columns).all(axis=0)
    assert np.isnan(found[~good]).all()
    assert 0 < good.sum() < len(good)
    assert (found[good] == domain.flat_cells([column[good] for column in columns])).all()


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: str(domain.bounds))
@pytest.mark.parametrize(("kind", "number"), [("duckdb", 40_000), ("postgresql", 10_000)])
def test_cells_are_those_of_numpy_bit_for_bit(request, domain, kind, number):
    engine = open_engine(":memory:" if kind == "duckdb" else request.getfixturevalue("postgres_url"))
    rng = np.random.default_rng(5)
    _same_cells(engine, domain, [nasty_coordinates(domain, axis, number, rng) for axis in range(domain.ndim)])


DOMAIN = dh.Domain((0, 0, 4, 2), (4, 2))


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "east": rng.uniform(0, 4, 3000), "north": rng.uniform(0, 2, 3000),
            "who": rng.choice(["ann", "bob", "eve", "zoe"], 3000), "kind": rng.choice(["bus", "tram"], 3000),
        }
    )  # fmt: skip


@pytest.fixture(params=["duckdb", "postgresql"])
def fill(request, tmp_path):
    """Puts a frame into a table `visits` and gives the address of its database."""
    is_postgres = request.param == "postgresql"
    where = request.getfixturevalue("postgres_url") if is_postgres else str(tmp_path / "city.duckdb")

    def put(frame):
        with (psycopg if is_postgres else duckdb).connect(where) as connection:
            connection.execute("DROP TABLE IF EXISTS visits")
            connection.execute("CREATE TABLE visits (east FLOAT8, north FLOAT8, who TEXT, kind TEXT)")
        engine = open_engine(where)
        with engine.change() as change:
            change.append("visits", pa.Table.from_pandas(frame, preserve_index=False))
        engine.close()
        return where

    return put


def test_counts_are_those_of_arrays(fill, frame):
    where, points = fill(frame), frame[["east", "north"]].to_numpy()
    how = {"database": where, "x": "east", "y": "north"}
    counted = dh.count_table("visits", DOMAIN, **how)
    assert (counted == dh.count(points, DOMAIN)).all()
    assert counted.counting == dh.count(points, DOMAIN).counting
    chosen = dh.count_table("visits", DOMAIN, **how, where="lower(kind) like 'b%'")
    assert (chosen == dh.count(points[frame["kind"] == "bus"], DOMAIN)).all()
    assert chosen.counting.where == "lower(kind) like 'b%'"
    small = dh.Domain((1, 0, 3, 2), (4, 3))
    for outside in ("clamp", "drop"):
        counted = dh.count_table("visits", small, **how, outside=outside)
        assert (counted == dh.count(points, small, outside=outside)).all()
    most = dh.Domain((0, 0, 3.99, 2), (4, 3))
    assert (dh.count_table("visits", most, **how) == dh.count(points, most)).all()
    line = dh.Domain((0, 4), (9,))
    assert (dh.count_table("visits", line, database=where, x="east") == dh.count(points[:, 0], line)).all()


@pytest.fixture(scope="module")
def file_and_table(tmp_path_factory):
    """The same rows as a file and as a table `visits`."""
    path, city = tmp_path_factory.mktemp("conditions") / "visits.parquet", duckdb.connect()
    pd.DataFrame(
        {
            "x": np.arange(6) / 6, "kind": ["bus", "tram", None, "Bus", "", " bus"], "is_late": [True, False, None] * 2,
            "the speed": [1.0, 3.0, np.nan, 5.0, -2.0, 3.0],
            "who": pd.array([1, 2, None, 2**53 + 1, 2**53, 6], "Int64"),
            "time": pd.to_datetime(["2026-05-01 00:00", "2026-05-01 22:30", None] * 2),
        }
    ).to_parquet(path)  # fmt: skip
    city.execute(f"CREATE TABLE visits AS SELECT * FROM '{path}'")
    return path, city


@pytest.mark.parametrize(
    "where",
    [
        "kind = 'bus'", "kind <> 'bus'", "not kind = 'bus'", "kind not in ('bus', 'rail')", "kind is null",
        "kind like 'b%' or kind = ''", "who = 9007199254740993", "who > 2 and who < 9007199254740993", "not who > 2",
        "\"the speed\" <> 3", "\"the speed\" between -2 and 3", "-2.5 < \"the speed\"", "\"the speed\" is not null",
        "is_late = true", "is_late <> true or kind = 'Bus'", "time >= '2026-05-01 22:30:00'", "time = '2026-05-01'",
    ],
)  # fmt: skip
def test_conditions_choose_what_they_choose_of_a_file(file_and_table, where):
    """They are read twice, for files and for databases: what both take means the same."""
    (path, city), domain = file_and_table, dh.Domain((0, 1), (6,))
    found = dh.count_table("visits", domain, database=city, x="x", where=where)
    assert found.tolist() == dh.count_file(path, domain, x="x", where=where).counts.tolist()
    assert 0 < sum(found.tolist()) < 6


def test_points_of_users_are_bounded_as_those_of_arrays_are(fill, frame):
    where, small = fill(frame), dh.Domain((1, 0, 3, 2), (4, 3))
    how = {"max_per_user": 30, "key": bytes(32), "outside": "drop"}
    counted = dh.count_table("visits", small, database=where, x="east", y="north", user="who", **how)
    same = dh.count(frame[["east", "north"]].to_numpy(), small, user=frame["who"], **how)
    assert (counted == same).all()
    assert counted.counting == same.counting
    assert 0 < counted.sum() < 120


def test_bad_rows_are_refused_in_the_words_of_arrays(fill, frame):
    spoilt = frame.copy()
    spoilt.loc[[3, 5, 8], "east"] = [np.inf, np.nan, -np.inf]
    how, users = {"x": "east", "y": "north"}, {"user": "who", "max_per_user": 3}
    where = fill(spoilt)
    for bounds in ({}, users):
        with pytest.raises(dh.InputError, match="3 of 3,000 points have missing, unreadable, NaN or infinite coord"):
            dh.count_table("visits", DOMAIN, database=where, **how, **bounds)
    where = fill(frame.assign(who=frame["who"].replace({"zoe": ""})))
    missing = int((frame["who"] == "zoe").sum())
    with pytest.raises(dh.InputError, match=f"{missing:,} of 3,000 points have .* or a missing user"):
        dh.count_table("visits", DOMAIN, database=where, **how, **users)


def test_points_outside_are_refused_with_the_likely_cause(fill, frame):
    where, points = fill(frame), frame[["east", "north"]].to_numpy()
    for domain in (dh.Domain((0, 0, 2, 4), (2, 4)), dh.Domain((0, 0, 3, 2), (3, 2))):
        with pytest.raises(dh.OutsideBounds) as one:
            dh.count(points, domain)
        with pytest.raises(dh.OutsideBounds) as other:
            dh.count_table("visits", domain, database=where, x="east", y="north")
        assert (str(one.value), one.value.kind) == (str(other.value), other.value.kind)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"y": None}, "x is 'east' and y is None: the domain has 2 axes"),
        ({"y": "up"}, "column 'up', which is not there: there are 'east', 'kind', 'north', 'who'"),
        ({"y": "kind"}, "column 'kind' is of type string: coordinates are .* or use count_file"),
        ({"where": "east > 3"}, "'east' says where a point is, so that a point could vanish by moving"),
        ({"where": "kind"}, "where is 'kind', of the kind 'text': a condition is true or false"),
        ({"where": "random() > 0.5"}, "asks for 'RAND\\(\\)'"),
        ({"where": "lat > 3"}, "column 'lat', which is not there"),
        ({"outside": "lose"}, "outside is 'lose'"),
        ({"user": "who"}, "give both or neither"),
        ({"user": "whom", "max_per_user": 3}, "column 'whom', which is not there"),
        *(({"table": name}, f"has no table '{name}'") for name in ("nowhere", "", "part.visits")),
    ],
)
def test_tables_that_cannot_be_counted_are_refused(how, message):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits (east FLOAT8, north FLOAT8, who TEXT, kind TEXT)")
    usual = {"table": "visits", "domain": DOMAIN, "database": connection, "x": "east", "y": "north"}
    with pytest.raises(dh.InputError, match=message):
        dh.count_table(**usual | how)


@pytest.mark.parametrize("module", ["duckdb", "ibis"])
def test_libraries_that_are_not_installed_are_named(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(dh.InputError, match=rf"need {module}, which is not installed: .*deltahist\[duckdb\]"):
        dh.count_table("visits", dh.Domain((0, 1), (4,)), database="city.duckdb", x="x")


def test_frames_and_tables_without_rows(frame):
    city, how = duckdb.connect(), {"x": "east", "y": "north"}
    city.register("visits", frame)
    with pytest.raises(dh.InputError, match=r"has no table 'visits' \(frames and temporary tables are seen"):
        dh.count_table("visits", DOMAIN, database=city, **how)
    city.execute("CREATE TABLE none (east INTEGER, north DECIMAL(9, 2), who INTEGER)")
    counted = dh.count_table("none", DOMAIN, database=city, **how, user="who", max_per_user=2)
    assert counted.tolist() == dh.count(np.zeros((0, 2)), DOMAIN).tolist()


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "md", "duckdb"])
def test_a_table_is_one_of_the_database_never_a_file(tmp_path, monkeypatch, frame, ending):
    """DuckDB would take a path for a table, and read the file; and a path of one for a database."""
    monkeypatch.chdir(tmp_path)
    path = f"points.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "duckdb":
        with duckdb.connect(path) as other:
            other.execute("CREATE TABLE points (east FLOAT8, north FLOAT8)")
    else:
        frame.to_csv(path)
    with duckdb.connect() as database:
        for name in (path, f"{tmp_path}/{path}", "points", f"main.{path}"):
            with pytest.raises(dh.InputError, match="has no table"):
                dh.count_table(name, DOMAIN, database=database, x="east", y="north")
    others = {"": "must be the path of a DuckDB file", "points\0.duckdb": "must be the path of a DuckDB file"}
    others |= {} if ending == "duckdb" else {path: "is another file: it must be a DuckDB file"}
    for where, message in others.items():
        with pytest.raises(dh.InputError, match=message):
            dh.count_table("points", DOMAIN, database=where, x="east", y="north")


def test_what_memory_does_not_hold_is_for_the_owner_only(tmp_path):
    """DuckDB would leave records that it puts aside to whoever can read the folder."""
    path, before = tmp_path / "city.duckdb", os.umask(0o022)
    try:
        engine = open_engine(path)
        with engine.change() as change:
            change.execute("SET memory_limit = '20MB'; SET threads = 1")
            change.execute("CREATE TABLE points AS SELECT hash(range)::VARCHAR AS x FROM range(100)")
            change.execute("CREATE TEMP TABLE many AS SELECT hash(range)::VARCHAR AS x FROM range(2000000)")
            (beside,) = [each for each in tmp_path.iterdir() if each.is_dir()]
            assert any(beside.iterdir())  # records are there now
            assert beside.stat().st_mode & 0o077 == 0
        engine.close()
    finally:
        os.umask(before)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_tables_are_found_in_parts_in_any_capitals_and_as_views():
    with duckdb.connect() as database:
        database.execute("CREATE SCHEMA part; CREATE TABLE part.Visits AS SELECT 0.5 AS east, 0.5 AS north")
        database.execute("CREATE VIEW seen AS SELECT * FROM part.visits")
        for name in ("part.visits", "PART.VISITS", "seen"):
            assert dh.count_table(name, DOMAIN, database=database, x="east", y="north").sum() == 1


def test_spark_is_asked_in_its_own_sql(monkeypatch):
    """Ibis writes it without Spark; what it gives is tested in tests/spark."""
    monkeypatch.setattr(ibis.options, "pyspark", _Settings())
    table = ibis.table({"x": "float64", "user": "string"}, name="visits")
    places = table.select("user", place=cell_of(dh.Domain((0, 1), (4,)), table.x))
    bound = UserBound(3, bytes(32))
    text = sql_of(_bounded(places, bound), "pyspark")
    assert "FLOOR(LEAST(FLOOR(" in text
    assert text.count("ROW_NUMBER() OVER (PARTITION BY") == 2
    assert re.search(r"SHA2\((CONCAT\()+`\w+`\.`secret`, CAST\(`\w+`\.`number` AS STRING\)", text)
    assert re.search(r"MONOTONICALLY_INCREASING_ID\(\) AS `row`", text)
    assert re.search(r"`user` ORDER BY `\w+`\.`row` ", text)
    assert bound.secret not in text


class _Settings(ibis.config.Config):
    treat_nan_as_null: bool = False
