"""Release files: round trips, other readers, and everything that can be wrong with a file."""

import contextlib
import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from altered import write_altered
from examples import STRATEGIES, random_domain, random_neighbourhood

import deltahist as dh


def small_release(**more):
    domain = dh.Domain((0, 0, 4, 4), (4, 4))
    counts = np.arange(16).reshape(4, 4)
    return dh.publish(counts, dh.Neighbourhood(domain, 1.0), dh.strategies.Hierarchical(domain), 1.0, **more)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "release.parquet"
    small_release().save(path)
    return path


def rewrite(path, change=None, table=None):
    """The file with another description or table."""
    old = pq.read_table(path)
    description = json.loads(old.schema.metadata[b"deltahist"])
    if change is not None:
        change(description)
    write_altered(path, old if table is None else table, description)
    return path


@pytest.mark.parametrize("name", STRATEGIES)
def test_round_trip(name, tmp_path):
    rng = np.random.default_rng([4, len(name)])
    for case in range(6):
        domain = random_domain(rng, most=(20, 7))
        near = random_neighbourhood(rng, domain)
        A = STRATEGIES[name](rng, domain)
        budget = {"epsilon": 0.3} if case % 2 else {"rho": 0.1}
        release = dh.publish(rng.integers(0, 9, domain.shape), near, A, contributions=1 + case % 3, **budget)
        release.save(tmp_path / "r.parquet")
        again = dh.Release.load(tmp_path / "r.parquet")
        assert again.describe() == release.describe()
        assert np.array_equal(again.values, release.values)
        assert np.allclose(again.cells(), release.cells())
        assert again.statement() == release.statement()


def test_a_projected_domain_and_a_source_geometry_survive(tmp_path):
    domain = dh.Domain.from_cell((560000, 4480000, 570000, 4490000), "500m", "EPSG:32618")
    near = dh.Neighbourhood(domain, "1km", shapely.Point(565000, 4485000))
    dh.publish(np.ones(domain.shape, dtype=int), near, dh.strategies.Identity(domain), 1.0).save(
        tmp_path / "r.parquet"
    )
    again = dh.Release.load(tmp_path / "r.parquet")
    assert again.domain == domain
    assert np.array_equal(again.neighbourhood.source_cells, near.source_cells)
    assert again.total is None


def test_other_programs_read_the_file(saved):
    import duckdb
    import pandas as pd

    values = dh.Release.load(saved).values
    assert pd.read_parquet(saved)["value"].tolist() == values.tolist()
    assert duckdb.sql(f"SELECT sum(value) FROM '{saved}'").fetchone()[0] == values.sum()
    description = json.loads(pq.read_schema(saved).metadata[b"deltahist"])
    assert (description["format"], description["version"]) == ("deltahist-release", 1)


def test_the_shape_of_a_file_does_not_depend_on_the_data(tmp_path):
    domain = dh.Domain((0, 0, 4, 4), (4, 4))
    near = dh.Neighbourhood(domain, 1.0, "boundary")
    seen = set()
    for counts in (np.zeros((4, 4), dtype=int), np.full((4, 4), 10**6)):
        dh.publish(counts, near, epsilon=1.0).save(tmp_path / "r.parquet")
        schema = pq.read_schema(tmp_path / "r.parquet")
        meta = schema.metadata
        rows = pq.read_metadata(tmp_path / "r.parquet").num_rows
        seen.add((str(schema.remove_metadata()), meta[b"deltahist"], len(meta[b"sha256"]), rows))
    assert len(seen) == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_truncated_files_are_refused(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(dh.InputError, match="truncated or foreign"):
        dh.Release.load(saved)


def test_damaged_bytes_never_end_in_a_traceback(saved):
    whole = bytearray(saved.read_bytes())
    rng = np.random.default_rng(2)
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 4):
            damaged[place] = rng.integers(256)
        saved.write_bytes(damaged)
        with contextlib.suppress(dh.InputError):
            dh.Release.load(saved)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"value": [1, 2]}), path)
    with pytest.raises(dh.InputError, match="no deltahist description"):
        dh.Release.load(path)
    path.write_text("x,y\n1,2\n")
    with pytest.raises(dh.InputError, match="foreign"):
        dh.Release.load(path)
    with pytest.raises(dh.InputError, match="does not exist"):
        dh.Release.load(tmp_path / "nowhere.parquet")


def set_to(key, value):
    def change(description):
        *path, last = key.split(".")
        for step in path:
            description = description[step]
        description[last] = value

    return change


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 4, "update it"),
        ("version", "one", "version"),
        ("format", "other", "other"),
        ("domain.shape", [10**9, 10**9], "GiB"),
        ("domain.shape", [5, 5], "altered"),
        ("domain.shape", [0, 5], "at least 1"),
        ("domain.shape", "many", "damaged"),
        ("domain.bounds", [0, 0, math.nan, 1], "nan"),
        ("domain.bounds", None, "bounds"),
        ("domain.crs", "EPSG:4326", "degrees"),
        ("neighbourhood.delta", -1, "delta"),
        ("neighbourhood.sources", {"wkt": "POINT"}, "damaged geometry"),
        ("neighbourhood.sources", "moon", "moon"),
        ("strategy.strategy", "Magic", "Magic"),
        ("strategy.branching", 1, "branching"),
        ("strategy.shares", ["1/0", "1", "1"], "damaged"),
        ("epsilon", "2", "altered"),
        ("epsilon", "0", "epsilon"),
        ("epsilon", None, "epsilon"),
        ("rho", "1", "one of them"),
        ("contributions", 2, "altered"),
        ("total", -1, "total"),
        ("publishable", "yes", "publishable"),
        ("laws", [], "altered"),
    ],
)
def test_altered_descriptions_are_refused(saved, key, value, words):
    with pytest.raises(dh.InputError, match=words) as caught:
        dh.Release.load(rewrite(saved, set_to(key, value)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "missing", ["format", "version", "domain", "strategy", "epsilon", "laws", "publishable"]
)
def test_missing_parts_are_refused(saved, missing):
    with pytest.raises(dh.InputError, match="damaged"):
        dh.Release.load(rewrite(saved, lambda d: d.pop(missing)))


def test_altered_tables_are_refused(saved):
    table = pq.read_table(saved)
    short = table.slice(1)
    nulls = pa.table({"group": table["group"], "value": pa.array([None] * len(table), pa.int64())})
    floats = table.set_column(1, "value", table["value"].cast(pa.float64()))
    cases = [
        (short, "altered"),
        (nulls, "missing values"),
        (floats, "int64"),
        (table.select(["value"]), "columns"),
    ]
    for other, words in cases:
        path = saved.with_name("other.parquet")
        path.write_bytes(saved.read_bytes())
        with pytest.raises(dh.InputError, match=words):
            dh.Release.load(rewrite(path, table=other))


def test_an_oversized_grid_is_refused_before_anything_is_made(saved, monkeypatch):
    import deltahist.mechanisms.histogram as module

    monkeypatch.setattr(module, "Domain", lambda **_: pytest.fail("was made"))
    with pytest.raises(dh.InputError, match="GiB"):
        dh.Release.load(rewrite(saved, set_to("domain.shape", [10**7, 10**7])))


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    release = small_release()
    path = tmp_path / "r.parquet"
    path.write_text("old")

    def fail(table, target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(dh.InputError, match=r"r.parquet.* cannot be written: disk full"):
        release.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]


def test_outputs_need_a_folder(tmp_path):
    release = small_release()
    with pytest.raises(dh.InputError, match="does not exist"):
        release.save(tmp_path / "nowhere" / "r.parquet")
    with pytest.raises(dh.InputError, match="is a folder"):
        release.save(tmp_path)


def test_values_must_fit_the_strategy():
    release = small_release()
    with pytest.raises(dh.InputError, match=r"there must be .* of int64"):
        dh.Release(release.mechanism, release.values[1:])


@pytest.mark.parametrize("kind", ["map", "quantile", "sorted"])
def test_the_word_of_a_publisher_is_for_its_own_numbers(kind, tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
    if kind == "map":
        release = dh.publish(np.arange(8), near, epsilon=1)
    elif kind == "quantile":
        release = dh.publish_quantile(np.arange(8.0), 0.5, near, epsilon=1)
    else:
        release = dh.publish_sorted(np.arange(8), near, epsilon=1)
    release.save(tmp_path / "file")
    for known in (release, type(release).load(tmp_path / "file")):
        assert known.publishable
        assert not dataclasses.replace(known, values=known.values + 1).publishable
        with pytest.raises(ValueError, match="read-only"):
            known.values[0] += 1
    with pytest.raises(TypeError):
        type(release)(release.mechanism, release.values, publishable=True)


def test_a_release_made_by_hand_is_not_for_publication(saved):
    """Who draws noise of their own gets no statement that says otherwise."""
    release = dh.Release.load(saved)
    assert release.publishable
    by_hand = dh.Release(release.mechanism, release.values, release.total)
    assert not by_hand.publishable
    assert "May be published    no: " in by_hand.statement()
    assert "no publisher of this toolkit drew" in by_hand.statement()
