"""Measure the free memory, and check it before large allocations."""

from __future__ import annotations

from pathlib import Path

from deltahist.errors import InputError


def available_memory() -> int:
    """Return the bytes that a new allocation can take without swapping, within the limit of a container."""
    free = 1 << 62
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, LookupError, ValueError, StopIteration):  # not Linux: an allocation may fail later
        pass
    for limit, used in (
        ("memory.max", "memory.current"),  # control groups, version 2 and 1
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        group = Path("/sys/fs/cgroup")
        try:
            free = min(free, int((group / limit).read_text()) - int((group / used).read_text()))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return max(free, 0)


def check_memory(needed: int, what: str) -> None:
    """Raise InputError if `needed` bytes exceed the free memory. Requests up to 1 MiB always pass."""
    if needed > 1 << 20 and needed > (available := available_memory()):
        raise InputError(
            f"{what} needs about {needed / 2**30:,.1f} GiB, but {available / 2**30:,.1f} GiB are available: use larger "
            "cells or a smaller domain"
        )
