"""Set and check the PostgreSQL settings that transactions rely on.

If a server, role or connection pooler changed these settings, PostgreSQL would read strings and dates differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltahist.errors import InputError

#: A function that runs a statement with %(name)s parameters and returns its only row.
Run = Callable[[str, Mapping[str, Any]], Any]


def apply_settings(
    run: Run, what: str, own: Mapping[str, str], isolation: str | None = None, timeouts: Mapping[str, str] | None = None
) -> None:
    """Apply settings before the first statement of a transaction, or of a session if `isolation` is None.

    `own` contains additional settings. `timeouts` are not checked, because the server reports them in other units.
    Raises InputError, which names `what`, if the server keeps different values.
    """
    wanted = {
        "standard_conforming_strings": "on",
        "client_encoding": "UTF8",
        "DateStyle": "ISO, YMD",
        "TimeZone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "transform_null_equals": "off",
        **own,
    }
    given = {**wanted, **(timeouts or {})}
    values: dict[str, Any] = {"local": isolation is not None}
    for at, (name, value) in enumerate(given.items()):
        values |= {f"name{at}": name, f"value{at}": value}
    calls = [f"pg_catalog.set_config(%(name{at})s, %(value{at})s, %(local)s)" for at in range(len(given))]
    run(f"SELECT {', '.join(calls)}", values)
    if isolation is not None:
        wanted["transaction_isolation"] = isolation
    # Read the values in a second statement, because set_config returns its argument even if it has no effect.
    calls = [f"pg_catalog.current_setting(%(name{at})s)" for at in range(len(wanted))]
    found = run(f"SELECT {', '.join(calls)}", {f"name{at}": name for at, name in enumerate(wanted)})
    for (name, value), there in zip(wanted.items(), found, strict=True):
        if there != value:
            raise InputError(f"{what} has {name} = {there!r}: it must be {value!r} (do not connect through a pooler)")


def read_search_path(run: Run) -> str:
    """Return the search path without the system schemas, which PostgreSQL then searches first."""
    (schemas,) = run("SELECT pg_catalog.current_schemas(false)", {})
    own = (name for name in schemas if not name.startswith("pg_"))
    return ", ".join('"' + name.replace('"', '""') + '"' for name in own)
