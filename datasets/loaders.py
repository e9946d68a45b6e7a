"""`load` reads a public file from disk or the network, after checking its hash."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

from datasets.registry import REGISTRY, Entry

_MOST = 2 << 30  # bytes, for files of unknown size
_TIMEOUT = 60.0  # seconds without a response


class DataError(ValueError):
    """A data file that is missing, cannot be fetched, or has the wrong content."""


def load(
    name: str,
    path: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    *,
    sha256: str | None = None,
) -> Any:
    """Load a public data set after checking its SHA-256.

    Parameters
    ----------
    name : str
        A key of `datasets.REGISTRY`. Each entry gives the file's origin, its citation, and whether it is an excerpt.
    path : path, optional
        A local copy to read, plain or gzip, instead of a download.
    cache : path, optional
        Folder for downloads; by default `deltahist` in XDG_CACHE_HOME or ~/.cache.
    sha256 : str, optional
        The hash to check instead of the registry's, for a local file that is not in the registry (such as the complete
        file of an excerpt). Requires `path`.

    Returns
    -------
    pandas.DataFrame or numpy.ndarray
        The result of the entry's `parse`. A table has `title`, `excerpt` and `citation` in its `attrs`.

    Raises
    ------
    DataError
        If the name is unknown, the file is missing or cannot be fetched, or its hash differs. A refused download
        leaves no file.
    """
    entry = _entry(name)
    if path is not None:
        content = _local(entry, Path(path), sha256)
    elif sha256 is not None:
        raise DataError("sha256 requires path (a local file)")
    else:
        file = _fetch(name, entry, cache)
        hint = " (delete the file to download it again)"
        content = _verified(_read(file), entry.sha256, entry.size, str(file), hint)
    return _described(entry.parse(content), entry, whole=sha256 is not None)


def _local(entry: Entry, path: Path, sha256: str | None) -> bytes:
    """Return the content of the user's copy, checked against the user's hash if there is one."""
    if sha256 is not None:
        return _verified(_read(path), sha256, _MOST, str(path))
    hint = f" (an excerpt is registered: {entry.excerpt}; for another version, give sha256= too)"
    return _verified(_read(path), entry.sha256, entry.size, str(path), hint if entry.excerpt else "")


def _entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise DataError(f"no data set is called {name!r}: choose one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[name]


def _described(data: Any, entry: Entry, *, whole: bool) -> Any:
    """Attach title, excerpt and citation to a table; arrays have no attributes."""
    if hasattr(data, "attrs"):
        excerpt = "not the registered file: the caller stated its hash" if whole else entry.excerpt
        data.attrs.update(title=entry.title, excerpt=excerpt, citation=entry.citation)
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise DataError(f"cannot read {path}: {problem.strerror or problem}") from problem


def _verified(stored: bytes, expected: str, size: int, place: str, hint: str = "") -> bytes:
    """Return the content of a file if its bytes, or its text inside the gzip, have the expected hash."""
    found = [hashlib.sha256(stored).hexdigest()]
    content: bytes | None = stored
    if stored[:2] == b"\x1f\x8b":
        content = _unzipped(stored, size, place)
        inside = "unknown, because the text is too long" if content is None else hashlib.sha256(content).hexdigest()
        found.append(inside)
    if content is not None and expected.lower() in found:
        return content
    listed = " and of the text inside the gzip: ".join(found)
    raise DataError(f"{place} is not the expected file: its SHA-256 should be {expected}, but is {listed}{hint}")


def _unzipped(stored: bytes, most: int, place: str) -> bytes | None:
    """Return the text of a gzip file, or None if it exceeds `most` bytes, because the file is not trusted yet."""
    engine = zlib.decompressobj(wbits=31)
    try:
        content = engine.decompress(stored, most + 1)
    except zlib.error as problem:
        raise DataError(f"{place} is a damaged gzip file: {problem}") from problem
    if len(content) > most:
        return None
    if not engine.eof:
        raise DataError(f"{place} is a truncated gzip file")
    return content


def _fetch(name: str, entry: Entry, cache: str | os.PathLike[str] | None) -> Path:
    """Return the path of the downloaded file, fetching it unless it is there. A refused file is deleted."""
    if not entry.urls:
        raise DataError(
            f"{name} cannot be downloaded: no public file is known to match the registered one "
            f"({entry.excerpt}). Give path=, and sha256= as well for another version. "
            f"It came from {entry.origin}"
        )
    import pooch

    target = Path(cache or pooch.os_cache("deltahist")) / f"{name}-{entry.sha256[:12]}"
    if target.exists():  # pooch would silently replace a damaged one
        return target
    problems = []
    for url in entry.urls:
        try:
            pooch.retrieve(
                url, entry.sha256, target.name, target.parent, downloader=pooch.HTTPDownloader(timeout=_TIMEOUT)
            )
        except (OSError, ValueError) as problem:  # no response, or another file
            problems.append(f"{url}: {problem}")
        else:
            return target
    raise DataError(
        f"cannot download {name}: {'; '.join(problems)}. Without a network, fetch the file elsewhere and give path="
    )
