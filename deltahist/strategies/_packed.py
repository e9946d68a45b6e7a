"""Whole-number arrays as text, for descriptions in release files."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError


def pack(array: NDArray[np.int64]) -> str:
    """Compressed text of an array of 32-bit whole numbers; differences along the last axis pack better."""
    if np.abs(array).max(initial=0) >= 1 << 30:
        raise InputError("the strategy's entries are too large to be saved: they must be below 2^30")
    steps = np.diff(array, axis=-1, prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 6)).decode("ascii")


def unpack(text: Any, shape: tuple[int, ...], name: str) -> NDArray[np.int64]:
    """The array of a packed text; the text is untrusted, and never more of it is unpacked than there should be.

    Raises InputError if it is damaged or does not hold exactly the numbers that the shape says.
    """
    number = math.prod(shape)
    if not isinstance(text, str):
        raise InputError(f"{name} is damaged: it must be text")
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b64decode(text, validate=True), 4 * number + 1)
    except (ValueError, zlib.error):
        raise InputError(f"{name} is damaged: it must be base64 of compressed numbers") from None
    if len(data) != 4 * number or not reader.eof or reader.unused_data:
        raise InputError(f"{name} is damaged: it must hold {number:,} numbers for this domain")
    out = np.frombuffer(data, dtype="<i4").reshape(shape).astype(np.int64).cumsum(axis=-1)
    if np.abs(out).max(initial=0) >= 1 << 30:
        raise InputError(f"{name} has entries that are too large: they must be below 2^30")
    return out
