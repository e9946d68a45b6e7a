"""A folder of releases, one per step of time: periods of it, their sums, and the change from one period to another.

Noise is drawn afresh for every release, so its variances add up. Where in their cells the points lie is not known of
any of them, and people come back to the same places: these errors are added up as if they were one (docs/streams.md).
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import Metric, Placement, interval, placement
from deltahist.decode.base import Asked, Moments
from deltahist.decode.placement import Chosen, block_variance
from deltahist.errors import InputError, fits_memory
from deltahist.preprocessing import Clock, seconds
from deltahist.privacy import Law
from deltahist.releases.histogram import CountEstimates, Release
from deltahist.space.domain import Domain
from deltahist.space.workloads import RegionCover, Workload
from deltahist.strategies.base import Strategy

Field = NDArray[np.float64]

#: What may differ from step to step: the amount that is spent, what follows from it, and what its account had spent.
_OF_A_STEP = ("step", "epsilon", "rho", "laws", "total", "publishable", "version", "account", "chain")
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

    def __post_init__(self) -> None:
        if not self.releases:
            raise InputError(
                f"no release lies between {self.clock.label(self.first)} and {self.clock.label(self.last)}: there must "
                "be at least one"
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
        names = [file.stem for file in files]
        numbered = all(re.fullmatch(r"[-+]?\d{1,15}", name) for name in names)
        try:
            times = [int(name) if numbered else seconds(_read_time(name), "a name") for name in names]
        except InputError as problem:
            raise InputError(
                f"releases in {str(folder)!r} are not called by dates, times or step numbers: {problem}"
            ) from None
        # All are kept open: what is written is compressed, and says too little of it.
        first = Release.load(files[0])
        fits_memory(
            _BYTES * len(files) * (first.domain.size + len(first.values)),
            f"{len(files):,} releases in {str(folder)!r}",
        )
        read = [first, *(Release.load(file) for file in files[1:])]
        stated = [release.mechanism.step for release in read]
        clock = next((step.clock for step in stated if step is not None), None)
        if clock is None:  # the longest period that all names fit
            start = min(times)
            clock = Clock(start, 0 if numbered else math.gcd(*(time - start for time in times)) or _DAY)
        steps = {}
        for file, release, own in zip(files, read, stated, strict=True):
            step = clock.step(_read_time(file.stem), "the name of a release")
            label = clock.label(step) if own is None else own.label
            if label != file.stem:
                raise InputError(f"release {str(file)!r} is of step {label}: its name must be that (renamed?)")
            steps[step] = release
        return cls(clock, min(steps), max(steps), steps)

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
        """Why hardly anybody is protected in one of the releases; None if it is not so."""
        return next((w for each in self.releases.values() if (w := each.mechanism.weakness) is not None), None)

    @property
    def labels(self) -> list[str]:
        """Names of all steps that are meant, in order, those that are missing too."""
        return [label for label, _ in self]

    @property
    def missing(self) -> list[str]:
        """Names of the steps that have no release: lost, skipped, or not handed on."""
        return [label for label, release in self if release is None]

    def __iter__(self) -> Iterator[tuple[str, Release | None]]:
        """Return each step's name and its release, None where it is missing."""
        return ((self.clock.label(s), self.releases.get(s)) for s in range(self.first, self.last + 1))

    def between(self, first: str, last: str) -> Series:
        """Return the steps from that of `first` to that of `last`, both included.

        A date without a time of day means the whole day: its first step, or its last.

        Raises InputError if they cannot be read, are reversed, or no step between them has a release.
        """
        one, other = self.clock.step(first, "the first step"), self.clock.step(last, "the last step")
        if 0 < self.clock.every < _DAY and re.fullmatch(r"\d{4}-\d\d-\d\d", last.strip()):
            other = (seconds(last, "the last step") + _DAY - 1 - self.clock.start) // self.clock.every
        if one > other:
            raise InputError(f"the first step is {first!r} and the last one {last!r}: they are reversed")
        return replace(
            self,
            first=one,
            last=other,
            releases={s: r for s, r in self.releases.items() if one <= s <= other},
        )

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
        missing = self.missing
        if missing and not self.skipping:
            named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
            raise InputError(
                f"{len(missing):,} of {self.last - self.first + 1:,} steps have no release: {named} (lost, skipped, or "
                f"not handed on); a missing step is no empty one: leave them out, and answer from the other "
                f"{len(self.releases):,}, or choose another period"
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

    def __repr__(self) -> str:
        steps = self.last - self.first + 1
        each = f" of {self.clock.period}" if self.clock.every else ""
        missing = f", {len(self.missing):,} missing" if self.missing else ""
        first, last = self.clock.label(self.first), self.clock.label(self.last)
        return f"Series: {steps:,} step{'s' if steps > 1 else ''}{each} from {first} to {last}{missing}"


@dataclass(frozen=True, eq=False)
class PeriodDifference:
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
            raise InputError(
                "the two periods are of different series: they must be alike but for their times"
            )
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
    def domain(self) -> Domain:
        """The public space."""
        return self.after.domain

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, an array (m,) each."""
        if nonnegative:
            raise InputError("nonnegative goes with counts: a change from one period to another can be negative")
        parts, noise, misplaced = [], [], []
        for period in (self.before, self.after):
            cover = work.cover(period.domain)
            share = 1 / len(period.releases) if period.mean else 1.0
            parts.append(period.answers(work, level=level, nonnegative=False))
            found = period.summed.decoder.moments(cover if isinstance(cover, RegionCover) else work)
            noise.append((replace(found, variance=found.variance * share**2, draws=None), 1))
            misplaced.append(parts[-1].get("placement_error", np.zeros(len(found.variance))))
        joint = together(noise)
        # What is not known of the places in both periods is added up as if it were one error.
        placement = np.asarray(sum(misplaced))
        error = joint.and_normal(placement**2)
        down, up = interval(error, self.after.summed.decoder.laws[0], level)
        before, after = parts
        estimate = after["estimate"] - before["estimate"]
        table = {
            "before": before["estimate"],
            "after": after["estimate"],
            "estimate": estimate,
            "std_error": np.sqrt(error.variance),
            "low": estimate - down,
            "high": estimate + up,
        }
        if "cut" in before:
            table |= {"noise_error": np.sqrt(joint.variance), "placement_error": placement, "cut": after["cut"]}
        if "unresolved" in before:
            table["unresolved"] = np.maximum(before["unresolved"], after["unresolved"])
        return table


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


def _read_time(name: str) -> str:
    """Return a step's name as a time; names of files have no colons."""
    return re.sub(r"T(\d\d)(\d\d)(\d\d)$", r"T\1:\2:\3", name)


@dataclass(frozen=True, eq=False)
class Summed(CountEstimates):
    """The sum of releases of one strategy on one domain; it answers queries as a release does.

    Parameters
    ----------
    releases : at least one, of different data or steps, each with noise of its own.

    Raises
    ------
    InputError
        If two of them share noise: releases of one chain, or a release and its copies.
    """

    releases: tuple[Release, ...]

    def __post_init__(self) -> None:
        check_apart(self.releases)

    @property
    def total(self) -> int | None:
        """The number of points of all releases if all of them are public; else None."""
        known = [each.total for each in self.releases if each.total is not None]
        return sum(known) if len(known) == len(self.releases) else None

    @functools.cached_property
    def decoder(self) -> JointNoise:
        """The error of sums of answers."""
        return JointNoise(self.releases)

    @functools.cached_property
    def placement(self) -> JointPlacement:
        """Where in their cells the points lie."""
        blocks = {each.laws: block_variance(each.decoder) for each in self.decoder.alike}
        parts = [placement(each.cells(), blocks[each.laws]) for each in self.releases]
        return JointPlacement(parts, placement(self.cells(), block_variance(self.decoder)))

    @functools.cached_property
    def _unbiased(self) -> Field:
        cells: Field = np.sum([each.cells() for each in self.releases], axis=0)
        cells.flags.writeable = False
        return cells

    # The sum is made not negative, not its parts: each of them would add a bias of its own.
    @property
    def _field(self) -> Field:
        return np.sum([each.decoder.field(each.values, each.total) for each in self.releases], axis=0)

    @functools.cached_property
    def _metric(self) -> Metric:
        parts = [(each.decoder.metric(), number) for each, number in self.decoder.alike.items()]
        return replace(parts[0][0], variance=np.sum([own.variance * number for own, number in parts], axis=0))


def check_apart(releases: Sequence[Release]) -> None:
    """Raise InputError if two releases share noise, whose errors would be added up as if they were independent."""
    if all(each.mechanism.chain is None for each in releases):  # nothing is copied or refined: no digest is needed
        return
    origin, number = Counter(each.origin for each in releases).most_common(1)[0]
    if number > 1:
        raise InputError(
            f"{number} of the releases are copies or refinements of one ({origin}): they share its noise and its data; "
            "take one of them"
        )


@dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise of sums of answers from releases, each with noise of its own."""

    releases: tuple[Release, ...]

    @property
    def domain(self) -> Domain:
        """The public space."""
        return self.releases[0].domain

    @property
    def strategy(self) -> Strategy:
        """The strategy that was measured."""
        return self.releases[0].strategy

    @property
    def laws(self) -> tuple[Law, ...]:
        """Noise laws of the first release."""
        return self.releases[0].laws

    @functools.cached_property
    def alike(self) -> dict[Release, int]:
        """One release for each amount that was spent, and how many there are of it."""
        found: dict[tuple[Law, ...], Release] = {}
        number = Counter(each.laws for each in self.releases)
        for each in self.releases:
            found.setdefault(each.laws, each)
        return {each: number[laws] for laws, each in found.items()}

    def moments(self, work: Asked) -> Moments:
        """Return variances and fourth cumulants, which add up; noise that is a plain sum of draws stays such."""
        return together([(each.decoder.moments(work), number) for each, number in self.alike.items()])

    def noise(self, rng: np.random.Generator) -> Field:
        """Return normal noise of the sum, on the grid of its metric."""
        return np.sum(
            [math.sqrt(number) * each.decoder.noise(rng) for each, number in self.alike.items()], axis=0
        )


def together(parts: Sequence[tuple[Moments, int]]) -> Moments:
    """Return the moments of sums of independent errors, each of which comes some times."""
    variance = np.sum([m.variance * n for m, n in parts], axis=0)
    fourth = np.sum([m.kurtosis * m.variance**2 * n for m, n in parts], axis=0)
    kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance**2 > 0)
    first, times = parts[0]
    shares = [m.unresolved for m, _ in parts if m.unresolved is not None]
    unresolved = np.max(shares, axis=0) if len(shares) == len(parts) else None
    draws = None if first.draws is None else first.draws * (times if len(parts) == 1 else 0)
    freedom = min(m.freedom for m, _ in parts)
    return Moments(variance, kurtosis, freedom, unresolved, draws, first.note)


@dataclass(frozen=True, eq=False)
class JointPlacement:
    """Where in their cells the points of several releases lie: never less uncertain than if all errors were one.

    Parameters
    ----------
    parts : how the points of each release lie.
    learnt : what the sum of their cells says of where all points lie.
    """

    parts: Sequence[Placement]
    learnt: Placement

    def slope_terms(self, own: Field, chosen: Chosen) -> tuple[Field, ...]:
        """`Placement.slope_terms`: each release's slopes with its own cells, the sum's with what `own` is beyond it."""
        parts = [each.slope_terms(each.cells[chosen], chosen) for each in self.parts]
        beyond = self.learnt.slope_terms(own - self.learnt.cells[chosen], chosen)
        return tuple(np.sum(along, axis=0) for along in zip(*parts, beyond, strict=True))

    def spreads(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the fields of each release, then the field of their sum."""
        return tuple(field for each in (*self.parts, self.learnt) for field in each.spreads(chosen))

    def joined_variance(self, apart: Sequence[Field]) -> Field:
        """Return the square of the sum of standard errors, or the variance of the sum if that is more (m,)."""
        *parts, learnt = apart
        return np.maximum(np.sum(np.sqrt(parts), axis=0) ** 2, learnt)
