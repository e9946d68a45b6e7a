"""Sums over the cells of a release in tiles: a derived file beside it, from which answers read a few numbers.

The sum of the cells up to an edge (a, b) is one number of each of four tables: of whole tiles, of cells along x times
tiles along y, of tiles along x times cells along y, and of the cells in the tile that holds the edge (docs/large.md).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import mmap
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist._files import write_whole
from deltahist._objects import StoredFile, find_object
from deltahist.decode.placement import Clumping, ClumpingInTiles, block_variance
from deltahist.errors import DamagedFile, InputError

if TYPE_CHECKING:
    from deltahist.releases.tiled import TiledRelease

Field = NDArray[np.float64]
Index = NDArray[np.int64]
#: How files begin; their description fills the first page, and tables begin at pages.
_MAGIC, _PAGE = b"deltahist sums 1\n", 4096
#: The suffix of the file beside a release.
SUFFIX = ".sums"
#: Bytes of a mapped file that a process reads before it lets go of them, where it reads more than a few numbers.
_MAPPED, _FEW = 1 << 29, 1 << 12
#: Bytes around a number that a system maps with it.
_AROUND = 1 << 16
#: Bytes that a disk reads in the time in which it finds another place.
_AHEAD = 1 << 17
#: Bytes between two numbers in object storage up to which one request is for both.
_CLOSE = 1 << 16
#: Where a machine has numbers of more than 64 bits, sums over a whole map are taken in them.
_LONG = np.longdouble


@dataclass(frozen=True)
class Tables:
    """Where the tables of a file lie.

    Parameters
    ----------
    cells : number along each axis of the map. side : cells of a tile along each axis. settled : number of its figures.
    """

    cells: tuple[int, int]
    side: tuple[int, int]
    settled: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Number of tiles along each axis."""
        x, y = (-(-n // side) for n, side in zip(self.cells, self.side, strict=True))
        return x, y

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tables, in their order: float64 each, little-endian.

        `whole` has sums of whole tiles in two parts, the second of which is what the first was rounded by; `spreads`
        each tile's mean of `Clumping.spread`; `settled` what `Decoder.settle_tiles` says.
        """
        (nx, ny), (tx, ty) = self.cells, self.tiles
        return {
            "settled": (self.settled,),
            "spreads": (tx, ty),
            "whole": (2, tx + 1, ty + 1),
            "along_x": (nx + 1, ty + 1),
            "along_y": (ny + 1, tx + 1),
            "within": (tx, ty, *self.side),
        }

    @property
    def starts(self) -> dict[str, int]:
        """Bytes at which tables begin, and at last the length of the file, ""."""
        found, at = {}, _PAGE
        for name, shape in self.shapes.items():
            found[name] = at
            at += -(-8 * math.prod(shape) // _PAGE) * _PAGE
        return found | {"": at}


class Numbers(Protocol):
    """Numbers of a file, read at any places."""

    def take(self, at: Index) -> Field:
        """Return the float64 that begin at bytes (k,)."""

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""


class MappedNumbers:
    """Numbers of a file on disk, mapped into memory: what was read stays with the system, not with the process."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map, self._ahead = (mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for _ in range(2))
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
            self._ahead.madvise(mmap.MADV_SEQUENTIAL)
        self._flat = np.frombuffer(self._map, dtype="<f8", count=len(self._map) // 8)
        self._taken = 0  # bytes that have been mapped since pages were let go

    def take(self, at: Index) -> Field:
        """Return the float64 that begin at bytes (k,)."""
        if len(at) < _FEW:
            found = np.take(self._flat, at >> 3)
            self._taken += _AROUND * len(at)
            if self._taken > _MAPPED:
                self._taken = 0
                _let_go(self._map, 0, len(self._map))
            return np.asarray(found)
        # In order of their places, which takes half the time, and lets go of what was passed. Where places are close, a
        # disk reads all between them sooner than each by itself.
        mapped = self._ahead if len(at) * _AHEAD > len(self._map) else self._map
        flat = np.frombuffer(mapped, dtype="<f8", count=len(mapped) // 8)
        order = np.argsort(at)
        places, found = at[order], np.empty(len(at))
        ends = np.searchsorted(places, np.arange(0, len(self._map), _MAPPED) + _MAPPED)
        for number, (first, last) in enumerate(itertools.pairwise([0, *ends.tolist()])):
            found[order[first:last]] = np.take(flat, places[first:last] >> 3)
            _let_go(mapped, number * _MAPPED, min(_MAPPED, len(mapped) - number * _MAPPED))
        return found

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        return self._map[start:end]


def _let_go(mapped: mmap.mmap, start: int, length: int) -> None:
    """Let go of pages, which stay in the system's cache, to be mapped again."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, start, length)


class StoredNumbers:
    """Numbers of an object in storage: what lies close together comes with one request, and requests go out at once."""

    def __init__(self, stored: StoredFile) -> None:
        self._stored = stored

    def take(self, at: Index) -> Field:
        """Return the float64 that begin at bytes (k,)."""
        places, back = np.unique(at, return_inverse=True)
        first = np.flatnonzero(np.diff(places, prepend=-2 * _CLOSE) > _CLOSE)
        starts, ends = places[first], places[np.append(first[1:], len(places)) - 1] + 8
        number = np.repeat(np.arange(len(first)), np.diff(first, append=len(places)))
        # Where each range begins in all of them, one after another.
        begin = np.cumsum(ends - starts) - (ends - starts)
        content = b"".join(self._stored.ranges(zip(starts.tolist(), ends.tolist(), strict=True)))
        found = np.frombuffer(content, dtype="<f8")[(places - starts[number] + begin[number]) >> 3]
        return np.asarray(found[back])

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        return self._stored.bytes_of(start, end)


class TileSums:
    """Sums over the cells of a release in tiles.

    Parameters
    ----------
    numbers : of the file. tables : where they lie.
    law : how points clump (`ClumpingInTiles`). noise : typical variance of a cell's estimate.
    """

    def __init__(self, numbers: Numbers, tables: Tables, law: Clumping, noise: float) -> None:
        self._numbers, self.tables, self.law, self.noise = numbers, tables, law, noise
        first, then = self._table("whole")
        #: Sums of whole tiles up to each of their corners.
        self._whole = first.astype(_LONG) + then
        self.settled, self.spreads = self._table("settled"), self._table("spreads")
        # Cells along each axis of tiles, and the spreads of all cells up to each corner.
        both = zip(tables.cells, tables.side, strict=True)
        self._sizes = [np.diff(np.append(np.arange(0, n, side), n)) for n, side in both]
        sizes = np.multiply.outer(*self._sizes)
        self._spread = np.zeros(self._whole.shape)
        self._spread[1:, 1:] = (self.spreads * sizes).cumsum(axis=0).cumsum(axis=1)

    def _table(self, name: str) -> Field:
        shape, start = self.tables.shapes[name], self.tables.starts[name]
        return np.frombuffer(self._numbers.part(start, start + 8 * math.prod(shape)), dtype="<f8").reshape(shape)

    # -- sums ------------------------------------------------------------------------------------------------

    def up_to(self, x: Index, y: Index) -> tuple[NDArray[Any], Field]:
        """Return sums of the cells up to edges (any shape): of whole tiles, and of strips and cells (3, ...)."""
        starts, (sx, sy), (_, ty) = self.tables.starts, self.tables.side, self.tables.tiles
        (i, a), (j, b) = np.divmod(x, sx), np.divmod(y, sy)
        # Where an edge is one of tiles, the first number stands for none: it is 0.
        none = starts["along_x"]
        of_x = np.where(a > 0, none + 8 * (x * (ty + 1) + j), none)
        of_y = np.where(b > 0, starts["along_y"] + 8 * (y * (self.tables.tiles[0] + 1) + i), none)
        cell = ((i * ty + j) * sx + a - 1) * sy + b - 1
        within = np.where((a > 0) & (b > 0), starts["within"] + 8 * cell, none)
        at = np.stack([of_x, of_y, within])
        return self._whole[i, j], self._numbers.take(at.ravel()).reshape(at.shape)

    def spread_up_to(self, x: Index, y: Index) -> Field:
        """Return sums of the spreads of the cells up to edges (any shape): of each tile's cells, its mean."""
        sides = zip((x, y), self.tables.side, self.tables.tiles, self._sizes, strict=True)
        (i, f), (j, g) = ((k := np.minimum(at // s, t - 1), (at - k * s) / sizes[k]) for at, s, t, sizes in sides)
        table = self._spread
        near, far = (table[k, j] * (1 - g) + table[k, j + 1] * g for k in (i, i + 1))
        return np.asarray(near * (1 - f) + far * f)

    def rectangles(self, low: Index, high: Index) -> Field:
        """Return sums over rectangles of whole cells (r,), from their corners (r, 2)."""
        x, y = (np.stack([low[:, axis], high[:, axis]]) for axis in (0, 1))
        whole, parts = self.up_to(*np.broadcast_arrays(x[:, None], y[None]))
        # Like numbers first: what is common to them goes without rounding.
        own, *others = ((each[1, 1] - each[1, 0]) - (each[0, 1] - each[0, 0]) for each in (whole, *parts))
        return np.asarray(own + sum(others), dtype=np.float64)

    def cells_at(self, x: Index, y: Index) -> Field:
        """Return the estimates of cells (k,)."""
        (sx, sy), (_, ty), starts = self.tables.side, self.tables.tiles, self.tables.starts
        (i, a), (j, b) = np.divmod(x, sx), np.divmod(y, sy)
        own, none = starts["within"] + 8 * (((i * ty + j) * sx + a) * sy + b), starts["along_x"]
        west, south = np.where(a > 0, own - 8 * sy, none), np.where(b > 0, own - 8, none)
        both = np.where((a > 0) & (b > 0), own - 8 * (sy + 1), none)
        at = np.stack([own, west, south, both])
        own, west, south, both = self._numbers.take(at.ravel()).reshape(at.shape)
        return np.asarray((own - west) - (south - both))


# --- the file -----------------------------------------------------------------------------------------------


def sums_of(release: TiledRelease) -> TileSums:
    """Return the sums of a release: from the file beside it, which is made first if it is missing or does not fit.

    Raises InputError if the release is in object storage, and no file that fits lies there beside it.
    """
    if not isinstance(release.path, Path):
        return _stored_sums(release)
    path = release.path.with_suffix(SUFFIX)
    try:
        return mapped_sums(release, path)
    except (FileNotFoundError, DamagedFile):
        make_sums(release, path)
    return mapped_sums(release, path)


def mapped_sums(release: TiledRelease, path: Path) -> TileSums:
    """Return the sums in a file on disk; FileNotFoundError, or DamagedFile if it does not fit (`read_sums`)."""
    size = path.stat().st_size
    if not size:
        raise DamagedFile(f"file of sums {str(path)!r} is empty")
    return read_sums(MappedNumbers(path), size, release, str(path))


def _stored_sums(release: TiledRelease) -> TileSums:
    assert isinstance(release.path, StoredFile)
    name = str(PurePosixPath(release.path.key).with_suffix(SUFFIX).name)
    try:
        stored = find_object(release.path.name.rsplit("/", 1)[0] + f"/{name}", "file of sums")
    except InputError as problem:
        raise InputError(
            f"{problem}: a release of tiles is asked by it; ask a copy on this machine once (`deltahist query`), which "
            f"makes it, and put {name!r} beside the release"
        ) from None
    return read_sums(StoredNumbers(stored), stored.size, release, stored.name)


def read_sums(numbers: Numbers, size: int, release: TiledRelease, path: str) -> TileSums:
    """Return the sums in a file of some bytes.

    Raises DamagedFile if it is cut short or altered, or belongs to another release.
    """
    first = numbers.part(0, min(size, _PAGE))
    try:
        if not first.startswith(_MAGIC):
            raise ValueError
        said = json.loads(first[len(_MAGIC) :].rstrip(b"\0"))
        tables = _tables_of(release, said["settled"])
        small = numbers.part(_PAGE, tables.starts["along_x"])
        fits = size == tables.starts[""] and said["small"] == hashlib.sha256(small).hexdigest()
        law, noise = Clumping(**said["law"]), float(said["noise"])
    except (ValueError, LookupError, TypeError):
        fits = False
    if not fits:
        raise DamagedFile(
            f"file of sums {path!r} is damaged or cut short: one that fits is made where the release is a file"
        )
    if said["release"] != release.digest:
        raise DamagedFile(
            f"file of sums {path!r} is of another release: one that fits is made where the release is a file"
        )
    return TileSums(numbers, tables, law, noise)


def make_sums(release: TiledRelease, path: Path) -> None:
    """Write the file of a release's sums, whole or not at all; memory is that of one slab of tiles.

    Raises
    ------
    DamagedFile
        If a tile is damaged.
    InputError
        If the disk has not enough room, or the folder cannot be written.
    """
    tables = _tables_of(release, len(release.settled))
    size, free = tables.starts[""], shutil.disk_usage(path.parent).free
    if size > free:
        raise InputError(
            f"file of sums {str(path)!r} takes {size / 2**30:.1f} GiB, and the disk has {free / 2**30:.1f} GiB left: "
            "make room, or move the release"
        )
    write_whole(path, lambda part: _Writer(release, tables).write(part))


def _tables_of(release: TiledRelease, settled: int) -> Tables:
    nx, ny = release.domain.shape
    return Tables((nx, ny), release.tiling.side, settled)


class _Writer:
    """A file of sums in the making."""

    def __init__(self, release: TiledRelease, tables: Tables) -> None:
        self._release, self._tables = release, tables
        self._blocks = block_variance(release.decoder)

    def write(self, path: Path) -> None:
        """Write all tables, and at last the description: the law of clumping is learnt from all tiles."""
        tables, starts = self._tables, self._tables.starts
        learnt = ClumpingInTiles(self._blocks, int(math.log2(min(tables.side))))
        with path.open("wb+") as file:
            whole = self._write_sums(file, learnt)
            file.truncate(starts[""])
            law, noise = learnt.law(), self._blocks((1, 1))
            settled, spreads = self._release.settled, self._mean_spreads(file, law, noise)
            small = {"settled": settled, "spreads": spreads, "whole": whole}
            digest = hashlib.sha256(b"".join(_padded(each) for each in small.values())).hexdigest()
            for name, each in small.items():
                self._put(file, starts[name], each)
            said = {"release": self._release.digest, "settled": len(settled), "law": vars(law), "noise": noise}
            file.seek(0)
            file.write(_MAGIC + json.dumps(said | {"small": digest}).encode())

    def _write_sums(self, file: BinaryIO, learnt: ClumpingInTiles) -> Field:
        """Write sums of strips and within tiles, slab after slab; return sums of whole tiles in two parts."""
        release, tables, starts = self._release, self._tables, self._tables.starts
        (sx, sy), (tx, ty), (_, ny) = tables.side, tables.tiles, tables.cells
        whole, along_y = np.zeros((tx + 1, ty + 1), dtype=_LONG), np.zeros((ny + 1, tx + 1))
        before = np.zeros(ny + 1, dtype=_LONG)  # of all slabs so far, up to each edge from the start of its tile
        strips = np.zeros((1, ty + 1), dtype=_LONG)
        for i, j in release.tiles("summing tiles"):
            cells = release.tile_cells((i, j))
            learnt.add(cells)
            sums = cells.cumsum(axis=0).cumsum(axis=1)
            wide, tall = sums.shape
            if j == 0:
                strips = np.zeros((wide, ty + 1), dtype=_LONG)
            strips[:, j + 1] = strips[:, j] + sums[:, -1]
            before[j * sy + 1 : j * sy + tall + 1] += sums[-1]
            whole[i + 1, j + 1] = whole[i, j + 1] + strips[-1, j + 1]
            full = np.zeros((sx, sy))
            full[:wide, :tall] = sums
            self._put(file, starts["within"] + 8 * (i * ty + j) * sx * sy, full)
            if j == ty - 1:
                self._put(file, starts["along_x"] + 8 * (i * sx + 1) * (ty + 1), strips)
                along_y[:, i + 1] = before
        self._put(file, starts["along_y"], along_y)
        first = whole.astype(np.float64)
        return np.stack([first, (whole - first).astype(np.float64)])

    def _mean_spreads(self, file: BinaryIO, law: Clumping, noise: float) -> Field:
        """Return each tile's mean of the spreads of its cells, from the sums that were written."""
        tables, spreads = self._tables, np.zeros(self._tables.tiles)
        (sx, sy), tiling = tables.side, self._release.tiling
        file.seek(tables.starts["within"])
        for tile in self._release.tiles("learning how points lie"):
            x, y = tiling.cells(tile)
            sums = np.frombuffer(file.read(8 * sx * sy), dtype="<f8").reshape(sx, sy)
            cells = np.diff(np.diff(sums, axis=0, prepend=0.0), axis=1, prepend=0.0)
            spreads[tile] = law.spread(cells[: x.stop - x.start, : y.stop - y.start], noise).mean()
        return spreads

    def _put(self, file: BinaryIO, at: int, table: NDArray[Any]) -> None:
        file.seek(at)
        file.write(np.ascontiguousarray(table, dtype="<f8").data)


def _padded(table: Field) -> bytes:
    """Return a table's bytes up to the end of its last page."""
    content = np.ascontiguousarray(table, dtype="<f8").tobytes()
    return content + bytes(-len(content) % _PAGE)
