"""Files in object storage and on web servers, by their addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from deltahist._memory import check_memory
from deltahist.errors import InputError

#: Kinds of object storage. What tells an address from a path: `Path` leaves one slash of two.
STORES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)


class UnseenObject(InputError):  # noqa: N818
    """An object that is not there, or that the storage does not show."""


def is_address(path: str | Path) -> bool:
    """Return whether a path is an address: a word, a colon and a slash.

    >>> is_address(Path("s3://bucket/visits")), is_address(Path("/data/s3/visits"))
    (True, False)
    """
    return _ADDRESS.fullmatch(Path(path).as_posix()) is not None


def is_stored_file(place: str | Path) -> bool:
    """Return whether a release's place is a file in object storage, or Parquet on a web server.

    >>> [is_stored_file(each) for each in ("s3://maps/a.parquet", "https://example.org/releases/a", "a.parquet")]
    [True, False, False]
    """
    match = _ADDRESS.fullmatch(Path(place).as_posix())
    if match is None:
        return False
    scheme = match[1].lower()
    return scheme in STORES or (scheme in ("http", "https") and match[2].endswith(".parquet"))


def read_address(path: str | Path, what: str, schemes: tuple[str, ...] = STORES) -> tuple[str, str]:
    """Return the store and the key of an address, "s3://bucket" and "visits/a.parquet".

    Raises InputError on another kind of address, and on one that may hold a secret, of which nothing is shown.
    """
    match = _ADDRESS.fullmatch(Path(path).as_posix())
    assert match is not None
    scheme, rest = match[1].lower(), match[2]
    bucket, _, key = rest.partition("/")
    if scheme not in schemes or not bucket or ".." in key.split("/"):
        raise InputError(f"{what} is an address {scheme}://: it must be a file, or a place in {', '.join(schemes)}")
    if "@" in bucket or "?" in rest or "#" in rest or (scheme in STORES and ":" in bucket):
        raise InputError(f"{what} is an address with a user, a port or options: keys are taken from the environment")
    return f"{scheme}://{bucket}", key.strip("/")


def read_object(place: str | Path, kind: str, most: int | None = None) -> bytes:
    """Return an object's bytes; `kind` is named in messages.

    Raises UnseenObject if there is none, and InputError if it has more than `most` bytes, or more than fit into memory,
    or cannot be read: without what the storage says, which may hold keys and signatures.
    """
    bucket, key = read_address(place, kind, (*STORES, "http", "https"))
    try:
        import obstore
        from obstore.store import from_url
    except ImportError:
        raise InputError(f"{kind} is in object storage: pip install 'deltahist[cloud]'") from None
    options: Any = {"client_options": {"allow_http": True}} if bucket.startswith("http:") else {}
    try:
        found = obstore.get(from_url(bucket, **options), key)
        size = found.meta["size"]
        if most is None or size <= most:
            check_memory(size, f"{kind} {bucket}/{key}")
            return bytes(found.bytes())
        reason = f"more than {most:,} bytes"
    except InputError:
        raise
    except Exception as problem:
        reason = type(problem).__name__
    unseen = reason in ("FileNotFoundError", "NotFoundError", "PermissionDeniedError")
    raise (UnseenObject if unseen else InputError)(f"{kind} {bucket}/{key} cannot be read from the storage ({reason})")
