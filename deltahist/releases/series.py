"""Series of releases for consecutive time steps, sums of releases, and differences between two of them.

Every release has fresh noise, so noise variances add up. Errors from positions inside cells add up linearly, because
people return to the same places (docs/streams.md).
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import read_described
from deltahist.decode import Metric, Placement, ProjectedCells, estimate_nonnegative, interval, learn_placement
from deltahist.decode.base import Asked, Moments
from deltahist.decode.placement import Chosen, block_variance, find_least_count
from deltahist.errors import InputError, check_choice, check_memory
from deltahist.laws import Law
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import weakness_of
from deltahist.preprocessing import Clock, read_seconds
from deltahist.releases.base import UNBIASED, About, attach_notice, judge_publication, read_content
from deltahist.releases.histogram import CountEstimates, Field, Release, answer_in_batches
from deltahist.space.domain import Domain
from deltahist.space.workloads import RegionCover, Workload
from deltahist.strategies.base import Strategy


@dataclass(frozen=True, eq=False)
class Series:
    """Releases for consecutive time steps, which differ only in their budgets. `answer` sums over the steps.

    Parameters
    ----------
    clock : the definition of the steps.
    first, last : numbers of the first and the last step on the clock.
    releases : the releases by step number. A step without one is missing, not empty. Queries then need `skip_missing`.
    mean : whether answers are divided by the number of steps that have a release.
    skipping : whether `skip_missing` left missing steps out.
    withdrawn : the withdrawn releases by step number. Such a step is missing, but its cost remains spent.

    Raises InputError if there is no release between first and last, or if releases differ in more than their budgets.

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
                f"the period from {self.clock.label(self.first)} to {self.clock.label(self.last)} has no release: it "
                f"must have at least one{withdrawn}"
            )
        for step, other in self.releases.items():
            if differing := _list_differences(self.first_release, other):
                raise InputError(
                    f"the release of {self.clock.label(step)} differs from another release in {' and '.join(differing)}"
                    ": the releases of a series may differ only in their budgets (does the folder contain two streams?)"
                )

    @classmethod
    def load(cls, folder: str | Path) -> Series:
        """Read all releases in a folder. `Stream.publish` names the files of releases after their steps.

        A withdrawn release counts as missing. Raises InputError if there is no release, if releases differ in more than
        their budgets, or if a name is wrong. Raises DamagedFile as `dh.load` does, or if a release is not of counts.
        """
        folder = Path(folder)
        files = sorted(f for f in folder.glob("*.parquet") if not f.name.startswith("."))
        # All releases are kept in memory. The size of a compressed file does not show how much memory it needs.
        first = _open_step(files[0] if files else folder / "*.parquet")  # Raises InputError if there are no files.
        needed = 24 * len(files) * (first.domain.size + len(first.values))
        check_memory(needed, f"{len(files):,} releases in {str(folder)!r}")
        releases = [first, *map(_open_step, files[1:])]
        return cls.from_names({file.stem: release for file, release in zip(files, releases, strict=True)})

    @classmethod
    def from_names(cls, releases: Mapping[str, Release]) -> Series:
        """Return the series of releases with these step names. Raises the errors of `load`."""
        stated = (release.mechanism.step for release in releases.values())
        clock = next((step.clock for step in stated if step is not None), None)
        if clock is None:  # find the longest period that fits all names
            numbered = all(re.fullmatch(r"[-+]?\d{1,15}", name) for name in releases)
            times = [int(one) if numbered else read_seconds(_read_time(one), f"the name {one!r}") for one in releases]
            start = min(times)
            clock = Clock(start, 0 if numbered else math.gcd(*(time - start for time in times)) or 86_400)
        steps = {}
        for name, release in releases.items():
            step, own = clock.step(_read_time(name), f"the name {name!r}"), release.mechanism.step
            label = clock.label(step) if own is None else own.label
            if label != name:
                raise InputError(
                    f"release {name!r} is for step {label}: it must be named after that step (was it renamed?)"
                )
            steps[step] = release
        withdrawn = {step: each for step, each in steps.items() if each.withdrawn is not None}
        in_force = {step: each for step, each in steps.items() if step not in withdrawn}
        return cls(clock, min(steps), max(steps), in_force, withdrawn=withdrawn)

    @property
    def first_release(self) -> Release:
        """The first release. All releases differ only in their budgets."""
        return next(iter(self.releases.values()))

    @property
    def domain(self) -> Domain:
        return self.first_release.domain

    @property
    def about(self) -> About:
        """What the newest release says about itself."""
        return self.releases[max(self.releases)].about

    @property
    def publishable(self) -> bool:
        """Whether all releases are for publication."""
        return all(each.publishable for each in self.releases.values())

    @property
    def weakness(self) -> str | None:
        """The reason why one release, or the whole series, hardly protects anyone; None if there is no reason."""
        if (weakness := weakness_of(self.mechanism.guarantee)) is not None:
            return f"from all {len(self.spent):,} releases together {weakness}"
        return next((w for each in self.releases.values() if (w := each.mechanism.weakness) is not None), None)

    @property
    def step_labels(self) -> list[str]:
        """Names of all steps in order, including missing ones."""
        return [label for label, _ in self]

    @property
    def missing_steps(self) -> list[str]:
        """Names of the steps that have no release, for example because the release was lost or withdrawn."""
        return [label for label, release in self if release is None]

    def explain_missing(self) -> str:
        """Describe the missing steps in one clause: their number, names and notices of withdrawal."""
        missing, steps = self.missing_steps, self.last - self.first + 1
        withdrawn = {self.clock.label(step): f" (withdrawn {each.withdrawn})" for step, each in self.withdrawn.items()}
        named = ", ".join(label + withdrawn.get(label, "") for label in missing[:5]) + ", ..." * (len(missing) > 5)
        return f"{len(missing):,} of {steps:,} steps have no release, which does not mean that they are empty: {named}"

    @functools.cached_property
    def spent(self) -> dict[int, Fraction]:
        """The ε or ρ spent by each step's release. Withdrawn releases are included."""
        stated = {**self.releases, **self.withdrawn}
        return {step: stated[step].mechanism.budget.amount for step in sorted(stated)}

    @property
    def costliest_release(self) -> Release:
        """The release that spends the most; if several do, the first of them."""
        return self.releases[max(sorted(self.releases), key=self.spent.__getitem__)]

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """A mechanism that costs as much as all releases together, including withdrawn ones."""
        return _join_costs(self.costliest_release, self.spent)

    @property
    def promise(self) -> str:
        """The joint guarantee of all releases in one line."""
        return _promise_together(self.mechanism, self.spent)

    @property
    def may_be_published(self) -> str:
        """Whether all releases may be published: "yes", "no: <reason>" or "only if <condition>"."""
        return judge_publication(self.publishable, self.weakness)

    def __iter__(self) -> Iterator[tuple[str, Release | None]]:
        """Iterate over pairs of a step's name and its release (None if the step is missing)."""
        return ((self.clock.label(s), self.releases.get(s)) for s in range(self.first, self.last + 1))

    def between(self, first: str, last: str) -> Series:
        """Return the steps from `first` to `last`, both included.

        A date without a time of day means the whole day. A step's name selects that step. Raises InputError if the
        period has no release, or contains only part of a step, such as some days of a week.
        """
        clock = self.clock
        one, other = clock.step(first, "the first step"), clock.step(last, "the last step")
        cut = []
        if clock.every:
            begin, end = read_seconds(first, "the first step"), read_seconds(last, "the last step")
            whole_day = re.fullmatch(r"\d{4}-\d\d-\d\d", last.strip()) is not None
            named = clock.begin(other) == end and not (whole_day and clock.every < 86_400)
            end += 86_400 * (whole_day and not named)
            while not named and clock.begin(other + 1) < end:
                other += 1
            cut = [first] * (clock.begin(one) != begin) + [last] * (not named and clock.begin(other + 1) != end)
        if cut:
            raise InputError(
                f"{cut[0]!r} is inside a step of {clock.period}: use {clock.label(one)} to {clock.label(other)}"
            )
        return self.select_steps(one, other)

    def select_steps(self, first: int, last: int) -> Series:
        """Return the steps between two step numbers, both included."""
        own = {step: release for step, release in self.releases.items() if first <= step <= last}
        gone = {step: release for step, release in self.withdrawn.items() if first <= step <= last}
        return replace(self, first=first, last=last, releases=own, withdrawn=gone)

    def skip_missing(self) -> Series:
        """Return a series whose answers leave out missing steps."""
        return replace(self, skipping=True)

    def per_step(self) -> Series:
        """Return a series that answers with means per step instead of sums."""
        return replace(self, mean=True)

    @functools.cached_property
    def summed_releases(self) -> Summed:
        """The sum of all steps. Raises InputError if any step is missing and was not left out."""
        if self.missing_steps and not self.skipping:
            raise InputError(
                f"{self.explain_missing()}; choose another period, or skip these steps to answer from the other "
                f"{len(self.releases):,}"
            )
        return Summed(tuple(self.releases.values()))

    @property
    def decoder(self) -> JointNoise:
        """The noise of answers."""
        one = self.summed_releases.decoder
        return replace(one, parts=[(one, 1, 1 / len(self.releases) if self.mean else 1.0)])

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, each of shape (m,)."""
        found = self.summed_releases.answer_workload(work, level=level, nonnegative=nonnegative)
        number = len(self.releases)
        if self.mean:
            shares = ("cut", "unresolved", "estimator")
            found = {name: each if name in shares else each / number for name, each in found.items()}
        return {**found, "steps": np.full(len(found["estimate"]), number)}

    def name_estimator(self, nonnegative: bool) -> str:
        """Return the name used for the estimates in files and pictures."""
        return self.first_release.name_estimator(nonnegative)

    def __repr__(self) -> str:
        steps = self.last - self.first + 1
        each = f" of {self.clock.period}" if self.clock.every else ""
        missing = f", {len(self.missing_steps):,} missing" if self.missing_steps else ""
        first, *_, last = self.step_labels * 2
        return f"Series: {steps:,} step{'s' if steps > 1 else ''}{each} from {first} to {last}{missing}"


@dataclass(frozen=True, eq=False)
class Summed(CountEstimates):
    """A sum of releases with the same strategy and domain. A sum answers queries as a release does.

    Raises InputError if two releases share noise: equal releases, releases of one chain, or a release and its copy.
    """

    releases: tuple[Release, ...]

    def __post_init__(self) -> None:
        check_independent(self.releases)

    @property
    def total(self) -> int | None:
        """The number of points in all releases if it is public for each of them, else None."""
        known = [each.total for each in self.releases if each.total is not None]
        return sum(known) if len(known) == len(self.releases) else None

    @functools.cached_property
    def alike(self) -> dict[Release, int]:
        """One release for each distinct set of noise laws, and the number of releases that have these laws."""
        number = Counter(each.laws for each in self.releases)
        first = {each.laws: each for each in reversed(self.releases)}
        return {first[laws]: number[laws] for laws in number}

    @functools.cached_property
    def decoder(self) -> JointNoise:
        """The noise of the summed answers."""
        one = self.releases[0]
        parts = [(each.decoder, number, 1.0) for each, number in self.alike.items()]
        return JointNoise(one.domain, one.strategy, one.laws, parts)

    @functools.cached_property
    def placement(self) -> JointPlacement:
        """The model of points' positions inside cells."""
        blocks = {each.laws: block_variance(each.decoder) for each in self.alike}
        parts = [learn_placement(each.cells(), blocks[each.laws]) for each in self.releases]
        return JointPlacement(parts, learn_placement(self.cells(), block_variance(self.decoder)))

    @functools.cached_property
    def _unbiased_cells(self) -> Field:
        cells: Field = np.sum([each.cells() for each in self.releases], axis=0)
        cells.flags.writeable = False
        return cells

    @functools.cached_property
    def projection(self) -> ProjectedCells:
        # Project only the sum, because the biases of separate projections would add up.
        parts = [each.decoder.estimate_on_grid(each.values, each.total) for each in self.releases]
        noise = find_least_count(self.decoder)
        return estimate_nonnegative(np.sum(parts, axis=0), self._noise_metric, self.total, noise)

    @functools.cached_property
    def _noise_metric(self) -> Metric:
        parts = [(each.decoder.noise_metric(), number) for each, number in self.alike.items()]
        return replace(parts[0][0], variance=np.sum([own.variance * number for own, number in parts], axis=0))


def check_independent(releases: Sequence[Release]) -> None:
    """Raise InputError if two releases share noise, because sums assume that noise is independent."""
    origin, number = Counter(each.noise_origin for each in releases).most_common(1)[0]
    if number > 1:
        raise InputError(f"{number} of the releases share data and noise ({origin}): use only the most accurate one")


@dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise of sums and differences of answers from releases with independent noise.

    Domain, strategy and laws are those of one release. `parts` lists decoders, each with the number of releases that
    have its noise laws, and the factor that multiplies their noise.
    """

    domain: Domain
    strategy: Strategy
    laws: tuple[Law, ...]
    parts: Sequence[tuple[Any, int, float]]

    def moments(self, work: Asked) -> Moments:
        """Return the moments of the joint noise of all releases."""
        found = [decoder.moments(work) for decoder, _, _ in self.parts]
        numbers = [number for _, number, _ in self.parts]
        own = [m.variance * factor**2 for m, (_, _, factor) in zip(found, self.parts, strict=True)]
        variance = np.sum([v * n for v, n in zip(own, numbers, strict=True)], axis=0)
        fourth = np.sum([m.kurtosis * v**2 * n for m, v, n in zip(found, own, numbers, strict=True)], axis=0)
        kurtosis = np.divide(fourth, variance**2, out=np.zeros_like(variance), where=variance**2 > 0)
        shares = [m.unresolved for m in found if m.unresolved is not None]
        unresolved = np.max(shares, axis=0) if len(shares) == len(found) else None
        # Noise from different decoders is not a plain sum of draws.
        draws = found[0].draws
        draws = None if draws is None else draws * (numbers[0] if len(found) == 1 else 0)
        return Moments(variance, kurtosis, min(m.freedom for m in found), unresolved, draws, found[0].note)


@dataclass(frozen=True, eq=False)
class JointPlacement:
    """Models of points' positions in cells, for several releases (`parts`) and their sum (`learnt`). Errors add up."""

    parts: Sequence[Placement]
    learnt: Placement

    def slope_terms(self, own: Field, chosen: Chosen) -> tuple[Field, ...]:
        """Add up the slope terms of each release for its own cells, and the terms of `learnt` for the rest of `own`."""
        parts = [each.slope_terms(each.cells[chosen], chosen) for each in self.parts]
        beyond = self.learnt.slope_terms(own - self.learnt.cells[chosen], chosen)
        return tuple(np.sum(along, axis=0) for along in zip(*parts, beyond, strict=True))

    def spreads(self, chosen: Chosen) -> tuple[Field, ...]:
        """Return the spreads of each release, followed by those of their sum."""
        return tuple(field for each in (*self.parts, self.learnt) for field in each.spreads(chosen))

    def joined_variance(self, apart: Sequence[Field]) -> Field:
        """Return, per query (m,), the squared sum of standard errors, or the variance of the sum if that is larger."""
        *parts, learnt = apart
        return np.asarray(np.maximum(np.sum(np.sqrt(parts), axis=0) ** 2, learnt))


@dataclass(frozen=True, eq=False)
class Difference:
    """The change between two releases of counts, or between two periods of a series.

    Strategies and budgets may differ. Raises InputError if the two have different cells or share noise.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> may, june = (dh.publish(np.full(4, each), near, "identity", 1.0) for each in (5, 8))
    >>> dh.answer(dh.Difference(may, june), [[0, 4]])[["before", "after", "estimate"]].to_numpy().tolist()
    [[20.0, 32.0, 12.0]]
    """

    before: Any
    after: Any

    def __post_init__(self) -> None:
        before, after = self.before, self.after
        if isinstance(before, Series) and isinstance(after, Series):
            alike = before.clock == after.clock and before.mean == after.mean
            alike = alike and not _list_differences(before.first_release, after.first_release)
            check = [*before.releases.values(), *after.releases.values()]
        else:
            alike = isinstance(before, Release) and isinstance(after, Release)
            alike = alike and before.domain == after.domain
            alike = alike and before.counting.contributions == after.counting.contributions
            check = [before, after]
        if not alike:
            raise InputError(
                "the two cannot be compared: two releases must count the same cells, with the same limit on points per "
                "user, and two periods must be of one series, both as sums or both as means"
            )
        check_independent(check)

    @property
    def domain(self) -> Domain:
        return self.after.domain  # type: ignore[no-any-return]

    @property
    def decoder(self) -> JointNoise:
        """The noise of the difference between answers."""
        parts = [(side.decoder, 1, 1.0) for side in (self.before, self.after)]
        one = parts[1][0]
        return JointNoise(self.domain, one.strategy, one.laws, parts)

    @property
    def promise(self) -> str:
        """The joint guarantee of all releases from both periods, in one line."""
        spent = self.before.spent | self.after.spent
        return _promise_together(_join_costs(self.after.first_release, spent), spent)

    def cells(self) -> Field:
        """Return unbiased estimates of the change in all cells (domain.shape). Both must be releases, not periods."""
        return np.asarray(self.after.cells() - self.before.cells())

    def name_estimator(self, nonnegative: bool) -> str:
        """Return the estimates' name. Raises InputError if `nonnegative` is true, because changes can be negative."""
        check_choice((False,), **{"nonnegative for a difference": nonnegative})
        return UNBIASED

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, each of shape (m,)."""
        self.name_estimator(nonnegative)
        return answer_in_batches(work, self.domain, lambda batch: self._answer_batch(batch, level))

    def _answer_batch(self, work: Workload, level: float) -> dict[str, NDArray[Any]]:
        before, after = (one.answer_workload(work, level=level, nonnegative=False) for one in (self.before, self.after))
        cover, decoder = work.cover(self.domain), self.decoder
        joint = decoder.moments(cover if isinstance(cover, RegionCover) else work)
        # Add placement errors, not their variances.
        none = np.zeros(len(joint.variance))
        placement = before.get("placement_error", none) + after.get("placement_error", none)
        error = joint.and_normal(placement**2)
        down, up = interval(error, decoder.laws[0], level)
        estimate = after["estimate"] - before["estimate"]
        table = {"before": before["estimate"], "after": after["estimate"], "estimate": estimate}
        table |= {"std_error": np.sqrt(error.variance), "low": estimate - down, "high": estimate + up}
        if "cut" in before:
            table |= {"noise_error": np.sqrt(joint.variance), "placement_error": placement, "cut": after["cut"]}
        unresolved = [each["unresolved"] for each in (before, after) if "unresolved" in each]
        if unresolved:
            table["unresolved"] = np.max(unresolved, axis=0)
        return table


def _join_costs(release: Release, spent: Mapping[int, Fraction]) -> Mechanism:
    """Return a release's mechanism with the budget that several steps spent together."""
    one = replace(release.mechanism, step=None)
    return one.with_budget(one.budget.of(sum(spent.values(), Fraction(0))))


def _promise_together(mechanism: Mechanism, spent: Mapping[int, Fraction]) -> str:
    return f"{len(spent):,} release{'s'[: len(spent) != 1]}, together {mechanism.promise}"


def _open_step(file: Path) -> Release:
    release = read_described(file, functools.partial(read_content, {Mechanism.kind: Release}))
    assert isinstance(release, Release)
    return attach_notice(release, file)


def _list_differences(one: Release, other: Release) -> list[str]:
    """Return the fields in which two releases differ, apart from their budgets."""
    first, second = one.describe(), other.describe()
    if (first["epsilon"] is None) != (second["epsilon"] is None):
        return ["the unit of their budget"]
    # The budget, whatever follows from it, and the state of the account may differ from step to step.
    own = ("step", "epsilon", "rho", "laws", "total", "publishable", "version", "account", "chain", "replaces", "about")
    fields = [k for k in first.keys() | second.keys() if k not in own and first.get(k) != second.get(k)]
    steps = one.mechanism.step, other.mechanism.step
    if all(steps) and replace(steps[0], number=0) != replace(steps[1], number=0):  # type: ignore[type-var]
        fields.append("window")
    return sorted(fields)


def _read_time(name: str) -> str:
    """Convert a step's name to a time, restoring the colons that file names cannot contain."""
    return re.sub(r"T(\d\d)(\d\d)(\d\d)$", r"T\1:\2:\3", name)
