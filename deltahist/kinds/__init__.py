"""The table of all kinds of releases, and the reader of their files.

Releases of counts are in `mechanisms` and `releases`. Every other kind has a file here. In it, the mechanism states the
guarantee and measures data, and the release computes estimates. Publishers draw noise and charge accounts.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import BinaryIO

from deltahist._files import read_described, read_parquet
from deltahist.errors import DeltaHistWarning
from deltahist.kinds.quantile import Quantile, QuantileMechanism
from deltahist.kinds.sorted import SortedMechanism, SortedRelease
from deltahist.releases import BaseRelease, Release
from deltahist.releases.base import attach_notice, read_content

__all__ = [
    "RELEASES", "Quantile", "QuantileMechanism", "SortedMechanism", "SortedRelease", "load", "parse_release",
    "read_release",
]  # fmt: skip

#: Release classes by kind, as named in files. To add a kind, add a file to this package and its class here.
RELEASES: dict[str, type[BaseRelease]] = {cls.mechanism_class.kind: cls for cls in (Release, SortedRelease, Quantile)}
_read = functools.partial(read_content, RELEASES)


def load(path: str | Path) -> BaseRelease:
    """Open a release file, which is untrusted input, and return a Release, SortedRelease or Quantile.

    Warns if the release is withdrawn (docs/streams.md). Raises DamagedFile if the file or its notice of withdrawal is
    truncated, altered, too new or not from deltahist. Raises InputError if the file is missing or too large.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dh.publish(np.array([5, 0, 3, 2]), near, epsilon=1.0).save(f"{folder}/r.parquet")
    ...     type(load(f"{folder}/r.parquet")).__name__
    'Release'
    """
    release = read_release(path)
    if release.withdrawn is not None:
        warnings.warn(f"{path} was withdrawn {release.withdrawn}", DeltaHistWarning, stacklevel=2)
    return release


def read_release(path: str | Path) -> BaseRelease:
    """Open a release file as `load` does, but do not warn if it is withdrawn."""
    return attach_notice(read_described(path, _read), path)


def parse_release(content: bytes | BinaryIO, path: str | Path) -> BaseRelease:
    """Return the release in an open Parquet file or its bytes. It raises the errors of `load`, which name `path`."""
    return read_parquet(content, path, _read)
