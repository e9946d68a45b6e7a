"""Ledgers to begin with, in every database."""

import postgres
import psycopg
import pytest

from deltahist.accounts import databases


@pytest.fixture(scope="session")
def one_database(tmp_path_factory):
    """The address of a database that tests share, one after another."""
    with postgres.new_database(tmp_path_factory.getbasetemp()) as url:
        yield url


@pytest.fixture
def shared_url(one_database):
    """The same, empty and with the settings of a new one."""
    yield one_database
    with psycopg.connect(one_database, autocommit=True) as connection:
        postgres.break_others(connection)  # what a process that was killed had begun would be waited for
        connection.execute(f"DROP SCHEMA IF EXISTS {databases.SCHEMA}, hostile, public CASCADE")
        connection.execute(f"CREATE SCHEMA public; ALTER DATABASE {connection.info.dbname} RESET ALL")


@pytest.fixture
def impatient(monkeypatch):
    """Ledgers that are opened from now on wait for nobody."""
    monkeypatch.setattr(databases, "PATIENCE", 0.05)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path):
    """The path or the URL of a ledger that is not there yet, in every database."""
    return tmp_path / "city.ledger" if request.param == "SQLite" else request.getfixturevalue("shared_url")
