"""Files of tiles: read tile by tile, verified, and as untrusted as every release."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltahist as dh
from deltahist._files import KEY, digest_of
from deltahist.space import domain as space
from deltahist.strategies import tiles

DOMAIN = dh.Domain((0, 0, 22, 33), (22, 33))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch) -> None:
    monkeypatch.setattr(space, "MOST_WHOLE", 700)
    monkeypatch.setattr(tiles, "SIDE", 8)


@pytest.fixture
def release(tmp_path) -> dh.TiledRelease:
    counts = np.random.default_rng(1).poisson(3, DOMAIN.shape)
    return dh.publish(counts, dh.Neighbourhood(DOMAIN, 2), "identity", 1.0, out=tmp_path / "map.parquet")


def all_tiles(release):
    nx, ny = release.tiling.shape
    return [(i, j) for i in range(nx) for j in range(ny)]


def rewrite(release, *, values=None, describe=None, hashes=None, digest=None, metadata=None, target=None):
    """The file again, with some of it replaced; digests follow what it holds unless they are given."""
    file = pq.ParquetFile(release.path)
    parts = [file.read_row_group(k).column(0).to_numpy() for k in range(file.num_row_groups)]
    parts = parts if values is None else values(parts)
    description = json.loads(file.schema_arrow.metadata[KEY])
    describe = describe or (lambda description: None)
    describe(description)
    own = b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts)
    own = own if hashes is None else hashes
    stated = digest_of(description, {"tile": np.frombuffer(own, np.uint8)}) if digest is None else digest
    field = pa.field("value", pa.from_numpy_dtype(parts[0].dtype), nullable=False)
    schema = pa.schema([field], metadata={KEY: json.dumps(description).encode()})
    target = target or release.path
    with pq.ParquetWriter(target, schema) as writer:
        for part in parts:
            writer.write_table(pa.table([pa.array(part)], schema=schema), row_group_size=max(1, len(part)))
        writer.add_key_value_metadata({"tiles": base64.b64encode(own), "sha256": stated} | (metadata or {}))
    return target


def test_a_file_of_tiles_says_what_every_release_says(release) -> None:
    again = dh.load(release.path)
    assert isinstance(again, dh.TiledRelease)
    assert again.describe() == release.describe()
    assert (again.digest, len(again.digest)) == (release.digest, 64)
    assert (again.publishable, again.total, again.payment) == (True, release.total, None)
    assert again.facts() == release.facts()
    assert "Identity" in again.statement()
    assert pickle.loads(pickle.dumps(again)).tile_values((1, 2))[0].shape == (8, 8)


def test_tiles_make_up_the_values_and_the_cells_of_the_map(release) -> None:
    values, cells = np.zeros(DOMAIN.size, dtype=np.int64), np.zeros(DOMAIN.shape)
    for tile in all_tiles(release):
        values[release.tiling.rows(tile)] = np.concatenate([each.ravel() for each in release.tile_values(tile)])
        cells[release.tiling.cells(tile)] = release.tile_cells(tile)
    np.testing.assert_allclose(cells, release.decoder.estimate(values, release.total))
    assert cells.sum() == pytest.approx(release.total)


def test_a_copy_is_the_file(release, tmp_path) -> None:
    release.save(tmp_path / "copy.parquet")
    assert (tmp_path / "copy.parquet").read_bytes() == release.path.read_bytes() == release.to_bytes()


@pytest.mark.parametrize(("epsilon", "encoding"), [(1, "RLE_DICTIONARY"), (0.01, "DELTA_BINARY_PACKED")])
def test_the_noise_alone_decides_on_the_encoding(epsilon, encoding, tmp_path) -> None:
    for name, points in (("empty", 0), ("full", 10**6)):
        counts = np.full(DOMAIN.shape, points)
        release = dh.publish(counts, dh.Neighbourhood(DOMAIN, 2), "identity", epsilon, out=tmp_path / name)
        groups = [release.footer.row_group(k).column(0) for k in range(release.footer.num_row_groups)]
        assert all(encoding in group.encodings for group in groups)


@pytest.mark.parametrize("ask", ["values", "cells", "to_pandas", "columns"])
def test_nothing_holds_all_cells(release, ask) -> None:
    with pytest.raises(dh.InputError, match=r"726 cells in tiles: all .* would need more memory"):
        getattr(release, ask)() if ask != "values" else release.values


@pytest.mark.parametrize("tile", [(-1, 0), (0, 5), (3, 0)])
def test_there_are_no_other_tiles(release, tile) -> None:
    with pytest.raises(dh.InputError, match="3 × 5 tiles"):
        release.tile_values(tile)


def test_a_damaged_tile_is_named_and_others_are_read(release) -> None:
    start = pq.ParquetFile(release.path).metadata.row_group(7).column(0).data_page_offset
    content = bytearray(release.path.read_bytes())
    content[start + 40] ^= 1
    release.path.write_bytes(content)
    again = dh.load(release.path)
    with pytest.raises(dh.DamagedFile, match=r"in tile \(1, 2\)"):
        again.tile_values((1, 2))
    assert again.tile_values((1, 3))[0].shape == (8, 8)
    release.path.unlink()
    with pytest.raises(dh.DamagedFile, match=r"cannot be read in tile \(1, 3\)"):
        again.tile_values((1, 3))


def test_values_of_another_file_are_noticed(release, tmp_path) -> None:
    def swapped(parts):
        parts[0], parts[1] = parts[1], parts[0]
        return parts

    hashes = release.hashes.tobytes()
    rewrite(release, values=swapped, hashes=hashes)
    again = dh.load(release.path)
    with pytest.raises(dh.DamagedFile, match=r"has other values in tile \(0, 0\) than its digest says"):
        again.tile_values((0, 0))


def without_last(parts):
    return parts[:-1]


def shorter(parts):
    return [*parts[:-1], parts[-1][:-1]]


def narrower(parts):
    return [part.astype(np.int32) for part in parts]


def more_epsilon(description):
    description["epsilon"] = "2"


def more_cells(description):
    description["domain"]["shape"] = [2200, 3300]


def other_strategy(description):
    description["strategy"] = {"strategy": "Wavelet"}


def other_side(description):
    description["tile"] = [16, 8]


def no_total(description):
    description["total"] = None


def newer(description):
    description["version"] = 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": without_last}, "cells|row groups"),
        ({"values": shorter}, "cells|row groups"),
        ({"values": narrower}, "columns"),
        ({"describe": more_epsilon}, "noise that does not follow"),
        ({"describe": more_cells}, "fewer than cells"),
        ({"describe": other_strategy}, "needs all cells at once"),
        ({"describe": other_side}, "another side"),
        ({"describe": no_total}, "membership rule"),
        ({"describe": newer}, "version"),
        ({"hashes": bytes(31)}, "SHA-256 of each tile"),
        ({"digest": "0" * 64}, "states the digest"),
        ({"metadata": {"tiles": "?"}}, "damaged description"),
    ],
)
def test_what_a_file_says_is_checked(release, change, message, tmp_path) -> None:
    assert dh.load(rewrite(release)).digest == release.digest
    with pytest.raises(dh.InputError, match=message):
        dh.load(rewrite(release, **copy.copy(change), target=tmp_path / "other.parquet"))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1 << 20, 1 << 20), "more cells than files hold"),
        ((1 << 17, 1 << 17), "must have 268,435,456 row groups"),
        ((1 << 32, 4), "needs about 256.0 GiB"),
    ],
)
def test_a_footer_that_lies_takes_no_memory(release, shape, message, monkeypatch) -> None:
    description = json.loads(json.dumps(release.describe()))
    description["domain"] |= {"shape": shape, "bounds": [0, 0, *shape]}
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 16 << 30)
    monkeypatch.setattr("deltahist.releases.tiled._sizes", None)  # an array of all tiles
    footer = SimpleNamespace(num_rows=1 << 62, num_row_groups=15)
    with pytest.raises(dh.InputError, match=message):
        dh.TiledRelease.read(description, SimpleNamespace(metadata=footer), "map.parquet")


def test_a_tile_that_states_more_bytes_than_values_take_is_not_read(release, monkeypatch) -> None:
    again = dh.load(release.path)
    monkeypatch.setattr("deltahist.releases.tiled._SLACK", -16 * 64)
    with pytest.raises(dh.DamagedFile, match=r"is oversized in tile \(0, 0\)"):
        again.tile_values((0, 0))
