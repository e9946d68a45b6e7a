"""The engine of a database, by its address."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from deltahist.counting.engines import DuckDB, Engine, PostgreSQL
from deltahist.counting.spark import Spark
from deltahist.errors import InputError

#: Engines by the prefix of their addresses.
ENGINES: tuple[type[Engine], ...] = (DuckDB, PostgreSQL, Spark)


def is_database(address: str) -> bool:
    """Return whether an address is of a kind of database.

    >>> is_database("postgresql://host/city"), is_database("s3://bucket/visits")
    (True, False)
    """
    return address.startswith(tuple(prefix for engine in ENGINES for prefix in engine.prefixes))


def open_engine(where: Any) -> Engine:
    """Open a database by its path, its address, an open DuckDB connection, or an open Spark session.

    Raises InputError if the address is of another kind, the libraries are not installed, or nothing answers.
    """
    if isinstance(where, Path) or (isinstance(where, str) and "://" not in where):
        where = f"duckdb:///{where}"
    engine: type[Engine] | None = Spark if type(where).__module__.startswith("pyspark.sql.") else DuckDB
    if isinstance(where, str):
        engine = next((each for each in ENGINES if where.startswith(each.prefixes)), None)
    if engine is None:
        raise InputError(
            f"database is {where.split('://')[0]!r}://…: it must be a DuckDB file (city.duckdb, "
            "duckdb:///city.duckdb), postgresql://user@host/name, or Spark (sc://host:15002, spark://host:7077)"
        )
    for module in (engine.driver, "ibis"):
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f"tables in a database need {module}, which is not installed: pip install 'deltahist[{engine.extra}]'"
            )
    return engine(where)
