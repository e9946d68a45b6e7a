"""Bounding what each user contributes, by a keyed hash that never looks at coordinates."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows kept beyond this many times the bound's need are thinned out again.
_SLACK = 1 << 20


class UserBound:
    """Keeps at most `most` points of each user.

    A row's score is AES under a random key of (user, number of the row among the user's rows); the smallest
    scores stay. The choice depends on no coordinate and on no other user, so that moving points chooses the
    same rows: that is what makes K points of one user cost K times one point.

    Parameters
    ----------
    most : K. key : 32 bytes; drawn at random when None.
    """

    def __init__(self, most: int, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.most = most
        # Independent blocks under one key are a keyed hash of 16 bytes, not the encryption of a message.
        self._cipher = Cipher(algorithms.AES(key or secrets.token_bytes(32)), modes.ECB())
        self._codes: dict[Any, int] = {}
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
        codes = self._codes
        known = np.array(
            [codes.setdefault(u, len(codes)) for u in encoded.dictionary.to_pylist()], dtype=np.int64
        )
        return known[encoded.indices.to_numpy(zero_copy_only=False)]

    def _ordinal(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of each row among its user's rows, over all batches."""
        if len(self._seen) < self.users:
            grown = np.zeros(max(self.users, 2 * len(self._seen)), dtype=np.int64)
            grown[: len(self._seen)] = self._seen
            self._seen = grown
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
        blocks = np.column_stack([code, ordinal]).astype("<i8").tobytes()
        hashed = self._cipher.encryptor().update(blocks)
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
