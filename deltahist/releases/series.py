"""A folder of releases, one per step of time: periods of it, their sums, and the change from one period to another.

Noise is drawn afresh for every release, so its variances add up. Where in their cells the points lie is not known of
any of them, and people come back to the same places: these errors are added up as if they were one (docs/streams.md).
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import read_described
from deltahist._memory import check_memory
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import weakness_of
from deltahist.preprocessing import Clock, seconds
from deltahist.releases.base import heed_notice, judge
from deltahist.releases.histogram import Release
from deltahist.releases.sums import Difference, Summed, check_apart
from deltahist.space.domain import Domain
from deltahist.space.workloads import Workload

#: What may differ from step to step: the amount that is spent, what follows from it, and what its account had spent.
_OF_A_STEP = ("step", "epsilon", "rho", "laws", "total", "publishable", "version", "account", "chain", "replaces")
#: Steps that a message names.
_NAMED = 5
_DAY = 86_400
#: Bytes per cell and per value of a release that is kept open.
_BYTES = 24


@dataclass(frozen=True, eq=False)
class Series:
    """Releases of consecutive steps of time, alike in all but their amounts; `answer` gives the sums over its steps.

    Parameters
    ----------
    clock : what a step is.
    first, last : the steps that are meant, from 0 on the clock.
    releases : step -> its release. Steps between first and last without one are missing, which is not the same as
        empty: they are named, and nothing is answered before `present` leaves them out.
    mean : whether answers are divided by the number of steps that have a release.
    skipping : whether missing steps were left out on purpose (`present`).
    withdrawn : step -> its release that was withdrawn: such steps are missing, too, but what they cost is spent.

    Raises
    ------
    InputError
        If there is no release between first and last, or releases differ in more than what they spend.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), 1, "boundary")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in range(1, 5):
    ...         dh.publish(np.full(4, 50), near, "identity", 1.0).save(f"{folder}/2010-05-{day:02}.parquet")
    ...     city = dh.Series.load(folder)
    >>> city
    Series: 4 steps of 1 day from 2010-05-01 to 2010-05-04
    >>> dh.answer(city.between("2010-05-02", "2010-05-03"), [[0, 2]])["steps"].tolist()
    [2]
    """

    clock: Clock
    first: int
    last: int
    releases: Mapping[int, Release]
    mean: bool = False
    skipping: bool = False
    withdrawn: Mapping[int, Release] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.releases:
            withdrawn = f" ({len(self.withdrawn):,} were withdrawn)" if self.withdrawn else ""
            raise InputError(
                f"no release lies between {self.clock.label(self.first)} and {self.clock.label(self.last)}: there must "
                f"be at least one{withdrawn}"
            )
        steps = iter(self.releases.items())
        start, one = next(steps)
        for step, other in steps:
            differing = _list_differences(one, other)
            if differing:
                raise InputError(
                    f"the releases of {self.clock.label(start)} and {self.clock.label(step)} differ in "
                    f"{' and '.join(differing)}: all of a series must be alike but for the amounts that they "
                    "spend (two streams in one folder?)"
                )

    @classmethod
    def load(cls, folder: str | Path) -> Series:
        """Read all releases of a folder; their files are called by their steps, as `Stream.publish` calls them.

        A release that was withdrawn counts as missing.

        Raises
        ------
        InputError
            If the folder has none, one of another kind, or two that differ in more than what they spend; or if a name
            is not that of its step.
        DamagedFile
            As `Release.load` does.
        """
        folder = Path(folder)
        files = sorted(f for f in folder.glob("*.parquet") if not f.name.startswith("."))
        if not files:
            raise InputError(
                f"folder {str(folder)!r} holds no release (*.parquet): it must be one that `deltahist stream` wrote"
            )
        _read_times([file.stem for file in files], f" in {str(folder)!r}")  # before any is read
        # All are kept open: what is written is compressed, and says too little of it.
        first = _open_step(files[0])
        check_memory(
            _BYTES * len(files) * (first.domain.size + len(first.values)),
            f"{len(files):,} releases in {str(folder)!r}",
        )
        read = [first, *map(_open_step, files[1:])]
        return cls.of_named({file.stem: release for file, release in zip(files, read, strict=True)})

    @classmethod
    def of_named(cls, releases: Mapping[str, Release]) -> Series:
        """Return the series of releases by the names of their steps.

        Raises InputError if two differ in more than what they spend or are one and the same, or a name is not that of
        its step.
        """
        digests = {name: release.digest for name, release in releases.items()}
        for one, other in itertools.pairwise(sorted(digests, key=lambda name: digests[name])):
            if digests[one] == digests[other]:
                raise InputError(f"releases {one!r} and {other!r} are one (copied?): every step must have its own")
        numbered, times = _read_times(list(releases))
        stated = [release.mechanism.step for release in releases.values()]
        clock = next((step.clock for step in stated if step is not None), None)
        if clock is None:  # the longest period that all names fit
            start = min(times)
            clock = Clock(start, 0 if numbered else math.gcd(*(time - start for time in times)) or _DAY)
        steps = {}
        for (name, release), own in zip(releases.items(), stated, strict=True):
            step = clock.step(_read_time(name), "the name of a release")
            label = clock.label(step) if own is None else own.label
            if label != name:
                raise InputError(f"release {name!r} is of step {label}: its name must be that (renamed?)")
            steps[step] = release
        withdrawn = {step: each for step, each in steps.items() if each.withdrawn is not None}
        in_force = {step: each for step, each in steps.items() if step not in withdrawn}
        return cls(clock, min(steps), max(steps), in_force, withdrawn=withdrawn)

    @property
    def example(self) -> Release:
        """A release; the others differ from it in their amounts alone."""
        return next(iter(self.releases.values()))

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.example.domain

    @property
    def publishable(self) -> bool:
        """Whether the noise of all releases was for publication."""
        return all(each.publishable for each in self.releases.values())

    @property
    def weakness(self) -> str | None:
        """Why all releases together, or one of them, hardly protect anybody; None if they do."""
        if (weakness := weakness_of(self.mechanism.guarantee)) is not None:
            return f"from all {len(self.spent):,} releases together {weakness}"
        return next((w for each in self.releases.values() if (w := each.mechanism.weakness) is not None), None)

    @property
    def labels(self) -> list[str]:
        """Names of all steps that are meant, in order, those that are missing too."""
        return [label for label, _ in self]

    @property
    def missing(self) -> list[str]:
        """Names of the steps that have no release: lost, skipped, not handed on, or withdrawn."""
        return [label for label, release in self if release is None]

    def describe_missing(self) -> list[str]:
        """Return the names of the missing steps, each with when and why it was withdrawn if it was."""
        known = {self.clock.label(step): each.withdrawn for step, each in self.withdrawn.items()}
        said = ((label, known.get(label)) for label in self.missing)
        return [label if notice is None else f"{label} (withdrawn {notice})" for label, notice in said]

    def explain_missing(self) -> str:
        """Return how many steps are missing, and which."""
        missing, steps = self.describe_missing(), self.last - self.first + 1
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        return f"{len(missing):,} of {steps:,} steps have no release, which is not the same as empty ({named})"

    @functools.cached_property
    def spent(self) -> dict[int, Fraction]:
        """Step -> ε, or ρ, that its release states, withdrawn ones included: what was spent stays spent."""
        stated = {**self.releases, **self.withdrawn}
        guarantees = {step: stated[step].guarantee for step in sorted(stated)}
        return {step: each.epsilon if each.rho is None else each.rho for step, each in guarantees.items()}  # type: ignore[misc]

    @property
    def costliest(self) -> Release:
        """The release that spends most, the first of several."""
        return self.releases[max(sorted(self.releases), key=self.spent.__getitem__)]

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """A mechanism that costs what all releases together do, withdrawn ones too: costs add up."""
        return _paying(self.costliest, self.spent)

    @property
    def promise(self) -> str:
        """The guarantee of all releases together in a line."""
        return _promise(self.mechanism, self.spent)

    @property
    def may_be_published(self) -> str:
        """The judgement on all releases: "yes", or "no: ..." or "only if ..." with the reason."""
        return judge(self.publishable, self.weakness)

    def __iter__(self) -> Iterator[tuple[str, Release | None]]:
        """Return each step's name and its release, None where it is missing."""
        return ((self.clock.label(s), self.releases.get(s)) for s in range(self.first, self.last + 1))

    def between(self, first: str, last: str, *, overlapping: bool = False) -> Series:
        """Return the steps from that of `first` to that of `last`, both included.

        A date without a time of day means the whole day: its first step, or its last. A step's name means the step.

        Raises InputError if they cannot be read, are reversed, or no step between them has a release; and if they cut
        a step, such as some days of a week, unless `overlapping` takes the step whole.
        """
        clock = self.clock
        one, other = clock.step(first, "the first step"), clock.step(last, "the last step")
        cut = []
        if clock.every:
            begin, end = seconds(first, "the first step"), seconds(last, "the last step")
            whole_day = re.fullmatch(r"\d{4}-\d\d-\d\d", last.strip()) is not None
            named = clock.begin(other) == end and not (whole_day and clock.every < _DAY)
            end += _DAY * (whole_day and not named)
            while not named and clock.begin(other + 1) < end:
                other += 1
            cut = [first] * (clock.begin(one) != begin) + [last] * (not named and clock.begin(other + 1) != end)
        if one > other:
            raise InputError(f"the first step is {first!r} and the last one {last!r}: they are reversed")
        if cut and not overlapping:
            raise InputError(
                f"{cut[0]!r} cuts a step: the steps that overlap are {clock.label(one)} to {clock.label(other)}, of "
                f"{clock.period} each; name whole steps, or ask for overlapping ones"
            )
        return self.cut(one, other)

    def cut(self, first: int, last: int) -> Series:
        """Return the steps from one to another by their numbers; InputError if none of them has a release."""
        own = {step: release for step, release in self.releases.items() if first <= step <= last}
        gone = {step: release for step, release in self.withdrawn.items() if first <= step <= last}
        return replace(self, first=first, last=last, releases=own, withdrawn=gone)

    def present(self) -> Series:
        """Return the series without its missing steps, so that answers are about the others."""
        return replace(self, skipping=True)

    def per_step(self) -> Series:
        """Return the series with answers as means over the steps instead of sums."""
        return replace(self, mean=True)

    def change_from(self, before: Series) -> PeriodDifference:
        """Return this period less another one, for `answer`."""
        return PeriodDifference(before, self)

    @functools.cached_property
    def summed(self) -> Summed:
        """The sum of all steps; InputError, naming them, if some are missing and were not left out."""
        if self.missing and not self.skipping:
            raise InputError(
                f"{self.explain_missing()}: choose another period, or leave them out to answer from the other "
                f"{len(self.releases):,}"
            )
        return Summed(tuple(self.releases.values()))

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, an array (m,) each."""
        found = self.summed.answerer().answer(work, level=level, nonnegative=nonnegative)
        number = len(self.releases)
        if self.mean:
            shares = ("cut", "unresolved", "estimator")
            found = {name: each if name in shares else each / number for name, each in found.items()}
        return {**found, "steps": np.full(len(found["estimate"]), number)}

    def estimator(self, nonnegative: bool) -> str:
        """Return the name of the estimates, as files and pictures have it."""
        return self.summed.estimator(nonnegative)

    def __repr__(self) -> str:
        steps = self.last - self.first + 1
        each = f" of {self.clock.period}" if self.clock.every else ""
        missing = f", {len(self.missing):,} missing" if self.missing else ""
        first, last = self.clock.label(self.first), self.clock.label(self.last)
        return f"Series: {steps:,} step{'s' if steps > 1 else ''}{each} from {first} to {last}{missing}"


@dataclass(frozen=True, eq=False)
class PeriodDifference(Difference):
    """One period less another: errors of noise and of places add up.

    Parameters
    ----------
    before, after : the periods, of one series.

    Raises
    ------
    InputError
        If they have steps in common, are of different series, or one is a mean and the other a sum.
    """

    before: Series
    after: Series

    def __post_init__(self) -> None:
        before, after = self.before, self.after
        if before.clock != after.clock or _list_differences(before.example, after.example):
            raise InputError("the two periods are of different series: they must be alike but for their times")
        if before.mean != after.mean:
            raise InputError("one period is a mean over its steps and the other a sum: both must be the same")
        common = sorted(before.releases.keys() & after.releases.keys())
        if common:
            raise InputError(
                f"the two periods share {len(common):,} step{'s' if len(common) > 1 else ''}, "
                f"{before.clock.label(common[0])} first: they must have none in common"
            )
        check_apart([*before.releases.values(), *after.releases.values()])

    @property
    def promise(self) -> str:
        """The guarantee of all releases of both periods together in a line."""
        spent = self.before.spent | self.after.spent
        return _promise(_paying(self.after.example, spent), spent)

    @property
    def _sources(self) -> Sequence[tuple[Any, float]]:
        periods = (self.before, self.after)
        return [(each.summed.decoder, 1 / len(each.releases) if each.mean else 1.0) for each in periods]


def _paying(release: Release, spent: Mapping[int, Fraction]) -> Mechanism:
    """Return a release's mechanism at the cost of several steps together."""
    one = replace(release.mechanism, step=None)
    return one.with_budget(one.budget.of(sum(spent.values(), Fraction(0))))


def _promise(mechanism: Mechanism, spent: Mapping[int, Fraction]) -> str:
    return f"{len(spent):,} release{'s'[: len(spent) != 1]}, together {mechanism.promise}"


def _open_step(file: Path) -> Release:
    return heed_notice(read_described(file, Release.read), file)


def _list_differences(one: Release, other: Release) -> list[str]:
    """Return the fields in which two releases differ, beside the amounts that they spend."""
    first, second = one.describe(), other.describe()
    if (first["epsilon"] is None) != (second["epsilon"] is None):
        return ["the unit of their budget"]
    fields = [k for k in first.keys() | second.keys() if k not in _OF_A_STEP and first.get(k) != second.get(k)]
    steps = one.mechanism.step, other.mechanism.step
    if all(steps) and replace(steps[0], number=0) != replace(steps[1], number=0):  # type: ignore[type-var]
        fields.append("window")
    return sorted(fields)


def _read_times(names: list[str], place: str = "") -> tuple[bool, list[int]]:
    """Return whether names are step numbers, and these, or the seconds of the times; InputError if they are neither."""
    numbered = all(re.fullmatch(r"[-+]?\d{1,15}", name) for name in names)
    try:
        return numbered, [int(name) if numbered else seconds(_read_time(name), "a name") for name in names]
    except InputError as problem:
        raise InputError(f"releases{place} are not called by dates, times or step numbers: {problem}") from None


def _read_time(name: str) -> str:
    """Return a step's name as a time; names of files have no colons."""
    return re.sub(r"T(\d\d)(\d\d)(\d\d)$", r"T\1:\2:\3", name)
