"""Reading untrusted files in a process of its own, with limits on time and memory."""

from deltahist._confined.process import DRIVERS, Child, Unreadable

__all__ = ["DRIVERS", "Child", "Unreadable"]
