"""Whole-number arrays as text, for descriptions in release files."""

from __future__ import annotations

import base64
import binascii
import math
import zlib

import numpy as np
from numpy.typing import NDArray

from deltahist._validate import InputError


def pack(array: NDArray[np.int64]) -> str:
    """Compressed text of an array of 32-bit whole numbers; differences along the last axis pack better."""
    if np.abs(array).max(initial=0) >= 1 << 30:
        raise InputError("the strategy's entries are too large to be saved: they must be below 2^30")
    steps = np.diff(array, axis=-1, prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 6)).decode("ascii")


def unpack(text: str, shape: tuple[int, ...], name: str) -> NDArray[np.int64]:
    """The array of a packed text; the text is untrusted.

    Raises InputError if it is damaged or does not have exactly the size that the shape says.
    """
    size = 4 * math.prod(shape)
    try:
        machine = zlib.decompressobj()
        raw = machine.decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, zlib.error, TypeError, ValueError):
        raise InputError(f"{name} is damaged: it must be compressed whole numbers in base 64") from None
    if len(raw) != size or machine.unconsumed_tail or not machine.eof:
        raise InputError(
            f"{name} has another size than its domain says: it must hold {math.prod(shape):,} numbers"
        )
    out = np.frombuffer(raw, dtype="<i4").reshape(shape).astype(np.int64).cumsum(axis=-1)
    if np.abs(out).max(initial=0) >= 1 << 30:
        raise InputError(f"{name} has entries of 2^30 or more: they must be smaller (altered?)")
    return out
