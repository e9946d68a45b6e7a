"""What tests of the ledger and of its file begin with."""

import pytest

from deltahist.budgets.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "city.ledger")
    ledger.account("city", {"length": 3})
    ledger.store("city", "rows", 17)
    return ledger
