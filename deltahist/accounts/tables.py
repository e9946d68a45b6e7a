"""Tables of ledgers, the same in every database, and accounts as one transaction sees and changes them."""

from __future__ import annotations

import json
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
_DROP = text("DELETE FROM entry WHERE account = :of AND number <= :at")


class Entry(NamedTuple):
    """An entry of an account's log: kind, billionths, and bytes that its writer alone reads."""

    number: int
    kind: str
    nano: int
    data: bytes


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

    def savepoint(self) -> None:
        """Begin a part of the transaction that can be undone by itself."""
        self._connection.execute(_SAVEPOINT)

    def undo(self) -> None:
        """Undo what was changed since the savepoint."""
        self._rules.clear()
        self._charges.clear()
        self._connection.execute(_UNDO)

    def _run(self, statement: Any, of: str, **values: Any) -> Any:
        return self._connection.execute(statement, {"of": of, **values})

    def rules(self) -> dict[str, Any]:
        """Return the rule of every account, in the order of names."""
        return {name: json.loads(rule) for name, rule in sorted(map(tuple, self._connection.execute(_RULES)))}

    def rule(self, name: str) -> Any:
        """Return the rule of an account; None if there is no such account."""
        if name not in self._rules:
            self._rules[name] = self._run(_RULE, name).scalar()
        found = self._rules[name]
        return None if found is None else json.loads(found)

    def open(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account that is not there yet."""
        self._rules.pop(name, None)
        self._run(_OPEN, name, rule=json.dumps(rule, sort_keys=True))

    def close(self, name: str) -> None:
        """Forget an account altogether: for one that nothing was charged to."""
        self._rules.pop(name, None)
        self._charges.pop(name, None)
        for statement in _CLOSE:
            self._run(statement, name)

    def owners(self) -> dict[str, set[str]]:
        """Return the accounts that each table has rows of, whether they are there or not."""
        return {table: set(self._connection.scalars(statement)) for table, statement in _OWNERS.items()}

    def charges(self, name: str) -> dict[int, int]:
        """Return the billionths charged at each step that is still kept, in the order of steps."""
        if name not in self._charges:
            self._charges[name] = dict(map(tuple, self._run(_CHARGES, name)))
        return dict(sorted(self._charges[name].items()))

    def charge(self, name: str, step: int, nano: int) -> None:
        """Add billionths to the amount charged at a step."""
        self._run(_CHARGE, name, at=step, nano=nano)
        if name in self._charges:
            self._charges[name][step] = self._charges[name].get(step, 0) + nano

    def forget(self, name: str, step: int) -> None:
        """Keep the charges after a step only."""
        self._charges.pop(name, None)
        self._run(_FORGET, name, at=step)

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        found = self._run(_FACT, name, key=key).scalar()
        return None if found is None else json.loads(found)

    def facts(self, name: str, start: str) -> dict[str, Any]:
        """Return the values stored with an account under keys that start with a text (of letters and spaces)."""
        return {key: json.loads(value) for key, value in self._run(_FACTS, name, key=f"{start}%")}

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value with an account, in the place of an earlier one."""
        self._run(_STORE, name, key=key, value=json.dumps(value))

    def find_answer(self, name: str, key: str) -> tuple[Any, Any] | None:
        """Return the request that was made under a key, and its answer; None if there was none."""
        found = self._run(_ANSWER, name, key=key).first()
        return None if found is None else (json.loads(found.request), json.loads(found.answer))

    def keep_answer(self, name: str, key: str, request: Any, answer: Any) -> None:
        """Keep the answer to a request under a key that was not used yet."""
        self._run(_KEEP, name, key=key, request=json.dumps(request, sort_keys=True), answer=json.dumps(answer))

    def requests(self, name: str) -> Iterator[Any]:
        """Return all requests of an account that were answered under a key."""
        return map(json.loads, self._run(_REQUESTS, name).scalars())

    def entries(self, name: str, after: int = -1) -> list[Entry]:
        """Return the entries after a number, in order."""
        return [Entry(*row) for row in self._run(_ENTRIES, name, at=after)]

    def enter(self, name: str, entry: Entry) -> None:
        """Keep an entry under a number that was not used yet."""
        self._run(_ENTER, name, **entry._asdict())

    def drop_entries(self, name: str, upto: int) -> None:
        """Forget entries up to a number."""
        self._run(_DROP, name, at=upto)
