"""What tests of several sources share."""

import numpy as np
import pandas as pd
import pytest

from tests.storage import bucket


@pytest.fixture(scope="package")
def storage():
    """A bucket on this machine, "city"."""
    with bucket() as (store, _):
        yield store


@pytest.fixture(scope="package")
def frame():
    """3,000 visits."""
    rng = np.random.default_rng(3)
    return pd.DataFrame({
        "east": rng.uniform(0, 4, 3000), "north": rng.uniform(0, 2, 3000), "speed": rng.integers(0, 9, 3000),
        "who": rng.choice(["ann", "bob", "eve"], 3000), "kind": rng.choice(["bus", "tr'a\\m"], 3000),
        "time": pd.Timestamp("2026-03-01") + pd.to_timedelta(rng.integers(0, 6 * 86_400, 3000), unit="s"),
    })  # fmt: skip
