"""PostgreSQL, by its address; rows come and go as CSV by COPY, which is quick and keeps every digit."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from deltahist._postgres import own_schemas, settle
from deltahist.counts.sql.common import carried, quoted, sql_of, unspoken
from deltahist.errors import InputError


class Server:
    """A PostgreSQL database; every block has a connection of its own."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        self._url = url
        try:
            # The address may hold a password: messages show the rest.
            told = conninfo_to_dict(url)
        except ProgrammingError:
            raise InputError(
                "database is an address that cannot be read: it must be postgresql://user@host/name"
            ) from None
        self.name = repr(f"{told.get('dbname', '')} on {told.get('host', 'localhost')}")
        with self._transaction("READ COMMITTED"):
            pass

    def schema(self, table: str) -> Any:
        """The Ibis schema of a table or view."""
        import ibis

        *within, own = table.split(".", 1)
        with self._transaction("READ COMMITTED") as connection, unspoken(self.name, _gone()):
            try:
                backend = ibis.postgres.from_connection(connection)
                return backend.get_schema(own, database=within[0] if within else None)
            except ibis.common.exceptions.TableNotFound:
                raise InputError(f"the database {self.name} has no table {table!r}") from None

    @contextmanager
    def snapshot(self) -> Iterator[_Session]:
        """A consistent look: one transaction, which is rolled back."""
        with self._transaction("REPEATABLE READ") as connection:
            yield _Session(connection, self.name)

    @contextmanager
    def change(self) -> Iterator[_Session]:
        """A transaction that writes."""
        with self._transaction("READ COMMITTED") as connection:
            yield _Session(connection, self.name)
            with unspoken(self.name, _gone()):
                connection.commit()

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def _transaction(self, isolation: str) -> Iterator[Any]:
        """A connection of its own, in a transaction with all settings that are relied on."""
        import psycopg

        try:
            connection = psycopg.connect(self._url)
        except psycopg.Error as problem:
            said = str(problem).strip().splitlines()[-1][:200]
            raise InputError(f"the database {self.name} does not answer: {said}") from None

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.execute(statement, values).fetchone()

        try:
            connection.isolation_level = psycopg.IsolationLevel[isolation.replace(" ", "_")]
            connection.read_only = False
            with unspoken(self.name, _gone()):
                own = {"search_path": own_schemas(run)}
                settle(run, f"the database {self.name}", own, isolation.lower())
            yield connection
        finally:
            # What was not committed is rolled back.
            connection.close()


class _Session:
    """What is done in one transaction."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection, self._name = connection, name
        self._there: set[str] = set()

    def fetch(self, expression: Any) -> Any:
        """An Ibis table, evaluated, as an Arrow table."""
        with unspoken(self._name, _gone()):
            return self._run(self._statement(expression), expression)

    def planned(self, expression: Any) -> Callable[[], Any]:
        """Have the database plan an Ibis table, and return what fetches it: whatever fails here has read no record."""
        with unspoken(self._name, _gone()):
            statement = self._statement(expression)
            self._connection.execute(f"EXPLAIN {statement}")
        return lambda: self._run(statement, expression)

    def _statement(self, expression: Any) -> str:
        """An Ibis table in SQL; the public tables that it carries are brought in."""
        for name, rows in carried(expression).items():
            if name not in self._there:
                self._bring(name, rows)
        return sql_of(expression, "postgres", self._text)

    def _text(self, constant: str) -> str:
        """A text constant as the driver writes it for this connection: COPY takes no parameters."""
        from psycopg.sql import Literal

        return Literal(constant).as_string(self._connection)

    def _run(self, statement: str, expression: Any) -> Any:
        from pyarrow import csv

        text = io.BytesIO()
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY ({statement}) TO STDOUT (FORMAT csv)") as rows,
        ):
            for row in rows:
                text.write(row)
        schema = expression.schema().to_pyarrow()
        if not text.tell():
            return schema.empty_table()
        text.seek(0)
        return csv.read_csv(
            text,
            csv.ReadOptions(column_names=schema.names),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=schema,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        ).cast(schema)

    def execute(self, statement: str) -> None:
        """A statement of SQL without results."""
        with unspoken(self._name, _gone()):
            self._connection.execute(statement)

    def append(self, table: str, rows: Any) -> None:
        """Append an Arrow table."""
        from pyarrow import csv

        columns = ", ".join(map(quoted, rows.column_names))
        text = io.BytesIO()
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        statement = f"COPY {quoted(table)} ({columns}) FROM STDIN (FORMAT csv)"
        with (
            unspoken(self._name, _gone()),
            self._connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            copy.write(text.getbuffer())

    def _bring(self, name: str, rows: Any) -> None:
        """A public table of the query, there until the transaction ends."""
        import ibis
        from ibis.backends.sql.datatypes import PostgresType

        columns = ", ".join(
            f"{quoted(column)} {PostgresType.to_string(ibis.dtype(kind))}"
            for column, kind in zip(rows.column_names, rows.schema.types, strict=True)
        )
        self._connection.execute(f"CREATE TEMPORARY TABLE {quoted(name)} ({columns}) ON COMMIT DROP")
        self.append(name, rows)
        self._there.add(name)


def _gone() -> tuple[type[Exception], ...]:
    import psycopg

    return (psycopg.OperationalError, psycopg.InterfaceError)
