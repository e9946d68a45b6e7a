"""Noise that can be drawn again: blocks of draws, each from a stream of its own under one root key."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.noise.discrete import BLOCK
from deltahist.noise.exact import KEY_BYTES, KeyStream, source
from deltahist.noise.process import MOST_THREADS, draw
from deltahist.privacy import Law


class BlockDraws:
    """Draws of one publication in blocks, of which each is the same whenever it is asked for (`tiles.Draws`).

    The root key is drawn from the operating system's entropy, kept in memory only, and ends with this object. A block
    has the stream of a key that is derived from the root (docs/privacy/tiles.md), so that drawing it again gives the
    same numbers, and no two blocks share a stream.

    Parameters
    ----------
    laws : noise law of each group.
    rng : a seeded generator that gives the root, for experiments only.

    >>> from fractions import Fraction
    >>> from deltahist.privacy import Laplace
    >>> draws = BlockDraws([Laplace(Fraction(2))])
    >>> whole = draws(0, 0, (100, 30), slice(0, 100))
    >>> bool((draws(0, 0, (100, 30), slice(7, 9)) == whole[7:9]).all())
    True
    """

    def __init__(self, laws: Sequence[Law], rng: np.random.Generator | None = None) -> None:
        self.laws = tuple(laws)
        self._root = os.urandom(KEY_BYTES) if rng is None else source(rng).words(KEY_BYTES // 8).tobytes()
        self._process = os.getpid()

    def __call__(self, group: int, part: int, shape: tuple[int, ...], rows: slice) -> NDArray[np.int64]:
        """Return some rows (rows, *shape[1:]) of an array of draws.

        Raises InputError in another process than the one that began the publication: it would draw the same noise.
        """
        if os.getpid() != self._process:
            raise InputError("draws are asked for in a forked process: noise is drawn where the publication began")
        out = np.empty((rows.stop - rows.start, *shape[1:]), dtype=np.int64)
        height = _height(shape)

        def fill(block: int) -> None:
            first = block * height
            last = min(first + height, shape[0])
            drawn = self._block(group, part, shape, block, last - first)
            start, stop = max(first, rows.start), min(last, rows.stop)
            out[start - rows.start : stop - rows.start] = drawn[start - first : stop - first]

        some = range(rows.start // height, -(-rows.stop // height)) if rows.stop > rows.start else range(0)
        if len(some) < 2:
            list(map(fill, some))
        else:
            with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
                list(pool.map(fill, some))
        return out

    def _block(self, group: int, part: int, shape: tuple[int, ...], block: int, rows: int) -> NDArray[np.int64]:
        """Draw all of a block: always from the beginning of its stream."""
        words = KeyStream(self._key(group, part, *shape, block))
        return draw(self.laws[group], rows * math.prod(shape[1:]), words).reshape(rows, *shape[1:])

    def _key(self, *place: int) -> bytes:
        """Return the key of a block's stream: a keyed hash of its place, whose numbers all have the same length."""
        text = b"".join(number.to_bytes(8, "little") for number in place)
        return hashlib.blake2b(text, key=self._root, digest_size=KEY_BYTES, person=b"deltahist-tiles").digest()


@functools.lru_cache(maxsize=64)
def _height(shape: tuple[int, ...]) -> int:
    """Return how many rows a block has: a power of two, of which slabs are mostly multiples."""
    width = max(1, math.prod(shape[1:]))
    return 1 << max(0, (BLOCK // width).bit_length() - 1)
