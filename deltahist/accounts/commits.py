"""Durable commits that threads of a process share: each change is whole by itself, and none ends before the commit.

Threads take turns within one transaction, each behind a savepoint. Whoever finds nobody in line when the turn ends
commits for all, and until then none of them goes on. So many changes cost one wait for the disk, and a change that
fails is undone by itself (docs/privacy/commits.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from deltahist.accounts import databases
from deltahist.accounts.databases import PostgreSQLSchema, SQLite
from deltahist.accounts.tables import Accounts
from deltahist.errors import InputError

#: Seconds after which a group commits, however many stand in line: none of them waits for much longer than that.
_LONGEST = 0.05
#: Of this process, and of those that it was forked off from, whose groups stay theirs.
_SHARED: dict[tuple[int, Any], SharedCommits] = {}


def shared_commits(database: SQLite | PostgreSQLSchema) -> SharedCommits:
    """Return the changes that all threads of this process make of one database."""
    key = (os.getpid(), database.key)
    if key not in _SHARED:
        # Another thread may have been faster: one of the two stays.
        _SHARED.setdefault(key, SharedCommits(database))
    return _SHARED[key]


class _Group:
    """Changes that one transaction makes durable together; it is open.

    Attributes
    ----------
    accounts : as the transaction sees them. ended : whether it is over. problem : why it is not durable, if so.
    """

    def __init__(self, database: SQLite | PostgreSQLSchema) -> None:
        self._database = database
        self._transaction = database.begin(change=True)
        self.accounts = Accounts(self._transaction.__enter__())
        self.problem: InputError | None = None
        self.ended = False
        self._begun = time.monotonic()

    @property
    def is_full(self) -> bool:
        """Whether nobody else may join."""
        late = time.monotonic() - self._begun > _LONGEST
        return late or self.accounts.is_last or self.problem is not None

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Undo the changes of the block, and no others, if the block raises."""
        with self._database.translate_problems():
            self.accounts.begin()
            try:
                yield
            except BaseException:
                # Why the block ended is told, not that it could not be undone.
                with contextlib.suppress(Exception):
                    self._try(self.accounts.undo)
                raise

    def _try(self, step: Callable[[], None]) -> None:
        """Run a step without which changes cannot be told apart: if it fails, all of them come to nothing."""
        try:
            step()
        except BaseException:
            self.problem = InputError(
                f"ledger {self._database.place!r} cannot be used: the connection broke in a change that was to share a "
                "commit with this one; nothing was charged"
            )
            raise

    def end(self) -> None:
        """Commit, or find out that it cannot be; whoever relied on the changes is told then."""
        try:
            if self.problem is None:
                with self._database.translate_problems():
                    self.accounts.check()
                self._transaction.__exit__(None, None, None)
        except InputError as problem:
            self.problem = problem
        except BaseException:
            self.problem = InputError(
                f"a commit to ledger {self._database.place!r} was interrupted: whether it was charged is not known, "
                "and nothing is handed out: ask again with the same key, which charges once"
            )
            raise
        finally:
            if self.problem is not None:
                # It is over, whatever the connection still says.
                with contextlib.suppress(Exception):
                    self._transaction.__exit__(type(self.problem), self.problem, None)
                for forget in self.accounts.on_failure:
                    forget()
            self.ended = True

    def check(self) -> None:
        """Raise an error of this thread's own if the changes are not durable."""
        if self.problem is not None:
            raise type(self.problem)(str(self.problem))


class SharedCommits:
    """Changes of one database by the threads of a process.

    Parameters
    ----------
    database : of the ledger.
    """

    def __init__(self, database: SQLite | PostgreSQLSchema) -> None:
        self._database = database
        mutex = threading.Lock()
        self._turns, self._ends = threading.Condition(mutex), threading.Condition(mutex)
        self._owner: int | None = None  # the thread that changes or commits
        self._waiting = 0
        self._group: _Group | None = None

    @contextlib.contextmanager
    def change(self) -> Iterator[Accounts]:
        """Change accounts, all or nothing and alone: durable when the block ends, undone if it raises.

        Raises InputError if the database cannot be used, this thread has begun a change already, or others take too
        long.
        """
        self._take_turn()
        try:
            group = self._group = self._group or _Group(self._database)
        except BaseException:
            self._pass_turn()
            raise
        try:
            with group.request():
                yield group.accounts
        except BaseException:
            # What was refused may depend on changes of others: it is not told before these are durable.
            self._end_turn(group)
            raise
        self._end_turn(group)
        group.check()

    def _take_turn(self) -> None:
        if self._owner == threading.get_ident():
            raise InputError(
                f"a transaction of {self._database.place!r} is open in this thread already, for which this one would "
                "wait for ever: nothing was charged by it; ask the ledger before or after, not from within (or from a "
                "`draw`)"
            )
        with self._turns:
            self._waiting += 1
            try:
                if not self._turns.wait_for(lambda: self._owner is None, databases.PATIENCE):
                    raise InputError(
                        f"ledger {self._database.place!r} cannot be used: other threads hold it for more than "
                        f"{databases.PATIENCE:g} seconds; nothing was charged"
                    )
                self._owner = threading.get_ident()
            finally:
                self._waiting -= 1
                if self._owner != threading.get_ident():
                    self._call_next()

    def _pass_turn(self) -> None:
        with self._turns:
            self._owner = None
            self._call_next()

    def _call_next(self) -> None:
        """Wake who is next in line, or one of those who wait for a commit."""
        if self._owner is None:
            (self._turns if self._waiting else self._ends).notify()

    def _end_turn(self, group: _Group) -> None:
        """Wait until the changes of a group are durable, or make them so if nobody else stands in line."""
        with self._turns:
            if self._waiting and not group.is_full:
                self._owner = None
                self._turns.notify()
                try:
                    # Whoever was called may have given up meanwhile.
                    self._ends.wait_for(lambda: group.ended or (self._owner is None and not self._waiting))
                except BaseException:
                    self._call_next()
                    raise
                if group.ended:
                    return
                self._owner = threading.get_ident()
        try:
            group.end()
        finally:
            with self._turns:
                self._group = self._owner = None
                self._ends.notify_all()
                self._call_next()
