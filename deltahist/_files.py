"""Write files atomically. Read release files, which are untrusted, from disk or object storage."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from deltahist.errors import DamagedFile, InputError, available_memory, check_choice, check_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Parquet metadata keys of a release's description and digest. In a JSON release, the digest has the same key.
KEY, DIGEST = b"deltahist", "sha256"
#: Maximum size of a description in bytes. Real descriptions are a few thousand bytes long.
_MOST_DESCRIPTION = 64 << 20
_Read = TypeVar("_Read")
#: Schemes of object storage, and an address pattern, which accepts one slash because `Path` collapses two.
STORES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)


def digest_of(description: dict[str, Any], columns: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 hash of a description and its columns, each of shape (m,), as 64 hexadecimal digits.

    The hash covers the description as JSON, with sorted keys and no spaces. For each column, it then covers the name,
    type and length as JSON, and the values in little-endian order.
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


def write_parquet(
    target: Path | BinaryIO, columns: Mapping[str, NDArray[Any]], description: dict[str, Any], digest: str, readme: str
) -> None:
    """Write columns to a Parquet file, with a description, its digest and, outside the digest, a readme as metadata."""
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


def read_described(path: str | Path, read: Callable[..., _Read]) -> _Read:
    """Open a release file and return `read(description, digest, file, path)`.

    `digest` is the digest that the file states. `file` is the open Parquet file, or None for a JSON release.
    Raises InputError if the file is missing, and DamagedFile if it is oversized or not a release, or if `read` fails.
    """
    if is_stored_file(path):
        return read_parquet(read_object(path, "release file"), path, read)
    with open_regular(Path(path), "release file") as file:
        if file.read(64).lstrip()[:1] != b"{":
            return read_parquet(file, path, read)
        file.seek(0)
        with _report_damage(path):
            description = _parse_description(file.read(_MOST_DESCRIPTION))
            return read(description, description.pop(DIGEST), None, str(path))


def read_parquet(content: bytes | BinaryIO, path: Path | str, read: Callable[..., _Read]) -> _Read:
    """Return `read(description, digest, file, path)` for an open Parquet file or its bytes. Errors name `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _report_damage(path):
        source: Any = pa.BufferReader(content) if isinstance(content, bytes) else content
        source.seek(max(0, source.seek(0, os.SEEK_END) - 8))
        end = source.read(8)
        # The footer contains the description twice, once in base64.
        if end[4:] != b"PAR1" or int.from_bytes(end[:4], "little") > 3 * _MOST_DESCRIPTION:
            raise ValueError("it is neither JSON nor Parquet, or its footer is too large")
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            meta = file.schema_arrow.metadata or {}
            description = _parse_description(meta.get(KEY, b""))
            return read(description, meta.get(DIGEST.encode(), b"").decode(), file, str(path))


@contextlib.contextmanager
def _report_damage(path: str | Path) -> Iterator[None]:
    """Turn errors caused by the content of an untrusted file into DamagedFile."""
    from pyarrow import ArrowException

    mistakes = (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError)
    try:
        yield
    except (ArrowException, OSError, *mistakes) as problem:
        damage = DamagedFile(f"file {str(path)!r} is damaged, or not a release: {first_line(problem)}")
        raise problem if isinstance(problem, InputError) else damage from None


def _parse_description(text: bytes) -> dict[str, Any]:
    # Truncating a description that is too long makes it invalid JSON.
    found = dict(json.loads(text[:_MOST_DESCRIPTION]))
    # Converting a number such as "1e999999999" to an exact fraction would use all memory.
    if re.search(r'"(\\\w+|\s)*[-+]?[\d_.]*[eE][-+]?[\d_]{4,}(\\\w+|\s)*"', json.dumps(found, ensure_ascii=False)):
        raise ValueError("it contains a number with a huge exponent")
    return found


def open_regular(path: Path, what: str) -> BinaryIO:
    """Open a regular file for reading. Raises InputError, whose message calls the file `what`, if that fails."""
    reason: str | None = "it must be a regular file"
    try:
        # Opening a named pipe would block until another process writes to it.
        if path.is_file() or not path.exists():
            return path.open("rb")
    except OSError as problem:
        reason = problem.strerror
    raise InputError(f"{what} {str(path)!r} cannot be opened: {reason}")


def check_format(description: dict[str, Any], path: str, forms: Collection[str], version: int) -> str:
    """Return a file's format. Raises DamagedFile if the format is not in `forms`, or the version is too new."""
    form, stated = description["format"], check_whole(version=description["version"])
    if form not in forms or stated > version:
        rule = f"this version reads {', '.join(forms)} up to version {version}"
        raise DamagedFile(f"file {path!r} has format {form!r:.80}, version {stated}: {rule}")
    return str(form)


def read_values(file: Any) -> NDArray[np.int64]:
    """Return the column `value` of an open Parquet file. Callers must first check the stated number of rows."""
    import numpy as np

    # Extra rows do not fit and raise an error. Missing rows or wrong types give values that do not match the digest.
    values, start = np.zeros(file.metadata.num_rows, dtype=np.int64), 0
    for batch in file.iter_batches(1 << 17, columns=["value"], use_threads=False):
        part = batch.column("value")
        # Arrow's own conversion to NumPy would import pandas.
        own = np.frombuffer(part.buffers()[1], dtype=np.int64, count=len(part), offset=8 * part.offset)
        values[start : start + len(part)] = own
        start += len(part)
    return values


def form_of(path: str | Path, forms: Mapping[str, str]) -> str:
    """Return the format that an output file's suffix stands for. Raises InputError if `forms` lacks the suffix."""
    return forms[check_choice(tuple(forms), suffix=Path(path).suffix.lower())]


@contextlib.contextmanager
def _make_part(target: Path) -> Iterator[Path]:
    """Create an empty temporary file next to a target. Deletes it after the block. Turns OSError into InputError."""
    part = None
    try:
        if target.is_dir():
            os.open(target, os.O_WRONLY)  # raises OSError
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        yield (part := Path(name))
    except OSError as problem:
        raise InputError(f"output {str(target)!r} cannot be written: {problem.strerror or problem}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def check_creatable(target: str | Path) -> None:
    """Raise InputError unless `write_whole` can create the target. Call this before spending any budget."""
    with _make_part(Path(target)):
        pass


def write_whole(target: Path, write: Callable[[Path], Any], *, secret: bool = False, replace: bool = True) -> bool:
    """Let `write(path)` fill a temporary file next to the target, then rename that file, so no partial file appears.

    Only the owner can ever read a secret. Its name is synced to disk too. If the target is a link to an older secret,
    replace that secret, not the link. Unless `replace` is set, keep an existing file and return False.
    """
    target = target.resolve() if secret else target
    # Delete temporary files that killed processes have left. Another process may be doing the same.
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????{glob.escape(target.suffix)}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()
    with _make_part(target) as part:
        write(part)
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


def check_secret(path: Path, what: str, *, readable: bool = False) -> None:
    """Raise InputError if others can access a secret file. If `readable` is set, others may read but not change it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (0o022 if readable else 0o077):
        mended = "go-w" if readable else "600"
        raise InputError(f"{what} {str(path)!r} has mode {mode:o}, so other users can access it: run chmod {mended}")


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Lock a file next to `path` until the block or the process ends. Raises InputError if that fails."""
    from filelock import FileLock

    try:
        lock = FileLock(f"{path.resolve()}-lock", timeout=0).acquire()
    except OSError as problem:  # such as filelock.Timeout
        raise InputError(f"{what} {str(path)!r} is in use by another process, or cannot be locked: {problem}") from None
    with lock:
        yield


def sync_folder(folder: Path) -> None:
    """Sync the file names in a folder to disk, if the system supports it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def first_line(problem: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]


class UnseenObject(InputError):  # noqa: N818
    """An object that does not exist, or that the given credentials cannot read."""


def is_address(path: str | Path) -> bool:
    """Return True if a path is an address, such as "s3://bucket/visits".

    >>> is_address(Path("s3://bucket/visits")), is_address(Path("/data/s3/visits"))
    (True, False)
    """
    return _ADDRESS.fullmatch(Path(path).as_posix()) is not None


def is_stored_file(place: str | Path) -> bool:
    """Return True if a release is a file in object storage, or a Parquet file on a web server.

    >>> [is_stored_file(each) for each in ("s3://maps/a.parquet", "https://example.org/releases/a", "a.parquet")]
    [True, False, False]
    """
    pattern = rf"({'|'.join(STORES)}):/.*|https?:/.*\.parquet"
    return re.fullmatch(pattern, Path(place).as_posix(), re.IGNORECASE | re.DOTALL) is not None


def read_address(path: str | Path, what: str, schemes: tuple[str, ...] = STORES) -> tuple[str, str]:
    """Split an address into its store and key. Raises InputError if it is malformed or may contain a secret."""
    match = _ADDRESS.fullmatch(Path(path).as_posix())
    assert match is not None
    scheme, rest = match[1].lower(), match[2]
    bucket, _, key = rest.partition("/")
    secret = "@" in bucket or "?" in rest or "#" in rest or (scheme in STORES and ":" in bucket)
    if scheme not in schemes or not bucket or ".." in key.split("/") or secret:
        raise InputError(
            f"{what} is a URL with scheme {scheme}: it must be a file, or a URL that has scheme {' or '.join(schemes)} "
            "and contains no user, port or options (set access keys in the environment)"
        )
    return f"{scheme}://{bucket}", key.strip("/")


def read_object(place: str | Path, kind: str, most: int | None = None) -> bytes:
    """Return an object's bytes. Error messages call the object `kind`.

    Raises UnseenObject if the object is missing or hidden, and InputError if it cannot be read, has more than `most`
    bytes or does not fit in memory. Messages omit the storage service's text, which may contain keys and signatures.
    """
    bucket, key = read_address(place, kind, (*STORES, "http", "https"))
    options: Any = {"client_options": {"allow_http": True}} if bucket.startswith("http:") else {}
    try:
        import obstore
        from obstore.store import from_url

        found = obstore.get(from_url(bucket, **options), key)
        limit = max(1 << 20, available_memory()) if most is None else most
        if found.meta["size"] <= limit:
            return bytes(found.bytes())
        reason = f"more than {limit:,} bytes"
    except ImportError:
        reason = "pip install '.[cloud]'"
    except Exception as problem:
        reason = type(problem).__name__
    unseen = reason in ("FileNotFoundError", "NotFoundError", "PermissionDeniedError")
    raise (UnseenObject if unseen else InputError)(f"{kind} {bucket}/{key} cannot be read from storage ({reason})")
