"""The public names are there, lazily, and are the ones that are documented."""

import subprocess
import sys
from operator import attrgetter
from types import ModuleType

import pytest

import deltahist as dh

ROOMS = [name for name in dh.__all__ if isinstance(getattr(dh, name), ModuleType)]


def test_every_public_name_can_be_had():
    for name in dh.__all__:
        assert getattr(dh, name) is not None
    assert set(dh.__all__) <= set(dir(dh))
    assert len(dh.__all__) <= 41  # what a newcomer needs: what few meet is in a room


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_may_be_the_first_name_that_is_used(name):
    subprocess.run([sys.executable, "-c", f"import deltahist; deltahist.{name}"], check=True)


def test_every_public_name_has_an_example():
    names = [name for name in dh.__all__ if name not in ROOMS]
    names += [f"{room}.{name}" for room in ("accounts", "network") for name in getattr(dh, room).__all__]
    assert [name for name in names if ">>>" not in (attrgetter(name)(dh).__doc__ or "")] == []
