"""Objects in object storage: found by their addresses, and read by ranges of their bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from deltahist.errors import InputError

#: Kinds of object storage, and what tells an address from a path. `Path` leaves one slash of two.
STORES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
#: Ranges of bytes that are asked for at the same time.
_AT_ONCE = 16
_Answer = TypeVar("_Answer")


class UnseenObject(InputError):  # noqa: N818
    """An object that is not there."""


class HiddenObject(UnseenObject):
    """An object that may be there: the storage does not say so, or does not show it."""


@dataclass(frozen=True)
class Address:
    """A place in object storage, or on a web server: its kind, its bucket or host, and the key there."""

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        """Return the address as text."""
        return f"{self.scheme}://{self.bucket}/{self.key}"


@dataclass(frozen=True)
class StoredFile:
    """An object in the version that was found: each request is for it, and fails for another.

    Parameters
    ----------
    name : its address. what : it is called in messages. store : obstore's. key : in the store.
    size : in bytes. tag : of its version, None where the storage tells none.
    """

    name: str
    what: str
    store: Any
    key: str
    size: int
    tag: str | None

    def bytes_of(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        import obstore

        options: Any = {"range": (start, end)} | ({} if self.tag is None else {"if_match": self.tag})
        return ask(self.what, lambda: bytes(obstore.get(self.store, self.key, options=options).bytes()))

    def ranges(self, ends: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several ranges, which are asked for at the same time."""
        ranges = list(ends)
        if len(ranges) < 2:
            return [self.bytes_of(*each) for each in ranges]
        with ThreadPoolExecutor(min(_AT_ONCE, len(ranges))) as pool:
            return list(pool.map(lambda each: self.bytes_of(*each), ranges))

    def file(self) -> Any:
        """Return the object as a file that is read at any place."""
        return ObjectFile(self)


class ObjectFile(io.RawIOBase):
    """An object as a file."""

    def __init__(self, source: StoredFile) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._source.size)
        if end <= self._at:
            return 0
        data = self._source.bytes_of(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


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


def read_address(path: str | Path, what: str, schemes: tuple[str, ...] = STORES) -> Address:
    """Return an address in its parts; raise InputError on one that is none of `schemes`, or that may hold a secret."""
    match = _ADDRESS.fullmatch(Path(path).as_posix())
    assert match is not None
    scheme, rest = match[1].lower(), match[2]
    bucket, _, key = rest.partition("/")
    # Neither is shown: a password or a signature may stand there.
    if scheme not in schemes:
        raise InputError(f"{what} is an address that begins with {scheme}: it must be a file, or s3://, gs:// or az://")
    port = scheme not in STORES and re.fullmatch(r"[^:@]+:\d+", bucket)
    if "@" in bucket or (":" in bucket and not port) or "?" in rest or "#" in rest:
        raise InputError(
            f"{what} is an address {scheme}:// with a user, a port or options (@, :, ?, #): it must be a bucket and a "
            "path; keys and endpoints are taken from the environment, such as AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL"
        )
    found = Address(scheme, bucket, key.strip("/"))
    if not bucket or ".." in found.key.split("/"):
        raise InputError(f"{what} '{found}' must name a bucket and a path without '..'")
    return found


def open_store(address: Address, what: str) -> Any:
    """Return obstore's store of a bucket or host; raise InputError if obstore is not installed."""
    try:
        import obstore.store
    except ImportError:
        raise InputError(
            f"{what} is in object storage, and obstore, which reads it, is not installed: "
            "pip install 'deltahist[cloud]'"
        ) from None
    ways: Any = {"retry_config": _RETRIES}
    if address.scheme == "http":
        ways["client_options"] = {"allow_http": True}
    return ask(what, lambda: obstore.store.from_url(f"{address.scheme}://{address.bucket}", **ways))


def find_object(place: str | Path, kind: str) -> StoredFile:
    """Return the object at an address; InputError if there is none, or it cannot be read. `kind` is named in messages.

    Objects of s3://, gs:// and az:// have versions; of a web server's the contents must tell.
    """
    address = read_address(place, kind, (*STORES, "http", "https"))
    what = f"{kind} {str(address)!r}"
    store = open_store(address, what)
    import obstore

    found = ask(what, lambda: obstore.head(store, address.key))
    return StoredFile(str(address), what, store, address.key, found["size"], found["e_tag"])


def ask(what: str, request: Callable[[], _Answer]) -> _Answer:
    """Return what a storage answers; raise InputError without what it says, which may hold keys and signatures."""
    try:
        return request()
    except InputError:
        raise
    except FileNotFoundError:
        said: InputError = UnseenObject(f"{what} does not exist, or no longer does")
    except Exception as problem:
        kind = HiddenObject if type(problem).__name__ == "PermissionDeniedError" else InputError
        said = kind(f"{what} {_reason(problem)}")
    raise said  # not above: the storage's error would be kept as its context


def _reason(problem: Exception) -> str:
    """Return what an error of the storage means, in words that hold nothing of its message but numbers and names."""
    kind = type(problem).__name__
    if kind == "PreconditionError":
        return "changed while it was read: read it again when nothing writes there"
    said = str(problem)
    status = re.search(r"status code: (\d{3})", said)
    code = re.search(r"<Code>([A-Za-z]{1,40})</Code>", said)
    told = ", ".join([kind, *(match[1] for match in (status, code) if match)])
    return (
        f"cannot be read from the storage ({told}): are the bucket, the region or endpoint, and the keys in the "
        "environment right?"
    )
