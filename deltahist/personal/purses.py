"""Purses: the limit of each person, and what each has spent, in one account of a ledger.

A ledger keeps the purses of an account as columns, so that a question about a million people is charged in one write.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import JSON, Column, Connection, LargeBinary, MetaData, String, Table, insert, select, update

from deltahist.accounts.ledger import Ledger, check_text, get_note, open_account, set_note
from deltahist.errors import NANO, DamagedFile, InputError, check_choice
from deltahist.personal.query import NAME, OWNER

#: Billionths of the largest limit: sums of a limit and a charge that it pays stay within 64 bits.
_MOST = 10**9 * NANO
#: Bytes of the digest of a name, and of all amounts; the account keeps the latter as a note.
_BYTES, _SEAL = 16, "purses"
_TABLES = MetaData()
#: Who has a purse: a secret of the account, and for each person a digest of the name and the limit.
_PEOPLE = Table(
    "purse_people", _TABLES, Column("account", String, primary_key=True),
    *(Column(name, LargeBinary, nullable=False) for name in ("secret", "marks", "limits")),
)  # fmt: skip
#: What each has spent, in the same order: the only column that a charge writes.
_SPENT = Table(
    "purse_spent", _TABLES,
    Column("account", String, primary_key=True), Column("spent", LargeBinary, nullable=False),
)  # fmt: skip
#: Requests that were answered under a key.
_ANSWERS = Table(
    "purse_answers", _TABLES,
    *(Column(name, String, primary_key=True) for name in ("account", "key")),
    *(Column(name, JSON, nullable=False) for name in ("request", "answer")),
)  # fmt: skip


class KeyReuseError(InputError):
    """A key that was used for another request."""


class Purses:
    """The purses of an account.

    People are known by the normal form of their names. The ledger keeps a keyed digest of it (BLAKE2b, 128 bits):
    people who join again have the purse of before, whatever database their records are in. A limit never changes, and
    a spent amount stays spent.

    Parameters
    ----------
    ledger : the purses are in. name : of the account. unit : "epsilon" or "rho".

    Raises InputError if the account was opened as something else.
    """

    def __init__(self, ledger: Ledger, name: str, unit: str = "epsilon") -> None:
        self.ledger, self.name = ledger, check_text(account=name)
        self.unit = check_choice(("epsilon", "rho"), unit=unit)
        with ledger.transaction() as connection:
            open_account(connection, self.name, {"kind": "purses", "unit": unit})
            _TABLES.create_all(connection)
            if get_note(connection, self.name, _SEAL) is None:
                empty = {"account": self.name, "marks": b"", "limits": b"", "secret": secrets.token_bytes(32)}
                connection.execute(insert(_PEOPLE), empty)
                connection.execute(insert(_SPENT), {"account": self.name, "spent": b""})
                set_note(connection, self.name, _SEAL, _seal(b""))

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Hold all purses, alone, and undo changes if the block raises; DamagedFile if columns contradict."""
        with self.ledger.transaction() as connection:
            yield Turn(connection, self.name)


class Turn:
    """Purses within one transaction of their ledger.

    Attributes
    ----------
    limits, spent : (m,) billionths, of people in the order in which they joined.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        both = select(_PEOPLE, _SPENT.c.spent).join(_SPENT, _SPENT.c.account == _PEOPLE.c.account)
        found = connection.execute(both.where(_PEOPLE.c.account == name)).first()
        if found is None:
            raise DamagedFile(f"account {name!r} is damaged: its purses are gone")
        self._secret, self._marks = bytes(found.secret), bytes(found.marks)
        self.limits = np.frombuffer(found.limits, "<i8").astype(np.int64)
        self.spent = np.frombuffer(found.spent, "<i8").astype(np.int64)
        if not len(self.limits) == len(self.spent) == len(self._marks) / _BYTES:
            raise DamagedFile(f"account {name!r} is damaged: its columns differ in length")
        if ((self.spent < 0) | (self.spent > self.limits) | (self.limits > _MOST)).any():
            raise DamagedFile(f"account {name!r} is damaged: people have spent more than their limits")
        if get_note(connection, name, _SEAL) != _seal(found.spent):
            raise DamagedFile(f"account {name!r} is damaged: purses were changed after a charge (by a trigger?)")

    def find(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the places (k,) of people by name, in any form of it; -1 for people who have not joined."""
        import pyarrow.compute as pc

        places = pc.index_in(_as_array(self._digest(names)), _as_array(self._marks))
        return np.asarray(places.fill_null(-1), dtype=np.int64)

    def find_payers(self, names: Sequence[str], price: int) -> Any:
        """Return an Arrow table of the names of people who can pay a price, and their places."""
        import pyarrow as pa

        places = self.find(names)
        able = np.append(self.limits - self.spent, 0)[places] >= price
        return pa.table({NAME: pa.array(names, pa.string()).filter(pa.array(able)), OWNER: places[able]})

    def charge(self, times: ArrayLike, price: int) -> NDArray[np.bool_]:
        """Charge the people who can pay, and return who could, (m,): the others are not charged.

        Each pays `times` (m,) times a price in billionths. Charges add up (ProPer, sequential composition).
        """
        often = np.asarray(times, dtype=np.int64)
        if often.shape != self.limits.shape or (often < 0).any() or not 0 < price <= _MOST:
            raise ValueError("multipliers must be one for each person, none negative, and the price above 0")
        # By division, since a product might overflow.
        pays = np.asarray((often > 0) & (often <= (self.limits - self.spent) // price))
        self.spent = self.spent + np.where(pays, often, 0) * price
        self._write_spent()
        return pays

    def join(self, names: Sequence[str], limits: ArrayLike) -> None:
        """Open purses with limits (k,) of 0 to 10^18 billionths; known people keep theirs."""
        different: dict[str, int] = {}
        for name, limit in zip(map(_normalize, names), np.asarray(limits).tolist(), strict=True):
            different.setdefault(name, limit)
        different.pop("", None)
        fresh = [name for name, place in zip(different, self.find(list(different)), strict=True) if place < 0]
        self._marks += self._digest(fresh)
        self.limits = np.append(self.limits, np.array([different[name] for name in fresh], np.int64))
        self.spent = np.append(self.spent, np.zeros(len(fresh), np.int64))
        self._write(_PEOPLE, marks=self._marks, limits=self.limits.astype("<i8").tobytes())
        self._write_spent()

    def find_answer(self, key: str, request: dict[str, Any]) -> Any:
        """Return the answer under a key, None if the key is new; KeyReuseError if it was used for another request."""
        at = _ANSWERS.c.account == self._name, _ANSWERS.c.key == key
        found = self._connection.execute(select(_ANSWERS).where(*at)).first()
        if found is None:
            return None
        if found.request != request:
            raise KeyReuseError(f"key {key!r} was used for another question: take a new key")
        return found.answer

    def keep_answer(self, key: str, request: dict[str, Any], answer: Any) -> None:
        """Keep the answer to a request under a new key."""
        row = {"account": self._name, "key": key, "request": request, "answer": answer}
        self._connection.execute(insert(_ANSWERS), row)

    def _digest(self, names: Sequence[str]) -> bytes:
        """Return the keyed digests of names, one after another."""
        texts, key = (_normalize(name).encode() for name in names), self._secret
        return b"".join(hashlib.blake2b(text, key=key, digest_size=_BYTES).digest() for text in texts)

    def _write_spent(self) -> None:
        spent = self.spent.astype("<i8").tobytes()
        self._write(_SPENT, spent=spent)
        set_note(self._connection, self._name, _SEAL, _seal(spent))

    def _write(self, table: Table, **columns: bytes) -> None:
        self._connection.execute(update(table).where(table.c.account == self._name).values(columns))


def _normalize(name: str) -> str:
    """Return a text in the form that is compared (`normalize_name`), or "" if it is blank."""
    return unicodedata.normalize("NFC", name).strip()


def _seal(spent: bytes) -> str:
    return hashlib.blake2b(spent, digest_size=_BYTES).hexdigest()


def _as_array(marks: bytes) -> Any:
    """Return digests as an Arrow array."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(marks)]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(_BYTES), len(marks) // _BYTES, buffers)
