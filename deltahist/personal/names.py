"""Names of people in one normal form: a person comes by the same name from every frame, table and database."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from operator import index
from typing import Any
from uuid import UUID

import numpy as np

from deltahist.errors import InputError


def owners_named(owners: Any) -> list[str]:
    """Return the names of owners, none of them missing, in the form in which databases have them.

    A text is its own name, a whole number its decimal digits, and a UUID its lower-case form with hyphens.

    Parameters
    ----------
    owners : pandas series, NumPy array or index.

    Raises
    ------
    InputError
        On anything else, or a text that is no name. Decimal("1"), 1.0, True and b"1" would be other persons than 1.

    >>> owners_named(np.array([7, 8]))
    ['7', '8']
    """
    # Arrays of NumPy that are no objects would give times as whole numbers.
    listed = list(owners) if getattr(owners.dtype, "kind", "") in "mM" else owners.tolist()
    for kind in dict.fromkeys(map(type, listed)):
        if not issubclass(kind, str | Integral | UUID) or issubclass(kind, bool | np.timedelta64):
            wrong = next(owner for owner in listed if type(owner) is kind)
            raise InputError(
                f"an owner is {wrong!r}, of type {kind.__name__}: it must be text, a whole number or a UUID, since one "
                "person would be two by two ways of writing; turn the column into one of these first "
                '(astype("Int64"), or the text that names the person everywhere)'
            )
    return names_of(map(_name, listed), "an owner")


def names_of(names: Iterable[Any], who: str = "a person") -> list[str]:
    """Return one name or several as a list; InputError on what is no text, is empty, or does not fit a database."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputError(f"{who} is called {name!r}: names are texts that are not empty")
    try:
        "".join(listed).encode()
    except UnicodeEncodeError:
        wrong = next(name for name in listed if any("\ud800" <= letter <= "\udfff" for letter in name))
        raise InputError(f"{who} is called {wrong!r}: it holds half a letter (damaged text?)") from None
    return listed


def all_different(names: list[str]) -> list[str]:
    """Return names of which each is there once; InputError otherwise."""
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} is named twice: each person joins once")
    return names


def _name(owner: Any) -> str:
    # Kinds of texts and numbers that print otherwise, as those of an Enum do, are what they are.
    if isinstance(owner, str):
        return str.__str__(owner)
    return str(owner if isinstance(owner, UUID) else index(owner))
