"""Files that appear whole or not at all, release files (untrusted input), and files in object storage."""

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

from deltahist.errors import DamagedFile, InputError, check_choice, check_memory, check_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Keys of a release's description and digest in the Parquet metadata. A file of JSON alone holds its own digest.
KEY, DIGEST = b"deltahist", "sha256"
#: Bytes of the longest description that is read; a real one has a few thousand.
_MOST_DESCRIPTION = 64 << 20
_Read = TypeVar("_Read")
#: Kinds of object storage, and the pattern of an address. `Path` keeps one of two slashes.
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


def read_described(path: str | Path, read: Callable[..., _Read]) -> _Read:
    """Open a release file and return `read(description, digest, file, path)`.

    `digest` is the stated one. `file` is the open Parquet file, or None for a file that is one JSON object.

    Raises InputError if the file is missing, and DamagedFile if it is truncated, foreign or oversized, or if `read`
    fails on its content.
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
    """Do as `read_described` does for Parquet in an open file or in bytes; errors name `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _report_damage(path):
        source: Any = pa.BufferReader(content) if isinstance(content, bytes) else content
        source.seek(max(0, source.seek(0, os.SEEK_END) - 8))
        end = source.read(8)
        # The footer holds the description twice, once in base64.
        if end[4:] != b"PAR1" or int.from_bytes(end[:4], "little") > 3 * _MOST_DESCRIPTION:
            raise ValueError("it is neither JSON nor Parquet with a footer of the usual size")
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            meta = file.schema_arrow.metadata or {}
            description = _parse_description(meta.get(KEY, b""))
            return read(description, meta.get(DIGEST.encode(), b"").decode(), file, str(path))


@contextlib.contextmanager
def _report_damage(path: str | Path) -> Iterator[None]:
    """Turn every error that the content of an untrusted file causes into DamagedFile."""
    from pyarrow import ArrowException

    try:
        yield
    except InputError:
        raise
    except (
        *(ArrowException, OSError, LookupError, TypeError, ValueError),
        *(AttributeError, RecursionError, ArithmeticError),
    ) as problem:
        raise DamagedFile(f"file {str(path)!r} is damaged, or not a release: {first_line(problem)}") from None


def _parse_description(text: bytes) -> dict[str, Any]:
    # Cutting a longer description makes it invalid JSON.
    return dict(json.loads(text[:_MOST_DESCRIPTION]))


def open_regular(path: Path, what: str) -> BinaryIO:
    """Open a regular file to read it; InputError on anything else. `what` names the file in messages."""
    try:
        # Opening a named pipe would wait for its writer.
        if path.exists() and not path.is_file():
            raise OSError(0, "it must be a regular file")
        return path.open("rb")
    except OSError as problem:
        raise InputError(f"{what} {str(path)!r} cannot be opened: {problem.strerror}") from None


def check_format(description: dict[str, Any], path: str, forms: Collection[str], version: int) -> str:
    """Return a file's format; DamagedFile unless it is among `forms`, in at most that version."""
    form, stated = description["format"], check_whole(version=description["version"])
    if form not in forms or stated > version:
        raise DamagedFile(
            f"file {path!r} is {form!r:.80}, version {stated}: this program reads {', '.join(forms)}, version {version}"
        )
    return str(form)


def read_values(file: Any) -> NDArray[np.int64]:
    """Return the column `value` of an open Parquet file. The caller has bounded its stated size."""
    import numpy as np

    values, start = np.zeros(file.metadata.num_rows, dtype=np.int64), 0
    if (kind := file.schema_arrow.field("value").type) != "int64":
        raise ValueError(f"its values are {kind}: they must be int64")
    # More rows than stated do not fit. Fewer, or missing ones, leave numbers that the digest does not cover.
    for batch in file.iter_batches(1 << 17, columns=["value"], use_threads=False):
        part = batch.column("value")
        # Arrow's own conversion to NumPy would import pandas.
        own = np.frombuffer(part.buffers()[1], dtype=np.int64, count=len(part), offset=8 * part.offset)
        values[start : start + len(part)] = own
        start += len(part)
    return values


def form_of(path: str | Path, forms: Mapping[str, str]) -> str:
    """Return the form of an output by its suffix; InputError unless it is one of `forms`."""
    return forms[check_choice(tuple(forms), suffix=Path(path).suffix.lower())]


@contextlib.contextmanager
def _make_part(target: Path) -> Iterator[Path]:
    """Make an empty temporary file next to a target, and remove it at the end; InputError if that fails."""
    part = None
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        yield (part := Path(name))
    except OSError as problem:
        raise InputError(f"output {str(target)!r} cannot be written: {problem.strerror or problem}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def check_creatable(target: str | Path) -> None:
    """Raise InputError unless `write_whole` can write a file. Call it before anything is charged."""
    with _make_part(Path(target)):
        pass


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
    """Raise InputError if other users can read a secret, or can write it if it is `readable`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (0o022 if readable else 0o077):
        mended = "go-w" if readable else "600"
        raise InputError(f"{what} {str(path)!r} has mode {mode:o}, which is open to other users: chmod {mended} it")


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on a file next to `path` until the block or the process ends; InputError if it is already held."""
    from filelock import FileLock

    try:
        lock = FileLock(f"{path.resolve()}-lock", timeout=0).acquire()
    except OSError as problem:  # such as filelock.Timeout
        raise InputError(f"{what} {str(path)!r} is in use by another process, or cannot be locked: {problem}") from None
    with lock:
        yield


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
    """An object that does not exist, or that is not visible."""


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
    pattern = rf"({'|'.join(STORES)}):/.*|https?:/.*\.parquet"
    return re.fullmatch(pattern, Path(place).as_posix(), re.IGNORECASE | re.DOTALL) is not None


def read_address(path: str | Path, what: str, schemes: tuple[str, ...] = STORES) -> tuple[str, str]:
    """Return the store and the key of an address, "s3://bucket" and "visits/a.parquet".

    Raises InputError on another kind of address, and on one that may hold a secret, which no message shows.
    """
    match = _ADDRESS.fullmatch(Path(path).as_posix())
    assert match is not None
    scheme, rest = match[1].lower(), match[2]
    bucket, _, key = rest.partition("/")
    secret = "@" in bucket or "?" in rest or "#" in rest or (scheme in STORES and ":" in bucket)
    if scheme not in schemes or not bucket or ".." in key.split("/") or secret:
        raise InputError(
            f"{what} is an address {scheme}://: it must be a file, or a place in {', '.join(schemes)} without a user, "
            "a port or options (keys are taken from the environment)"
        )
    return f"{scheme}://{bucket}", key.strip("/")


def read_object(place: str | Path, kind: str, most: int | None = None) -> bytes:
    """Return an object's bytes; `kind` is named in messages.

    Raises UnseenObject if there is none, and InputError if it has more than `most` bytes, or more than fit into memory,
    or cannot be read. Messages omit what the storage says, which may hold keys and signatures.
    """
    bucket, key = read_address(place, kind, (*STORES, "http", "https"))
    options: Any = {"client_options": {"allow_http": True}} if bucket.startswith("http:") else {}
    try:
        import obstore
        from obstore.store import from_url

        found = obstore.get(from_url(bucket, **options), key)
        size = found.meta["size"]
        if most is None or size <= most:
            check_memory(size, f"{kind} {bucket}/{key}")
            return bytes(found.bytes())
        reason = f"more than {most:,} bytes"
    except InputError:
        raise
    except ImportError:
        reason = "pip install 'deltahist[cloud]'"
    except Exception as problem:
        reason = type(problem).__name__
    unseen = reason in ("FileNotFoundError", "NotFoundError", "PermissionDeniedError")
    raise (UnseenObject if unseen else InputError)(f"{kind} {bucket}/{key} cannot be read from the storage ({reason})")
