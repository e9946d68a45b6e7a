"""Counting step by step: a table with a time column becomes one grid of counts per step, in one pass."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._objects import is_address
from deltahist.counting.arrays import Batch, CountedRows, Reading, Tally
from deltahist.counting.files import STDIN, read_file
from deltahist.counting.private import Private
from deltahist.errors import InputError, meant_file, one_of
from deltahist.preprocessing import SINCE_1970, Clock
from deltahist.space.domain import Domain

#: How many unreadable times are looked at to guess their format.
_EXAMPLES = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Stepped(CountedRows):
    """Points of a table by step and cell, sorted. All of it is for the trusted side only.

    Parameters
    ----------
    keys, numbers : (m,) step · cells + cell of full cells, rising, and the number of points in each.
    domain : of the cells.
    before, after : rows before the first step, and after the last.
    upto : (steps,) rows in the steps up to and with each one, before users were bounded.
    trouble : a sentence on the times of bad rows; "" if all were read.
    """

    keys: NDArray[np.int64]
    numbers: NDArray[np.int64]
    domain: Domain
    before: int
    after: int
    upto: NDArray[np.int64]
    trouble: str

    @property
    def kept(self) -> int:
        """Number of points counted."""
        return int(self.numbers.sum())

    def counts(self, step: int) -> Private:
        """Return the counts (domain.shape) of one step."""
        size = self.domain.size
        first, last = np.searchsorted(self.keys, (step * size, (step + 1) * size))
        counts = np.zeros(size, dtype=np.int64)
        counts[self.keys[first:last] - step * size] = self.numbers[first:last]
        return Private.of(counts.reshape(self.domain.shape), self.counting, self.domain)


class StepPlaces:
    """The steps of rows, the number of rows in each, and an example of times that cannot be read."""

    def __init__(self, clock: Clock, steps: int, due: int) -> None:
        self.clock, self.steps, self.due = clock, steps, due
        self.seen = np.zeros(steps, dtype=np.int64)
        self.before = self.after = self.unread = 0
        self.example = ""

    def __call__(self, batch: Batch, start: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the step of each row, -1 for none, and the rows whose times can be read; `start` rows came before."""
        step, good = steps_of(batch.times, self.clock)
        step = self.enter(step, good, np.ones(len(step), dtype=np.int64))
        if not self.example and not good.all():
            texts = [str(batch.times[int(i)].as_py() or "").strip() for i in np.flatnonzero(~good)[:_EXAMPLES]]
            self.example = f"is {texts[0][:40]!r}" if texts[0] else "is missing"
            self.example += f" in row {start + 1 + batch.row(int(np.argmin(good))):,}"
            if guesses := guess_formats([text for text in texts if text]) if self.clock.every else []:
                self.example += f" (then time_format={' or '.join(map(repr, guesses[:2]))})"
        return step, good

    def check_type(self, kind: Any) -> None:
        """Raise InputError if an Arrow type has no times; numbers are none unless the format tells."""
        import pyarrow as pa

        steps_of(pa.chunked_array([], kind), self.clock)

    def enter(
        self, step: NDArray[np.int64], good: NDArray[np.bool_], number: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count numbers of rows by their step, if it can be read; return the step, -1 for none."""
        early, late = good & (step < 0), good & (step >= self.steps)
        self.before += int(number[early].sum())
        self.after += int(number[late].sum())
        self.unread += int(number[~good].sum())
        step = np.where(early | late | ~good, -1, step)
        np.add.at(self.seen, step[step >= 0], number[step >= 0])
        return step

    def trouble(self) -> str:
        """Return an example for the person at the keyboard, its row, and the format that would read it."""
        example = self.example or "is missing"
        cause = " (is it the right column?)" if self.unread > self.before + self.after + self.seen.sum() else ""
        return f"; {self.unread:,} of them have no time that can be read: it {example}{cause}" if self.unread else ""


def count_steps(
    path: str | Path, domain: Domain, clock: Clock, steps: int, *, time: str | int, due: int = 0, **how: Any
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
        raise InputError(f"there are {steps:,} steps of {domain.size:,} cells: too many for one table; use fewer")
    tally, places = Tally(domain, steps=True), StepPlaces(clock, steps, due)
    read = read_file(path, tally, Reading(time=time, **how), steps=places)
    keys, numbers = tally.pairs()
    return Stepped(**vars(read), keys=keys, numbers=numbers, domain=domain, before=places.before, after=places.after,
                   upto=np.cumsum(places.seen), trouble=places.trouble())  # fmt: skip


def check_times(batch: Batch, clock: Clock, column: str) -> None:
    """Raise InputError if none of the first rows of a table has a time that can be read."""
    places = StepPlaces(clock, 1, 0)
    _, good = places(batch, 0)
    if len(good) and not good.any():
        raise InputError(f"column {column!r} holds no times: it {places.example} (is it the right column?)")


def check_folders(
    source: Path, time: Any, clock: Clock, gaps: str, out: Path, table: str | None = None
) -> None:
    """Raise InputError unless the input and the output folder go with each other, and are there."""
    one_of(("error", "empty"), gaps=gaps)
    if source != STDIN and not is_address(source) and not source.exists():
        raise InputError(f"input {str(source)!r} does not exist{meant_file(source)}")
    if time is None and not source.is_dir():
        shown = "an address" if is_address(source) else repr(str(source))
        raise InputError(f"time is missing with {shown}: a table needs the column of its times")
    if table is not None and source.is_dir():
        raise InputError(f"table is {table!r} with the folder {str(source)!r}: a table is one of a database")
    if time is None and clock.format is not None:
        raise InputError(
            f"time_format is {clock.format!r} with the folder {str(source)!r}: its files are named by their "
            "steps, so it must be left out"
        )
    if out.exists() and (not out.is_dir() or (source.is_dir() and out.samefile(source))):
        raise InputError(f"out is {str(out)!r}: it must be a folder, and not the input's")
    if time is not None and source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise InputError(f"out is {str(out)!r}, in the folder that is read: releases would be read as parts; move it")
    if not out.exists() and not out.parent.is_dir():
        raise InputError(f"output folder {str(out.parent)!r} does not exist: make it first")


def step_files(folder: Path, labels: Sequence[str]) -> dict[str, Path]:
    """Return the file of each step in a folder, by its name without the ending.

    Raises InputError if two files belong to one step, or a file's name is no step and none after the last.
    """
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.name.startswith("."):
            continue
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


# --- times from columns ---------------------------------------------------------------------------------------

_DATES = (
    "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%y", "%m/%d/%y",
    "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%Y-%m-%d",
)  # fmt: skip
_HOURS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H.%M")
_OTHERS = ("%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z")


def steps_of(times: Any, clock: Clock) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the steps of an Arrow column of times, and which of them can be read."""
    import pandas as pd

    if clock.every == 0:
        values = pd.to_numeric(times.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
        good = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 1e15)
        return np.where(good, values, clock.start).astype(np.int64) - clock.start, good
    since, good = since_1970(times, clock.format)
    return (np.where(good, since, clock.start) - clock.start) // clock.every, good


def since_1970(times: Any, format: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the seconds since 1970 (UTC) of an Arrow column of times, and which rows can be read.

    Raises InputError if it holds numbers and the format is none of numbers.
    """
    import pandas as pd
    import pyarrow as pa

    kind = times.type
    values = times.to_pandas()
    if format in SINCE_1970 and not pa.types.is_temporal(kind):
        figures = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        figures = np.floor(figures / (1000 if format == "unix-ms" else 1))
        good = np.abs(figures) < 1e11  # beyond the year 5000, and where there is no number, false
        return np.where(good, figures, 0).astype(np.int64), good
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        raise InputError(
            "the time column holds numbers: with every= it must hold dates or date-times (ISO 8601), or seconds since "
            "1970 with time_format='unix'; for step numbers give start= as a whole number"
        )
    texts = format is not None and not pa.types.is_temporal(kind)
    form = format if texts else "ISO8601"
    read = pd.to_datetime(values.str.strip() if texts else values, utc=True, errors="coerce", format=form)
    whole = pd.DatetimeIndex(read).tz_localize(None).to_numpy().astype("datetime64[s]")
    good = ~np.isnat(whole)
    return np.where(good, whole.astype(np.int64), 0), good


def guess_formats(texts: Sequence[str]) -> list[str]:
    """Return the formats in which all texts are times, the likelier first.

    >>> guess_formats(["31/12/2010 08:15"]), guess_formats(["1/2/2010"])
    (['%d/%m/%Y %H:%M'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    if not texts:
        return []
    for name, digits in (("unix", (9, 10)), ("unix-ms", (12, 13))):
        if all(text.isdigit() and len(text) in digits for text in texts):
            return [name]
    hours = ["", *(mark + hour for mark in (" ", "T", ", ") for hour in _HOURS)]
    formats = [*(date + hour for date in _DATES for hour in hours), *_OTHERS]
    return [format for format in formats if all(_is_time(text, format) for text in texts)]


def _is_time(text: str, format: str) -> bool:
    try:
        datetime.datetime.strptime(text, format)
    except ValueError:
        return False
    return True
