"""How deeply texts of JSON are nested, found before a parser follows them: one that goes too deep ends the process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from deltahist.errors import InputError

#: Brackets that may stand open at once.
DEEPEST = 100
_OPENING = np.frombuffer(b"[{", dtype=np.uint8)
#: All bytes but brackets and quotes.
_OTHERS = bytes(sorted(set(range(256)) - set(b'"[]{}')))


class ShallowJson(io.RawIOBase):
    """A stream of JSON that ends where more than DEEPEST brackets are open, those in strings left out.

    `check` says so afterwards: a parser that an error surprises would leave a thread behind, which may end the process.

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
