"""Settings for every test: reproducible property tests, no window system, marked audits."""

import os
from pathlib import Path

import postgres
import pytest
from hypothesis import HealthCheck, settings

postgres_url = postgres.postgres_url

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib

# Derandomised: a failure on one machine is a failure on all. Nothing may depend on how fast the machine is.
settings.register_profile(
    "deltahist", derandomize=True, database=None, deadline=None, max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("deltahist")

_AUDITS = Path(__file__).parent / "audits"


#: Where single tests take seconds: they start first, so that no worker is left alone with them at the end.
_LONG = (
    "audits", "experiments", "mechanisms", "accounts/test_stress.py", "accounts/test_window.py", "cli/test_commands.py",
)  # fmt: skip
_TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if _AUDITS in item.path.parents:
            item.add_marker(pytest.mark.audit)
    long = [_TESTS / place for place in _LONG]
    items.sort(key=lambda item: not any(item.path.is_relative_to(place) for place in long))


def pytest_sessionfinish(session):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        postgres.stop(session.config)
