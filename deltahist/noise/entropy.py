"""Random words: the operating system's entropy, stretched by a cipher; a fresh stream for every draw."""

from __future__ import annotations

import hmac
import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Bytes.
_CIPHER_BLOCK = 16
#: What is enciphered, again and again: a key stream is the cipher of zeros.
_ZEROS = memoryview(bytes(1 << 16))
#: A block to encipher: whose words, what for, which 64 bits of them, and which two.
_PLACE = np.dtype([("user", "<u8"), ("purpose", "<u2"), ("plane", "<u2"), ("pair", "<u4")])
#: The largest word.
_MOST = (1 << 64) - 1


class Words(Protocol):
    """A source of independent, uniform 64-bit words."""

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next `number` words."""


class KeyStream:
    """AES-256 in counter mode under a fresh key from the operating system.

    Nothing is kept between streams, so that a forked process cannot repeat its parent's words as long as
    each draw opens a stream of its own.

    >>> KeyStream().words(3).dtype
    dtype('uint64')
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def words(self, number: int) -> NDArray[np.uint64]:
        """Return the next `number` words of the key stream."""
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
        """Return the next `number` words of the generator."""
        return self._rng.integers(0, _MOST, number, dtype=np.uint64, endpoint=True)


class Keyed:
    """Words that are a function of a secret key, a user and an index: AES-256 of one distinct block for each two words.

    To whoever lacks the key they are as good as random; with the key, any of them can be had again at any time.

    Parameters
    ----------
    key : 32 secret bytes.
    label : what the words are for; those for another label, or under another key, are independent of them.

    >>> Keyed(bytes(32), "example").words(0, np.array([7, 8]), first=2, number=3, planes=1).shape
    (2, 3, 1)
    """

    def __init__(self, key: bytes, label: str) -> None:
        self._key = hmac.digest(key, label.encode(), "sha256")

    def words(
        self, purpose: int, users: NDArray[np.int64], *, first: int, number: int, planes: int
    ) -> NDArray[np.uint64]:
        """(users, number, planes) words: `number` of each plane from an even index `first` on."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        pairs = -(-number // 2)
        blocks = np.zeros((len(users), planes, pairs), dtype=_PLACE)
        blocks["user"], blocks["purpose"] = users[:, None, None], purpose
        blocks["plane"], blocks["pair"] = np.arange(planes)[:, None], first // 2 + np.arange(pairs)
        # A cipher of distinct blocks, one by one: no stream could be entered at any place of so many.
        cipher = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()
        words = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").astype(np.uint64, copy=False)
        return words.reshape(len(users), planes, 2 * pairs)[:, :, :number].swapaxes(1, 2)


def source(rng: np.random.Generator | None) -> Words:
    """Open a fresh cryptographic stream, or return a seeded generator's words if one is given.

    Raises InputError if `rng` is neither None nor a numpy Generator.
    """
    if rng is None:
        return KeyStream()
    if isinstance(rng, np.random.Generator):
        return Seeded(rng)
    raise InputError(
        f"rng is {rng!r}: it must be None (the operating system's entropy) or a numpy.random.Generator "
        "(for experiments; a seed or RandomState is not taken)"
    )
