"""Settings for every test: reproducible property tests, no window system, marked audits."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib

# Derandomised: a failure on one machine is a failure on all. Nothing may depend on how fast the machine is.
settings.register_profile(
    "deltahist", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("deltahist")

_AUDITS = Path(__file__).parent / "audits"


def pytest_collection_modifyitems(items):
    for item in items:
        if _AUDITS in item.path.parents:
            item.add_marker(pytest.mark.audit)
