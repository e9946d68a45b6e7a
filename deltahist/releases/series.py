"""Series: releases of consecutive steps of time, the sums over periods, and the change between two periods.

Every release has fresh noise, so variances add up. For positions inside cells the errors themselves add up, because
people return to the same places (docs/streams.md).
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
from deltahist.errors import InputError, check_memory
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import weakness_of
from deltahist.preprocessing import Clock, seconds
from deltahist.releases.base import heed_notice, judge, read_content
from deltahist.releases.histogram import Release
from deltahist.releases.sums import Difference, Summed, check_apart
from deltahist.space.domain import Domain
from deltahist.space.workloads import Workload

#: Fields that may differ from step to step: the amount spent, its consequences, and the state of the account.
_OF_A_STEP = ("step", "epsilon", "rho", "laws", "total", "publishable", "version", "account", "chain", "replaces")
#: Most steps that a message names.
_NAMED = 5
_DAY = 86_400


@dataclass(frozen=True, eq=False)
class Series:
    """Releases of consecutive steps of time that differ only in their amounts. `answer` sums over the steps.

    Parameters
    ----------
    clock : the definition of steps.
    first, last : numbers of the first and the last step on the clock.
    releases : step -> its release. A step without one is missing, which is not the same as empty. Queries fail until
        `present` leaves missing steps out.
    mean : whether answers are divided by the number of steps that have a release.
    skipping : whether `present` left missing steps out.
    withdrawn : step -> its withdrawn release. The step is missing, but its cost remains spent.

    Raises InputError if there is no release between first and last, or if releases differ in more than their amounts.

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
                    f"{' and '.join(differing)}: the releases of a series may differ only in their amounts "
                    "(two streams in one folder?)"
                )

    @classmethod
    def load(cls, folder: str | Path) -> Series:
        """Read all releases of a folder. `Stream.publish` names their files after their steps.

        A withdrawn release counts as missing. Raises InputError if the folder has no release, one of another kind, two
        that differ in more than their amounts, or a wrong name; DamagedFile as `dh.load`.
        """
        folder = Path(folder)
        files = sorted(f for f in folder.glob("*.parquet") if not f.name.startswith("."))
        if not files:
            raise InputError(
                f"folder {str(folder)!r} holds no release (*.parquet): it must be written by `deltahist stream`"
            )
        _read_times([file.stem for file in files], f" in {str(folder)!r}")  # before any is read
        # All are kept in memory, and the sizes of compressed files do not predict how much they need.
        first = _open_step(files[0])
        check_memory(
            24 * len(files) * (first.domain.size + len(first.values)), f"{len(files):,} releases in {str(folder)!r}"
        )
        read = [first, *map(_open_step, files[1:])]
        return cls.of_named({file.stem: release for file, release in zip(files, read, strict=True)})

    @classmethod
    def of_named(cls, releases: Mapping[str, Release]) -> Series:
        """Return the series of releases by the names of their steps; raises as `load`."""
        digests = {name: release.digest for name, release in releases.items()}
        for one, other in itertools.pairwise(sorted(digests, key=lambda name: digests[name])):
            if digests[one] == digests[other]:
                raise InputError(f"releases {one!r} and {other!r} are the same (copied?): every step must have its own")
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
        """A release. The others differ from it only in their amounts."""
        return next(iter(self.releases.values()))

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.example.domain

    @property
    def publishable(self) -> bool:
        """Whether all releases are for publication."""
        return all(each.publishable for each in self.releases.values())

    @property
    def weakness(self) -> str | None:
        """The reason why all releases together, or one of them, protect hardly anybody; None otherwise."""
        if (weakness := weakness_of(self.mechanism.guarantee)) is not None:
            return f"from all {len(self.spent):,} releases together {weakness}"
        return next((w for each in self.releases.values() if (w := each.mechanism.weakness) is not None), None)

    @property
    def labels(self) -> list[str]:
        """Names of all steps in order, missing ones included."""
        return [label for label, _ in self]

    @property
    def missing(self) -> list[str]:
        """Names of the steps without a release, for example lost or withdrawn ones."""
        return [label for label, release in self if release is None]

    def describe_missing(self) -> list[str]:
        """Return the names of the missing steps, withdrawn ones with their date and reason."""
        known = {self.clock.label(step): each.withdrawn for step, each in self.withdrawn.items()}
        said = ((label, known.get(label)) for label in self.missing)
        return [label if notice is None else f"{label} (withdrawn {notice})" for label, notice in said]

    def explain_missing(self) -> str:
        """Return the number and names of missing steps, as text."""
        missing, steps = self.describe_missing(), self.last - self.first + 1
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        return f"{len(missing):,} of {steps:,} steps have no release, which is not the same as empty: {named}"

    @functools.cached_property
    def spent(self) -> dict[int, Fraction]:
        """Step -> ε, or ρ, of its release. A withdrawn release remains spent."""
        stated = {**self.releases, **self.withdrawn}
        guarantees = {step: stated[step].guarantee for step in sorted(stated)}
        return {step: each.epsilon if each.rho is None else each.rho for step, each in guarantees.items()}  # type: ignore[misc]

    @property
    def costliest(self) -> Release:
        """The release that spends most, the first of several."""
        return self.releases[max(sorted(self.releases), key=self.spent.__getitem__)]

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """A mechanism that costs as much as all releases together, withdrawn ones included."""
        return _paying(self.costliest, self.spent)

    @property
    def promise(self) -> str:
        """The guarantee of all releases together in a line."""
        return _promise(self.mechanism, self.spent)

    @property
    def may_be_published(self) -> str:
        """The verdict on all releases: "yes", "no: ..." or "only if ..." with the reason."""
        return judge(self.publishable, self.weakness)

    def __iter__(self) -> Iterator[tuple[str, Release | None]]:
        """Return each step's name and its release; None for a missing one."""
        return ((self.clock.label(s), self.releases.get(s)) for s in range(self.first, self.last + 1))

    def between(self, first: str, last: str, *, overlapping: bool = False) -> Series:
        """Return the steps from `first` to `last`, both included.

        A date without a time of day means the whole day. The name of a step means that step. Raises InputError if the
        period is reversed or has no release, or if it cuts a step (some days of a week, say), unless `overlapping`
        includes whole steps.
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
                f"{clock.period} each; name whole steps, or include overlapping ones"
            )
        return self.cut(one, other)

    def cut(self, first: int, last: int) -> Series:
        """Return the steps between two step numbers, both included."""
        own = {step: release for step, release in self.releases.items() if first <= step <= last}
        gone = {step: release for step, release in self.withdrawn.items() if first <= step <= last}
        return replace(self, first=first, last=last, releases=own, withdrawn=gone)

    def present(self) -> Series:
        """Return the series without its missing steps."""
        return replace(self, skipping=True)

    def per_step(self) -> Series:
        """Return the series with means per step as answers instead of sums."""
        return replace(self, mean=True)

    def change_from(self, before: Series) -> PeriodDifference:
        """Return this period minus another one, for `answer`."""
        return PeriodDifference(before, self)

    @functools.cached_property
    def summed(self) -> Summed:
        """The sum of all steps; InputError if some are missing and were not left out."""
        if self.missing and not self.skipping:
            raise InputError(
                f"{self.explain_missing()}; choose another period, or leave them out to answer from the other "
                f"{len(self.releases):,}"
            )
        return Summed(tuple(self.releases.values()))

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, arrays (m,)."""
        found = self.summed.answerer().answer(work, level=level, nonnegative=nonnegative)
        number = len(self.releases)
        if self.mean:
            shares = ("cut", "unresolved", "estimator")
            found = {name: each if name in shares else each / number for name, each in found.items()}
        return {**found, "steps": np.full(len(found["estimate"]), number)}

    def estimator(self, nonnegative: bool) -> str:
        """Return the name of the estimates for files and pictures."""
        return self.summed.estimator(nonnegative)

    def __repr__(self) -> str:
        steps = self.last - self.first + 1
        each = f" of {self.clock.period}" if self.clock.every else ""
        missing = f", {len(self.missing):,} missing" if self.missing else ""
        first, last = self.clock.label(self.first), self.clock.label(self.last)
        return f"Series: {steps:,} step{'s' if steps > 1 else ''}{each} from {first} to {last}{missing}"


@dataclass(frozen=True, eq=False)
class PeriodDifference(Difference):
    """One period of a series minus another. Errors of noise and of positions in cells add up.

    Raises InputError if the periods share steps, belong to different series, or if only one of them is a mean.
    """

    before: Series
    after: Series

    def __post_init__(self) -> None:
        before, after = self.before, self.after
        if before.clock != after.clock or _list_differences(before.example, after.example):
            raise InputError("the two periods belong to different series: they must belong to the same one")
        if before.mean != after.mean:
            raise InputError("one period is a mean over its steps and the other a sum: both must be means or sums")
        common = sorted(before.releases.keys() & after.releases.keys())
        if common:
            raise InputError(
                f"the two periods share {len(common):,} step{'s' if len(common) > 1 else ''}, "
                f"starting with {before.clock.label(common[0])}: they must share none"
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
    release = read_described(file, functools.partial(read_content, {Mechanism.kind: Release}))
    assert isinstance(release, Release)
    return heed_notice(release, file)


def _list_differences(one: Release, other: Release) -> list[str]:
    """Return the fields in which two releases differ, apart from their amounts."""
    first, second = one.describe(), other.describe()
    if (first["epsilon"] is None) != (second["epsilon"] is None):
        return ["the unit of their budget"]
    fields = [k for k in first.keys() | second.keys() if k not in _OF_A_STEP and first.get(k) != second.get(k)]
    steps = one.mechanism.step, other.mechanism.step
    if all(steps) and replace(steps[0], number=0) != replace(steps[1], number=0):  # type: ignore[type-var]
        fields.append("window")
    return sorted(fields)


def _read_times(names: list[str], place: str = "") -> tuple[bool, list[int]]:
    """Return whether names are step numbers, and the numbers, or else the times in seconds."""
    numbered = all(re.fullmatch(r"[-+]?\d{1,15}", name) for name in names)
    try:
        return numbered, [int(name) if numbered else seconds(_read_time(name), "a name") for name in names]
    except InputError as problem:
        raise InputError(f"releases{place} are not named after dates, times or step numbers: {problem}") from None


def _read_time(name: str) -> str:
    """Return a step's name as a time. File names have no colons."""
    return re.sub(r"T(\d\d)(\d\d)(\d\d)$", r"T\1:\2:\3", name)
