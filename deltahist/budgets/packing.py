"""Columns of numbers as bytes, read back as untrusted input."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(*columns: NDArray[Any], compress: bool = False) -> bytes:
    """Columns, one after another, behind a line that says what they are.

    >>> pack(np.array([1, 2], dtype=np.uint8))
    b'{"plain": [["uint8", 2]]}\\n\\x01\\x02'
    """
    stated = [[column.dtype.name, len(column)] for column in columns]
    about = json.dumps({"zlib" if compress else "plain": stated}).encode()
    data = b"".join(column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes() for column in columns)
    return about + b"\n" + (zlib.compress(data, 1) if compress else data)


def unpack(data: bytes, kinds: Sequence[str], optional: int = 0) -> list[NDArray[Any]]:
    """The columns that were packed, read-only.

    Parameters
    ----------
    data : untrusted. kinds : what each column may be of. optional : how many of the last columns may be missing.

    Raises ValueError, with the reason, unless the bytes are just such columns.

    >>> unpack(pack(np.arange(2), compress=True), ["int64"])
    [array([0, 1])]
    """
    about, _, rest = data.partition(b"\n")
    try:
        ((way, told),) = json.loads(about).items()
        stated = [(str(kind), int(length)) for kind, length in told]
    except (ValueError, TypeError, AttributeError):
        raise ValueError("it does not say what it holds") from None
    known = len(kinds) - optional <= len(stated) <= len(kinds) and all(
        kind in some.split() and length >= 0 for (kind, length), some in zip(stated, kinds, strict=False)
    )
    if not known or way not in ("plain", "zlib"):
        raise ValueError(f"it holds {about[:80].decode()!r}, which this version does not know")
    sizes = [np.dtype(kind).itemsize * length for kind, length in stated]
    if way == "zlib":
        # Never more than is stated: a few bytes can be made to swell to gigabytes.
        with contextlib.suppress(zlib.error):
            rest = zlib.decompressobj().decompress(rest, sum(sizes) + 1)
    if len(rest) != sum(sizes):
        raise ValueError(f"it is {len(rest):,} bytes instead of {sum(sizes):,}")
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        np.frombuffer(rest[start:end], dtype=np.dtype(kind).newbyteorder("<")).astype(kind, copy=False)
        for (kind, _), start, end in zip(stated, ends, ends[1:], strict=False)
    ]
