"""A running service: in this process, or in workers that share the releases it has read."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deltahist.errors import InputError
from deltahist.server.answers import BoxQuery, asks_degrees
from deltahist.server.app import PACE, create_app
from deltahist.server.catalogue import Catalogue
from deltahist.server.metrics import Metrics
from deltahist.server.settings import Settings
from deltahist.space.crs import Operation
from deltahist.space.geometries import LONGITUDE_LATITUDE

_LOG = logging.getLogger("deltahist.server")
#: Seconds that a connection may be idle between requests, and that a request's head may take.
_IDLE, _HEAD = 5, 10
#: Seconds for which requests may run on when the service ends, and until what goes on then is killed.
_GRACE, _KILL = 10, 15
#: Seconds between two looks at the workers, and within which a worker that ended is not started anew.
_LOOK, _PAUSE = 0.1, 1.0
_ENDING = (signal.SIGTERM, signal.SIGINT)
#: Seconds after which a thread that waits for the interpreter gets it. A call for boxes lets it go in every longer sum
#: of NumPy, and would each time wait for ten times as long beside a loop that has much to do.
_SWITCH = 0.0005


def run(
    catalogue: Catalogue,
    settings: Settings,
    listening: socket.socket,
    workers: int = 1,
    watched: socket.socket | None = None,
) -> None:
    """Answer requests at a listening socket until the process is told to end; running requests may end first.

    One worker is this process. Several are forked from it after it has read the releases, so that they share their
    memory. One that is killed is replaced. When files change, new workers take the place of the old ones, which end
    what they have begun.

    Parameters
    ----------
    watched : a listening socket where metrics are read.

    Raises
    ------
    InputError
        If several workers are asked for where processes cannot be forked.
    """
    sys.setswitchinterval(_SWITCH)
    with contextlib.suppress(ImportError, ValueError, OSError):  # elsewhere than on Linux
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every connection is a file
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # whoever stops reading an answer is hung up on
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * settings.max_seconds)
    metrics = None if watched is None else Metrics(watched.getsockname()[1])
    sockets = [listening] if watched is None else [listening, watched]
    if workers == 1:
        return _Server(_config(catalogue, settings, metrics, refresh=True)).run(sockets)
    if not hasattr(os, "fork"):
        raise InputError(f"workers is {workers}: it must be 1 on this system, which cannot fork processes")
    parent = os.getpid()
    _warm(catalogue)

    def serve(place: int) -> None:
        if metrics is not None:
            metrics.take_place(place)
        _Server(_config(catalogue, settings, metrics, refresh=False), parent).run(sockets)

    _Crew(catalogue, sockets, serve, workers).work()


def _warm(catalogue: Catalogue) -> None:
    """Answer a box in the middle of each map: what a first answer makes is then there, and shared by workers."""
    for served in catalogue.in_force():
        with contextlib.suppress(Exception):  # why there is no answer is told to whoever asks
            domain = served.release.domain
            middle, cell = (np.array(domain.low) + np.array(domain.high)) / 2, np.array(domain.cell)
            ends = np.stack([middle - cell, middle + cell])
            degrees = asks_degrees(served.release, None)
            if degrees:
                ends = np.sort(np.stack(Operation.off(domain, LONGITUDE_LATITUDE)(*ends.T), axis=1), axis=0)
            BoxQuery(served.release, degrees, 0.95, False).answer(ends.reshape(1, -1))


def _config(
    catalogue: Catalogue, settings: Settings, metrics: Metrics | None = None, *, refresh: bool
) -> uvicorn.Config:
    app = create_app(catalogue, settings, refresh=refresh, metrics=metrics)
    return configure(app if metrics is None else metrics.beside(app), _GRACE)


def configure(app: ASGIApp, grace: int) -> uvicorn.Config:
    """Return how an application is served: heads must come in time, and no access log is kept.

    Parameters
    ----------
    grace : seconds for which requests may run on when the service ends.
    """
    return uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=grace,
    )


class _Connection(HttpToolsProtocol):
    """A connection that is closed when the head of a request does not come in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(_HEAD, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._late.cancelled() and self.cycle.response_complete:  # another head begins
            self._late = self.loop.call_later(_HEAD, self.transport.abort)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._late.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A server that ends when the process that forked it does, if one did."""

    def __init__(self, config: uvicorn.Config, parent: int | None = None) -> None:
        super().__init__(config)
        self._parent = parent

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._parent not in (None, os.getppid())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the process even if a call in a thread goes on, which cannot be stopped."""
        await super().shutdown(sockets)
        last = threading.Timer(_KILL - _GRACE, os._exit, (128 + signal.SIGTERM,))
        last.daemon = True
        last.start()


@dataclass
class _Crew:
    """Workers that serve the releases of this process.

    Parameters
    ----------
    serve : serves until the process gets SIGTERM; its place among those that run is given.
    """

    catalogue: Catalogue
    sockets: list[socket.socket]
    serve: Callable[[int], None]
    number: int
    _working: dict[int, float] = field(default_factory=dict)  # when each process started
    _places: dict[int, int] = field(default_factory=dict)  # of these, and of those that are leaving

    def work(self) -> None:
        """Keep workers serving until an exception, such as that of a signal, ends this process."""
        try:
            looked = time.monotonic()
            self._start()
            while True:
                time.sleep(_LOOK)
                self._bury()
                if time.monotonic() - looked >= PACE:
                    if self.catalogue.refresh():
                        _warm(self.catalogue)
                        self._replace()
                    looked = time.monotonic()
                self._start()
        finally:
            self._end()

    def _replace(self) -> None:
        """Start workers with the releases as they are now, and let the others end what they have begun."""
        old = list(self._working)
        self._working.clear()
        self._start()
        _tell(old, signal.SIGTERM)

    def _start(self) -> None:
        missing = self.number - len(self._working)
        if not missing:
            return
        # No collection in a worker may touch, and thus copy, what it shares.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        for _ in range(missing):
            place = min(set(range(1, len(self._places) + 2)) - set(self._places.values()))
            with warnings.catch_warnings(), _undisturbed():
                # Threads of Arrow wait for work, hold no locks, and are started anew in a worker.
                warnings.simplefilter("ignore", DeprecationWarning)
                worker = os.fork()
                if worker == 0:
                    self._serve(place)
                self._working[worker], self._places[worker] = time.monotonic(), place

    def _serve(self, place: int) -> None:
        """Serve in a worker, and end its process: it must not run on as a copy of the other."""
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
                self.serve(place)
            except Exception:
                _LOG.exception("a worker failed")
        sys.stderr.flush()
        os._exit(0)

    def _bury(self) -> None:
        """Forget workers that ended; wait a while if one ended at once."""
        while (ended := _ended()) is not None:
            started = self._working.pop(ended, None)
            self._places.pop(ended, None)
            if started is not None:
                _LOG.warning("worker %d ended: another takes its place", ended)
                if time.monotonic() - started < _PAUSE:
                    time.sleep(_PAUSE)

    def _end(self) -> None:
        """End all workers, and kill those that do not end in time."""
        for each in self.sockets:
            each.close()  # or who asks now would wait for an answer
        left = set(self._places)
        _tell(left, signal.SIGTERM)
        until = time.monotonic() + _KILL
        while left:
            ended = _ended()
            if ended is not None:
                left.discard(ended)
            elif time.monotonic() > until:
                _tell(left, signal.SIGKILL)
                until += _KILL
            else:
                time.sleep(_LOOK / 10)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let signals that end the process wait: a worker must not take the signals of the other for its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _ended() -> int | None:
    """Return a child process that ended, and was not waited for yet; None if there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] or None
    except ChildProcessError:
        return None


def _tell(processes: list[int] | set[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
