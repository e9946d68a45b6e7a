"""The public names are there, lazily, and are the ones that are documented."""

import subprocess
import sys
from types import ModuleType

import pytest

import deltahist as dh


def test_every_public_name_can_be_had():
    for name in dh.__all__:
        assert getattr(dh, name) is not None
    assert set(dh.__all__) <= set(dir(dh))


@pytest.mark.parametrize("name", [name for name in dh.__all__ if isinstance(getattr(dh, name), ModuleType)])
def test_a_room_may_be_the_first_name_that_is_used(name):
    subprocess.run([sys.executable, "-c", f"import deltahist; deltahist.{name}"], check=True)


def test_every_public_name_has_an_example():
    assert [name for name in dh.__all__ if ">>>" not in (getattr(dh, name).__doc__ or "")] == []
