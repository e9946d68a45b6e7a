"""Bounding what each user contributes, by a keyed hash that never looks at coordinates."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError

#: Rows kept beyond this many times the bound's need are thinned out again.
_SLACK = 1 << 20


class UserBound:
    """Keeps at most `most` points of each user.

    A row's score is AES under a random key of (hash of the user id, number of the row among the user's rows);
    the smallest scores stay. The choice depends on no coordinate and on no other user, so that moving points
    chooses the same rows: that is what makes K points of one user cost K times one point. Rows must be given
    before any are left out for where they are.

    Parameters
    ----------
    most : K. key : 32 bytes; drawn at random when None.

    Raises
    ------
    InputError
        If the key is not 32 bytes.

    >>> import pyarrow as pa
    >>> bound = UserBound(2, bytes(32))
    >>> bound.add(pa.array(["ann", "bob", "ann", "ann"]), np.array([10, 20, 11, 12]))
    >>> bound.users, len(bound.cells()), 20 in bound.cells()
    (2, 3, True)
    """

    def __init__(self, most: int, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.most = most
        # Independent blocks under one key are a keyed hash of 16 bytes, not the encryption of a message.
        key = secrets.token_bytes(32) if key is None else key
        if not isinstance(key, bytes) or len(key) != 32:
            raise InputError("key is unsuitable: it must be 32 secret bytes, or None for fresh ones")
        self._name_key = hashlib.blake2b(b"users", key=key, digest_size=32).digest()
        self._cipher = Cipher(
            algorithms.AES(hashlib.blake2b(b"rows", key=key, digest_size=32).digest()), modes.ECB()
        )
        self._codes: dict[Any, int] = {}
        self._hashes = np.zeros(0, dtype=np.uint64)  # of the user ids
        self._seen = np.zeros(0, dtype=np.int64)  # rows so far, per user
        self._kept: list[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]] = []
        self._held = 0

    @property
    def users(self) -> int:
        """Number of different users so far."""
        return len(self._codes)

    def add(self, users: Any, cells: NDArray[np.int64]) -> None:
        """Take a batch: an Arrow array of user ids without nulls, and the rows' flat cells."""
        code = self._code(users)
        score = self._score(code, self._ordinal(code))
        self._kept.append((code, score, cells))
        self._held += len(code)
        if self._held > 2 * self.most * self.users + _SLACK:
            self._thin()

    def cells(self) -> NDArray[np.int64]:
        """Flat cells of the rows that stay."""
        self._thin()
        return self._kept[0][2]

    def _code(self, users: Any) -> NDArray[np.int64]:
        """Whole numbers for user ids, the same in every batch."""
        encoded = users.dictionary_encode()
        if hasattr(encoded, "combine_chunks"):
            encoded = encoded.combine_chunks()
        codes, before = self._codes, len(self._codes)
        ids = encoded.dictionary.to_pylist()
        known = np.array([codes.setdefault(u, len(codes)) for u in ids], dtype=np.int64)
        fresh = [u for u, code in zip(ids, known.tolist(), strict=True) if code >= before]
        self._hashes = _room(self._hashes, self.users)
        self._hashes[before : self.users] = np.frombuffer(b"".join(map(self._hash, fresh)), dtype="<u8")
        return known[encoded.indices.to_numpy(zero_copy_only=False)]

    def _hash(self, user: Any) -> bytes:
        # Of the text: user 7 is the same in a CSV file and in a Parquet file.
        text = str(user).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._name_key, digest_size=8).digest()

    def _ordinal(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of each row among its user's rows, over all batches."""
        self._seen = _room(self._seen, self.users)
        order = np.argsort(code, kind="stable")
        ranked = code[order]
        first = (
            np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(code) else np.zeros(0, np.int64)
        )
        sizes = np.diff(first, append=len(code))
        within = np.arange(len(code)) - np.repeat(first, sizes)
        out = np.empty(len(code), dtype=np.int64)
        out[order] = within + self._seen[ranked]
        self._seen[ranked[first]] += sizes
        return out

    def _score(self, code: NDArray[np.int64], ordinal: NDArray[np.int64]) -> NDArray[np.uint64]:
        blocks = np.empty((len(code), 2), dtype="<u8")
        blocks[:, 0] = self._hashes[code]
        blocks[:, 1] = ordinal
        hashed = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(hashed, dtype="<u8").reshape(-1, 2)[:, 0].astype(np.uint64)

    def _thin(self) -> None:
        """Keep each user's smallest scores only."""
        if not self._kept:
            empty = np.zeros(0, dtype=np.int64)
            self._kept = [(empty, empty.astype(np.uint64), empty)]
        code, score, cells = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((score, code))
        ranked = code[order]
        first = np.searchsorted(ranked, ranked, side="left")
        stay = order[np.arange(len(code)) - first < self.most]
        self._kept = [(code[stay], score[stay], cells[stay])]
        self._held = len(stay)


def _room(array: NDArray[Any], size: int) -> NDArray[Any]:
    """`array` if it has `size` elements, else a longer one that starts with it, zero after that."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
