"""Where a table's bytes come from: a file, the one table in a zip archive, or standard input; and what it is."""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from deltahist.errors import InputError, one_of

#: Endings of file names, and what is read in the same way.
FORMATS = {
    "csv": (".csv", ".tsv", ".txt", ".dat"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq", ".geoparquet"),
    "excel": (".xlsx", ".xlsm"),
    "geo": (".gpkg", ".geojson", ".json", ".fgb", ".shp"),
}
#: What may come as one stream, or compressed.
_STREAMS = ("csv", "jsonl")
#: The path that stands for standard input.
STDIN = Path("-")
#: First bytes that are looked at, and how much of text they may hold when compressed.
_HEAD, _TEXT = 1 << 18, 1 << 20


@dataclass(frozen=True)
class Input:
    """A table that can be opened.

    Parameters
    ----------
    path : the file; "-" for standard input.
    member : of the archive that the file is; None if it is none.
    format : one of FORMATS.
    stream : standard input, which can be read once.
    """

    path: Path
    member: str | None
    format: str
    stream: io.BufferedReader[Any] | None = None

    @property
    def name(self) -> str:
        """The table in messages."""
        if self.stream is not None:
            return "standard input"
        return self.path.name if self.member is None else f"{self.path.name}/{self.member}"

    @property
    def vsi(self) -> str:
        """The file as GDAL opens it."""
        return str(self.path) if self.member is None else f"/vsizip/{{{self.path.absolute()}}}/{self.member}"

    def open(self) -> IO[bytes]:
        """The bytes as they are."""
        if self.stream is not None:
            return self.stream
        if self.member is None:
            return self.path.open("rb")
        with zipfile.ZipFile(self.path) as archive:  # the file is closed with the member
            return archive.open(self.member)

    def text(self) -> Any:
        """The bytes as an Arrow stream, unpacked where they are gzipped."""
        import pyarrow as pa

        plain = self.stream is None and self.member is None
        gzipped = self._first().startswith(b"\x1f\x8b")
        return pa.input_stream(
            str(self.path) if plain else self.open(), compression="gzip" if gzipped else None
        )

    def head(self) -> bytes:
        """The first whole lines of text, unpacked; all of it if it is short."""
        first = self._first()
        whole = len(first) < _HEAD
        if first.startswith(b"\x1f\x8b"):
            unpacking = zlib.decompressobj(31)
            first = unpacking.decompress(first, _TEXT)
            whole = unpacking.eof and not unpacking.unused_data
        end = first.rfind(b"\n") + 1
        return first if whole or not end else first[:end]

    def seekable(self) -> Any:
        """What Arrow reads in any order: the file, or standard input as a whole."""
        import pyarrow as pa

        if self.stream is not None:
            return pa.BufferReader(self.stream.read())
        return str(self.path) if self.member is None else self.open()

    def _first(self) -> bytes:
        if self.stream is not None:
            return self.stream.peek(_HEAD)[:_HEAD]
        with self.open() as file:
            return file.read(_HEAD)


def find_input(path: Path, format: str | None = None) -> Input:
    """What a path stands for; its format is told by its ending unless it is given.

    Raises InputError if it is missing, empty, of an unknown kind, or an archive of no or several tables.
    """
    if format is not None:
        one_of(tuple(FORMATS), format=format)
    if path == STDIN:
        return _standard_input(format)
    if not path.is_file():
        raise InputError(f"input {str(path)!r} does not exist")
    if path.stat().st_size == 0:
        raise InputError(f"input {str(path)!r} is empty: it has no rows")
    if path.suffix.lower() == ".zip":
        member = _member(path, format)
        return Input(path, member, format or _format(member) or "")
    found = format or _format(path.name)
    if found is None:
        raise InputError(
            f"input {str(path)!r} has the ending {path.suffix.lower()!r}: it must be .csv, .tsv, .txt or .jsonl (also "
            ".gz), .parquet, .xlsx, .gpkg, .geojson, .fgb, .shp, or a .zip of one of them; or give its format, such as "
            "format='csv'"
        )
    return Input(path, None, found)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raises InputError instead of what the readers raise on a damaged table."""
    import pyarrow as pa

    try:
        yield
    except (
        pa.ArrowException, OSError, EOFError, RuntimeError, UnicodeDecodeError,
        csv.Error, zipfile.BadZipFile, zlib.error,
    ) as problem:  # fmt: skip
        raise InputError(f"input {name!r} cannot be read: {short(problem)} (cut short?)") from None


def short(problem: Exception) -> str:
    """The first line of a library's message."""
    return str(problem).strip().splitlines()[0][:200] if str(problem).strip() else type(problem).__name__


def _format(name: str) -> str | None:
    endings = [ending.lower() for ending in PurePosixPath(name).suffixes]
    gzipped = endings[-1:] == [".gz"]
    last = "".join(endings[-2:-1] if gzipped else endings[-1:])
    found = next((kind for kind, known in FORMATS.items() if last in known), None)
    return None if gzipped and found not in _STREAMS else found


def _member(path: Path, format: str | None) -> str:
    """The one table of an archive; what lies beside it (a licence, the parts of a shapefile) is passed over."""
    with readable(path.name), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not _hidden(m.filename)]
    tables = [m for m in members if _format(m.filename) is not None] or (members if format else [])
    if len(tables) != 1:
        listed = ", ".join(m.filename[:60] for m in (tables or members)[:20]) or "nothing"
        what = f"{len(tables):,} tables" if tables else "no table"
        raise InputError(
            f"input {path.name!r} is an archive with {what}: it holds {listed}; unpack it, and give one table"
        )
    if tables[0].flag_bits & 1:
        raise InputError(
            f"input {path.name!r} is an archive with a password: unpack it, and give the table in it"
        )
    if tables[0].file_size == 0:
        raise InputError(f"input {path.name!r} is empty: {tables[0].filename!r} in it has no rows")
    return tables[0].filename


def _hidden(name: str) -> bool:
    """Whether a member is what an operating system left there."""
    parts = PurePosixPath(name).parts
    return parts[0] == "__MACOSX" or parts[-1].startswith(".")


# --- standard input ---------------------------------------------------------------------------------------


def _standard_input(format: str | None) -> Input:
    if sys.stdin.isatty():
        raise InputError(
            "input is '-', standard input, but that is a terminal: lead a table into it, or name a file"
        )
    stream = io.BufferedReader(_Whole(sys.stdin.buffer), _HEAD)
    guess = Input(STDIN, None, format or "csv", stream)
    with readable(guess.name):
        head = guess.head()
    if not head:
        raise InputError("input '-', standard input, is empty: it has no rows")
    found = format or _guess(head)
    if found not in (*_STREAMS, "parquet"):
        raise InputError(
            f"input '-', standard input, holds a table of format {found!r}: it must be csv, jsonl or parquet; save it "
            "to a file, and give its name"
        )
    return Input(STDIN, None, found, stream)


def _guess(head: bytes) -> str:
    """The format of a table by its first bytes; text unless they say something else."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK"):
        return "zip"
    if head.startswith(b"SQLite format"):
        return "geo"
    if not head.lstrip().startswith(b"{"):
        return "csv"
    try:
        first = json.loads(head.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return "geo"
    return "geo" if str(first.get("type", "")).startswith("Feature") else "jsonl"


class _Whole(io.RawIOBase):
    """A stream whose reads are as long as they can be, so that one look shows the whole head; it is left open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
