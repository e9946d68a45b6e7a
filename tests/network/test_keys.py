"""Key files: made whole, durable and private, refused when damaged, never replaced."""

import os
import re

import pytest

import deltahist as dh
from deltahist.network.diffusion import open_key

BOUND = b"parameters and data"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "share.key"


def test_a_key_is_drawn_once(path):
    key = open_key(path, BOUND)
    assert len(key) == 32
    assert open_key(path, BOUND) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_key(path.with_name("other.key"), BOUND) != key
    with pytest.raises(dh.InputError, match="is for other data"):
        open_key(path, BOUND + b"!")


def test_the_key_is_on_the_disk_before_it_is_used(path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_mode) or fsync(handle))
    open_key(path, BOUND)
    assert len(synced) == 2  # the file, then its name in the folder


def test_truncations_and_changes_are_found(path):
    open_key(path, BOUND)
    content = path.read_bytes()
    for end in range(0, len(content), 3):
        path.write_bytes(content[:end])
        with pytest.raises(dh.DamagedFile, match=re.escape(path.name)):
            open_key(path, BOUND)
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises((dh.DamagedFile, dh.InputError)):
            open_key(path, BOUND)
    path.write_bytes(content + b"more\n")
    with pytest.raises(dh.DamagedFile):
        open_key(path, BOUND)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_key_that_others_can_read_is_refused(path):
    open_key(path, BOUND)
    path.chmod(0o640)
    with pytest.raises(dh.InputError, match=r"mode 640.*chmod 600"):
        open_key(path, BOUND)
