"""Threads of one process that stand in line for one thing: first come, first served."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Line:
    """Who waits for its turn; whoever is done hands it to the one that has waited longest, and to no other.

    >>> line = Line()
    >>> with line.turn(patience=1.0):
    ...     len(line.waiting)
    1
    """

    waiting: deque[threading.Lock] = field(default_factory=deque)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def turn(self, patience: float) -> Iterator[None]:
        """Wait for a turn, or so many seconds: then go on without one."""
        mine = threading.Lock()
        mine.acquire()
        with self._guard:
            self.waiting.append(mine)
            first = self.waiting[0] is mine
        try:
            if not first:
                mine.acquire(timeout=patience)
            yield
        finally:
            with self._guard:
                first = self.waiting[0] is mine
                self.waiting.remove(mine)
                if first and self.waiting:
                    self.waiting[0].release()
