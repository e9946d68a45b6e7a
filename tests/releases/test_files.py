"""Files that are well-formed but contradict themselves are refused: a reader relies on every line of them."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from altered import write_altered

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
        write_altered(path, new, description)
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


def small(path):
    """A file of 16 values, whole."""
    release = dh.publish(np.ones((4, 4), dtype=int), dh.Neighbourhood(DOMAIN, 1), "identity", 1.0)
    release.save(path)
    return release


@pytest.mark.parametrize("bits", [400, pytest.param(None, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path, bits):
    """The metadata have no check of their own in Parquet: without a digest some of 1,600 made another release."""
    path = tmp_path / "r.parquet"
    release = small(path)
    whole = path.read_bytes()
    every = np.arange(8 * len(whole))
    for bit in every if bits is None else np.random.default_rng(4).choice(every, bits, replace=False):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = dh.load(path)
        except dh.InputError:
            continue
        assert found.describe() == release.describe()
        assert np.array_equal(found.values, release.values)


def test_the_digest_is_of_the_description_and_the_values(tmp_path):
    release = small(tmp_path / "r.parquet")
    found = dh.load(tmp_path / "r.parquet")
    said = hashlib.sha256(json.dumps(release.describe(), sort_keys=True, separators=(",", ":")).encode())
    for name, kind in (("group", "<i2"), ("value", "<i8")):
        said.update(f'["{name}","{kind}",16]'.encode())
        said.update(np.asarray(release.columns()[name], dtype=kind).tobytes())
    assert release.digest == found.digest == found.facts()["digest"] == said.hexdigest()
    assert f"SHA-256             {release.digest}" in release.statement()
    found.save(tmp_path / "again.parquet")
    assert pq.read_schema(tmp_path / "again.parquet").metadata[b"sha256"].decode() == release.digest


def test_another_digest_or_none_is_refused(tmp_path):
    path = tmp_path / "r.parquet"
    small(path)
    table = pq.read_table(path)
    meta = dict(table.schema.metadata)
    for digest, message in ((b"0" * 64, "states the digest 0000000000000000"), (None, "states no digest")):
        other = {b"deltahist": meta[b"deltahist"]} | ({} if digest is None else {b"sha256": digest})
        pq.write_table(table.replace_schema_metadata(other), path)
        with pytest.raises(dh.DamagedFile, match=message):
            dh.load(path)


def test_quantiles_have_a_digest_as_well(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1)
    found = dh.quantile(np.arange(8) + 0.5, 0.5, near, epsilon=1)
    found.save(tmp_path / "q.json")
    text = (tmp_path / "q.json").read_text()
    assert dh.load(tmp_path / "q.json").digest == found.digest == json.loads(text)["sha256"]
    for altered, message in (
        (text.replace(found.digest, "f" * 64), "states the digest ffff"),
        (json.dumps({k: v for k, v in json.loads(text).items() if k != "sha256"}), "states no digest"),
    ):
        (tmp_path / "q.json").write_text(altered)
        with pytest.raises(dh.DamagedFile, match=message):
            dh.load(tmp_path / "q.json")
