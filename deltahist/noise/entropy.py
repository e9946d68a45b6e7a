"""Random words: the operating system's entropy, stretched by a cipher; a fresh stream for every draw."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Bytes.
_CIPHER_BLOCK = 16
#: What is enciphered, again and again: a key stream is the cipher of zeros.
_ZEROS = memoryview(bytes(1 << 16))
#: The largest word.
_MOST = (1 << 64) - 1


class Words(Protocol):
    """A source of independent, uniform 64-bit words."""

    def words(self, number: int) -> NDArray[np.uint64]:
        """The next `number` words."""


class Stream:
    """AES-256 in counter mode under a fresh key from the operating system.

    Nothing is kept between streams, so that a forked process cannot repeat its parent's words as long as
    each draw opens a stream of its own.

    >>> Stream().words(3).dtype
    dtype('uint64')
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def words(self, number: int) -> NDArray[np.uint64]:
        """The next `number` words of the key stream."""
        # The cipher asks for room for one more block than it writes.
        out = np.empty(8 * number + _CIPHER_BLOCK, dtype=np.uint8)
        for start in range(0, 8 * number, len(_ZEROS)):
            self._cipher.update_into(_ZEROS[: 8 * number - start], out.data[start:])
        return out[: 8 * number].view(np.uint64)


class Seeded:
    """Words of a seeded generator, for experiments only: they can be predicted."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def words(self, number: int) -> NDArray[np.uint64]:
        """The next `number` words of the generator."""
        return self._rng.integers(0, _MOST, number, dtype=np.uint64, endpoint=True)


def source(rng: np.random.Generator | None) -> Words:
    """A fresh cryptographic stream, or a seeded generator's words if one is given.

    Raises InputError if `rng` is neither None nor a numpy Generator.
    """
    if rng is None:
        return Stream()
    if isinstance(rng, np.random.Generator):
        return Seeded(rng)
    raise InputError(
        f"rng is {rng!r}: it must be None (the operating system's entropy) or a numpy.random.Generator "
        "(for experiments; a seed or RandomState is not taken)"
    )
