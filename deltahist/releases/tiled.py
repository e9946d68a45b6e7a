"""Release of a map that outgrows memory: one file with a row group for each tile, which are read one by one."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist._files import DIGEST, KEY, README, check_digest, check_format, digest_of, first_line
from deltahist._objects import StoredFile, find_object, is_stored_file
from deltahist._progress import progress
from deltahist.budget import Payment
from deltahist.decode import Decoder
from deltahist.errors import DamagedFile, InputError, fits_memory
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import stamp
from deltahist.releases.base import BaseRelease, damaged, is_publishable
from deltahist.releases.coarse import CoarseMap
from deltahist.releases.histogram import read_mechanism, read_total
from deltahist.releases.tileanswers import TileAnswerer
from deltahist.releases.tilesums import TileSums, sums_of
from deltahist.space.domain import MOST_IN_TILES
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Members, Strategy
from deltahist.strategies.tiles import Integers, Tile, Tiling

#: Version of the files.
_VERSION = 1
#: Where a file keeps the SHA-256 of each row group's values, one after another, as base64.
_TILES = b"tiles"
#: Bytes of a SHA-256.
_HASH = 32
#: zstd's level: higher ones take longer, and files are hardly smaller (docs/large.md).
_LEVEL = 1
#: Variance of the noise from which on differences of values take less room than a dictionary of them.
_WIDE = 20.0**2
#: Bytes that a row group may take in memory, besides its values twice over.
_SLACK = 1 << 16
#: Bytes that strategies take for each cell along an axis.
_BYTES_OF_LINE = 64


@dataclass(frozen=True, eq=False, repr=False)
class TiledRelease(BaseRelease):
    """A release of a map of more than 4096² cells: a file of tiles, each read when it is asked for.

    The file is Parquet with a row group for each tile, x varying slowest, and one more for values that no tile holds
    (`top`). The digest is the SHA-256 of the description and of each row group's SHA-256: a tile is verified alone.

    Parameters
    ----------
    mechanism, total, publishable, payment : as of every release of counts.
    path : of the file, or the object in storage.
    hashes : (row groups, 32) SHA-256 of the values of each row group, little-endian int64.
    footer : Parquet's own metadata of the file.

    >>> import tempfile, deltahist as dh
    >>> domain = dh.Domain((0, 0, 4100, 4100), (4100, 4100))
    >>> counts, near = dh.count([[0.5, 0.5], [2000.5, 7.5]], domain), dh.Neighbourhood(domain, delta=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     release = dh.publish(counts, near, "identity", epsilon=1, out=f"{folder}/map.parquet")
    ...     release.total, release.tiling.shape, [layer.shape for layer in release.tile_values((0, 16))]
    (2, (17, 17), [(256, 4)])
    """

    mechanism: Mechanism
    path: Path | StoredFile
    hashes: NDArray[np.uint8]
    total: int | None = None
    publishable: bool = field(default=False, init=False)
    payment: Payment | None = None
    footer: Any = None
    FORMAT: ClassVar[str] = "deltahist-tiles"

    def __post_init__(self) -> None:
        """Check nothing: values are verified when they are read."""

    @property
    def strategy(self) -> Strategy:
        """The strategy that was measured."""
        return self.mechanism.strategy

    @property
    def decoder(self) -> Decoder:
        """Least squares for this release."""
        return self.mechanism.decoder

    @functools.cached_property
    def tiling(self) -> Tiling:
        """The tiles of the map."""
        return self.strategy.tiling()

    @property
    def _name(self) -> str:
        return str(self.path) if isinstance(self.path, Path) else self.path.name

    # -- tiles -----------------------------------------------------------------------------------------------

    def tile_values(self, tile: Tile) -> list[Integers]:
        """Return the values of each layer (blocks along x, along y) in a tile, verified.

        Raises
        ------
        DamagedFile
            If the tile was damaged or altered, or the file is no longer there.
        InputError
            If there is no such tile.
        """
        (i, j), (nx, ny) = tile, self.tiling.shape
        if not (0 <= i < nx and 0 <= j < ny):
            raise InputError(f"tile is {tile!r}: there are {nx:,} × {ny:,} tiles, numbered from 0")
        return self.tiling.split(tile, self._read(i * ny + j, f"tile {tile}"))

    def tiles(self, what: str) -> Iterator[Tile]:
        """Yield all tiles, x varying slowest, with a bar on the terminal, which names the work."""
        with progress(what, math.prod(self.tiling.shape)) as done:
            for i, j in np.ndindex(*self.tiling.shape):
                yield i, j
                done(1)

    @functools.cached_property
    def top(self) -> Integers:
        """Values that no tile holds (t,), verified."""
        if self.tiling.top.start == self.tiling.top.stop:
            return np.zeros(0, dtype=np.int64)
        return self._read(len(self.hashes) - 1, "the values that are kept whole")

    @functools.cached_property
    def settled(self) -> NDArray[np.float64]:
        """Figures of all tiles together that the cells of each need; the whole file is read for them, once."""
        tiling, decoder = self.tiling, self.decoder
        sums = [decoder.tile_summary(tiling, tile, self.tile_values(tile)) for tile in self.tiles("reading tiles")]
        return decoder.settle_tiles(tiling, self.top, np.reshape(sums, (*tiling.shape, -1)), self.total)

    def tile_cells(self, tile: Tile) -> NDArray[np.float64]:
        """Return unbiased estimates of a tile's cells (cells along x, along y), equal to the whole map's."""
        return self.decoder.tile_cells(self.tiling, tile, self.tile_values(tile), self.settled)

    def _read(self, number: int, what: str) -> Integers:
        """Return the values of a row group, verified."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        group = self.footer.row_group(number)
        if group.column(0).total_uncompressed_size > 16 * group.num_rows + _SLACK:
            raise damaged(self._name, f"is oversized in {what}")
        try:
            # Opened for each tile: that takes little, and no handle is shared by threads, or with a forked process.
            source = self.path if isinstance(self.path, Path) else self.path.file()
            with pq.ParquetFile(source, metadata=self.footer, page_checksum_verification=True) as file:
                column = file.read_row_group(number, use_threads=False).column(0).combine_chunks()
            values = np.asarray(np.from_dlpack(column), dtype=np.int64)
        except (pa.ArrowException, OSError, BufferError) as problem:
            raise DamagedFile(
                f"release file {self._name!r} cannot be read in {what}: {first_line(problem)}"
            ) from None
        if _hash(values) != self.hashes[number].tobytes():
            raise damaged(self._name, f"has other values in {what} than its digest says")
        return values

    # -- answers ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def sums(self) -> TileSums:
        """Sums over the cells, from the file beside the release: made once, which reads all tiles (docs/large.md)."""
        return sums_of(self)

    def drawn(self) -> CoarseMap:
        return self._coarse

    @functools.cached_property
    def _coarse(self) -> CoarseMap:
        return CoarseMap.of(self)

    def answerer(self) -> TileAnswerer:
        """Return all that answers need, made once."""
        return self._answerer

    @functools.cached_property
    def _answerer(self) -> TileAnswerer:
        return TileAnswerer(self)

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        return self.answerer().answer(work, level=level, nonnegative=nonnegative)

    # -- the file --------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"version": _VERSION, "total": self.total, "tile": list(self.tiling.side)}

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the description and of the SHA-256 of each row group, 64 hexadecimal digits."""
        return digest_of(json.loads(json.dumps(self.describe())), {"tile": self.hashes.ravel()})

    def write(self, target: Path | BinaryIO) -> None:
        """Write the file of `save`: a copy, whose tiles are verified by whoever reads them."""
        with self.path.open("rb") if isinstance(self.path, Path) else self.path.file() as own:
            if isinstance(target, Path):
                with target.open("wb") as copy:
                    shutil.copyfileobj(own, copy)
            else:
                shutil.copyfileobj(own, target)

    @classmethod
    def write_parts(
        cls,
        target: Path,
        mechanism: Mechanism,
        parts: Iterable[Integers],
        *,
        total: int | None,
        payment: Payment | None,
        publishable: bool,
    ) -> None:
        """Write a file from the values of each tile in turn, and at last those that are kept whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        draft = stamp(cls(mechanism, target, np.zeros((0, _HASH), np.uint8), total, payment), publishable)
        value = pa.field("value", pa.int64(), nullable=False)
        schema = pa.schema([value], metadata={KEY: json.dumps(draft.describe()), README: draft.readme()})
        hashes = []
        # Statistics would be a third of the footer, and tell readers nothing.
        writer = pq.ParquetWriter(target, schema, compression="zstd", compression_level=_LEVEL, write_statistics=False,
                                  write_page_checksum=True, **_encoding(mechanism))  # fmt: skip
        try:
            for values in parts:
                hashes.append(_hash(values))
                column = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
                writer.write_batch(pa.record_batch([column], schema=schema), row_group_size=len(values))
            every = np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, _HASH)
            digest = stamp(cls(mechanism, target, every, total, payment), publishable).digest
            writer.add_key_value_metadata({_TILES: base64.b64encode(every.tobytes()), DIGEST: digest})
        finally:
            writer.close()

    @classmethod
    def read(cls, description: dict[str, Any], file: Any, path: str) -> TiledRelease:
        check_format(description, path, form=cls.FORMAT, version=_VERSION)
        if file is None:
            raise DamagedFile(f"file {path!r} describes a release, but has no tiles: it is no Parquet file")
        footer, shape = file.metadata, [int(n) for n in description["domain"]["shape"]]
        # What a footer says of its rows may be a lie: no memory is taken for them.
        if math.prod(shape) > min(footer.num_rows, MOST_IN_TILES):
            raise damaged(path, f"has {footer.num_rows:,} values, fewer than cells, or more cells than files hold")
        fits_memory(_BYTES_OF_LINE * max(shape), f"release file {path!r}", "was it altered? no such map is usual")
        mechanism = read_mechanism(description, path)
        tiling = mechanism.strategy.tiling()
        if description["tile"] != list(tiling.side):
            raise damaged(path, "has tiles of another side than its strategy's")
        parts = math.prod(tiling.shape) + (tiling.top.start < tiling.top.stop)
        if footer.num_row_groups != parts or any(
            footer.row_group(k).num_rows != number for k, number in enumerate(_sizes(tiling))
        ):
            raise damaged(path, f"must have {parts:,} row groups of its tiles' sizes")
        found = [(each.name, str(each.type), each.nullable) for each in file.schema_arrow]
        if found != [("value", "int64", False)]:
            raise DamagedFile(f"release file {path!r} has columns {found}: it must be one, 'value' (int64, required)")
        stated = footer.metadata
        hashes = np.frombuffer(base64.b64decode(stated[_TILES], validate=True), dtype=np.uint8)
        if len(hashes) != _HASH * parts:
            raise damaged(path, "must state a SHA-256 of each tile")
        own = digest_of(description, {"tile": hashes})
        check_digest(stated.get(DIGEST.encode(), b"").decode(errors="replace") or None, own, path)
        total = read_total(mechanism, description, path)
        payment = Payment.from_description(description.get("account"))
        place = find_object(path, "release file") if is_stored_file(path) else Path(path)
        made = cls(mechanism, place, hashes.reshape(-1, _HASH), total, payment, footer)
        return stamp(made, is_publishable(description))

    # -- what would need all values --------------------------------------------------------------------------

    @property
    def values(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Refuse to return all values: there are too many."""
        raise self._refusal("values")

    def columns(self) -> dict[str, NDArray[Any]]:
        """Refuse to return all values: there are too many."""
        raise self._refusal("values")

    def estimates(self, *, nonnegative: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Refuse to return all cells: there are too many."""
        raise self._refusal("cells")

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"the release has {self.domain.size:,} cells in tiles: all {what} at once would need more memory than is "
            "taken for granted; ask boxes or regions, read tile by tile (`tile_cells`), or publish larger cells"
        )

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.statement())}</pre>"


def _encoding(mechanism: Mechanism) -> dict[str, Any]:
    """Return how values are encoded, by the noise that most draws have: a public figure."""

    def number(members: Members) -> int:
        return len(range(mechanism.draws)[members]) if isinstance(members, slice) else len(members)

    _, usual = max(mechanism.noise_groups, key=lambda group: number(group[0]))
    if usual.variance() < _WIDE:
        return {"use_dictionary": True}
    return {"use_dictionary": False, "column_encoding": {"value": "DELTA_BINARY_PACKED"}}


def _hash(values: Integers) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<i8").data).digest()


def _sizes(tiling: Tiling) -> list[int]:
    """Return the number of values of each row group."""
    (nx, ny), sizes = tiling.shape, np.zeros(tiling.shape, dtype=np.int64)
    for layer in tiling.layers:
        columns = [tiling.blocks(layer, (i, 0))[0] for i in range(nx)]
        rows = [tiling.blocks(layer, (0, j))[1] for j in range(ny)]
        sizes += np.outer([span.stop - span.start for span in columns], [span.stop - span.start for span in rows])
    top = tiling.top.stop - tiling.top.start
    return [*sizes.ravel().tolist(), *([top] if top else [])]
