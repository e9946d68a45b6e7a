"""Release files of every kind: round trips, other readers, and everything that can be wrong with a file."""

import contextlib
import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from altered import altered_json, write_altered
from examples import STRATEGIES, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.statement import list_facts

SQUARE = dh.Domain((0, 0, 4, 4), (4, 4))
LINE = dh.Neighbourhood(dh.Domain((0, 12), (12,)), 1)
LIMITED = replace(LINE, limits=[(3, 1.5), ("any", 3)])
POINTS = np.linspace(0.5, 11.5, 40)
#: A release of each kind; a quantile's file is JSON.
KINDS = {
    "map": lambda near: dh.publish(np.arange(12), near, "identity", epsilon=1),
    "sorted": lambda near: dh.publishers.publish_sorted(POINTS, near, epsilon=1),
    "quantile": lambda near: dh.publishers.publish_quantile(POINTS, 0.5, near, epsilon=1),
}


def small_release(sources=None, **more):
    near = dh.Neighbourhood(SQUARE, 1.0, sources)
    return dh.publish(np.arange(16).reshape(4, 4), near, dh.strategies.Hierarchical(SQUARE), 1.0, **more)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "release.parquet"
    small_release().save(path)
    return path


MISSING = "left out"


def description_of(path):
    if path.read_bytes()[:1] == b"{":
        return json.loads(path.read_text(encoding="utf-8"))
    return json.loads(pq.read_schema(path).metadata[b"deltahist"])


def rewrite(path, changes=(), table=None):
    """Write the file with other entries ("key.key": value) or another table, under its own digest."""
    description = description_of(path)
    for key, value in dict(changes).items():
        *outer, last = key.split(".")
        place = description
        for step in outer:
            place = place[step]
        place[last] = value
        if value is MISSING:
            del place[last]
    if path.read_bytes()[:1] == b"{":
        path.write_text(altered_json(description), encoding="utf-8")
    else:
        write_altered(path, pq.read_table(path) if table is None else table, description)
    return path


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_comes_back(name, tmp_path):
    rng = np.random.default_rng([4, len(name)])
    for case in range(4):
        domain = random_domain(rng, most=(20, 7))
        near = random_neighbourhood(rng, domain)
        near = near if near.delta_ground <= near.diameter else near.anywhere()
        A = STRATEGIES[name](rng, domain)
        budget = {"epsilon": 0.3} if case % 2 else {"rho": 0.1}
        release = dh.publish(rng.integers(0, 9, domain.shape), near, A, contributions=1 + case % 3, **budget)
        release.save(tmp_path / "r.parquet")
        again = dh.load(tmp_path / "r.parquet")
        assert again.describe() == release.describe()
        assert np.array_equal(again.values, release.values)
        assert np.allclose(again.cells(), release.cells())
        assert dh.write_statement(again) == dh.write_statement(release)


@pytest.mark.parametrize(
    ("kind", "near"),
    [
        *((kind, near) for kind in KINDS for near in (LINE, replace(LINE, limits=()))),
        ("map", LIMITED),
        ("sorted", LIMITED),
    ],
)
def test_every_kind_comes_back(kind, near, tmp_path):
    release = KINDS[kind](near)
    release.save(tmp_path / "file")
    again = dh.load(tmp_path / "file")
    assert type(again) is type(release)
    assert again.describe() == release.describe()
    assert again.digest == release.digest == list_facts(again)["digest"]
    assert again.mechanism.describe() == release.mechanism.describe()
    assert again.neighbourhood == near
    if near is LIMITED:
        assert description_of(tmp_path / "file")["neighbourhood"]["limits"] == [[3, "3/2"], ["any", "3"]]
        assert again.mechanism.promise.endswith("at most 1.5 ε up to 3 units, at most 3 ε however far")


def test_a_flipped_bit_is_refused_or_changes_nothing(saved):
    """The metadata have no check of their own in Parquet: without a digest some of 1,600 made another release."""
    release, whole = dh.load(saved), saved.read_bytes()
    for bit in np.random.default_rng(4).choice(8 * len(whole), 250, replace=False):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        saved.write_bytes(damaged)
        with contextlib.suppress(dh.InputError):
            found = dh.load(saved)
            assert found.describe() == release.describe()
            assert np.array_equal(found.values, release.values)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"PAR1 and no more", b"x,y\n1,2\n", b'{"format": "x", \xff'),
        b'{"format": "deltahist-release", "version": 1}',
        *(None, 0.0, 0.01, 0.6, 0.999),
    ],
)
def test_files_that_are_no_releases(saved, tmp_path, content):
    path = tmp_path / "x"
    if content is None:
        pq.write_table(pa.table({"value": [1, 2]}), path)
    elif isinstance(content, float):
        whole = saved.read_bytes()
        path.write_bytes(whole[: int(content * len(whole))])
    else:
        path.write_bytes(content)
    with pytest.raises(dh.DamagedFile):
        dh.load(path)
    with pytest.raises(dh.InputError):
        dh.load(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", KINDS)
def test_another_digest_or_none_is_refused(kind, tmp_path):
    path = tmp_path / "file"
    KINDS[kind](LINE).save(path)
    for digest in ("0" * 64, None):
        more = {} if digest is None else {"sha256": digest}
        if kind == "quantile":
            path.write_text(json.dumps({k: v for k, v in description_of(path).items() if k != "sha256"} | more))
        else:
            meta = {"deltahist": json.dumps(description_of(path))} | more
            pq.write_table(pq.read_table(path).replace_schema_metadata(meta), path)
        with pytest.raises(dh.DamagedFile):
            dh.load(path)


def test_the_digest_is_of_the_description_and_the_values(saved):
    release = dh.load(saved)
    stated = hashlib.sha256(json.dumps(release.describe(), sort_keys=True, separators=(",", ":")).encode())
    size = len(release.values)
    for name, kind in (("group", "<i2"), ("value", "<i8")):
        stated.update(f'["{name}","{kind}",{size}]'.encode())
        stated.update(np.asarray(release.file_columns()[name], dtype=kind).tobytes())
    assert release.digest == stated.hexdigest() == pq.read_schema(saved).metadata[b"sha256"].decode()


def grids_of(width):
    return {"strategy": "ShiftedGrids", "widths": [width] * 21, "offsets": [1] * 21}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.slice(1), "there must be"),
        (lambda t: t.set_column(1, "value", pa.array([None] * len(t), pa.int64())), "altered"),
        (lambda t: t.set_column(1, "value", t["value"].cast(pa.float64())), "altered"),
        (lambda t: t.select(["group"]), "value"),
        (lambda t: t.set_column(0, "group", pa.array(np.full(len(t), 1, dtype=np.int16))), "altered"),
    ],
    ids=["short", "nulls", "floats", "columns", "groups"],
)
def test_altered_tables_are_refused(saved, change, words):
    with pytest.raises(dh.InputError, match=words):
        dh.load(rewrite(saved, table=change(pq.read_table(saved))))


def test_an_oversized_grid_is_refused_before_anything_is_made(saved, monkeypatch):
    import deltahist.mechanisms.histogram as module

    monkeypatch.setattr(module, "Domain", lambda **_: pytest.fail("was made"))
    with pytest.raises(dh.InputError, match="GiB"):
        dh.load(rewrite(saved, {"domain.shape": [10**7, 10**7]}))


@pytest.mark.parametrize("failure", ["half a file", "no replacement"])
def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch, failure):
    release, path = small_release(), tmp_path / "r.parquet"
    path.write_text("old")

    def fail(given, target, **_):
        if failure == "half a file":
            target.write_bytes(b"half")
        else:
            assert dh.load(given).describe() == release.describe()  # whole before it is seen
        raise OSError("disk full")

    place, name = (pq, "write_table") if failure == "half a file" else (type(path), "replace")
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail)
        with pytest.raises((dh.InputError, OSError), match="disk full"):
            release.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    release.save(path)
    assert np.array_equal(dh.load(path).values, release.values)


@pytest.mark.parametrize("kind", KINDS)
def test_published_numbers_cannot_be_changed(kind, tmp_path):
    release = KINDS[kind](LINE)
    release.save(tmp_path / "file")
    for known in (release, dh.load(tmp_path / "file")):
        assert known.publishable
        with pytest.raises(ValueError, match="read-only"):
            known.values[0] += 1
    assert not type(release)(release.mechanism, release.values.copy()).publishable
    assert not replace(release, values=release.values.copy()).publishable
    with pytest.raises(TypeError, match="publishable"):
        replace(release, publishable=True)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_is_refused_unread(device):
    """It may have no end; a file that is damaged is something else."""
    with pytest.raises(dh.InputError) as caught:
        dh.load(device)
    assert not isinstance(caught.value, dh.DamagedFile)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 4},
        {"format": "other"},
        {"domain.shape": [10**9, 10**9]},
        {"domain.shape": [5, 5]},
        {"domain.bounds": [0, 0, math.nan, 1]},
        {"neighbourhood.delta": -1},
        {"neighbourhood.sources": {"wkt": "POINT"}},
        {"neighbourhood.sources": "boundary"},  # then the total would not be public
        {"strategy.strategy": "Magic"},
        {"strategy.shares": ["1/0", "1", "1"]},
        {"strategy": grids_of(10**30)},
        {"epsilon": "2"},
        {"rho": "1"},
        {"contributions": 2},
        {"publishable": "yes"},
        {"laws": []},
        {"total": 1e300},
        {"dropped": ["bad rows"]},  # the total stays, although rows were dropped
        {"dropped": ["points outside"], "total": None},  # without the boundary as a source
        {"dropped": ["<b>nothing</b>"], "total": None},
        {"domain": MISSING},
        {"publishable": MISSING},
        {"account": MISSING},
        {"more": 1},
        *({"about": MISSING}, {"about": {"url": "x"}}, {"about": {"title": " x"}}, {"about": {"date": "May"}}),
        *({"step": 10**12}, {"value": 3.0}, {"step": -1}, {"method": "x"}, {"q": 2}),  # of a quantile
    ],
    ids=lambda case: str(case)[:60],
)
def test_altered_descriptions_are_refused(saved, changes):
    quantile = not changes.keys().isdisjoint({"step", "value", "method", "q"})
    if quantile:
        KINDS["quantile"](LINE).save(saved)
    with pytest.raises(dh.InputError, match=next(iter(changes)) if quantile else None) as caught:
        dh.load(rewrite(saved, changes))
    assert "\n" not in str(caught.value)
