"""What tests of the ledger and of its databases begin with."""

import pytest

from deltahist.budgets import databases
from deltahist.budgets.ledger import Ledger


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request, tmp_path):
    """The path or the URL of a ledger that is not there yet."""
    if request.param == "SQLite":
        yield tmp_path / "city.ledger"
        return
    yield request.getfixturevalue("postgres_url")
    for engine in databases._ENGINES.values():
        engine.dispose()


@pytest.fixture
def ledger(where):
    ledger = Ledger(where)
    ledger.account("city", {"length": 3})
    ledger.store("city", "rows", 17)
    return ledger
