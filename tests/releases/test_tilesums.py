"""Answers over tiles against those of the whole map, and the file of sums."""

from __future__ import annotations

import dataclasses
import urllib.request
from unittest import mock

import numpy as np
import pytest
import shapely
from matplotlib.text import Text

import deltahist as dh
from deltahist import _objects, errors, releases
from deltahist.decode.placement import block_variance
from deltahist.planning import mechanism_for
from deltahist.releases import tileanswers, tilesums
from deltahist.space import domain as space
from deltahist.space.workloads.cover import prefix_sums
from deltahist.strategies import tiles
from tests.storage import bucket

#: Columns that placement has no part in.
EXACT = ["noise_error", "cut", "inner", "outer"]


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "MOST_WHOLE", 1)
        patch.setattr(tiles, "SIDE", 8)
        yield


def publish(folder, shape=(44, 60), counts=None, strategy="identity", seed=1):
    """A release in tiles, and the same release on the whole map."""
    domain = dh.Domain((0, 0, *shape), shape)
    if counts is None:
        counts = np.random.default_rng(seed).poisson(3, shape)
    near = dh.Neighbourhood(domain, 2)
    made = dh.publish(counts, near, strategy, 1.0, out=folder / "map.parquet", rng=np.random.default_rng(seed))
    values = np.zeros(made.strategy.shape[0], dtype=np.int64)
    for tile in np.ndindex(*made.tiling.shape):
        values[made.tiling.rows(tile)] = np.concatenate([each.ravel() for each in made.tile_values(tile)])
    values[made.tiling.top] = made.top
    return made, dh.Release(made.mechanism, values, made.total)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, small_tiles):
    return publish(tmp_path_factory.mktemp("tiles"))


def again(release):
    """The release as if it had just been loaded."""
    return dataclasses.replace(release)


def boxes(domain, number, seed=3, whole=False):
    ends = np.random.default_rng(seed).random((number, 2, 2)) * domain.shape
    ends = np.floor(ends) if whole else ends
    low, high = ends.min(axis=1), ends.max(axis=1) + (1 if whole else 0.01)
    return dh.workloads.boxes(np.column_stack([low, np.minimum(high, domain.shape)]))


def test_sums_are_those_of_the_whole_map(pair) -> None:
    tiled, whole = pair
    x, y = np.indices([n + 1 for n in tiled.domain.shape])
    of_tiles, parts = tiled.sums.up_to(x, y)
    found = (of_tiles + parts.sum(axis=0)).astype(np.float64)
    np.testing.assert_allclose(found, prefix_sums(whole.cells()), rtol=0, atol=1e-9)


@pytest.mark.parametrize("strategy", ["identity", "flow", "hierarchical", "tents"])
def test_boxes_of_whole_cells_are_answered_as_on_the_whole_map(tmp_path, strategy) -> None:
    tiled, whole = publish(tmp_path, strategy=strategy)
    work = boxes(tiled.domain, 300, whole=True)
    found, asked = (dh.answer(each, work) for each in (tiled, whole))
    assert list(found) == list(asked)
    np.testing.assert_allclose(found, asked, rtol=1e-9, atol=1e-8)


def test_sums_of_tiles_lose_no_digits_of_a_billion_points(tmp_path) -> None:
    """With a public total cells are no whole numbers, and sums up to an edge have nine digits before the point."""
    counts = np.random.default_rng(1).poisson(1e6, (24, 43))
    tiled, whole = publish(tmp_path, (24, 43), counts=counts)
    low, high = np.array([[20, 40], [15, 39]]), np.array([[21, 41], [17, 41]])
    exact = [whole.cells().astype(np.longdouble)[x:a, y:b].sum() for (x, y), (a, b) in zip(low, high, strict=True)]
    assert abs(tiled.sums.rectangles(low, high) - np.array(exact)).max() < 1e-8


@pytest.mark.parametrize("short", [0, 1 << 10], ids=["means of tiles", "cell by cell"])
def test_cut_boxes_are_answered_within_what_is_stated(pair, monkeypatch, short) -> None:
    monkeypatch.setattr(tileanswers, "_SHORT", short)
    tiled, whole = pair
    work = boxes(tiled.domain, 300)
    found, asked = (dh.answer(each, work) for each in (tiled, whole))
    assert list(found) == list(asked)
    np.testing.assert_allclose(found[EXACT], asked[EXACT], rtol=1e-9, atol=1e-7)
    # Slopes alone tell the estimates apart.
    shares = work.cover(tiled.domain).sums(whole.cells())
    np.testing.assert_allclose(found["estimate"], shares, rtol=1e-9, atol=1e-9)
    assert (abs(found["estimate"] - asked["estimate"]) < 4 * found["std_error"]).all()


def test_spreads_of_a_cut_box_are_what_is_defined(pair, monkeypatch) -> None:
    """The variance is Σ f (1 − f) u over cells, u each cell's own, or the mean of its tile."""
    tiled, whole = pair
    law, noise = tiled.sums.law, block_variance(whole.decoder)((1, 1))
    own = law.spread(whole.cells(), noise)
    means = own.copy()
    for tile in np.ndindex(*tiled.tiling.shape):
        means[tiled.tiling.cells(tile)] = own[tiled.tiling.cells(tile)].mean()
    cover = boxes(tiled.domain, 100).cover(tiled.domain)
    for short, spread in ((0, means), (1 << 10, own)):
        monkeypatch.setattr(tileanswers, "_SHORT", short)
        *_, misplaced = tileanswers.TileEstimates(tiled.sums).over(cover)
        shares, squares = cover.sums(spread), cover.sums(spread, "square")
        np.testing.assert_allclose(misplaced, np.maximum(shares - squares, 0), rtol=1e-9, atol=1e-8)


def test_regions_are_answered_from_rectangles_and_cut_cells(pair) -> None:
    tiled, whole = pair
    shapes = [shapely.Point(20, 30).buffer(13.3), shapely.box(0, 0, 44, 60), shapely.box(3.2, 3.2, 3.4, 3.4)]
    found, asked = (dh.answer(each, dh.workloads.regions(shapes)) for each in (tiled, whole))
    np.testing.assert_allclose(found[EXACT], asked[EXACT], rtol=1e-9, atol=1e-7)
    cover = dh.workloads.regions(shapes).cover(tiled.domain)
    np.testing.assert_allclose(found["estimate"], cover.sums(whole.cells()), rtol=1e-9, atol=1e-9)
    assert (found["placement_error"].iloc[[0, 2]] > 0).all()


def test_clumps_are_learnt_as_on_the_whole_map(tmp_path) -> None:
    """Where density does not grow steadily there are no slopes, and both laws say the same."""
    rng = np.random.default_rng(4)
    even = rng.poisson(200, (64, 64))
    found = []
    for name, counts in (("even", even), ("towns", even * (rng.random((64, 64)) < 0.2))):
        (folder := tmp_path / name).mkdir()
        tiled, whole = publish(folder, (64, 64), counts=counts)
        law, other = tiled.sums.law, whole.placement.law
        own, asked = (each.spread(np.full(1, 200.0), whole.placement.noise)[0] for each in (law, other))
        assert (law.levels, own) == (other.levels, pytest.approx(asked, rel=0.1))
        found.append(own)
    assert found[1] > 50 * found[0]


def test_nonnegative_estimates_are_refused(pair) -> None:
    with pytest.raises(dh.InputError, match="non-negative ones depend on all"):
        dh.answer(pair[0], [[0, 0, 3, 3]], nonnegative=True)


# --- the file -----------------------------------------------------------------------------------------------


def cut_short(content):
    return content[:-1]


def altered_mean(content):
    return content[:4096] + bytes([content[4096] ^ 1]) + content[4097:]


def of_another_release(content):
    at = content.index(b'"release": "') + len(b'"release": "')
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def other_magic(content):
    return b"x" + content[1:]


@pytest.mark.parametrize("damage", [cut_short, altered_mean, of_another_release, other_magic])
def test_sums_that_do_not_fit_are_made_anew(tmp_path, damage) -> None:
    tiled, _ = publish(tmp_path)
    work = boxes(tiled.domain, 5)
    first, file = dh.answer(tiled, work), tmp_path / "map.sums"
    content = file.read_bytes()
    file.write_bytes(damage(content))
    np.testing.assert_array_equal(dh.answer(again(tiled), work), first)
    assert file.read_bytes() == content


def test_sums_that_fit_are_not_made_anew(tmp_path) -> None:
    tiled, _ = publish(tmp_path)
    first = dh.answer(tiled, work := boxes(tiled.domain, 5))
    copied = again(tiled)
    tiled.path.unlink()
    np.testing.assert_array_equal(dh.answer(copied, work), first)


def test_of_a_damaged_tile_no_sums_are_made(tmp_path) -> None:
    tiled, _ = publish(tmp_path)
    start = tiled.footer.row_group(7).column(0).data_page_offset
    content = bytearray(tiled.path.read_bytes())
    content[start + 40] ^= 1
    tiled.path.write_bytes(content)
    with pytest.raises(dh.DamagedFile, match="in tile"):
        dh.answer(tiled, [[0, 0, 3, 3]])
    assert [each.name for each in tmp_path.iterdir()] == ["map.parquet"]


def test_sums_that_the_disk_has_no_room_for_are_refused(tmp_path, monkeypatch) -> None:
    tiled, _ = publish(tmp_path)
    monkeypatch.setattr(tilesums.shutil, "disk_usage", lambda path: mock.Mock(free=10))
    with pytest.raises(dh.InputError, match=r"the disk has 0\.0 GiB left"):
        dh.answer(tiled, [[0, 0, 3, 3]])


# --- pictures -----------------------------------------------------------------------------------------------


@pytest.fixture
def coarse(monkeypatch):
    """Blocks of 4 × 4 cells, and 4 of cells of 44 × 60."""
    monkeypatch.setattr(releases.coarse, "MOST_BLOCKS", 16)


def test_pictures_show_blocks_with_the_sums_and_errors_of_their_cells(pair, coarse) -> None:
    tiled, whole = pair
    drawn = tiled.drawn()
    assert (drawn.width, drawn.domain.shape, drawn.domain.bounds) == (4, (11, 15), tiled.domain.bounds)
    np.testing.assert_allclose(drawn.cells(), whole.cells().reshape(11, 4, 15, 4).sum(axis=(1, 3)), atol=1e-9)
    edges = [[4, 8, 12, 20], [0, 0, 44, 60]]
    np.testing.assert_array_equal(
        drawn.decoder.moments(dh.workloads.boxes(edges)).variance,
        whole.decoder.moments(dh.workloads.boxes(edges)).variance,
    )
    figure = tiled.plot().figure
    figure.canvas.draw()
    said = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "block of 4 × 4 cells" in " ".join(said.split())
    with pytest.raises(dh.InputError, match="unbiased only"):
        tiled.plot(nonnegative=True)


def test_blocks_at_the_upper_edge_hold_the_cells_that_are_there(tmp_path, coarse) -> None:
    tiled, whole = publish(tmp_path, (21, 30))
    drawn, cells = tiled.drawn(), np.zeros((22, 30))
    cells[:21] = whole.cells()
    assert (drawn.width, drawn.domain.shape, drawn.domain.bounds) == (2, (11, 15), (0, 0, 22, 30))
    np.testing.assert_allclose(drawn.cells(), cells.reshape(11, 2, 15, 2).sum(axis=(1, 3)), atol=1e-9)
    own = drawn.decoder.moments(dh.workloads.boxes([[20, 28, 22, 30]])).variance
    assert own == pytest.approx(whole.decoder.moments(dh.workloads.boxes([[20, 28, 21, 30]])).variance)


# --- object storage -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(pair):
    """The release in a bucket beside its sums, by the address of the bucket, and by that of its web server."""
    tiled, _ = pair
    tiled.sums  # noqa: B018  made
    with bucket() as (store, address):
        for name in ("map.parquet", "map.sums"):
            content, where = tiled.path.with_name(name).read_bytes(), f"{address}/city/maps/{name}"
            ways = {"x-amz-acl": "public-read", "content-type": "application/octet-stream"}
            urllib.request.urlopen(urllib.request.Request(where, content, ways, method="PUT"), timeout=10).close()
        yield store, "s3://city/maps/map.parquet", f"{address}/city/maps/map.parquet"


@pytest.fixture
def requests(monkeypatch):
    """The ranges of bytes that are asked for."""
    asked, bytes_of = [], _objects.StoredFile.bytes_of

    def note(self, start, end):
        asked.append((self.name.rpartition(".")[2], end - start))
        return bytes_of(self, start, end)

    monkeypatch.setattr(_objects.StoredFile, "bytes_of", note)
    return asked


@pytest.mark.parametrize("way", [1, 2], ids=["bucket", "web"])
def test_a_release_in_storage_answers_as_a_file_does(pair, stored, requests, way) -> None:
    tiled, _ = pair
    release, work = dh.load(stored[way]), boxes(tiled.domain, 20)
    assert (release.digest, release.facts()) == (tiled.digest, tiled.facts())
    np.testing.assert_array_equal(release.tile_values((1, 2))[0], tiled.tile_values((1, 2))[0])
    np.testing.assert_array_equal(dh.answer(release, work), dh.answer(tiled, work))
    region = dh.workloads.regions([shapely.Point(20, 30).buffer(9.3)])
    np.testing.assert_array_equal(dh.answer(release, region), dh.answer(tiled, region))


def test_a_box_takes_few_requests(pair, stored, requests, monkeypatch) -> None:
    """At each of four corners a number within a tile, and for each edge its strip; near ones come together."""
    release = dh.load(stored[1])
    dh.answer(release, [[0, 0, 1, 1]])
    for close, most in ((0, 12), (1 << 16, 1)):
        monkeypatch.setattr(tilesums, "_CLOSE", close)
        requests.clear()
        dh.answer(release, [[3, 5, 34, 41]])
        assert 1 <= len(requests) <= most
        assert {kind for kind, _ in requests} == {"sums"}


def test_without_its_sums_a_release_in_storage_is_refused_with_the_cure(stored) -> None:
    store, *_ = stored
    store.put("alone/map.parquet", bytes(store.get("maps/map.parquet").bytes()))
    with pytest.raises(dh.InputError, match=r"does not exist.*put 'map\.sums' beside"):
        dh.answer(dh.load("s3://city/alone/map.parquet"), [[0, 0, 3, 3]])
    store.put("alone/map.sums", cut_short(bytes(store.get("maps/map.sums").bytes())))
    with pytest.raises(dh.DamagedFile, match=r"map\.sums' is damaged or cut short"):
        dh.answer(dh.load("s3://city/alone/map.parquet"), [[0, 0, 3, 3]])


def test_an_object_that_changes_while_it_is_asked_is_noticed(stored) -> None:
    store, *_ = stored
    for name in ("map.parquet", "map.sums"):
        store.put(f"replaced/{name}", bytes(store.get(f"maps/{name}").bytes()))
    release = dh.load("s3://city/replaced/map.parquet")
    release.answerer().prepare()
    store.put("replaced/map.sums", b"another")
    with pytest.raises(dh.InputError, match="changed while it was read"):
        dh.answer(release, [[0, 0, 3, 3]])


@pytest.mark.parametrize("strategy", ["flow", "hierarchical"])
def test_regions_whose_errors_outgrow_memory_are_refused(monkeypatch, strategy) -> None:
    near = dh.Neighbourhood(dh.Domain((0, 0, 64, 64), (64, 64)), 1)
    found = mechanism_for(near, strategy, epsilon=1).decoder
    cover = dh.workloads.regions([shapely.box(3.5, 3.5, 40, 40)]).cover(near.domain)
    monkeypatch.setattr(errors, "_LITTLE", 1000)
    monkeypatch.setattr(errors, "available_memory", lambda: 2000)
    with pytest.raises(dh.InputError, match=r"error of a (region|query) .* GiB are available: ask"):
        found.moments(cover)
