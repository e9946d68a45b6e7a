"""What tests of people begin with: a small city in memory, and a model of who pays."""

from collections import Counter
from fractions import Fraction

import duckdb
import numpy as np
import psycopg

from deltahist.personal import People, questions

COLUMNS = {"who": "TEXT", "kind": "TEXT", "hour": "BIGINT", "fare": "DOUBLE PRECISION"}


def city(place, rows=(), where=None, **options):
    """People who have joined, and their records (who, kind, hour, fare); the ledger is in a folder, or at a URL."""
    where = duckdb.connect() if where is None else where
    run(where, f"CREATE TABLE IF NOT EXISTS trip ({', '.join(' '.join(each) for each in COLUMNS.items())})")
    ledger = place if isinstance(place, str) else place / "city.ledger"
    people = People(where, "trip", owner="who", ledger=ledger, **(options or {"epsilon": 1}))
    people.where = where
    if rows:
        insert(people, rows)
    return people


def insert(people, rows):
    """Add records, and let their owners join."""
    values = ", ".join(f"({', '.join(map(_written, row))})" for row in rows)
    run(people.where, f"INSERT INTO trip VALUES {values}")
    people.enrol()


def run(where, *statements):
    """Run SQL in a DuckDB connection, or in a DuckDB file or a PostgreSQL database by its address."""
    if isinstance(where, duckdb.DuckDBPyConnection):
        for statement in statements:
            where.execute(statement)
        return
    with (psycopg if where.startswith("postgres") else duckdb).connect(where) as connection:
        for statement in statements:
            connection.execute(statement)


def _written(value):
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def without_noise(monkeypatch):
    """Let answers be what is measured."""
    monkeypatch.setattr(questions, "sample_law", lambda law, size, rng: np.zeros(size, dtype=np.int64))


class Model:
    """Who pays, by the definition: everybody who can pay for all of their derived records."""

    def __init__(self, unit="epsilon"):
        self.limits, self.spent, self.unit = {}, {}, unit

    def join(self, name, limit):
        self.limits.setdefault(name, Fraction(limit))
        self.spent.setdefault(name, Fraction(0))

    def used(self, owners, amount):
        """How many derived records are used, once their owners are charged."""
        used = 0
        for name, number in Counter(owners).items():
            cost = Fraction(amount) * (number if self.unit == "epsilon" else number**2)
            if self.spent[name] + cost <= self.limits[name]:
                self.spent[name] += cost
                used += number
        return used
