"""Counting inside a database: cells bit for bit as NumPy has them, and counts as `count` gives them."""

import os
import re
import sys
from dataclasses import replace

import duckdb
import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from points import DOMAINS, nasty_coordinates

import deltahist as dh
from deltahist.counting import points_file
from deltahist.counting.arrays import UserBound, inside_rows
from deltahist.counting.databases import _bounded, _place_of, step_of
from deltahist.counting.engines import sql_of
from deltahist.counting.opening import open_engine
from deltahist.counting.steps import count_steps
from deltahist.preprocessing import Clock


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
        found = look.fetch(table.select("number", place=_place_of(domain, False, *(table[name] for name in names))))
    place = found.sort_by("number")["place"].to_numpy()
    found = np.where(place < 0, -2 - place, place)
    good = np.isfinite(columns).all(axis=0)
    assert np.isnan(found[~good]).all()
    assert 0 < good.sum() < len(good)
    assert ((place >= 0) == inside_rows(columns, domain))[good].all()
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
    counted = dh.count_table("visits", DOMAIN, **how).counts
    assert (counted == dh.count(points, DOMAIN)).all()
    assert counted.counting == dh.count(points, DOMAIN).counting
    chosen = dh.count_table("visits", DOMAIN, **how, where="lower(kind) like 'b%'").counts
    assert (chosen == dh.count(points[frame["kind"] == "bus"], DOMAIN)).all()
    assert chosen.counting.where == "lower(kind) like 'b%'"
    small = dh.Domain((1, 0, 3, 2), (4, 3))
    for outside in ("clamp", "drop"):
        counted = dh.count_table("visits", small, **how, outside=outside).counts
        assert (counted == dh.count(points, small, outside=outside)).all()
    most = dh.Domain((0, 0, 3.99, 2), (4, 3))
    assert (dh.count_table("visits", most, **how).counts == dh.count(points, most)).all()
    line = dh.Domain((0, 4), (9,))
    assert (dh.count_table("visits", line, database=where, x="east").counts == dh.count(points[:, 0], line)).all()


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
    found = dh.count_table("visits", domain, database=city, x="x", where=where).counts
    assert found.tolist() == dh.count_file(path, domain, x="x", where=where).counts.tolist()
    assert 0 < sum(found.tolist()) < 6


def test_points_of_users_are_bounded_as_those_of_arrays_are(fill, frame):
    where, small = fill(frame), dh.Domain((1, 0, 3, 2), (4, 3))
    how = {"max_per_user": 30, "key": bytes(32), "outside": "drop"}
    counted = dh.count_table("visits", small, database=where, x="east", y="north", user="who", **how).counts
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
        with pytest.raises(dh.InputError, match="3 of 3,000 rows of 'visits' have missing, unreadable, NaN or inf"):
            dh.count_table("visits", DOMAIN, database=where, **how, **bounds)
    where = fill(frame.assign(who=frame["who"].replace({"zoe": ""})))
    missing = int((frame["who"] == "zoe").sum())
    with pytest.raises(dh.InputError, match=f"{missing:,} of 3,000 rows of .* or a missing user"):
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
        ({"y": None}, "'visits' needs columns for its coordinates: name x and y"),
        ({"y": "up"}, "column 'up' is not in 'visits': its columns are east, north, who, kind"),
        ({"y": "kind"}, "column 'kind' is of type string: coordinates are numbers; make a view"),
        ({"where": "east > 3"}, "'east' says where a point is, so that a point could vanish by moving"),
        ({"where": "kind"}, "where is 'kind', of the kind 'text': a condition is true or false"),
        ({"where": "random() > 0.5"}, "asks for 'RAND\\(\\)'"),
        ({"where": "lat > 3"}, "column 'lat', which is not there"),
        ({"outside": "lose"}, "outside is 'lose'"),
        ({"user": "who"}, "give both or neither"),
        ({"user": "whom", "max_per_user": 3}, "column 'whom' is not in 'visits'"),
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
        dh.count_table("visits", dh.Domain((0, 1), (4,)), database=__file__, x="x")


def test_frames_and_tables_without_rows(frame):
    city, how = duckdb.connect(), {"x": "east", "y": "north"}
    city.register("visits", frame)
    with pytest.raises(dh.InputError, match=r"has no table 'visits' \(frames and temporary tables are seen"):
        dh.count_table("visits", DOMAIN, database=city, **how)
    city.execute("CREATE TABLE none (east INTEGER, north DECIMAL(9, 2), who INTEGER)")
    counted = dh.count_table("none", DOMAIN, database=city, **how, user="who", max_per_user=2, outside="clamp").counts
    assert counted.tolist() == dh.count(np.zeros((0, 2)), DOMAIN).tolist()
    with pytest.raises(dh.InputError, match="input 'none' is empty: it has no rows"):
        dh.count_table("none", DOMAIN, database=city, **how)


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
    others = {"": "must be the path of a DuckDB file", "points\0.duckdb": "does not exist", ".": "is a folder"}
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
            assert dh.count_table(name, DOMAIN, database=database, x="east", y="north").counts.sum() == 1


def test_spark_is_asked_in_its_own_sql(monkeypatch):
    """Ibis writes it without Spark; what it gives is tested in tests/spark."""
    monkeypatch.setattr(ibis.options, "pyspark", _Settings())
    table = ibis.table({"x": "float64", "user": "string", "at": "timestamp(6)"}, name="visits")
    step = step_of(table.at, Clock.of("2026-05-01", "1d"), 9)
    places = table.select("user", place=_place_of(dh.Domain((0, 1), (4,)), False, table.x), step=step)
    bound = UserBound(3, bytes(32))
    text = sql_of(_bounded(places, bound), "pyspark")
    assert "LEAST(FLOOR(" in text
    assert text.count("ROW_NUMBER() OVER (PARTITION BY") == 2
    assert re.search(r"SHA2\((CONCAT\()+`\w+`\.`secret`, CAST\(`\w+`\.`number` AS STRING\)", text)
    assert re.search(r"MONOTONICALLY_INCREASING_ID\(\) AS `row`", text)
    assert re.search(r"`usable`, `\w+`\.`step` ORDER BY `\w+`\.`row` ", text)
    assert bound.secret not in text


class _Settings(ibis.config.Config):
    treat_nan_as_null: bool = False


# --- a table of a database, and a file of the same rows ----------------------------------------------------------

LAST = "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59", "1970-01-01", "2262-04-12 12:00"


@pytest.fixture(scope="module")
def rows():
    """Rows whose coordinates are in degrees and on the map, with times at the borders of steps, and others."""
    rng, number = np.random.default_rng(8), 3000
    when = np.datetime64("2026-05-01", "us") + (rng.random(number) * 6 * 86_400e6).astype("timedelta64[us]")
    when[:200] = np.datetime64("2026-05-01", "us") + np.arange(-100, 100) * np.timedelta64(21_600_000_000, "us")
    when[100:200] -= np.timedelta64(1, "us")
    when[200 : 200 + len(LAST)] = np.array(LAST, "datetime64[us]")
    lon, lat = rng.uniform(-74.1, -73.9, number), rng.uniform(40.6, 40.8, number)
    x, y = rng.uniform(0, 4, number), rng.uniform(0, 2, number)
    day = when.astype("datetime64[D]").astype("datetime64[s]")
    day[200], day[204] = np.datetime64("1800-01-01"), np.datetime64("2200-01-01")  # pandas reads no others as days
    return pa.table(
        {
            "lon": lon, "lat": lat, "x": x, "y": y, "who": rng.choice(["ann", "bob", "zoë"], number),
            "kind": rng.choice(["bus", "tram"], number), "at": pa.array(when),
            "zoned": pa.array(when).cast(pa.timestamp("us", "Europe/Berlin")),
            "day": pa.array(day).cast(pa.date32()), "words": np.datetime_as_string(when),
            "number": rng.integers(-5, 30, number), "unix": when.astype("datetime64[s]").astype(np.int64),
            "millis": when.astype("datetime64[ms]").astype(np.int64), "size": rng.uniform(0, 30, number).round(),
        }
    )  # fmt: skip


@pytest.fixture(params=["duckdb", "postgresql"])
def both(request, tmp_path):
    """Puts rows into a file and into a table `visits`; gives `path` for the file, and those for the table."""
    is_postgres = request.param == "postgresql"
    where = request.getfixturevalue("postgres_url") if is_postgres else str(tmp_path / "city.duckdb")
    kinds = {pa.float64(): "FLOAT8", pa.string(): "TEXT", pa.int64(): "BIGINT", pa.date32(): "DATE"}
    kinds |= {pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "Europe/Berlin"): "TIMESTAMPTZ"}

    def put(rows):
        pq.write_table(rows, tmp_path / "visits.parquet")
        made = ", ".join(f'"{field.name}" {kinds[field.type]}' for field in rows.schema)
        with (psycopg if is_postgres else duckdb).connect(where) as connection:
            connection.execute("DROP TABLE IF EXISTS visits")
            connection.execute(f"CREATE TABLE visits ({made})")
        engine = open_engine(where)
        with engine.change() as change:
            change.append("visits", rows)
        engine.close()
        return {"path": tmp_path / "visits.parquet"}, {"path": where, "table": "visits"}

    return put


def _known(read):
    """All that is known of rows, as plain values."""
    known = dict(vars(read))
    known.pop("trouble", None)
    for name in ("keys", "numbers", "upto", "counts"):
        if name in known:
            known[name] = np.asarray(known[name]).tolist()
    return known


def _spoilt(rows, **values):
    """Rows of which some have other values: every 100th in the first column given, the one after in the next."""
    for first, (name, value) in enumerate(values.items()):
        place = rows.column_names.index(name)
        column = rows[name].to_pylist()
        column[10 + first :: 100] = [value] * len(column[10 + first :: 100])
        rows = rows.set_column(place, rows.schema.field(name), [column])
    return rows


@pytest.mark.parametrize(
    "how",
    [
        {}, {"where": "kind = 'bus'"}, {"outside": "drop", "where": "size > 7"}, {"outside": "clamp"},
        {"user": "who", "max_per_user": 40, "key": bytes(32), "outside": "drop"},
        {"x": "lon", "y": "lat", "crs": "EPSG:4326"},
        {"x": "lon", "y": "lat", "crs": "EPSG:4326", "outside": "drop",
         "user": "who", "max_per_user": 9, "key": b"k" * 32},
    ],
    ids=lambda how: "-".join(map(str, how)) or "plain",
)  # fmt: skip
def test_a_table_is_counted_as_a_file_of_the_same_rows(both, rows, how, monkeypatch):
    monkeypatch.setattr("deltahist.counting.engines._ROWS", 700)
    monkeypatch.setattr("deltahist.counting.engines._BYTES", 40_000)
    domain = dh.Domain((1, 0, 3, 2) if how.get("outside") == "drop" else (0, 0, 4, 2), (8, 5))
    if "crs" in how:
        domain = dh.Domain((577_000, 4_495_000, 591_000, 4_517_000), (16, 22), "EPSG:32618")
    bad = _spoilt(rows, **{how.get("x", "x"): None, how.get("y", "y"): float("nan"), "lon": float("inf"), "who": None})
    file, table = both(bad)
    reading = {"x": "x", "y": "y", "outside": "clamp"} | how
    with pytest.raises(dh.InputError, match=r"rows of 'visits\.parquet' have missing") as one:
        dh.count_file(**file, domain=domain, **reading)
    with pytest.raises(dh.InputError, match="rows of 'visits' have missing") as other:
        dh.count_file(**table, domain=domain, **reading)
    assert re.findall(r"[\d,]+ of [\d,]+", str(one.value)) == re.findall(r"[\d,]+ of [\d,]+", str(other.value))
    found = [dh.count_file(**each, domain=domain, **reading, drop_bad_rows=True) for each in (file, table)]
    if "max_per_user" not in how:
        found[1] = replace(found[1], users=found[0].users)
    assert _known(found[0]) == _known(found[1])
    assert (np.asarray(found[0].counts) > 0).sum() > 30 or how.get("max_per_user")
    assert found[0].outside > 0 or how.get("outside") != "drop"
    assert bool(found[0].unmatched) == ("where" in how)


DOMAIN_OF_STEPS = dh.Domain((0, 0, 4, 2), (2, 2))


CLOCKS = [
    ("at", Clock.of("2026-05-01", "6h")), ("zoned", Clock.of("2026-05-01T03:00+02:00", "1d")),
    ("at", Clock.of("1969-12-31T23:59:59", "1s")), ("day", Clock.of("2026-05-01", "1d")),
    ("words", Clock.of("2026-05-01", "1d")), ("number", Clock.of("3", None)), ("size", Clock.of("3", None)),
    ("unix", Clock.of("2026-05-01", "7h", "unix")), ("millis", Clock.of("1969-12-31", "1d", "unix-ms")),
]  # fmt: skip


def test_steps_of_a_table_are_those_of_a_file_of_the_same_rows(both, rows):
    # A shorter row would go where PostgreSQL has room, and users' rows are chosen by their order.
    spoilt = dict.fromkeys([name for name, _ in CLOCKS]) | {"words": "x" * len(rows["words"][0].as_py())}
    file, table = both(_spoilt(rows, x=None, **spoilt))
    users = {"user": "who", "max_per_user": 2, "key": bytes(32), "where": "kind = 'bus'"}
    for time, clock in CLOCKS:
        how = {"domain": DOMAIN_OF_STEPS, "clock": clock, "steps": 20, "time": time, "x": "x", "y": "y", "due": 2}
        with pytest.raises(dh.InputError, match=r"60 of 3,000 rows of 'visits' .* or times.*; 30 of them have no time"):
            count_steps(**table, **how)
        # Users' rows come out in batches: how their times are read does not depend on the user.
        for more in ({}, users) if time in ("at", "words", "unix") else ({},):
            found = [count_steps(**each, **how, **more, drop_bad_rows=True) for each in (file, table)]
            assert _known(found[0]) == _known(found[1])
            assert min(found[0].before, found[0].kept) > 0
        assert found[0].after > 0 or time == "size"


def test_times_of_nanoseconds_are_read_as_those_of_files_are(tmp_path):
    """DuckDB cuts them to microseconds toward 1970, which is the next second."""
    when = np.array([-1, -1000, 0, -1_000_000_001], "datetime64[ns]")
    pq.write_table(pa.table({"x": [0.5] * 4, "at": when}), path := tmp_path / "visits.parquet", version="2.6")
    with duckdb.connect(tmp_path / "city.duckdb") as city:
        city.execute(f"CREATE TABLE visits AS FROM '{path}'")
    how = {"domain": dh.Domain((0, 1), (1,)), "clock": Clock.of("1969-12-31T23:59:58", "1s"), "steps": 5, "x": "x"}
    ways = (path, None), (tmp_path / "city.duckdb", "visits")
    found = [count_steps(each, time="at", **how, table=table) for each, table in ways]
    assert found[0].numbers.tolist() == [1, 2, 1]
    assert _known(found[0]) == _known(found[1])


def test_points_outside_stop_a_stream_only_in_steps_that_are_due(both, rows):
    file, table = both(rows)
    small = dh.Domain((0, 0, 2, 2), (2, 2))
    how = {"domain": small, "clock": Clock.of("0", None), "steps": 30, "time": "number", "x": "x", "y": "y"}
    said = []
    for each in (file, table):
        with pytest.raises(dh.OutsideBounds) as refused:
            count_steps(**each, **how, due=20)
        said.append(str(refused.value))
        assert count_steps(**each, **how, due=30).outside > 1000
    assert said[0] == said[1]
    with pytest.raises(dh.InputError, match="'number' holds the times"):
        count_steps(**table, **how, where="number > 3")
    with pytest.raises(dh.InputError, match="the time column holds numbers: with every="):
        count_steps(**table, **how | {"clock": Clock.of("2026-05-01", "1d")})


def test_sorted_points_come_from_a_table(both, rows):
    found = [np.asarray(points_file(**each, domain=dh.Domain((0, 4), (9,)), x="x").points) for each in both(rows)]
    assert (np.sort(found[0]) == np.sort(found[1])).all()
    assert len(found[0]) == 3000


@pytest.mark.parametrize(
    ("path", "how", "message"),
    [
        ("city.duckdb", {"table": None}, "is a database: say which of its tables, table='visits'"),
        ("postgresql://me:hidden@host/city", {"table": None}, "a database, postgresql://…: say which of its tables"),
        ("visits.csv", {}, "'visits.csv' is another file: it must be a DuckDB file"),
        ("nowhere.duckdb", {}, "'nowhere.duckdb' does not exist: a table is one of a database"),
        (".", {}, "is a folder: a table is one of a database"), ("s3://me:hidden@b/v", {}, "database is 's3'"),
        ("postgresql://me:hid@den@host/city", {}, "an address that cannot be read"),
        ("postgresql://me:hid/den@host/city", {}, "an address that cannot be read"),
        ("postgresql://me:hidden@127.0.0.1:1/city", {}, "'city on 127.0.0.1' does not answer"),
        ("city.duckdb", {"decimal": ","}, "decimal is ',' with the table 'visits': it is about files"),
        ("city.duckdb", {"format": "csv"}, "format is 'csv' with the table"),
        ("city.duckdb", {"crs": "EPSG:4326"}, "degrees"),
        ("city.duckdb", {"table": "nowhere"}, "has no table 'nowhere'"),
    ],
)  # fmt: skip
def test_databases_and_tables_that_cannot_be_read_are_refused(tmp_path, monkeypatch, path, how, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("x,y\n0.5,0.5\n")
    with duckdb.connect("city.duckdb") as city:
        city.execute("CREATE TABLE visits AS SELECT 0.5 AS x, 0.5 AS y")
    with pytest.raises(dh.InputError, match=message) as refused:
        dh.count_file(path, DOMAIN, x="x", y="y", **{"table": "visits"} | how)
    assert "hid" not in str(refused.value)
    assert "den" not in str(refused.value).replace("hidden", "")
    assert sorted(os.listdir()) == ["city.duckdb", "visits.csv"]
