"""A hook through which long work reports its progress. The command line shows it as a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

Advance: TypeAlias = Callable[[int], None]
#: Shows a piece of work, by its name and its total number (None if unknown), while it is done.
SHOW: Callable[[str, int | None], AbstractContextManager[Advance]] | None = None


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """Yield a function that reports how much more was done; also a decorator of functions that take long.

    >>> with progress("counting", 3) as advance:
    ...     advance(1)
    """
    if SHOW is None:
        yield lambda number: None
        return
    with SHOW(what, total) as advance:
        yield advance
