"""Periods of a series that a picture shows: its steps, or of many steps days, weeks, months and years."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltahist.plots.writing import Writing

if TYPE_CHECKING:
    from deltahist.releases.series import Series

_EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Period:
    """Steps that are drawn together: their name, numbers, and series; None without a release."""

    name: str
    steps: range
    series: Series | None
    withdrawn: bool = False

    @property
    def title(self) -> str:
        """The name, and how many steps have no release."""
        if self.series is None:
            return f"{self.name}: {'withdrawn' if self.withdrawn else 'no release'}"
        missing = len(self.steps) - len(self.series.releases)
        return f"{self.name} ({missing:,} of {len(self.steps):,} missing)" if missing else self.name


def divide(series: Series, most: int) -> tuple[list[Period], str]:
    """Return periods, `most` at most, and the name of what each of them is: a step, a day, a month, ..."""
    clock, steps = series.clock, range(series.first, series.last + 1)
    ways: list[tuple[str, Callable[[int], str]]] = [("step", clock.label)]
    if clock.every:

        def begins(step: int) -> datetime.datetime:
            return _EPOCH + datetime.timedelta(seconds=clock.start + step * clock.every)

        ways += [
            ("day", lambda step: begins(step).strftime("%Y-%m-%d")),
            ("week", lambda step: begins(step).strftime("%G-W%V")),
            ("month", lambda step: begins(step).strftime("%Y-%m")),
            ("quarter", lambda step: f"{begins(step).year} Q{(begins(step).month + 2) // 3}"),
            ("year", lambda step: begins(step).strftime("%Y")),
        ]
    each = -(-len(steps) // most)
    ways.append((f"{each:,} steps", lambda step: f"from {clock.label(step - (step - series.first) % each)}"))
    divided = ((kind, [(key, list(own)) for key, own in itertools.groupby(steps, name)]) for kind, name in ways)
    kind, groups = next((kind, groups) for kind, groups in divided if len(groups) <= most)
    periods = []
    for key, own in groups:
        there = any(step in series.releases for step in own)
        part = series.cut(own[0], own[-1]).present() if there else None
        withdrawn = any(step in series.withdrawn for step in own)
        periods.append(Period(key, range(own[0], own[-1] + 1), part, withdrawn))
    return periods, kind


def write_about(series: Series, heading: str, kind: str, title: str | None, below: str, width: float) -> Writing:
    """Return the writing around a picture of a series of a width in inches.

    `heading` names the kind of picture, by periods of some kind; `title` replaces both. `below` follows the promise of
    a step.
    """
    if title is None:
        title = f"{heading}{'' if kind == 'step' else f' by {kind}'}, {series.labels[0]} to {series.labels[-1]}"
    domain = series.domain
    text = f"Published with noise for privacy, in each step {series.mechanism.promise}; cells of {domain.size_of_cells}"
    text += f"{f'; map in {domain.crs}' if domain.crs else ''}. {below}. {series.costs.total}"
    return Writing.of(title, text, width)
