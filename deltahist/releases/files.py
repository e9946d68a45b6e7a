"""Opening a release file of any kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from deltahist._files import read_described, read_parquet
from deltahist.errors import DamagedFile
from deltahist.releases.base import BaseRelease


def load(path: str | Path) -> BaseRelease:
    """Open a release file of any kind: of counts, of sorted points, or a quantile.

    The file is treated as untrusted input.

    Returns
    -------
    Release, SortedRelease or Quantile

    Raises
    ------
    DamagedFile
        If the file is truncated, foreign, or contradicts itself.
    InputError
        If it is missing, of a newer version, or larger than memory allows.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.array([5, 0, 3, 2]), near, epsilon=1.0).save(f"{folder}/r.parquet")
    ...     type(load(f"{folder}/r.parquet")).__name__
    'Release'
    """
    return read_described(path, _read)


def to_bytes(release: BaseRelease) -> bytes:
    """The bytes of the file that `save` writes."""
    buffer = io.BytesIO()
    release.write(buffer)
    return buffer.getvalue()


def from_bytes(content: bytes, path: str | Path) -> BaseRelease:
    """The release in the bytes of a file that `save` wrote; `path` is named in errors, which are those of `load`."""
    return read_parquet(content, Path(path), _read)


def _read(description: dict[str, Any], file: Any, path: str) -> BaseRelease:
    form = description["format"]
    kinds = BaseRelease.KINDS
    if form not in kinds:
        raise DamagedFile(f"file {path!r} is {form!r}: it must be one of {', '.join(kinds)}")
    return kinds[form].read(description, file, path)
