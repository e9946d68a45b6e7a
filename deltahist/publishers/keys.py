"""Key files: what all noise of a diffusion is drawn from, kept so that nobody gets a second, independent answer."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from deltahist._files import check_secret, write_whole
from deltahist.errors import DamagedFile, InputError

#: Bytes of a key.
KEY = 32
#: What a key file begins with, and its version.
_KIND, _VERSION = b"deltahist diffusion key ", b"1"
#: A whole file has fewer bytes.
_MOST_BYTES = 1 << 10


def open_key(path: Path, bound: bytes) -> bytes:
    """The key of a file for parameters and data; a file that is not there is made, and on the disk when this returns.

    The file holds a keyed hash of what the key is for. The same noise on other data would tell how they differ, and
    with another α or lattice what they are.

    Parameters
    ----------
    path : the file; only its owner may be able to read it.
    bound : all that the noise goes with: parameters and data, as bytes.

    Raises
    ------
    DamagedFile
        If the file is cut short, changed or something else.
    InputError
        If it is for other parameters or data, of a newer version, others can read it, or its folder cannot be written.
    """
    if not path.exists():
        key = os.urandom(KEY)
        content = _content(key, bound)
        if write_whole(path, lambda part: part.write_bytes(content), secret=True, replace=False):
            return key
    return _read(path, bound)


def _content(key: bytes, bound: bytes) -> bytes:
    lines = [_KIND + _VERSION, key.hex().encode(), _digest(key, bound)]
    return b"\n".join([*lines, _check(lines), b""])


def _digest(key: bytes, bound: bytes) -> bytes:
    return hmac.new(key, b"bound " + bound, hashlib.sha256).hexdigest().encode()


def _check(lines: list[bytes]) -> bytes:
    return hashlib.sha256(b"\n".join(lines)).hexdigest().encode()


def _read(path: Path, bound: bytes) -> bytes:
    what = f"key file {str(path)!r}"
    if not path.is_file():
        raise InputError(f"{what} is no file: name one, or one that is to be made")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    lines = content.split(b"\n")
    if not content.startswith(_KIND):
        why = "it is empty" if not content else "it is something else"
        raise DamagedFile(
            f"{what} is no key of a diffusion ({why}, or cut short): nothing was answered; name the "
            "right file"
        )
    check_secret(path, "key file")
    if len(content) > _MOST_BYTES or len(lines) < 5 or lines[-1] or _check(lines[:-2]) != lines[-2]:
        raise DamagedFile(
            f"{what} is damaged or cut short: nothing was answered. A new key would be a second answer about the same "
            "data: bring the file back from where it was kept"
        )
    if lines[0] != _KIND + _VERSION:
        raise InputError(
            f"{what} is of version {lines[0].removeprefix(_KIND).decode()}: this program reads version "
            f"{_VERSION.decode()}; update it"
        )
    key = bytes.fromhex(lines[1].decode())
    if not hmac.compare_digest(_digest(key, bound), lines[2]):
        raise InputError(
            f"{what} is for other data, other users, another α or another lattice: the same noise on changed data "
            "would tell the change. Take the data that it was made for; or another file, which is a new promise whose "
            "ε adds to the old one"
        )
    return key
