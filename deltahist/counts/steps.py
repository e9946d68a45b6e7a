"""Counting step by step: a table with a time column becomes one grid of counts per step, in one pass."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counts.arrays import Tally
from deltahist.counts.files import Reading, read_rows
from deltahist.counts.private import Private
from deltahist.domain import Domain
from deltahist.domain.counting import Counting
from deltahist.errors import InputError, fits_memory

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Clock:
    """Steps of time: equal periods from a start, or plain step numbers.

    Parameters
    ----------
    start : first second of step 0 (since 1970, UTC); or the first step number.
    every : seconds of a step; 0 for plain step numbers.

    >>> clock = Clock.of("2010-01-01", "1d")
    >>> clock.step("2010-01-31"), clock.label(30)
    (30, '2010-01-31')
    """

    start: int
    every: int

    @classmethod
    def of(cls, start: str, every: str | None) -> Clock:
        """From text: a date or date-time and a period such as 1d, 6h, 15min; or a whole number and None.

        Raises InputError if they cannot be read or do not go together.
        """
        if re.fullmatch(r"[-+]?\d{1,15}", start.strip()):
            if every is not None:
                raise InputError(
                    f"every is {every!r} with start {start!r}: step numbers have no period; leave it out"
                )
            return cls(int(start), 0)
        if every is None:
            raise InputError(
                f"every is missing with start {start!r}: give the period of a step, such as 1d or 6h"
            )
        found = re.fullmatch(r"\s*(\d{1,9})\s*(s|min|h|d|w)\s*", every)
        if found is None or not int(found[1]):
            raise InputError(
                f"every is {every!r}: it must be a whole number with a unit, such as 1d, 6h, 15min or 1w"
            )
        return cls(seconds(start, "start"), int(found[1]) * _UNITS[found[2]])

    def step(self, text: str, name: str = "until") -> int:
        """The step that a text's time lies in, from 0."""
        if self.every == 0:
            if not re.fullmatch(r"[-+]?\d{1,15}", text.strip()):
                raise InputError(f"{name} is {text!r}: it must be a whole number, as start is")
            return int(text) - self.start
        return (seconds(text, name) - self.start) // self.every

    def label(self, step: int) -> str:
        """A step's name: its date, with the time of day where steps are shorter; or its number."""
        if self.every == 0:
            return str(self.start + step)
        at = _EPOCH + datetime.timedelta(seconds=self.start + step * self.every)
        whole_days = self.every % 86_400 == 0 and self.start % 86_400 == 0
        return at.strftime("%Y-%m-%d" if whole_days else "%Y-%m-%dT%H%M%S")

    def steps(self, times: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Steps of an Arrow column of times, and which of them can be read."""
        import pandas as pd
        import pyarrow as pa

        kind = times.type
        if self.every == 0:
            values = pd.to_numeric(times.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
            good = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 1e15)
            return np.where(good, values, self.start).astype(np.int64) - self.start, good
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            raise InputError(
                "the time column holds numbers: with every= it must hold dates or date-times (ISO 8601); for step "
                "numbers give start= as a whole number"
            )
        read = pd.to_datetime(times.to_pandas(), utc=True, errors="coerce", format="ISO8601")
        whole = pd.DatetimeIndex(read).tz_localize(None).to_numpy().astype("datetime64[s]")
        good = ~np.isnat(whole)
        since = np.where(good, whole.astype(np.int64), self.start)
        return (since - self.start) // self.every, good


def seconds(text: str, name: str) -> int:
    """Seconds since 1970 of an ISO 8601 date or date-time, in UTC unless it says otherwise."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"{name} is {text!r}: it must be a date or date-time, such as 2010-01-31 or 2010-01-31T06:00 (UTC), or a "
            "whole number"
        ) from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
    return int((at - _EPOCH).total_seconds())


@dataclass(frozen=True, eq=False)
class Stepped:
    """Points of a table by step and cell, sorted. All of it is for the trusted side only.

    Parameters
    ----------
    keys : (m,) step · cells + cell, sorted.
    domain : of the cells.
    rows : read altogether. before, after : of them before the first step, and after the last.
    upto : (steps,) rows in the steps up to and with each one, before users were bounded.
    counting : how rows became counts.
    """

    keys: NDArray[np.int64]
    domain: Domain
    rows: int
    before: int
    after: int
    upto: NDArray[np.int64]
    counting: Counting

    def counts(self, step: int) -> Private:
        """Counts (domain.shape) of one step."""
        size = self.domain.size
        first, last = np.searchsorted(self.keys, (step * size, (step + 1) * size))
        counts = np.bincount(self.keys[first:last] - step * size, minlength=size)
        return Private.of(counts.reshape(self.domain.shape), self.counting, self.domain)


class _Keys(Tally):
    """Cells of rows, kept one by one."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain)
        self.parts: list[NDArray[np.int64]] = []

    def add(self, cells: NDArray[np.int64]) -> None:
        """Keep the rows' places."""
        self.parts.append(cells)


def count_steps(
    path: str | Path,
    domain: Domain,
    clock: Clock,
    steps: int,
    *,
    time: str | int,
    due: int = 0,
    **how: Any,
) -> Stepped:
    """Count a table's points in each of the first `steps` steps of a clock.

    Parameters
    ----------
    path, domain, how : as for `count_file`; users are bounded within each step.
    clock : of the steps. steps : how many there are; other rows are left out and counted.
    time : the column of times.
    due : the first step that is to be published; many points outside are refused only if they lie in these steps.

    Raises
    ------
    InputError
        As `count_file` does, and on times that cannot be read.
    """
    if steps * domain.size >= 1 << 62:
        raise InputError(
            f"there are {steps:,} steps of {domain.size:,} cells: too many for one table; use fewer"
        )
    fits_memory(48 * domain.size, f"a grid of {domain.size:,} cells")
    keys = _Keys(domain)
    seen = np.zeros(steps, dtype=np.int64)
    apart = [0, 0]

    def place(times: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        step, good = clock.steps(times)
        early, late = good & (step < 0), good & (step >= steps)
        apart[0] += int(early.sum())
        apart[1] += int(late.sum())
        step = np.where(early | late | ~good, -1, step)
        np.add.at(seen, step[step >= 0], 1)
        return step, good

    read = read_rows(Path(path), domain, keys, Reading(**how), time=time, steps=place, due=due)
    found = np.sort(np.concatenate(keys.parts)) if keys.parts else np.zeros(0, dtype=np.int64)
    return Stepped(found, domain, read.rows, apart[0], apart[1], np.cumsum(seen), read.counting)


def step_files(folder: Path, labels: Sequence[str]) -> dict[str, Path]:
    """The file of each step in a folder, by its name without the ending.

    Raises InputError if two files belong to one step, or a file's name is no step and none after the last.
    """
    found: dict[str, Path] = {}
    for file in _files(folder):
        label = file.name.split(".")[0]
        if label in found:
            raise InputError(
                f"files {found[label].name!r} and {file.name!r} are both for step {label}: there must be one"
            )
        found[label] = file
    known = set(labels)
    # Files of steps to come may wait; what sorts among the steps, or is no number or date, is a slip.
    end = (len(labels[-1]), labels[-1])
    strange = sorted(n for n in found if n not in known and ((len(n), n) <= end or not n[:1].isdigit()))
    if strange:
        raise InputError(
            f"file {found[strange[0]].name!r} in {str(folder)!r} belongs to no step: names are the steps' dates or "
            f"numbers, {labels[0]} to {labels[-1]} here"
        )
    return {label: file for label, file in found.items() if label in known}


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith("."))
