"""One lattice, one formula: places in SQL are those of NumPy bit for bit; outside, dropped, projected, by step."""

import duckdb
import geopandas as gpd
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest
from points import DOMAINS, nasty_coordinates
from postgres import postgres_url  # noqa: F401
from visits import DOMAIN, counts_of

import deltahist as dh
from deltahist.counting.counts import Tally
from deltahist.counting.sources import PostgreSQL
from deltahist.counting.sql import BAD, UNMATCHED, locate_rows, write_placing
from deltahist.preprocessing import Clock
from deltahist.space.crs import Operation

HOW = {"x": "east", "y": "north"}


def _points(domain, number, seed=5):
    rng = np.random.default_rng(seed)
    columns = [nasty_coordinates(domain, axis, number, rng) for axis in range(domain.ndim)]
    return columns, rng.random(number) < 0.9


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: str(domain.bounds))
@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_places_are_those_of_numpy(request, engine, domain):
    columns, chosen = _points(domain, 40_000 if engine == "duckdb" else 5000)
    rows = pa.table({"n": np.arange(len(chosen)), "chosen": chosen, **dict(zip("xy", columns, strict=False))})
    statement = write_placing("SELECT * FROM rows ORDER BY n", domain)
    if engine == "duckdb":
        with duckdb.connect() as connection:
            found = connection.register("rows", rows).execute(statement).to_arrow_table()
    else:
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url) as connection:
            names = ", ".join(f"{name} float8" for name in rows.column_names[2:])
            connection.execute(f"CREATE TABLE rows (n int, chosen bool, {names})")
            with connection.cursor() as cursor, cursor.copy("COPY rows FROM STDIN") as copy:
                for row in zip(*rows.to_pydict().values(), strict=True):
                    copy.write_row(row)
        with PostgreSQL.open(url) as opened:
            found = pa.Table.from_batches(opened.batches(statement))
    _compare(found["place"].to_numpy(), columns, chosen, domain)


def _compare(found, columns, chosen, domain):
    good = np.isfinite(columns).all(axis=0) & chosen
    inside = np.logical_and.reduce(
        [(c >= low) & (c <= high) for c, low, high in zip(columns, domain.low, domain.high, strict=True)]
    )
    flat = domain.flat_cells([c[good] for c in columns])
    assert (found[good] == np.where(inside[good], flat, domain.size + flat)).all()
    assert (found[~chosen] == UNMATCHED).all()
    assert (found[chosen & ~good] == BAD).all()
    assert (locate_rows(columns, domain, chosen, None, None) == found).all()
    assert 0 < inside[good].sum() < good.sum() < len(good)


def test_points_outside_are_clamped_or_dropped_and_many_are_refused(tmp_path, frame):
    frame.to_csv(tmp_path / "p.csv", index=False)
    small = dh.Domain((1, 0, 3, 2), (20, 20))
    inside = frame["east"].between(1, 3)
    for found in (
        lambda **how: dh.count_file(tmp_path / "p.csv", small, **HOW, **how).counts,
        lambda **how: dh.count(frame[["east", "north"]].to_numpy(), small, **how),
        lambda **how: dh.count_file(tmp_path / "p.csv", small, **HOW, user="speed", max_per_user=3000, **how).counts,
    ):
        with pytest.raises(dh.errors.OutsideBounds):
            found()
        assert (found(outside="clamp").array == counts_of(frame, small)).all()
        dropped = found(outside="drop")
        assert (dropped.array == counts_of(frame[inside], small)).all()
        assert dropped.preprocessing.dropped == ("points outside",)
    few = np.append(np.full((200, 2), 1.5), [[9, 9]], axis=0)
    assert dh.count(few, small).sum() == 201  # clamped


def test_projection_is_one_operation(tmp_path):
    domain = dh.Domain((580_000, 4_500_000, 590_000, 4_510_000), cell=500, crs="EPSG:32618")
    rng = np.random.default_rng(2)
    places = rng.uniform(domain.low, domain.high, (3000, 2))
    lon, lat = Operation.onto(domain, "EPSG:4326").back(*places.T)
    pd.DataFrame({"east": lon, "north": lat}).to_parquet(tmp_path / "p.parquet")
    found = dh.count_file(tmp_path / "p.parquet", domain, **HOW, crs="EPSG:4326")
    onto = np.column_stack(Operation.onto(domain, "EPSG:4326")(lon, lat))
    assert (found.counts.array == dh.count(onto, domain).array).all()
    assert found.preprocessing.projection is not None
    again = dh.count(pd.DataFrame({"lon": lon, "lat": lat}), domain, x="lon", y="lat", crs="EPSG:4326")
    assert (found.counts.array == again.array).all()
    with pytest.raises(dh.InputError):
        dh.count_file(tmp_path / "p.parquet", domain, **HOW)
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(lon, lat), crs="EPSG:4326").to_file(tmp_path / "p.geojson")
    rounded = gpd.read_file(tmp_path / "p.geojson")
    assert (dh.count_file(tmp_path / "p.geojson", domain).counts.array == dh.count(rounded, domain).array).all()


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_steps_are_one_more_key(tmp_path, frame, form):
    """Each step has the counts of its own rows; users are bounded in each."""
    path = tmp_path / f"p.{form}"
    getattr(frame, f"to_{form}")(path, index=False)
    clock = Clock.of("2026-03-02", "1d")
    found = dh.count_file(path, DOMAIN, clock=clock, steps=3, time="time", **HOW)
    day = (frame["time"] - pd.Timestamp("2026-03-02")).dt.days
    for step in range(3):
        assert (found.counts_of(step).array == counts_of(frame[day == step])).all()
    assert (found.before, found.after) == ((day < 0).sum(), (day > 2).sum())
    bounded = dh.count_file(path, DOMAIN, clock=clock, steps=3, time="time", **HOW, user="who", max_per_user=2)
    assert [bounded.counts_of(step).sum() for step in range(3)] == [6, 6, 6]
    with pytest.raises(dh.InputError):
        dh.count_file(path, DOMAIN, clock=clock, steps=3, time="time", **HOW, where="time > '2026-03-03'")


def test_arrays_and_frames(frame):
    points = frame[["east", "north"]]
    want = counts_of(frame)
    for given in (points.to_numpy(), points, points.astype("Float64"), points.astype("double[pyarrow]"),
                  pa.Table.from_pandas(points)):  # fmt: skip
        assert (dh.count(given, DOMAIN).array == want).all()
    assert (dh.count(frame, DOMAIN, **HOW).array == want).all()
    masked = np.ma.array(points.to_numpy(), mask=np.repeat((np.arange(3000) < 10)[:, None], 2, 1))
    for wrong in (masked, points.to_numpy()[:, :1], np.full((3, 2), np.nan), [[1, "a"]], frame):
        with pytest.raises(dh.InputError):
            dh.count(wrong, DOMAIN)


@pytest.mark.parametrize("size", [100, 1 << 40])
def test_tallies_are_sums(size, monkeypatch):
    monkeypatch.setattr("deltahist.counting.counts._WAITING", 50)
    rng, tally, want = np.random.default_rng(0), Tally(size), np.zeros(100, dtype=np.int64)
    for _ in range(20):
        places, numbers = rng.integers(0, 100, 30), rng.integers(0, 3, 30)
        tally.add_rows(places)
        tally.add_rows(places, numbers)
        np.add.at(want, places, numbers + 1)
    places, numbers = tally.list_full()
    assert (places == np.flatnonzero(want)).all()
    assert (numbers == want[places]).all()
