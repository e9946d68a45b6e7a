"""A bar while something takes long; in a log, a line now and then. And what the person there wants to be told."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: Seconds before a bar is shown: what is over by then needs none. Seconds between lines where stderr is no terminal.
_AFTER, _BETWEEN = 1.0, 30.0
#: The bar that is shown and how many use it; a terminal has room for one alone.
_shown: list[Any] = []
_changing = threading.RLock()


@dataclass
class Telling:
    """Whether notes and bars are left out in this process."""

    quiet: bool = False


TELLING = Telling()


@contextmanager
def progress(what: str, total: int | None = None, wanted: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much was done; a bar on stderr is gone afterwards.

    Where stderr is no terminal, a plain line every half minute tells that the work goes on.

    Parameters
    ----------
    what : is being done. total : of the work, None if not known.
    wanted : False for neither, True for a bar at once; None for "what takes long".
    """
    work, over = _Work(what, total), threading.Event()
    watcher = None
    if wanted is not False and not TELLING.quiet:
        watcher = threading.Thread(target=_watch, args=(work, over, wanted), daemon=True)
        watcher.start()
    try:
        yield work.advance
    finally:
        if watcher is not None:
            over.set()
            watcher.join()


class _Work:
    """Work that is being done: its words, and how much of it is done."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total, self.done, self._since = what, total, 0, time.monotonic()

    def advance(self, number: int) -> None:
        """Note that more was done."""
        self.done += number

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._since

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        done = f"{self.done:,}{of}, " if self.done or of else ""
        return f"{self.what}: {done}{self.seconds:,.0f} s so far"


def _watch(work: _Work, over: threading.Event, wanted: bool | None) -> None:
    """Show work until it is over."""
    on_terminal = wanted or sys.stderr.isatty()
    if over.wait((0.0 if wanted else _AFTER) if on_terminal else _BETWEEN):
        return
    if not on_terminal:
        told = True
        while told:
            print(work, file=sys.stderr, flush=True)
            told = not over.wait(_BETWEEN)
        return
    with _bar() as bar:
        task = bar.add_task(work.what, total=work.total, completed=work.done)
        while not over.wait(0.1):
            bar.update(task, completed=work.done)
        bar.remove_task(task)


@contextmanager
def _bar() -> Iterator[Any]:
    """Yield the bar that is shown, or show one; tasks stand below each other in it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with _changing:
        if not _shown:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            # What a command prints goes where it is led, not to stderr with the bar.
            bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            bar.start()
            _shown.append([bar, 0])
        use = _shown[0]
        use[1] += 1
    try:
        yield use[0]
    finally:
        with _changing:
            use[1] -= 1
            if not use[1]:
                _shown.clear()
                use[0].stop()
