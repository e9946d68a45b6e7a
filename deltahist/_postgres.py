"""Settings that a transaction in PostgreSQL relies on: set at its beginning, and checked.

A server, a role or a connection pooler may have others, under which text constants and dates are read differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltahist.errors import InputError

#: As the server reports them.
_RELIED_ON = {
    "standard_conforming_strings": "on",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "transform_null_equals": "off",
}

#: Runs a statement with %(name)s for parameters, and gives its one row.
Run = Callable[[str, Mapping[str, Any]], Any]


def settle(
    run: Run,
    where: str,
    own: Mapping[str, str],
    isolation: str | None = None,
    *,
    timeouts: Mapping[str, str] | None = None,
) -> None:
    """Set what a transaction relies on, for the transaction, or for the session where there is none.

    Raises InputError if the server goes on with other settings.

    Parameters
    ----------
    run : within the transaction, before anything else.
    where : the database, for messages.
    own : further settings. timeouts : others, which the server says back in other units.
    isolation : of the transaction; None for a session without transactions.
    """
    wanted = {**_RELIED_ON, **own}
    given = {**wanted, **(timeouts or {})}
    values: dict[str, Any] = {"local": isolation is not None}
    for at, (name, value) in enumerate(given.items()):
        values |= {f"name{at}": name, f"value{at}": value}
    parts = [f"pg_catalog.set_config(%(name{at})s, %(value{at})s, %(local)s)" for at in range(len(given))]
    run(f"SELECT {', '.join(parts)}", values)
    if isolation is not None:
        wanted["transaction_isolation"] = isolation
    # A statement of its own: set_config returns the value that it was given, whatever the next statement finds.
    asked = ", ".join(f"pg_catalog.current_setting(%(name{at})s)" for at in range(len(wanted)))
    found = run(f"SELECT {asked}", {f"name{at}": name for at, name in enumerate(wanted)})
    for (name, value), there in zip(wanted.items(), found, strict=True):
        if there != value:
            raise InputError(f"{where} has {name} = {there!r}: it must be {value!r} (connect without a pooler)")


def own_schemas(run: Run) -> str:
    """Return the search path without the system's schemas: they come first then, and no function hides theirs."""
    (schemas,) = run("SELECT pg_catalog.current_schemas(false)", {})
    own = (name for name in schemas if not name.startswith("pg_"))
    return ", ".join('"' + name.replace('"', '""') + '"' for name in own)
