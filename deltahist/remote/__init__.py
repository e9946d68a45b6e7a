"""Releases behind a service: `release` has the methods of a release, `transport` the manners of HTTP."""

from deltahist.remote.release import RemoteRelease, connect

__all__ = ["RemoteRelease", "connect"]
