"""Tables that people's budgets have in a ledger, beside its accounts: logs of purses, facts, and kept answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
)

from deltahist.accounts.ledger import differences, find_account, find_rule, get_note, set_note
from deltahist.errors import InputError

METADATA = MetaData()
_NUMBER = Column("number", BigInteger, primary_key=True, autoincrement=False)
ENTRIES = Table(
    "purse_entries",
    METADATA,
    Column("account", Text, primary_key=True),
    _NUMBER,
    Column("kind", Text, nullable=False),
    Column("nano", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
ANSWERS = Table(
    "kept_answers",
    METADATA,
    Column("account", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", JSON, nullable=False),
    Column("answer", JSON, nullable=False),
)


class Entry(NamedTuple):
    """An entry of an account's log: kind, billionths, and bytes that its writer alone reads."""

    number: int
    kind: str
    nano: int
    data: bytes


class Accounts:
    """What belongs to accounts of people, within one transaction of their ledger."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        if not inspect(connection).has_table(ENTRIES.name):
            METADATA.create_all(connection)

    def rule(self, name: str) -> dict[str, Any] | None:
        """Return the rule of an account; None if there is no such account."""
        return find_rule(self.connection, name)

    def entries(self, name: str, after: int = -1) -> list[Entry]:
        """Return the entries after a number, in order."""
        chosen = select(*list(ENTRIES.c)[1:]).where(ENTRIES.c.account == name, ENTRIES.c.number > after)
        return [Entry(*row) for row in self.connection.execute(chosen.order_by(ENTRIES.c.number))]

    def enter(self, name: str, entry: Entry) -> None:
        """Keep an entry under a number that was not used yet."""
        self.connection.execute(insert(ENTRIES), {"account": name, **entry._asdict()})

    def drop_entries(self, name: str, upto: int) -> None:
        """Forget entries up to a number."""
        self.connection.execute(delete(ENTRIES).where(ENTRIES.c.account == name, ENTRIES.c.number <= upto))

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        return get_note(self.connection, name, key)

    def facts(self, name: str, start: str) -> dict[str, Any]:
        """Return the values stored with an account under keys that start with a text."""
        return {key: value for key, value in find_account(self.connection, name).notes.items() if key.startswith(start)}

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value with an account, in the place of an earlier one."""
        set_note(self.connection, name, key, value)


class KeyReuseError(InputError):
    """A key that was used for another request."""


@dataclass(frozen=True)
class KeyedRequest:
    """A request to an account under a key: the same request under the same key is answered and charged once.

    The description (JSON) is kept with the answer: the cost, and the words of who asks.
    """

    account: str
    key: str
    description: dict[str, Any]

    def find_answer(self, accounts: Accounts) -> tuple[Any] | None:
        """Return the answer that is kept under the key; None if the key is new.

        Raises KeyReuseError if the key was used for another request.
        """
        chosen = select(ANSWERS).where(ANSWERS.c.account == self.account, ANSWERS.c.key == self.key)
        found = accounts.connection.execute(chosen).first()
        if found is None:
            return None
        if differing := differences(found.request, json.loads(json.dumps(self.description))):
            raise KeyReuseError(
                f"key {self.key!r} of account {self.account!r} was used for another request: {differing}; nothing was "
                "charged"
            )
        return (found.answer,)

    def keep(self, accounts: Accounts, answer: Any) -> None:
        """Keep the answer under the key."""
        row = {"account": self.account, "key": self.key, "request": self.description, "answer": answer}
        accounts.connection.execute(insert(ANSWERS), row)
