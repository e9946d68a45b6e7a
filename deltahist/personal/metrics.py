"""Metrics of the private service for Prometheus: how many asked, and how many were refused before a step."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, make_asgi_app
from starlette.types import Scope

#: The mark of a request that was taken into a step.
TAKEN = "deltahist.taken"


class RequestCounts:
    """Numbers of requests: those that were taken into a step, and others by their status.

    What became of a request in its step is not counted, since it may depend on records. Nor is the process measured:
    its time and memory do.

    Attributes
    ----------
    page : the application that answers with them.

    >>> metrics = RequestCounts()
    >>> metrics.count({TAKEN: True}, 500)
    >>> metrics.count({}, 401)
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._requests = Counter(
            "deltahist_private_requests",
            'Requests that ended: "taken" into a step, or the status without one.',
            ["status"],
            registry=registry,
        )
        self.page = make_asgi_app(registry)

    def count(self, scope: Scope, status: int) -> None:
        """Count a request that ended."""
        self._requests.labels("taken" if TAKEN in scope else status).inc()
