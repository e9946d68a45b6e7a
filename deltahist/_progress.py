"""A bar on the terminal while something takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int | None, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much was done; the bar is on stderr, and gone afterwards.

    Parameters
    ----------
    what : is being done. total : of the work, None if not known.
    wanted : whether to show it; None for "where stderr is a terminal".
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)
