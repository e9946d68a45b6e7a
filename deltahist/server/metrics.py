"""Metrics of the service for Prometheus, with labels of known routes and releases only."""

from __future__ import annotations

import os
import tempfile

from starlette.types import ASGIApp, Scope

from deltahist._http import at_port, route_of
from deltahist.server.catalogue import Catalogue
from deltahist.server.logs import release_of

#: Upper ends in seconds of what the duration of requests is counted in.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Numbers of requests and their durations, over all workers, in a folder that they share.

    Only one may be made in a process, before any other use of the client library.

    Parameters
    ----------
    port : whose requests are answered with the metrics.
    """

    def __init__(self, port: int) -> None:
        self.port, self._folder = port, tempfile.TemporaryDirectory(prefix="deltahist-metrics-")
        # The client library looks for this when it is imported.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = self._folder.name
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Histogram,
            make_asgi_app,
            multiprocess,
            values,
        )

        self._place = "0"
        # A file for each place of a worker, not for each process: they would become ever more.
        values.ValueClass = values.MultiProcessValue(lambda: self._place)
        shared = CollectorRegistry()
        multiprocess.MultiProcessCollector(shared, self._folder.name)
        self._page = make_asgi_app(shared)
        self._requests = Counter(
            "deltahist_requests", "Requests that ended.", ["route", "status", "release"], registry=None
        )
        self._seconds = Histogram(
            "deltahist_request_seconds", "Duration of requests.", ["route"], buckets=_BUCKETS, registry=None
        )

    def take_place(self, number: int) -> None:
        """Count from now on as the worker of a number, which no other that runs has."""
        self._place = str(number)

    def count(self, scope: Scope, catalogue: Catalogue, status: int, seconds: float) -> None:
        """Count a request that ended."""
        route = route_of(scope)
        self._requests.labels(route, status, release_of(scope, catalogue) or "").inc()
        self._seconds.labels(route).observe(seconds)

    def beside(self, app: ASGIApp) -> ASGIApp:
        """Return an application that answers at the port of the metrics with them, and otherwise as `app` does."""
        return at_port(self.port, self._page, app)
