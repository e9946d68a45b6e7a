"""Counting on Spark: cells bit for bit as NumPy has them, and counts as `count` gives them."""

import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from deltahist.counting.engines import unbound
from deltahist.counting.opening import open_engine
from points import DOMAINS, nasty_coordinates

import deltahist as dh
from deltahist.counting.databases import _place_of
from deltahist.counting.steps import count_steps
from deltahist.preprocessing import Clock

#: The sockets to Java are closed when Java is.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{each}")
    for each in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]

DOMAIN = dh.Domain((0, 0, 4, 2), (4, 2))
HOW = {"x": "east", "y": "north"}


#: Without ANSI once.
CASES = [(domain, "true") for domain in DOMAINS[:1] + DOMAINS[2:5] + DOMAINS[6:]] + [(DOMAINS[2], "false")]


@pytest.mark.parametrize(("domain", "is_ansi"), CASES, ids=lambda each: str(getattr(each, "bounds", each)))
def test_cells_are_those_of_numpy_bit_for_bit(spark, make_table, tmp_path, domain, is_ansi):
    rng, number = np.random.default_rng(5), 100_000
    columns = [nasty_coordinates(domain, axis, number, rng) for axis in range(domain.ndim)]
    names = [f"v{axis}" for axis in range(domain.ndim)]
    missing = rng.random(number) < 0.01
    rows = {name: pa.array(values, mask=missing) for name, values in zip(names, columns, strict=True)}
    make_table("points", tmp_path / "points.parquet", {"number": np.arange(number), **rows})
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


def test_points_outside_and_bad_rows_are_refused_in_the_words_of_arrays(spark, make_table, tmp_path, frame, visits):
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
    make_table("spoilt", tmp_path / "spoilt.parquet", pa.Table.from_pandas(spoilt, preserve_index=False))
    users = {"user": "who", "max_per_user": 3}
    fine = dh.Domain((0, 0, 4, 2), (400, 200))  # some points are alone in a cell
    for bounds, number in (({}, 3), (users, 5)):
        with pytest.raises(dh.InputError, match=f"{number} of 3,000 rows of 'spoilt' have missing, unreadable, NaN or"):
            dh.count_table("spoilt", fine, database=spark, **HOW, **bounds)


def test_what_cannot_be_counted_is_refused(spark, tmp_path, visits):
    visits_path = tmp_path / "visits.parquet"
    for name in ("nowhere", "", f"parquet.{visits_path}", f"parquet.`{visits_path}`"):
        with pytest.raises(dh.InputError, match="has no table"):
            dh.count_table(name, DOMAIN, database=spark, **HOW)
    with pytest.raises(dh.InputError, match="column 'up' is not in 'visits': its columns are east, north, who"):
        dh.count_table("visits", DOMAIN, database=spark, x="east", y="up")


def test_what_spark_says_of_records_is_not_shown(spark, tmp_path, frame, visits, capfd):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW spoilt AS SELECT east, CAST(who AS DOUBLE) AS north FROM visits")
    with pytest.raises(dh.InputError, match=r"cannot evaluate this: .* is not shown") as failed:
        dh.count_table("spoilt", DOMAIN, database=spark, **HOW)
    assert failed.value.__context__ is None
    assert failed.value.__cause__ is None
    # A partition is gone once Spark has listed the files.
    pads.write_dataset(visits, tmp_path / "parts", format="parquet", partitioning=["kind"], partitioning_flavor="hive")
    spark.read.parquet(str(tmp_path / "parts")).createOrReplaceTempView("parts")
    assert dh.count_table("parts", DOMAIN, database=spark, **HOW).rows == len(frame)
    shutil.rmtree(tmp_path / "parts" / "kind=bus")
    with pytest.raises(dh.InputError, match="did not read all records"):
        dh.count_table("parts", DOMAIN, database=spark, **HOW)
    # A file of the table is cut short, then gone.
    path = tmp_path / "visits.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    for _ in range(2):
        with pytest.raises(dh.InputError, match="did not read all records"):
            dh.count_table("visits", DOMAIN, database=spark, **HOW)
        path.unlink(missing_ok=True)
    assert not any(who in "".join(capfd.readouterr()) for who in frame["who"].unique())


def test_steps_and_counts_of_a_table_are_those_of_a_file_of_the_same_rows(spark, make_table, tmp_path, frame):
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
    make_table("visits", path := tmp_path / "visits.parquet", rows)
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
    with pytest.raises(dh.InputError, match="no rows, and times of type string are read outside of it"):
        count_steps(spark, DOMAIN, Clock.of("2026-05-01", "1d"), 3, table="visits", time="kind", **HOW)


def test_a_table_of_a_catalog_has_a_name_of_three_parts(spark, visits):
    spark.sql("CREATE SCHEMA IF NOT EXISTS other.`my city`")
    spark.sql("CREATE TABLE other.`my city`.visits AS SELECT east, north FROM visits WHERE east < 1")
    found = dh.count_table("other.my city.visits", DOMAIN, database=spark, **HOW)
    assert 0 < found.rows == spark.table("visits").where("east < 1").count()
    assert dh.count_table("spark_catalog.default.visits", DOMAIN, database=spark, **HOW).rows == 3000
    for name in ("other.my city.nowhere", "nowhere.my city.visits"):
        with pytest.raises(dh.InputError, match="has no table"):
            dh.count_table(name, DOMAIN, database=spark, **HOW)


def test_longitudes_and_latitudes_are_counted_as_those_of_a_file(spark, make_table, tmp_path, monkeypatch):
    """Points go to the map by the one operation of a domain, batch by batch, and bit for bit."""
    rng, number = np.random.default_rng(7), 30_000
    domain = dh.Domain((580000, 4500000, 600000, 4520000), (2000, 2000), crs="EPSG:32618")
    lon, lat = rng.uniform(-74.04, -73.83, number), rng.uniform(40.6, 40.82, number)
    lon[:4], lat[:4] = [np.nan, np.inf, 5.0, -74.0], [40.7, 40.7, 95.0, -95.0]  # of the last two the map knows no place
    path, rows = tmp_path / "places.parquet", {"lon": pa.array(lon, mask=np.arange(number) == 9), "lat": lat}
    make_table("places", path, rows | {"who": rng.choice(["ann", "bob", ""], number), "at": np.arange(number) % 3})
    how = {"x": "lon", "y": "lat", "crs": "EPSG:4267"}
    for more in ({"outside": "clamp"}, {"outside": "drop", "where": "at > 0"}):
        found = dh.count_table("places", domain, database=spark, **how, **more, drop_bad_rows=True)
        expected = dh.count_file(path, domain, **how, **more, drop_bad_rows=True)
        assert (found.counts == expected.counts).all()
        assert 100 < found.outside == expected.outside
        assert found.bad_rows == expected.bad_rows > 1
        assert "NAD27" in found.counts.preprocessing.projection
        assert found.counts.preprocessing.projection == expected.counts.preprocessing.projection
    kept = dh.count_table(
        "places", domain, database=spark, **how, drop_bad_rows=True, outside="clamp", user="who", max_per_user=7
    )
    assert kept.counts.sum() == 14
    # Those that the map has no place for are outside to whoever judges the bounds.
    for spoilt in ({"x": "lat", "y": "lon"}, {}):
        with pytest.raises(dh.OutsideBounds) as one:
            dh.count_file(path, domain, **how | spoilt)
        with pytest.raises(dh.OutsideBounds) as other:
            dh.count_table("places", domain, database=spark, **how | spoilt)
        assert (str(one.value), one.value.kind) == (str(other.value), other.value.kind)
    assert not [each for each in spark.catalog.listTables() if each.isTemporary and "deltahist" in each.name]
    monkeypatch.setattr("pyproj.__proj_version__", "1.2.3")  # here, not where it runs
    with pytest.raises(dh.InputError, match=r"do they have pyproj, with PROJ 1\.2\.3") as failed:
        dh.count_table("places", domain, database=spark, **how)
    assert failed.value.__context__ is None
