"""Durable budgets: what has been spent, in one SQLite file, in whole billionths, before any noise is drawn."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deltahist.budgets.nano import NANO
from deltahist.errors import DamagedFile, InputError

#: "dhLG": marks the file as a ledger.
_APPLICATION = 0x64684C47
VERSION = 1
#: Seconds to wait for another process's transaction.
_PATIENCE = 30.0
_TABLES = """
CREATE TABLE account (name TEXT PRIMARY KEY, rule TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE charge (account TEXT NOT NULL REFERENCES account, step INTEGER NOT NULL, nano INTEGER NOT NULL,
    PRIMARY KEY (account, step)) WITHOUT ROWID;
CREATE TABLE fact (account TEXT NOT NULL REFERENCES account, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (account, name)) WITHOUT ROWID;
"""


class Ledger:
    """One file of accounts; every change is one durable transaction.

    A charge is on the disk before `charge` returns (rollback journal, synchronous EXTRA), so that a process that
    is killed at any point has drawn no noise that is not charged. Two processes take turns. The file holds rules and
    the last charges of each account, not more: it does not grow.

    Parameters
    ----------
    path : the file; it is made, whole, if it does not exist.

    Raises
    ------
    InputError
        If the file is cut short, damaged, no ledger, or of a newer version. It is left as it is.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            self._create()
        self._check()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def account(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account under a rule (JSON), or make sure that it has just this one.

        Raises InputError that names what differs.
        """
        text = json.dumps(rule, sort_keys=True)
        with self.transaction() as change:
            found = change.execute("SELECT rule FROM account WHERE name = ?", (name,)).fetchone()
            if found is None:
                change.execute("INSERT INTO account VALUES (?, ?)", (name, text))
                return
        before, now = json.loads(found[0]), json.loads(text)
        if before != now:
            raise InputError(
                f"account {name!r} of {str(self.path)!r} was opened with other parameters: "
                f"{differences(before, now)}; go on with those, or take another ledger (what was published stays "
                "spent)"
            )

    def amend(self, name: str, part: str, more: dict[str, Any]) -> None:
        """Let a part of an account's rule say more than it did: accounts of earlier versions say less.

        What it says already stays.
        """
        with self.transaction() as change:
            row = change.execute("SELECT rule FROM account WHERE name = ?", (name,)).fetchone()
            rule = json.loads(row[0])
            rule[part] = more | rule[part]
            change.execute(
                "UPDATE account SET rule = ? WHERE name = ?", (json.dumps(rule, sort_keys=True), name)
            )

    def accounts(self) -> dict[str, dict[str, Any]]:
        """All accounts with their rules."""
        with self._connected() as found:
            return {name: json.loads(rule) for name, rule in found.execute("SELECT name, rule FROM account")}

    def charges(self, name: str) -> dict[int, int]:
        """Billionths charged at each step that is still kept."""
        with self._connected() as found:
            return dict(
                found.execute("SELECT step, nano FROM charge WHERE account = ? ORDER BY step", (name,))
            )

    def fact(self, name: str, key: str) -> Any:
        """Something else that was stored with an account; None if it was not."""
        with self._connected() as found:
            row = found.execute(
                "SELECT value FROM fact WHERE account = ? AND name = ?", (name, key)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def store(self, name: str, key: str, value: Any) -> None:
        """Store something else with an account."""
        with self.transaction() as change:
            change.execute("INSERT OR REPLACE INTO fact VALUES (?, ?, ?)", (name, key, json.dumps(value)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, alone: durable when the block ends, undone if it raises."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the ledger for a whole run; a second run is refused at once.

        The lock is a transaction on a file beside the ledger: it ends with the process, however that ends.

        Raises InputError if another process holds it.
        """
        connection = sqlite3.connect(f"{self.path}-lock", timeout=0.0, isolation_level=None)
        try:
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                raise InputError(
                    f"ledger {str(self.path)!r} is in use: another process publishes from it; wait until it ends"
                ) from None
            yield
        finally:
            connection.close()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each piece of work: nothing is shared with forks or threads."""
        if not self.path.exists():
            raise InputError(f"ledger {str(self.path)!r} is gone: nothing is published without it")
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
            finally:
                connection.close()
        except sqlite3.DatabaseError as problem:
            raise InputError(
                f"ledger {str(self.path)!r} cannot be used: {problem} (cut short, damaged, or held by another "
                "process?); nothing was charged"
            ) from None

    def _create(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise InputError(f"folder {str(folder)!r} of the ledger does not exist: make it first")
        handle, name = tempfile.mkstemp(prefix=".", suffix=".ledger", dir=folder)
        os.close(handle)
        try:
            connection = sqlite3.connect(name, isolation_level=None)
            connection.executescript(
                f"BEGIN; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION}; {_TABLES} COMMIT;"
            )
            connection.close()
            with open(name, "rb+") as file:
                os.fsync(file.fileno())
            # A link, unlike a renaming, never replaces a ledger that another process has just made.
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)
            sync_folder(folder)
        finally:
            os.unlink(name)

    def _check(self) -> None:
        """Refuse a file that is not a whole ledger, before anything is done with it."""
        what = f"ledger {str(self.path)!r}"
        if not self.path.is_file():
            raise InputError(f"{what} is no file")
        with self._connected() as found:
            application = found.execute("PRAGMA application_id").fetchone()[0]
            version = found.execute("PRAGMA user_version").fetchone()[0]
            if application != _APPLICATION:
                why = "it is empty (cut short?)" if self.path.stat().st_size == 0 else "it is something else"
                raise DamagedFile(f"{what} is no ledger: {why}; nothing was charged")
            if version > VERSION:
                raise InputError(
                    f"{what} is of version {version}: this program knows versions up to {VERSION}"
                )
            verdict = found.execute("PRAGMA quick_check").fetchone()[0]
            size = (
                found.execute("PRAGMA page_count").fetchone()[0]
                * found.execute("PRAGMA page_size").fetchone()[0]
            )
            for table in ("account", "charge", "fact"):
                found.execute(f"SELECT count(*) FROM {table}").fetchone()
        if verdict != "ok" or size != self.path.stat().st_size:
            detail = verdict if verdict != "ok" else f"{self.path.stat().st_size:,} bytes instead of {size:,}"
            raise DamagedFile(f"{what} is damaged or cut short: {detail}; nothing was charged")


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


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
