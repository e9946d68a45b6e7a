"""Work on many rows, some at a time, by as many threads as there are processors."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Fewer parts than this are done before threads have begun.
_FEW = 4


def in_parts(work: Callable[[slice], None], number: int, size: int) -> None:
    """Do work on rows 0 to `number`, `size` at a time; parts are independent of each other.

    >>> done = []
    >>> in_parts(lambda rows: done.append(rows.start), 5, 2)
    >>> done
    [0, 2, 4]
    """
    parts = [slice(start, min(start + size, number)) for start in range(0, number, size)]
    if len(parts) < _FEW:
        for part in parts:
            work(part)
        return
    for _ in _pool(os.getpid()).map(work, parts):
        pass


@functools.lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of a process; those of the one that it was forked from are not its own."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="deltahist")
