"""What tests of several formats share."""

import pytest

from tests.storage import bucket


@pytest.fixture(scope="package")
def storage():
    """A bucket on this machine, "city"."""
    with bucket() as (store, _):
        yield store
