"""Files that are well-formed but contradict themselves are refused: a reader relies on every line of them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltahist as dh

DOMAIN = dh.Domain((0, 0, 4, 4), (4, 4))


@pytest.fixture
def load(tmp_path):
    """A function that loads a release whose description or table was changed."""

    def changed(sources=None, table=None, **changes):
        A = dh.strategies.Hierarchical(DOMAIN)
        near = dh.Neighbourhood(DOMAIN, 1, sources)
        path = tmp_path / "r.parquet"
        dh.publish(np.ones((4, 4), dtype=int), near, A, 1.0).save(path)
        old = pq.read_table(path)
        description = json.loads(old.schema.metadata[b"deltahist"]) | changes
        new = table(old) if table else old
        pq.write_table(new.replace_schema_metadata({b"deltahist": json.dumps(description).encode()}), path)
        return dh.Release.load(path)

    return changed


def test_the_unchanged_file_is_read(load):
    assert load().total == 16
    assert load("boundary").total is None


@pytest.mark.parametrize(
    "change",
    [
        {"sources": "boundary", "total": 16},  # who takes part is protected, yet counted
        {"dropped": ["bad rows"]},  # the total stays, although rows were dropped
        {"dropped": ["points outside"], "total": None},  # without the boundary as a source
        {"dropped": "bad rows", "total": None},
        {"dropped": ["<b>nothing</b>"], "total": None},
        {"groups": ["cells"]},
        {"total": 1e300},
    ],
    ids=str,
)
def test_descriptions_that_contradict_themselves_are_refused(load, change):
    with pytest.raises(dh.InputError):
        load(**change)


def test_groups_that_are_not_the_strategys_are_refused(load):
    def other(table):
        return table.set_column(0, "group", pa.array(np.full(len(table), 1, dtype=np.int16)))

    with pytest.raises(dh.InputError):
        load(table=other)


@pytest.mark.parametrize("size", [10**18, 10**19, 10**30])
def test_strategies_of_absurd_size_are_refused_or_read_but_never_crash(load, size):
    strategy = {"strategy": "ShiftedGrids", "widths": [size] * 21, "offsets": [1] * 21, "shares": None}
    with pytest.raises(dh.InputError):
        load(strategy=strategy)


def test_a_flipped_bit_in_the_values_is_noticed(tmp_path):
    domain = dh.Domain((0, 1), (2000,))
    path = tmp_path / "r.parquet"
    A = dh.strategies.Identity(domain)
    release = dh.publish(np.ones(2000, dtype=int), dh.Neighbourhood(domain, 0.0005), A, 0.001)
    release.save(path)
    whole = path.read_bytes()
    silent = 0
    for place in range(200, 3000, 7):  # the pages of the values
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            silent += not np.array_equal(dh.Release.load(path).values, release.values)
        except dh.InputError:
            continue
    assert silent == 0


def test_a_release_replaces_an_older_one_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "r.parquet"
    path.write_text("old")
    A = dh.strategies.Identity(DOMAIN)
    release = dh.publish(np.ones((4, 4), dtype=int), dh.Neighbourhood(DOMAIN, 1), A, 1.0)

    def fail(self, target):
        assert dh.Release.load(self).describe() == release.describe()  # whole before it is seen
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "replace", fail)
        with pytest.raises(OSError, match="power cut"):
            release.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    release.save(path)
    assert np.array_equal(dh.Release.load(path).values, release.values)
