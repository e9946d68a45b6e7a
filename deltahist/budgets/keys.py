"""Requests under keys: who asks again, the same under the same key, is answered the same and charged once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltahist.budgets.costs import ATTO, Cost
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.budgets.accounts import Accounts

_LONGEST = 200


def check_text(**given: Any) -> str:
    """The one keyword's value, if it is a text of 1 to 200 printable characters; InputError otherwise.

    >>> check_text(key="map of May")
    'map of May'
    """
    ((name, value),) = given.items()
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST or not value.isprintable():
        shown = repr(value) if len(repr(value)) < 80 else repr(value)[:77] + "..."
        raise InputError(f"{name} is {shown}: it must be a text of 1 to {_LONGEST} printable characters")
    return value


@dataclass(frozen=True)
class KeyedRequest:
    """What is asked of an account: its cost, whether an answer is drawn for it, and the words of who asks (JSON)."""

    account: str
    key: str
    cost: Cost
    drawn: bool
    words: Any = None

    @property
    def kept(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        failing = {"probability_atto": self.cost.atto} if self.cost.atto else {}
        return {"amount_nano": self.cost.nano, **failing, "drawn": self.drawn, "request": self.words}

    def answered(self, accounts: Accounts) -> tuple[Any] | None:
        """What was answered under the key; None if it is new.

        Raises InputError if the key was used for another request.
        """
        found = accounts.answered(self.account, self.key)
        if found is None:
            return None
        before, answer = found
        if _text(before) != _text(self.kept):
            raise InputError(
                f"key {self.key!r} of account {self.account!r} was used for another request: "
                f"{differences(before, json.loads(_text(self.kept)))}; nothing was charged; take a new key for a new "
                "question"
            )
        return (answer,)

    def keep(self, accounts: Accounts, answer: Any) -> None:
        """Keep the answer under the key."""
        accounts.keep_answer(self.account, self.key, self.kept, answer)


def as_json(value: Any, what: str) -> Any:
    """A value as it comes back from JSON; InputError unless it can be written as such.

    >>> as_json({"cells": (1, 2)}, "request")
    {'cells': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{what} cannot be kept: {problem}; it must be JSON (numbers of Python, texts, lists, dictionaries)"
        ) from None


def _text(value: Any) -> str:
    """Texts are compared: in Python 1, 1.0 and True are equal."""
    return json.dumps(value, sort_keys=True)


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """Where two rules or requests differ, for people."""
    out = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if _text(old) != _text(new):
                out.append(differences(old, new, f"{prefix}{key}."))
        elif _text(old) != _text(new):
            name = prefix + key.removesuffix("_nano").removesuffix("_atto")
            out.append(f"{name} was {_shown(key, old)}, is {_shown(key, new)}")
    return ", ".join(out)


def _shown(key: str, value: Any) -> str:
    scale = {"_nano": NANO, "_atto": ATTO}.get(key[-5:])
    text = f"{value / scale:.9g}" if scale and isinstance(value, int) else json.dumps(value)
    return text if len(text) < 80 else text[:77] + "..."
