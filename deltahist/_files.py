"""Files that appear whole or not at all, release files (untrusted input), and files in object storage."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import math
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from io import IOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from deltahist.errors import DamagedFile, InputError, check_memory, check_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Keys of a release's description and digest in the Parquet metadata. A file of JSON alone holds its own digest.
KEY, DIGEST = b"deltahist", "sha256"
#: Bytes of the longest description that is read; a real one has a few thousand.
_MOST_DESCRIPTION = 64 << 20
_Read = TypeVar("_Read")
#: Kinds of object storage. What tells an address from a path: `Path` leaves one slash of two.
STORES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)


def digest_of(description: dict[str, Any], columns: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a description and columns (m,), as 64 hexadecimal digits.

    The bytes are the description as JSON, with sorted keys and without spaces, then for each column its name, type and
    length as JSON, and its values, little-endian.
    """
    import numpy as np

    def encode(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    found = hashlib.sha256(encode(description))
    for name, values in columns.items():
        plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        found.update(encode([name, plain.dtype.str, len(plain)]))
        found.update(plain.data)
    return found.hexdigest()


def _check_digest(stated: Any, found: str, path: str) -> None:
    if stated != found:
        raise DamagedFile(
            f"release file {path!r} has the digest {found[:16]}..., but states {str(stated)[:16]}...: it was altered, "
            "so get it again from the publisher"
        )


def write_parquet(
    target: Path | BinaryIO, columns: Mapping[str, NDArray[Any]], description: dict[str, Any], digest: str, readme: str
) -> None:
    """Write one Parquet file of columns, with the public description, the digest of both and a readme as metadata.

    The package does not read the readme, and the digest does not cover it.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    meta = {KEY: json.dumps(description).encode(), DIGEST.encode(): digest.encode()}
    meta[b"deltahist:readme"] = readme.encode()
    # Arrow's own conversion of NumPy arrays would import pandas.
    arrays = {}
    for name, values in columns.items():
        buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
        arrays[name] = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)
    table = pa.table(arrays).replace_schema_metadata(meta)
    pq.write_table(table, target, compression="zstd", write_page_checksum=True)


def read_described(path: str | Path, read: Callable[[dict[str, Any], Any, str], _Read]) -> _Read:
    """Open a release file and return `read(description, file, path)`.

    `file` is the open Parquet file, or None for a file that is one JSON object, its description.

    Raises InputError if the file is missing, and DamagedFile if it is truncated, foreign, oversized, has no
    description, or `read` fails on its description.
    """
    if is_stored_file(path):
        return read_parquet(read_object(path, "release file"), str(path), read)
    path = Path(path)
    if path.is_dir():
        raise InputError(f"release file {str(path)!r} is a folder: name one release in it")
    with open_regular(path, "release file") as file:
        is_json = file.read(64).lstrip()[:1] == b"{"
        file.seek(0)
        if not is_json:
            return read_parquet(file, path, read)
        text = file.read(_MOST_DESCRIPTION + 1)
    if len(text) > _MOST_DESCRIPTION:
        raise DamagedFile(f"release file {str(path)!r} is oversized and not Parquet")

    def read_alone(description: dict[str, Any]) -> _Read:
        stated = description.pop(DIGEST, None)
        found = read(description, None, str(path))
        _check_digest(stated, digest_of(description, {}), str(path))
        return found

    return _read_description(text, path, read_alone)


def open_regular(path: Path, what: str) -> BinaryIO:
    """Open a regular file to read it; InputError on anything else. `what` names the file in messages."""
    try:
        # Opening a named pipe must not wait for its writer.
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r} does not exist") from None
    except OSError as problem:
        raise InputError(f"{what} {str(path)!r} cannot be opened: {problem.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{what} {str(path)!r} is a pipe or a device: it must be a file")
    return file


def read_parquet(
    content: bytes | IOBase | BinaryIO, path: Path | str, read: Callable[[dict[str, Any], Any, str], _Read]
) -> _Read:
    """Do as `read_described` does for Parquet in an open file or in bytes; errors name `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pa.BufferReader(content) if isinstance(content, bytes) else content
        file: Any = source
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8))
        end = file.read(8)
        # The footer holds the description twice, once in base64.
        if end[4:] != b"PAR1" or int.from_bytes(end[:4], "little") > 3 * _MOST_DESCRIPTION:
            raise ValueError("its footer is missing or oversized")
        file = pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise DamagedFile(f"release file {str(path)!r} cannot be read as Parquet: {first_line(problem)}") from None
    with file:
        text = (file.schema_arrow.metadata or {}).get(KEY)
        if text is None:
            raise DamagedFile(f"file {str(path)!r} is Parquet, but not a release: it has no deltahist description")
        if len(text) > _MOST_DESCRIPTION:
            raise DamagedFile(f"release file {str(path)!r} is oversized: its description has {len(text):,} bytes")
        try:
            return _read_description(text, path, lambda description: read(description, file, str(path)))
        except (pa.ArrowException, OSError) as problem:
            raise DamagedFile(f"release file {str(path)!r} is damaged: {first_line(problem)}") from None


def _read_description(text: bytes, path: Path | str, read: Callable[[dict[str, Any]], _Read]) -> _Read:
    """Return the result of `read` on a JSON description. Every error that the description causes is damage."""
    from pyarrow import ArrowException

    try:
        return read(json.loads(text))
    except (InputError, ArrowException, OSError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as problem:
        raise DamagedFile(f"release file {str(path)!r} has a damaged description: {first_line(problem)}") from None


def check_format(description: dict[str, Any], path: str, *, form: str, version: int) -> None:
    """Raise an error on another format or a newer version."""
    if description["format"] != form:
        raise DamagedFile(f"file {path!r} is {description['format']!r}: it must be {form!r}")
    stated = check_whole(version=description["version"])
    if stated > version:
        raise InputError(f"file {path!r} is of version {stated}: this program reads versions up to {version}")


def check_header(description: dict[str, Any], file: Any, path: str, *, form: str, version: int, memory: int) -> None:
    """Raise an error on another format, a newer version, no values, or more than memory holds.

    `memory` is the number of bytes for each cell and each value.
    """
    check_format(description, path, form=form, version=version)
    if file is None:
        raise DamagedFile(f"file {path!r} describes a release, but has no values: it must be Parquet")
    size = math.prod(int(n) for n in description["domain"]["shape"])
    check_memory(memory * (max(size, 0) + file.metadata.num_rows), f"release file {path!r}")


def read_columns(file: Any, path: str, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return the columns of a file after checking their names, types, completeness and digest."""
    import numpy as np

    found = {field.name: str(field.type) for field in file.schema_arrow}
    if list(found) != names or found["value"] != "int64" or not all(kind.startswith("int") for kind in found.values()):
        raise DamagedFile(f"release file {path!r} has columns {found}: they must be integers, {' and '.join(names)}")
    rows, start = file.metadata.num_rows, 0
    columns = {name: np.empty(rows, dtype=found[name]) for name in names}
    # Batches reuse memory.
    for batch in file.iter_batches(1 << 17, use_threads=False):
        if any(batch.column(name).null_count for name in names):
            raise DamagedFile(f"release file {path!r} has missing values")
        for name, column in columns.items():
            # Arrow's own conversion to NumPy would import pandas.
            column[start : start + len(batch)] = np.from_dlpack(batch.column(name))
        start += len(batch)
    if start != rows:
        raise DamagedFile(f"release file {path!r} has {start:,} rows: it states {rows:,}")
    meta = file.schema_arrow.metadata
    own = digest_of(json.loads(meta[KEY]), columns)
    _check_digest(meta.get(DIGEST.encode(), b"none").decode(errors="replace"), own, path)
    return columns


def form_of(path: str | Path, forms: Mapping[str, str]) -> str:
    """Return the form of an output by its suffix."""
    form = forms.get(Path(path).suffix.lower())
    if form is None:
        raise InputError(f"output is {str(path)!r}: its suffix must be one of {', '.join(forms)}")
    return form


def _make_part(target: Path) -> Path:
    """Make an empty temporary file next to a target."""
    if not target.parent.is_dir():
        raise InputError(f"output folder {str(target.parent)!r} does not exist")
    if target.is_dir():
        raise InputError(f"output {str(target)!r} is a folder: it must be a file")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
    except OSError as problem:
        raise InputError(f"output {str(target)!r} cannot be written: {problem.strerror}") from None
    os.close(handle)
    return Path(name)


def check_creatable(target: str | Path) -> None:
    """Raise InputError unless `write_whole` can write a file. Call it before anything is charged."""
    _make_part(Path(target)).unlink()


def write_whole(target: Path, write: Callable[[Path], Any], *, secret: bool = False, replace: bool = True) -> bool:
    """Let `write(path)` fill a temporary file next to the target, then rename it, so that the file is always whole.

    Only its owner can read a secret file, from the first byte on, and file and name are on the disk when this returns.
    A link to a secret stays a link, so that no older secret survives behind it. Without `replace` an existing file
    stays, and False is returned.
    """
    target = target.resolve() if secret else target
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????{glob.escape(target.suffix)}"):
        with contextlib.suppress(OSError):  # another process may remove it as well
            if time.time() - left.stat().st_mtime > 3600:  # from a process that was killed
                left.unlink()
    part = _make_part(target)
    try:
        try:
            write(part)
        except OSError as problem:
            raise InputError(f"output {str(target)!r} cannot be written: {problem.strerror or problem}") from None
        if not secret:
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o666 & ~umask)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        if replace:
            part.replace(target)
        else:
            # Unlike renaming, linking never replaces a file that another process has just made.
            try:
                os.link(part, target)
            except FileExistsError:
                return False
        if secret:
            sync_folder(target.parent)
        return True
    finally:
        part.unlink(missing_ok=True)


def check_secret(path: Path, what: str, *, readable: bool = False) -> None:
    """Raise InputError if other users can read a secret, or can write it if it is `readable`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (0o022 if readable else 0o077):
        mended = "go-w" if readable else "600"
        raise InputError(f"{what} {str(path)!r} has mode {mode:o}, which is open to other users: chmod {mended} it")


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on a file next to `path` until the block or the process ends; InputError if it is already held."""
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path.resolve()}-lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{what} {str(path)!r} is in use by another process: wait until it ends") from None
    except OSError as problem:
        raise InputError(f"{what} {str(path)!r} cannot be locked: {problem}") from None
    try:
        yield
    finally:
        lock.release()


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def first_line(problem: Exception) -> str:
    """Return the first line of a library's message."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]


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
