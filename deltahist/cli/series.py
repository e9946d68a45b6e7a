"""`deltahist query` of a folder: sums over a period, a row per step, or the change from another period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import argument, flag, option, warn_of
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases import Series

ReleaseOrFolder = Annotated[
    Path, argument("RELEASE", "A file that `deltahist publish` wrote, or a folder of `deltahist stream`.")
]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Which steps of a folder are asked, and what of them is answered."""

    between: Annotated[
        tuple[str, str] | None,
        option("FIRST LAST", "Of a folder: the steps from FIRST to LAST, both included. [default: all]"),
    ] = None
    compare: Annotated[
        tuple[str, str] | None,
        option("FIRST LAST", "Of a folder: another period; the answers are the change from it."),
    ] = None
    each: Annotated[bool, flag("--each", "Of a folder: a row for each step, instead of their sum.")] = False
    mean: Annotated[bool, flag("--mean", "Of a folder: the mean per step, instead of the sum.")] = False
    missing: Annotated[
        Literal["stop", "skip"],
        option("HOW", "Of a folder: stop if a step has no release, or skip it; it is never taken for empty."),
    ] = "stop"

    def refuse_for(self, release: Path) -> None:
        """Raise InputError if anything is said of steps, but the release is a single file."""
        given = [f"--{name}" for name, value in vars(self).items() if value not in (None, False, "stop")]
        if given:
            raise InputError(
                f"{given[0]} is given, but {str(release)!r} is one release: it goes with a folder that `deltahist "
                "stream` wrote"
            )

    def open(self, folder: Path) -> Series:
        """The series of a folder; with a warning if it must not be published, or protects hardly anybody."""
        from deltahist.releases import Series

        if self.each and (self.mean or self.compare is not None):
            raise InputError(
                f"--each is given with {'--mean' if self.mean else '--compare'}: it must be one of them"
            )
        series = Series.load(folder)
        warn_of(folder, series.publishable, series.weakness)
        return series

    def asking(self, series: Series, *, level: float, nonnegative: bool) -> Callable[[Any], pd.DataFrame]:
        """What answers a workload of the steps that are asked."""
        from deltahist.answers import answer, answer_each

        if nonnegative and self.compare is not None:
            raise InputError("--nonnegative is given with --compare: a change can be negative")
        period = self._period(series, self.between)
        if self.each:
            return partial(answer_each, period, level=level, nonnegative=nonnegative)
        asked: Any = self._whole(period)
        if self.compare is not None:
            asked = asked.change_from(self._whole(self._period(series, self.compare)))
            before, after = len(asked.before.releases), len(asked.after.releases)
            if before != after and not self.mean:
                console.note(
                    f"note: the periods have {before:,} and {after:,} steps, and sums are compared: --mean compares "
                    "means per step"
                )
        return partial(answer, asked, level=level, nonnegative=nonnegative)

    def _period(self, series: Series, ends: tuple[str, str] | None) -> Series:
        """A part of the series; what is missing and left out is named."""
        period = series if ends is None else series.between(*ends)
        if period.missing and (self.each or self.missing == "skip"):
            console.note(f"note: {_number_of(period.missing)} no release: {', '.join(period.missing)}")
        period = period.present() if self.missing == "skip" else period
        return period.per_step() if self.mean else period

    def _whole(self, period: Series) -> Series:
        """A period without gaps, or one in which they may be skipped."""
        try:
            period.summed  # noqa: B018
        except InputError as problem:
            raise InputError(f"{problem} (--missing skip leaves them out)") from None
        return period


def _number_of(steps: Sequence[str]) -> str:
    return "1 step has" if len(steps) == 1 else f"{len(steps):,} steps have"
