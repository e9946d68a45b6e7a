"""The bytes of a table: of a file, of the one table in a zip archive, or of standard input."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from deltahist.errors import InputError

#: First bytes that are looked at, and how much of text they may hold when compressed.
HEAD, _TEXT = 1 << 18, 1 << 20


@dataclass(frozen=True)
class Input:
    """A table, not yet opened.

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
        """Name of the table in messages."""
        if self.stream is not None:
            return "standard input"
        return self.path.name if self.member is None else f"{self.path.name}/{self.member}"

    def open(self) -> IO[bytes]:
        """Open the bytes, packed or not."""
        if self.stream is not None:
            return self.stream
        if self.member is None:
            return self.path.open("rb")
        with zipfile.ZipFile(self.path) as archive:  # the file is closed with the member
            return archive.open(self.member)

    def text(self) -> Any:
        """Open the bytes as an Arrow stream, and unpack gzip."""
        import pyarrow as pa

        plain = self.stream is None and self.member is None
        gzipped = self._first().startswith(b"\x1f\x8b")
        return pa.input_stream(
            str(self.path) if plain else self.open(), compression="gzip" if gzipped else None
        )

    def head(self) -> bytes:
        """Return the first whole lines of text, unpacked; all of a short text."""
        first = self._first()
        whole = len(first) < HEAD
        if first.startswith(b"\x1f\x8b"):
            unpacking = zlib.decompressobj(31)
            first = unpacking.decompress(first, _TEXT)
            whole = unpacking.eof and not unpacking.unused_data
        end = first.rfind(b"\n") + 1
        return first if whole or not end else first[:end]

    def seekable(self) -> Any:
        """Return the file, or standard input as a whole, for Arrow to read in any order."""
        import pyarrow as pa

        if self.stream is not None:
            return pa.BufferReader(self.stream.read())
        return str(self.path) if self.member is None else self.open()

    def _first(self) -> bytes:
        if self.stream is not None:
            return self.stream.peek(HEAD)[:HEAD]
        with self.open() as file:
            return file.read(HEAD)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise InputError in place of what readers raise on a damaged table."""
    import pyarrow as pa

    try:
        yield
    except (
        pa.ArrowException, OSError, EOFError, RuntimeError, UnicodeDecodeError,
        csv.Error, zipfile.BadZipFile, zlib.error,
    ) as problem:  # fmt: skip
        raise InputError(f"input {name!r} cannot be read: {short(problem)} (cut short?)") from None


def short(problem: Exception) -> str:
    """Return the first line of a library's message."""
    return str(problem).strip().splitlines()[0][:200] if str(problem).strip() else type(problem).__name__


# --- JSON -------------------------------------------------------------------------------------------------

#: Brackets that may stand open at once.
DEEPEST = 100
_OPENING = np.frombuffer(b"[{", dtype=np.uint8)
#: All bytes but brackets and quotes.
_OTHERS = bytes(sorted(set(range(256)) - set(b'"[]{}')))


class ShallowJson(io.RawIOBase):
    """A stream of JSON that ends where more than DEEPEST brackets are open, those in strings left out.

    Arrow's parser may end the process where it follows deep nesting, and where an error leaves its thread behind:
    `check` raises the error afterwards.

    Parameters
    ----------
    stream : binary, of any length; closed with this.
    name : what messages call it.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name
        self._depth, self._in_string, self._escape, self._too_deep = 0, False, b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._stream.read(None if size is None or size < 0 else size))
        self._follow(data)
        return b"" if self._too_deep else data

    def check(self) -> None:
        """Raise InputError if the text went too deep."""
        if self._too_deep:
            raise InputError(
                f"input {self._name!r} has more than {DEEPEST} brackets within one another: rows of a table are "
                "not nested like that"
            )

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _follow(self, data: bytes) -> None:
        """Count brackets over one more piece of the text."""
        data = self._escape + data
        # What an odd number of backslashes escapes comes with the next piece.
        self._escape = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data.removesuffix(self._escape) if self._escape else data
        if b"\\" in data:
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Of flat rows nothing is left; two quotes side by side change nothing for what stands around them.
        left = data.translate(None, _OTHERS).replace(b'""', b"").replace(b"{}", b"")
        values = np.frombuffer(left, dtype=np.uint8)
        quotes = values == ord('"')
        outside = ~quotes & ((np.cumsum(quotes) + self._in_string) % 2 == 0)
        depths = self._depth + np.cumsum(np.isin(values[outside], _OPENING) * 2 - 1)
        self._in_string = bool((quotes.sum() + self._in_string) % 2)
        if len(depths):
            self._depth = int(depths[-1])
            self._too_deep = self._too_deep or bool(depths.max() > DEEPEST)
