"""A bar on the terminal while something takes long, and what the person there wants to be told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Telling:
    """Whether notes and bars are left out, or seconds are told too, in this process."""

    quiet: bool = False
    verbose: bool = False


TELLING = Telling()


@contextmanager
def progress(what: str, total: int | None, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much was done; the bar is on stderr, and gone afterwards.

    Parameters
    ----------
    what : is being done. total : of the work, None if not known.
    wanted : whether to show it; None for "where stderr is a terminal".
    """
    started = time.monotonic()
    with _bar(what, total, not TELLING.quiet and (sys.stderr.isatty() if wanted is None else wanted)) as advance:
        yield advance
    if TELLING.verbose:
        print(f"{what}: {time.monotonic() - started:.2f} s", file=sys.stderr)


@contextmanager
def _bar(what: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)
