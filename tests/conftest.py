"""Settings for every test: reproducible property tests, no window system, marked audits."""

import os
import shutil
from pathlib import Path

import postgres
import pytest
from hypothesis import HealthCheck, settings

postgres_url = postgres.postgres_url

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib
# Ledgers wait for the disk at each charge: in memory, where there is room, a third of the time is enough.
if os.access(_MEMORY := "/dev/shm", os.W_OK) and shutil.disk_usage(_MEMORY).free > 1 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

# Derandomised: a failure on one machine is a failure on all. Nothing may depend on how fast the machine is.
settings.register_profile(
    "deltahist", derandomize=True, database=None, deadline=None, max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("deltahist")

#: Where single tests take seconds: they start first, so that no worker is left alone with them at the end.
_LONG = ("mechanisms", "accounts/test_window.py")
#: Tests that start processes: the service, browsers, other clients, and commands that are killed.
_PROCESSES = (
    "browser", "cli/test_serving.py", "server/test_features.py", "server/test_remote.py",
    "personal/test_kills.py", "accounts/test_kills.py",
)  # fmt: skip
#: As the running service has it: pytest sets filters anew for each test.
_UNWARNED = pytest.mark.filterwarnings("ignore::deltahist.errors.DeltaHistWarning")
#: Of every test in a folder.
_MARKS = {
    "audits": pytest.mark.audit,
    "experiments": pytest.mark.experiment,
    "browser": _UNWARNED,
    "server": _UNWARNED,
    "spark": pytest.mark.slow,
}


def pytest_collection_modifyitems(items):
    places = {path: os.path.relpath(path, Path(__file__).parent) for path in {item.path for item in items}}
    for item in items:
        if (folder := places[item.path].split(os.sep)[0]) in _MARKS and (
            item.path.name != "test_exact.py" or item.get_closest_marker("slow")
        ):
            item.add_marker(_MARKS[folder])
        if places[item.path].startswith(_PROCESSES):
            item.add_marker(pytest.mark.process)
    items.sort(key=lambda item: not places[item.path].startswith(_LONG))


def pytest_sessionfinish(session):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        postgres.stop(session.config)
