"""Counting on Spark: cells bit for bit as NumPy has them, and counts as `count` gives them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from points import DOMAINS, nasty_coordinates

import deltahist as dh
from deltahist.counting.databases import _place_of
from deltahist.counting.engines import unbound
from deltahist.counting.opening import open_engine
from deltahist.counting.steps import count_steps
from deltahist.errors import InputError
from deltahist.personal.database import Database
from deltahist.preprocessing import Clock

#: The sockets to Java are closed when Java is.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{each}")
    for each in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]

DOMAIN = dh.Domain((0, 0, 4, 2), (4, 2))
HOW = {"x": "east", "y": "north"}


def _table(spark, name, path, rows):
    """Make a table of one Parquet file, which has the order of its rows."""
    pq.write_table(pa.table(rows), path)
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")


@pytest.mark.parametrize("is_ansi", ["true", "false"])
@pytest.mark.parametrize("domain", DOMAINS[:1] + DOMAINS[2:5] + DOMAINS[6:], ids=lambda domain: str(domain.bounds))
def test_cells_are_those_of_numpy_bit_for_bit(spark, tmp_path, domain, is_ansi):
    rng, number = np.random.default_rng(5), 100_000
    columns = [nasty_coordinates(domain, axis, number, rng) for axis in range(domain.ndim)]
    names = [f"v{axis}" for axis in range(domain.ndim)]
    missing = rng.random(number) < 0.01
    rows = {name: pa.array(values, mask=missing) for name, values in zip(names, columns, strict=True)}
    _table(spark, "points", tmp_path / "points.parquet", {"number": np.arange(number), **rows})
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    engine = open_engine(spark)
    table = unbound("points", engine.schema("points"))
    with engine.snapshot() as look:
        found = look.fetch(table.select("number", place=_place_of(domain, False, *(table[name] for name in names))))
    assert spark.conf.get("spark.sql.ansi.enabled") == is_ansi
    spark.conf.set("spark.sql.ansi.enabled", "true")
    place = found.sort_by("number")["place"].to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    found = place.where(place >= 0, -2 - place)
    good = np.isfinite(columns).all(axis=0) & ~missing
    assert found[~good].isna().all()
    assert 0 < good.sum() < number
    assert (found[good].to_numpy(np.int64) == domain.flat_cells([column[good] for column in columns])).all()


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "east": rng.uniform(0, 4, 3000), "north": rng.uniform(0, 2, 3000).astype("f4"),
            "who": rng.choice(["ann", "bob", "eve", "zoë"], 3000), "kind": rng.choice(["bus", "tr\\a'm"], 3000),
            "time": pd.date_range("2026-05-01", periods=3000, freq="37min"),
        }
    )  # fmt: skip


@pytest.fixture
def visits(spark, tmp_path, frame):
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    decimals = rows["north"].cast(pa.float64()).cast(pa.decimal128(20, 10), safe=False)
    rows = rows.append_column("exact", decimals)
    _table(spark, "visits", tmp_path / "visits.parquet", rows)
    return rows


def test_counts_are_those_of_arrays(spark, frame, visits):
    points = frame[["east", "north"]].to_numpy(np.float64)
    counted = dh.count_table("visits", DOMAIN, database=spark, **HOW).counts
    assert (counted == dh.count(points, DOMAIN)).all()
    assert counted.counting == dh.count(points, DOMAIN).counting
    conditions = {
        "lower(kind) like 'b%'": frame["kind"] == "bus", "kind = 'tr\\a''m'": frame["kind"] != "bus",
        "extract(hour from time) >= 22 and time < '2026-06-01'":
            (frame["time"].dt.hour >= 22) & (frame["time"] < "2026-06-01"),
        "1 / exact > 1.5": visits["exact"].to_pandas().astype(float).rdiv(1) > 1.5,
    }  # fmt: skip
    for where, chosen in conditions.items():
        found = dh.count_table("visits", DOMAIN, database=spark, **HOW, where=where).counts
        assert (found == dh.count(points[chosen], DOMAIN)).all()
        assert 0 < found.sum() < 3000
    small = dh.Domain((1, 0, 3, 2), (4, 3))
    for outside in ("clamp", "drop"):
        found = dh.count_table("visits", small, database=spark, **HOW, outside=outside).counts
        assert (found == dh.count(points, small, outside=outside)).all()
    points[:, 1] = visits["exact"].to_pandas().astype(float)
    found = dh.count_table("default.visits", DOMAIN, database=spark, x="east", y="exact").counts
    assert (found == dh.count(points, DOMAIN)).all()


def test_points_outside_and_bad_rows_are_refused_in_the_words_of_arrays(spark, tmp_path, frame, visits):
    points = frame[["east", "north"]].to_numpy(np.float64)
    for domain in (dh.Domain((0, 0, 2, 4), (2, 4)), dh.Domain((0, 0, 3, 2), (3, 2))):
        with pytest.raises(dh.OutsideBounds) as one:
            dh.count(points, domain)
        with pytest.raises(dh.OutsideBounds) as other:
            dh.count_table("visits", domain, database=spark, **HOW)
        assert (str(one.value), one.value.kind) == (str(other.value), other.value.kind)
    spoilt = frame.copy()
    spoilt.loc[[3, 5, 8], "east"] = [np.inf, np.nan, -np.inf]
    spoilt.loc[[3, 9, 11], "who"] = [None, "", None]
    _table(spark, "spoilt", tmp_path / "spoilt.parquet", pa.Table.from_pandas(spoilt, preserve_index=False))
    users = {"user": "who", "max_per_user": 3}
    fine = dh.Domain((0, 0, 4, 2), (400, 200))  # some points are alone in a cell
    for bounds, number in (({}, 3), (users, 5)):
        with pytest.raises(dh.InputError, match=f"{number} of 3,000 rows of 'spoilt' have missing, unreadable, NaN or"):
            dh.count_table("spoilt", fine, database=spark, **HOW, **bounds)


def test_points_of_users_are_bounded_whatever_their_places_are(spark, tmp_path, frame):
    """The same rows stay when all points move, and when another user comes."""
    number = len(frame)
    line, how = dh.Domain((0, number), (number,)), {"user": "who", "max_per_user": 30, "key": bytes(32)}
    rows = {"at": np.arange(number) + 0.5, "who": frame["who"]}
    moved = rows | {"at": rows["at"][::-1].copy()}
    more = {"at": np.r_[rows["at"][:7], 5.5, rows["at"][7:]], "who": [*rows["who"][:7], "max", *rows["who"][7:]]}
    kept = {}
    for name, given in (("stay", rows), ("moved", moved), ("more", more)):
        _table(spark, name, tmp_path / f"{name}.parquet", given)
        kept[name] = np.asarray(dh.count_table(name, line, database=spark, x="at", **how).counts)
    assert (kept["stay"] == kept["moved"][::-1]).all()
    assert (np.flatnonzero(kept["more"] - kept["stay"]) == [5]).all()
    whose = frame["who"].to_numpy()[np.flatnonzero(kept["stay"])]
    assert pd.Series(whose).value_counts().to_dict() == dict.fromkeys(["ann", "bob", "eve", "zoë"], 30)
    assert kept["stay"].max() == 1
    others = [dh.count_table("stay", line, database=spark, x="at", **how | {"key": key}).counts for key in (None, None)]
    assert (others[0] != others[1]).any()
    # A third of the rows before the first third: neither the first nor the last ones are preferred.
    assert 15 < (np.flatnonzero(kept["stay"]) < number / 3).sum() < 65
    assert not [each for each in spark.catalog.listTables() if each.isTemporary]


def test_the_key_of_users_is_in_no_plan(spark, visits, monkeypatch, capfd):
    from deltahist.counting import spark as module

    plans, run = [], module._SparkSession._run

    def explain(look, statement, expression):
        carried = module.carried_tables(expression)
        secrets = [rows["secret"][0].as_py() for rows in carried.values()]
        for name, rows in carried.items():
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        spark.sql(statement).explain("extended")
        plans.append((secrets, statement + capfd.readouterr().out))
        return run(look, statement, expression)

    monkeypatch.setattr(module._SparkSession, "_run", explain)
    dh.count_table("visits", DOMAIN, database=spark, **HOW, user="who", max_per_user=3)
    (((secret,), told),) = plans
    assert "Physical Plan" in told
    assert secret not in told


def test_what_cannot_be_counted_is_refused(spark, tmp_path, visits):
    visits_path = tmp_path / "visits.parquet"
    for name in ("nowhere", "", f"parquet.{visits_path}", f"parquet.`{visits_path}`"):
        with pytest.raises(dh.InputError, match="has no table"):
            dh.count_table(name, DOMAIN, database=spark, **HOW)
    with pytest.raises(dh.InputError, match="column 'up' is not in 'visits': its columns are east, north, who"):
        dh.count_table("visits", DOMAIN, database=spark, x="east", y="up")
    with pytest.raises(InputError, match="no transactions, which questions about people need"):
        Database.open(spark)


def test_what_spark_says_of_records_is_not_shown(spark, tmp_path, frame, visits, capfd):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW spoilt AS SELECT east, CAST(who AS DOUBLE) AS north FROM visits")
    with pytest.raises(dh.InputError, match=r"cannot evaluate this: .* is not shown") as failed:
        dh.count_table("spoilt", DOMAIN, database=spark, **HOW)
    assert failed.value.__context__ is None
    assert failed.value.__cause__ is None
    # A file of the table is cut short, then gone.
    path = tmp_path / "visits.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    for _ in range(2):
        with pytest.raises(dh.InputError, match="did not read all records"):
            dh.count_table("visits", DOMAIN, database=spark, **HOW)
        path.unlink(missing_ok=True)
    assert not any(who in "".join(capfd.readouterr()) for who in frame["who"].unique())


def test_steps_and_counts_of_a_table_are_those_of_a_file_of_the_same_rows(spark, tmp_path, frame):
    when = frame["time"].to_numpy("datetime64[us]").copy()
    when[:9] = np.array(
        ["NaT", "1969-12-31T23:59:59.999999", "1969-12-31T23:59:59", "1850-01-01T00:00:00.5", "2026-05-02",
         "2026-05-01T23:59:59.999999", "2300-01-01", "2026-05-01", "2026-05-03"], "datetime64[us]",
    )  # fmt: skip
    east = np.where(np.arange(len(when)) % 50 == 20, np.nan, frame["east"])
    rows = pa.table(
        {
            "east": pa.array(east, from_pandas=True), "north": frame["north"], "who": frame["who"],
            "kind": frame["kind"], "at": pa.array(when), "zoned": pa.array(when).cast(pa.timestamp("us", "UTC")),
            "day": pa.array(when[7:].tolist() + [None] * 7).cast(pa.date32()), "number": np.arange(len(when)) % 40 - 5,
            "millis": pa.array(when).cast(pa.timestamp("ms"), safe=False).cast(pa.int64()),
        }
    )  # fmt: skip
    _table(spark, "visits", path := tmp_path / "visits.parquet", rows)
    steps = {
        "at": Clock.of("2026-05-01", "6h"), "zoned": Clock.of("1969-12-31T23:59:59", "1s"),
        "day": Clock.of("2026-05-01", "1d"), "number": Clock.of("3", None),
        "millis": Clock.of("1969-12-31", "1d", "unix-ms"),
    }  # fmt: skip
    how = HOW | {"domain": DOMAIN, "drop_bad_rows": True, "where": "kind = 'bus'", "outside": "clamp"}
    for time, clock in steps.items():
        ways = (path, None), (spark, "visits")
        file, found = (count_steps(each, clock=clock, steps=20, time=time, table=table, **how) for each, table in ways)
        for name in ("keys", "numbers", "upto"):
            assert getattr(file, name).tolist() == getattr(found, name).tolist()
        for name in ("rows", "bad_rows", "unmatched", "outside", "counting", "before", "after"):
            assert getattr(file, name) == getattr(found, name)
        assert min(file.bad_rows, file.kept) > 0
    # Each user keeps two points in each step, others for other keys.
    users = {"user": "who", "max_per_user": 2}
    how = HOW | {"domain": DOMAIN, "clock": steps["number"], "time": "number"}
    kept = [
        count_steps(spark, steps=20, table="visits", **how, **users, key=key, outside="clamp", drop_bad_rows=True)
        for key in (bytes(32), bytes(32), None)
    ]
    assert [each.numbers.sum() for each in kept] == [20 * 4 * 2] * 3
    assert (kept[0].numbers == kept[1].numbers).all()
    assert not (np.array_equal(kept[0].keys, kept[2].keys) and (kept[0].numbers == kept[2].numbers).all())


def test_what_spark_would_have_to_hand_out_is_refused(spark, visits):
    zone = dh.Domain((577_000, 4_495_000, 591_000, 4_517_000), (7, 11), "EPSG:32618")
    with pytest.raises(dh.InputError, match="no rows, and coordinates in 'EPSG:4326' are projected outside of it"):
        dh.count_table("visits", zone, database=spark, **HOW, crs="EPSG:4326")
    with pytest.raises(dh.InputError, match="no rows, and times of type string are read outside of it"):
        count_steps(spark, DOMAIN, Clock.of("2026-05-01", "1d"), 3, table="visits", time="kind", **HOW)


def test_counts_come_through_spark_connect_and_a_server_that_goes_away_is_an_error(connect_server, tmp_path, frame):
    address = f"sc://127.0.0.1:{connect_server.port}"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "visits.parquet")
    engine = open_engine(address)
    engine._session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path}/visits.parquet'").collect()
    points = frame[["east", "north"]].to_numpy(np.float64)
    assert (dh.count_table("visits", DOMAIN, database=address, **HOW).counts == dh.count(points, DOMAIN)).all()
    kept = dh.count_table("visits", DOMAIN, database=address, **HOW, user="who", max_per_user=30).counts
    assert kept.sum() == 120
    with engine.snapshot() as look:
        connect_server.kill()
        with pytest.raises(dh.InputError, match="did not read all records"):
            look.fetch(unbound("visits", {"east": "float64"}))
    with pytest.raises(dh.InputError, match="does not answer: is Spark there"):
        open_engine(address + "/;token=hidden")
    for hidden in ("sc://me:hidden@127.0.0.1:1", "sc://127.0.0.1:1;token=hidden"):
        with pytest.raises(dh.InputError, match=r"the database 'sc://127\.0\.0\.1:1' does not answer"):
            open_engine(hidden)
