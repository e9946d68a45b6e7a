"""Tables of ledgers, the same in every database, and accounts as one transaction sees and changes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

#: Columns of the tables; SQLite calls all its whole numbers INTEGER.
TABLES = {
    "account": "name TEXT PRIMARY KEY, rule TEXT NOT NULL",
    "charge": "account TEXT REFERENCES account, step {whole}, nano {whole} NOT NULL, PRIMARY KEY (account, step)",
    "fact": "account TEXT REFERENCES account, name TEXT, value TEXT NOT NULL, PRIMARY KEY (account, name)",
    "answer": "account TEXT, key TEXT, request TEXT NOT NULL, answer TEXT NOT NULL, PRIMARY KEY (account, key)",
    "entry": (
        "account TEXT, number {whole}, kind TEXT NOT NULL, nano {whole} NOT NULL, data {bytes} NOT NULL,"
        " PRIMARY KEY (account, number)"
    ),
}
#: Tables of what belongs to accounts.
OWNED = [table for table in TABLES if table != "account"]

# ---------------------------------------------------------------------------------- statements

_RULES = text("SELECT name, rule FROM account")
_RULE = text("SELECT rule FROM account WHERE name = :of")
_OPEN = text("INSERT INTO account VALUES (:of, :rule)")
_CLOSE = [
    *(text(f"DELETE FROM {table} WHERE account = :of") for table in OWNED),
    text("DELETE FROM account WHERE name = :of"),
]
_OWNERS = {table: text(f"SELECT DISTINCT account FROM {table}") for table in OWNED}
_CHARGES = text("SELECT step, nano FROM charge WHERE account = :of ORDER BY step")
_CHARGE = text(
    "INSERT INTO charge VALUES (:of, :at, :nano)"
    " ON CONFLICT (account, step) DO UPDATE SET nano = charge.nano + excluded.nano"
)
_FORGET = text("DELETE FROM charge WHERE account = :of AND step <= :at")
_FACT = text("SELECT value FROM fact WHERE account = :of AND name = :key")
_FACTS = text("SELECT name, value FROM fact WHERE account = :of AND name LIKE :key")
_STORE = text(
    "INSERT INTO fact VALUES (:of, :key, :value)"
    " ON CONFLICT (account, name) DO UPDATE SET value = excluded.value"
)
_ANSWER = text("SELECT request, answer FROM answer WHERE account = :of AND key = :key")
_KEEP = text("INSERT INTO answer VALUES (:of, :key, :request, :answer)")
_REQUESTS = text("SELECT request FROM answer WHERE account = :of")
_ENTRIES = text("SELECT number, kind, nano, data FROM entry WHERE account = :of AND number > :at ORDER BY number")
_ENTER = text("INSERT INTO entry VALUES (:of, :number, :kind, :nano, :data)")
_SAVEPOINT, _UNDO = text("SAVEPOINT request"), text("ROLLBACK TO SAVEPOINT request")
_MARK, _TAKE_MARK = text("SAVEPOINT whole"), text("RELEASE SAVEPOINT whole")
_DROP = text("DELETE FROM entry WHERE account = :of AND number <= :at")


class Entry(NamedTuple):
    """An entry of an account's log: kind, billionths, and bytes that its writer alone reads."""

    number: int
    kind: str
    nano: int
    data: bytes


class LostTransactionError(Exception):
    """A transaction that is over before its end, or in which a statement has failed."""


class Accounts:
    """The accounts of a ledger, as one transaction sees and changes them.

    Rules, facts, requests and answers are JSON; charges are whole billionths.

    Attributes
    ----------
    is_last : whether no other change may share the transaction from now on, since something outside of the ledger
        relies on its commit.
    on_failure : called if the transaction comes to nothing, to forget what was read in it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_last = False
        self.on_failure: list[Callable[[], None]] = []
        # Whoever changes them is alone, so that what was read stays true.
        self._rules: dict[str, str | None] = {}
        self._charges: dict[str, dict[int, int]] = {}
        self._answers: dict[tuple[str, str], tuple[str, str] | None] = {}
        # Changes that cannot fail by themselves are written together; those of the part that is going on come last.
        self._unwritten: list[tuple[Any, dict[str, Any]]] = []
        self._first, self._saved = 0, False
        self._marked, self._failed = False, False

    def begin(self) -> None:
        """Begin a part of the transaction that can be undone by itself."""
        self._first, self._saved = len(self._unwritten), False
        if not self._marked:
            self._marked = True
            self._execute(_MARK)

    def undo(self) -> None:
        """Undo what was changed in the part that is going on; whatever is raised, nothing may be committed then."""
        changed = self._saved or len(self._unwritten) > self._first
        if self._saved:
            # It is there as long as the transaction is, and what has failed lies behind it.
            self._failed = False
            self._execute(_UNDO)
        del self._unwritten[self._first :]
        self.check()
        if changed:
            for known in (self._rules, self._charges, self._answers):
                known.clear()

    def check(self) -> None:
        """Write changes that wait to be written; whatever is raised, nothing may be committed then."""
        self._write()
        # One that has failed, or a new one, would be committed without a word, and without its changes.
        self._execute(_TAKE_MARK)
        self._execute(_MARK)

    def _write(self) -> None:
        earlier, own = self._unwritten[: self._first], self._unwritten[self._first :]
        if earlier:
            self._send(earlier)
        self._unwritten, self._first = own, 0
        if own:
            self._save()
            self._unwritten = []
            self._send(own)

    def _send(self, changes: list[tuple[Any, dict[str, Any]]]) -> None:
        charged: dict[tuple[str, int], int] = {}
        for statement, values in changes:
            if statement is _CHARGE:
                place = values["of"], values["at"]
                charged[place] = charged.get(place, 0) + values["nano"]
        if charged:
            sums = [{"of": name, "at": step, "nano": nano} for (name, step), nano in charged.items()]
            self._execute(_CHARGE, sums)
        kept = [values for statement, values in changes if statement is _KEEP]
        if kept:
            self._execute(_KEEP, kept)

    def _execute(self, statement: Any, values: Any = None) -> Any:
        """Execute a statement in the transaction, and never after one that failed or in a transaction of its own."""
        if not self._failed:
            driver = self._connection.connection.driver_connection
            # Without memory or disk, SQLite gives up the transaction, and would make what comes next durable by itself.
            self._failed = isinstance(driver, sqlite3.Connection) and not driver.in_transaction
        if self._failed:
            raise LostTransactionError("its transaction broke off")
        self._failed = True  # until it has succeeded
        found = self._connection.execute(statement, values)
        self._failed = False
        return found

    def _save(self) -> None:
        if not self._saved:
            self._execute(_SAVEPOINT)
            self._saved = True

    def _read(self, statement: Any, of: str, **values: Any) -> Any:
        self._write()
        return self._execute(statement, {"of": of, **values})

    def _change(self, statement: Any, of: str, **values: Any) -> None:
        self._write()
        self._save()
        self._execute(statement, {"of": of, **values})

    def rules(self) -> dict[str, Any]:
        """Return the rule of every account, in the order of names."""
        return {name: json.loads(rule) for name, rule in sorted(map(tuple, self._execute(_RULES)))}

    def rule(self, name: str) -> Any:
        """Return the rule of an account; None if there is no such account."""
        if name not in self._rules:
            self._rules[name] = self._execute(_RULE, {"of": name}).scalar()
        found = self._rules[name]
        return None if found is None else json.loads(found)

    def open(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account that is not there yet."""
        self._rules.pop(name, None)
        self._change(_OPEN, name, rule=json.dumps(rule, sort_keys=True))

    def close(self, name: str) -> None:
        """Forget an account altogether: for one that nothing was charged to."""
        self._rules.pop(name, None)
        self._charges.pop(name, None)
        for known in [key for key in self._answers if key[0] == name]:
            del self._answers[known]
        for statement in _CLOSE:
            self._change(statement, name)

    def owners(self) -> dict[str, set[str]]:
        """Return the accounts that each table has rows of, whether they are there or not."""
        self._write()
        return {table: set(self._execute(statement).scalars()) for table, statement in _OWNERS.items()}

    def charges(self, name: str) -> dict[int, int]:
        """Return the billionths charged at each step that is still kept, in the order of steps."""
        if name not in self._charges:
            self._charges[name] = dict(map(tuple, self._read(_CHARGES, name)))
        return dict(sorted(self._charges[name].items()))

    def charge(self, name: str, step: int, nano: int) -> None:
        """Add billionths to the amount charged at a step."""
        known = self._charges.get(name)
        if known is None or self._rules.get(name) is None:
            self._charges.pop(name, None)
            self._change(_CHARGE, name, at=step, nano=nano)
        else:
            self._unwritten.append((_CHARGE, {"of": name, "at": step, "nano": nano}))
            known[step] = known.get(step, 0) + nano

    def forget(self, name: str, step: int) -> None:
        """Keep the charges after a step only."""
        self._charges.pop(name, None)
        self._change(_FORGET, name, at=step)

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        found = self._read(_FACT, name, key=key).scalar()
        return None if found is None else json.loads(found)

    def facts(self, name: str, start: str) -> dict[str, Any]:
        """Return the values stored with an account under keys that start with a text (of letters and spaces)."""
        return {key: json.loads(value) for key, value in self._read(_FACTS, name, key=f"{start}%")}

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value with an account, in the place of an earlier one."""
        self._change(_STORE, name, key=key, value=json.dumps(value))

    def find_answer(self, name: str, key: str) -> tuple[Any, Any] | None:
        """Return the request that was made under a key, and its answer; None if there was none."""
        if (name, key) not in self._answers:
            found = self._execute(_ANSWER, {"of": name, "key": key}).first()
            self._answers[name, key] = None if found is None else (found.request, found.answer)
        known = self._answers[name, key]
        return None if known is None else (json.loads(known[0]), json.loads(known[1]))

    def keep_answer(self, name: str, key: str, request: Any, answer: Any) -> None:
        """Keep the answer to a request under a key that was not used yet."""
        values = {"key": key, "request": json.dumps(request, sort_keys=True), "answer": json.dumps(answer)}
        if self._answers.get((name, key), "not looked for") is None:
            self._unwritten.append((_KEEP, {"of": name, **values}))
            self._answers[name, key] = values["request"], values["answer"]
        else:
            self._change(_KEEP, name, **values)

    def requests(self, name: str) -> Iterator[Any]:
        """Return all requests of an account that were answered under a key."""
        return map(json.loads, self._read(_REQUESTS, name).scalars())

    def entries(self, name: str, after: int = -1) -> list[Entry]:
        """Return the entries after a number, in order."""
        return [Entry(*row) for row in self._read(_ENTRIES, name, at=after)]

    def enter(self, name: str, entry: Entry) -> None:
        """Keep an entry under a number that was not used yet."""
        self._change(_ENTER, name, **entry._asdict())

    def drop_entries(self, name: str, upto: int) -> None:
        """Forget entries up to a number."""
        self._change(_DROP, name, at=upto)
