"""Folders with one file per step of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltahist.errors import InputError, one_of
from deltahist.preprocessing import Clock


def check_folders(source: Path, time: Any, clock: Clock, gaps: str, out: Path, table: str | None = None) -> None:
    """Raise InputError unless the input and the output folder go with each other, and are there."""
    one_of(("error", "empty"), gaps=gaps)
    if time is None and (table is not None or not source.is_dir()):
        raise InputError(f"time is missing with {str(source)!r}, which is no folder: say the column of its times")
    if time is None and clock.format is not None:
        raise InputError(f"time_format is {clock.format!r} with a folder, whose files are named by steps: leave it out")
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise InputError(f"out is {str(out)!r}, in the folder that is read: releases would be read as parts; move it")
    if (out.exists() and not out.is_dir()) or not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}: it must be a folder, in one that exists")


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
            raise InputError(f"files {found[label].name!r} and {file.name!r} are both for step {label}: keep one")
        found[label] = file
    # Files of steps to come may wait; what sorts among the steps, or is no number or date, is a slip.
    end = (len(labels[-1]), labels[-1])
    strange = sorted(n for n in found if n not in labels and ((len(n), n) <= end or not n[:1].isdigit()))
    if strange:
        raise InputError(
            f"file {found[strange[0]].name!r} in {str(folder)!r} belongs to no step: names are the steps' dates or "
            f"numbers, {labels[0]} to {labels[-1]} here"
        )
    return {label: file for label, file in found.items() if label in labels}
