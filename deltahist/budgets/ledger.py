"""Durable budgets: what has been spent, in whole billionths, before any noise is drawn."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.budgets.databases import database
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.budgets.accounts import Accounts


class Ledger:
    """All accounts in one place; every change is one durable transaction.

    A charge is on the disk before the transaction ends (SQLite: rollback journal, synchronous EXTRA; PostgreSQL:
    synchronous_commit), so that a process that is killed at any point has shown no noise that is not charged. Processes
    and threads take turns. It holds rules and the last charges of each account, and answers that were asked for with a
    key.

    Parameters
    ----------
    where : a file (a path, or "sqlite:///city.ledger"), or a database, "postgresql://user:password@host/database",
        in which the ledger has a schema `deltahist` of its own (extra "postgresql"). It is made, whole, if it does not
        exist.

    Raises
    ------
    DamagedFile
        If the file is cut short, damaged, or no ledger. It is left as it is.
    InputError
        If it is of a newer version, or cannot be used: its folder or server does not exist, another process holds it.
    """

    def __init__(self, where: str | Path) -> None:
        self._database = database(where)
        if not self._database.exists():
            self._database.create()
        self._database.check()

    def __repr__(self) -> str:
        return f"Ledger({self.place!r})"

    @classmethod
    def exists(cls, where: str | Path) -> bool:
        """Whether there is a ledger at a path or URL; none is made."""
        return database(where).exists()

    @property
    def path(self) -> Path | None:
        """Its file; None if it is in a database of a server."""
        return self._database.path

    @property
    def place(self) -> str:
        """Its path or URL, for people: without a password."""
        return self._database.place

    def account(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account under a rule (JSON), or make sure that it has just this one.

        Raises InputError that names what differs.
        """
        with self.transaction() as change:
            before = change.rule(name)
            if before is None:
                change.open(name, rule)
                return
        now = json.loads(json.dumps(rule))
        if before != now:
            raise InputError(
                f"account {name!r} of {self.place!r} was opened with other parameters: "
                f"{differences(before, now)}; go on with those, or take another ledger (what was published stays "
                "spent)"
            )

    def amend(self, name: str, part: str, more: dict[str, Any]) -> None:
        """Let a part of an account's rule say more than it did: accounts of earlier versions say less.

        What it says already stays.
        """
        with self.transaction() as change:
            rule = change.rule(name)
            change.amend(name, rule | {part: more | rule[part]})

    def withdraw(self, name: str) -> None:
        """Close an account if nothing was charged to it, and discard a ledger that then holds nothing.

        Other accounts may have come meanwhile: they stay. One that is being opened at this very moment has charged
        nothing, and finds no ledger when it wants to.
        """
        with self.transaction() as change:
            if change.charges(name):
                return
            change.close(name)
            if not change.rules():
                self._database.discard()

    def accounts(self) -> dict[str, dict[str, Any]]:
        """All accounts with their rules."""
        with self._database.read() as found:
            return found.rules()

    def charges(self, name: str) -> dict[int, int]:
        """Billionths charged at each step that is still kept."""
        with self._database.read() as found:
            return found.charges(name)

    def fact(self, name: str, key: str) -> Any:
        """Something else that was stored with an account; None if it was not."""
        with self._database.read() as found:
            return found.fact(name, key)

    def store(self, name: str, key: str, value: Any) -> None:
        """Store something else with an account."""
        with self.transaction() as change:
            change.store(name, key, value)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Accounts]:
        """All or nothing, alone: durable when the block ends, undone if it raises."""
        mine = (os.getpid(), self.place)
        if mine in _within():
            raise InputError(
                f"a transaction of {self.place!r} is open in this thread already, for which this one would wait for "
                "ever: nothing was charged by it; ask the ledger before or after, not from within (or from a `draw`)"
            )
        with self._database.change() as accounts:
            _within().add(mine)
            try:
                yield accounts
            finally:
                _within().discard(mine)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the ledger for a whole run; a second run is refused at once.

        Raises InputError if another process holds it.
        """
        with self._database.alone():
            yield


_THREAD = threading.local()


def _within() -> set[tuple[int, str]]:
    """Ledgers that this thread is changing; a process that forks off within a change has no part in it."""
    if not hasattr(_THREAD, "within"):
        _THREAD.within = set()
    found: set[tuple[int, str]] = _THREAD.within
    return found


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """Where two rules differ, for people."""
    out = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if old != new:
                out.append(differences(old, new, f"{prefix}{key}."))
        elif old != new:
            name = prefix + key.removesuffix("_nano")
            out.append(f"{name} was {_shown(key, old)}, is {_shown(key, new)}")
    return ", ".join(out)


def _shown(key: str, value: Any) -> str:
    text = f"{value / NANO:.9g}" if key.endswith("_nano") and isinstance(value, int) else json.dumps(value)
    return text if len(text) < 80 else text[:77] + "..."
