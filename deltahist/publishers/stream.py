"""Publish a stream: one release per time step, with a budget for every window of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from deltahist._files import check_creatable
from deltahist.accounts.ledger import Rule, describe_differences, get_note, set_note
from deltahist.accounts.window import Account, Window
from deltahist.budget import Budget
from deltahist.counting import Counted, count_file
from deltahist.counting.counts import refuse_outside
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import Step, weakness_of
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Clock, Preprocessing
from deltahist.publishers.publication import check_publication, publish_mechanism, refuse_weak
from deltahist.releases import About
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy


@dataclass(frozen=True, eq=False)
class Stream:
    """The public choices for a stream of releases. They are made before any data are read, and the ledger records them.

    Any `length` consecutive steps together spend at most the budget, which covers a change of at most δ in each of
    these steps (`Window`). Source: 2014, section 6.3, section 6.5.

    Parameters
    ----------
    near : the neighbourhood. budget : ε or ρ of each window. length : number of steps in a window.
    clock : the clock that defines the steps.
    ledger : path or URL of the ledger, which the first run creates and every later run needs.
    strategy : the strategy of every step, or its name. "auto" chooses the best one for equal shares of the budget.
    counting : how rows become counts. Its projection is ignored, but all steps must use the same projection.
    user : column of users, if any. time : column of times; None for a folder with one file per step.
    limits : limits on the cost of changes that last longer than a window (`Window`).
    account : name of the stream's account in its ledger. about : what each release says about itself.
    """

    near: Neighbourhood
    budget: Budget
    length: int
    clock: Clock
    ledger: str | Path = field(repr=False)  # a URL may contain a password
    strategy: Strategy | str = "auto"
    counting: Preprocessing = POINTS
    user: str | None = None
    time: str | None = None
    limits: Iterable[tuple[float, Any]] = ()
    account: str = "stream"
    about: About = About()

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of a step that spends an equal share. Limits are ignored if they rule out equal shares."""
        rule = self.shape if self.shape.total_limit is None else Rule.from_budget(*self.budget.exact, self.length)
        share: dict[str, Any] = {self.budget.unit: rule.equal_share}
        return mechanism_for(self.near, self.strategy, counting=self.counting, **share)

    def step(self, number: int) -> Step:
        """Return a step of the stream, with its window's length, budget and limits."""
        return Step(self.clock, number, self.length, self.budget, self.shape.longer)

    @cached_property
    def shape(self) -> Rule:
        """The limits on the window and on longer spans of steps."""
        return Rule.from_budget(*self.budget.exact, self.length, self.limits)

    def window(self) -> Window:
        """Open the stream's window in its ledger. Raises InputError if the ledger belongs to another stream.

        The window's description covers everything that the guarantee depends on, except the projection.
        """
        counting = self.counting.describe()
        del counting["projection"]
        near, clock = self.mechanism.neighbourhood, self.clock
        about: dict[str, Any] = {
            **{"domain": near.domain.describe(), "neighbourhood": near.describe()},
            **{"strategy": self.mechanism.strategy.describe(), "user": self.user, "time": self.time, **counting},
            **{"start": clock.start, "every": clock.every, "time_format": clock.format, "tz": clock.tz},
        }
        return Window(self.length, *self.budget.exact, self.ledger, self.account, about, self.limits)

    def publish(
        self,
        source: str | Path,
        out: str | Path,
        steps: int,
        *,
        amounts: Sequence[Fraction] | None = None,
        weak_protection_accepted: bool = False,
        tell: Callable[[str], None] = lambda text: None,
        advance: Callable[[], None] = lambda: None,
        **reading: Any,
    ) -> dict[str, int]:
        """Publish every step that is due. Charge the ledger once for each step, before drawing noise.

        To continue a stream, call this again with more steps. A step is lost if the process stops between the step's
        charge and its release. Returns how many steps were "published" now, "lost" or "skipped" (amount 0).

        Parameters
        ----------
        source : a table with the column `time`, a folder with one file per step, or, if `table` is given, a database.
        out : folder for the releases, one file per step, named after the step. A missing folder is created.
        steps : number of steps up to now.
        amounts : ε or ρ of each step, 0 for no release; None means equal shares.
        weak_protection_accepted : as for `publish`, and for all releases of a window together.
        tell : called with private notes for the operator. advance : called before every step.
        reading : options of `count_file`, except `user`.

        Before any charge, raises InputError if the ledger belongs to another stream, does not record a release in the
        folder, or records different preprocessing; OutsideBounds if many points of due steps lie outside the domain.
        Raises BudgetExceeded if a step's amount exceeds what its window has left. Published steps remain.
        """
        out = Path(out)
        check_folders(Path(source), self.time, self.clock, out, reading.get("table"))
        self.check(amounts, weak_protection_accepted)
        window = self.window()
        done = -1 if window.last_step is None else window.last_step
        shares = [self.shape.equal_share] * steps if amounts is None else list(amounts[:steps])
        files = [out / f"{self.clock.label(step)}.parquet" for step in range(steps)]
        if unknown := [file for file in files[done + 1 :] if file.exists()]:
            raise InputError(
                f"release {str(unknown[0])!r} exists, but the ledger was not charged for it: move the file elsewhere"
            )
        lost = [files[step].stem for step in range(min(done + 1, steps)) if shares[step] and not files[step].exists()]
        if lost:
            tell(f"warning: steps were charged but have no release: {', '.join(lost[:5])}{', ...' * (len(lost) > 5)}")
        due = [step for step in range(done + 1, steps) if shares[step]]
        # Count all steps before the first charge, so that a bad file cannot stop the stream halfway.
        counts = self._count_steps(source, due, steps, tell, dict(user=self.user, **reading)) if due else {}
        self._check_same_preprocessing([counted.preprocessing for counted, _ in counts.values()], window)
        out.mkdir(exist_ok=True)
        for step in range(steps):
            advance()
            if step not in counts:
                continue
            counted, place = counts[step]
            data = counted.counts_of(place)
            mechanism = self.mechanism.with_budget(self.budget.of(shares[step])).with_changes(step=self.step(step))
            check_creatable(files[step])
            account = Account(window, step, once=True)
            # `check` has already refused weak protection, before the first charge.
            how: dict[str, Any] = {"account": account, "about": self.about, "weak_protection_accepted": True}
            publish_mechanism(mechanism, data, **how).save(files[step])
            with window.ledger.transaction() as connection:
                if get_note(connection, window.name, "counting") is None:
                    set_note(connection, window.name, "counting", counted.preprocessing.describe())
        return {"published": len(due), "lost": len(lost), "skipped": sum(not share for share in shares)}

    def check(self, amounts: Sequence[Fraction] | None, accepted: bool) -> None:
        """Refuse budgets that protect hardly anything in a step or a window, and equal shares that limits forbid."""
        if amounts is None:
            _ = self.shape.equal_share
        check_publication(self.costliest(amounts), accepted)
        if not accepted:
            refuse_weak_window(self.budget, self.length)

    def costliest(self, amounts: Sequence[Fraction] | None) -> Mechanism:
        """Return the mechanism of the step that spends the most."""
        most = max(amounts or [Fraction(0)])
        return self.mechanism.with_budget(self.budget.of(most)) if most else self.mechanism

    def _check_same_preprocessing(self, made: Iterable[Preprocessing], window: Window) -> None:
        """Raise InputError unless counts were made as the stream states, with one projection in all steps."""
        with window.ledger.read() as connection:
            before = get_note(connection, window.name, "counting")
        for now in (each.describe() for each in made):
            before = self.counting.describe() | {"projection": (before or now)["projection"]}
            if differing := describe_differences(before, now):
                raise InputError(
                    f"rows were not counted as the stream states: {differing} (the projection depends on the CRS of "
                    "the points and the version of PROJ)"
                )

    def _count_steps(
        self, source: str | Path, due: Sequence[int], steps: int, tell: Callable[[str], None], reading: dict[str, Any]
    ) -> dict[int, tuple[Counted, int]]:
        """Return, for each due step, the counts that contain it and its index in them."""
        domain, first = self.near.domain, min(due)
        if self.time is not None:
            clock = self.clock.since(first)
            read = count_file(source, domain, clock=clock, steps=steps - first, time=self.time, **reading)
            tell(f"{read.rows:,} rows read, {read.kept:,} points kept")
            for number, what in (
                (read.unmatched, f"do not match {read.preprocessing.where}"),
                (read.bad_rows, "cannot be used"),
                (read.before, f"lie before {clock.label(0)}, the first step published now (late rows included)"),
                (read.after, "lie after the last step"),
            ):
                if number:
                    tell(f"{number:,} rows left out: they {what}")
            return {step: (read, step - first) for step in due}
        labels = [self.clock.label(step) for step in range(steps)]
        found = step_files(Path(source), labels, [labels[step] for step in due])
        outside = reading.get("outside")
        reading["outside"] = outside or "clamp"  # the limit on points outside applies to all steps together
        counted = {step: count_file(found[labels[step]], domain, **reading) for step in due}
        if outside is None:
            usable = sum(each.rows - each.bad_rows - each.unmatched for each in counted.values())
            away, zeros = (sum(getattr(each, name) for each in counted.values()) for name in ("outside", "zeros"))
            refuse_outside(away, usable, zeros, domain)
        return {step: (each, 0) for step, each in counted.items()}


def check_folders(source: Path, time: Any, clock: Clock, out: Path, table: str | None = None) -> None:
    """Raise InputError unless the input suits the clock, and `out` can be written and is outside the input."""
    folder = source.is_dir()
    timeless = folder and table is None and clock.format is None and clock.tz is None
    if (time is None and not timeless) or (folder and out.resolve().is_relative_to(source.resolve())):
        raise InputError(
            f"source is {str(source)!r}, time is {time!r} and out is {str(out)!r}: name the time column, or give "
            "a folder with one file per step (and no table, time_format or tz); out must be outside the source"
        )
    check_creatable((out if out.is_dir() else out.parent) / "step.parquet")


def step_files(folder: Path, labels: Sequence[str], due: Iterable[str] = ()) -> dict[str, Path]:
    """Return the file of each step in a folder. The file's name without the suffix is the step's label.

    Raises InputError if a file is not named after a step, if two files share a step, or if a due step has no file.
    """
    known, end = set(labels), (len(labels[-1]), labels[-1])
    found: dict[str, Path] = {}
    problems = []
    for file in sorted(folder.iterdir()):
        label = file.name.split(".")[0]
        if not file.is_file() or not label:  # a hidden file
            continue
        # Files of later steps may exist already. Any other name is an error.
        later = (len(label), label) > end and label[0].isdigit()
        if label in found or not (label in known or later):
            problems.append(f"{file.name!r} names no step, or a step with another file")
        found[label] = file
    problems += [f"step {label} has no file" for label in due if label not in found]
    if problems:
        raise InputError(
            f"folder {str(folder)!r} must contain one file for each step, named {labels[0]} to {labels[-1]}, with "
            f"only a header if the step is empty: {problems[0]}"
        )
    return {label: file for label, file in found.items() if label in known}


def refuse_weak_window(budget: Budget, length: int) -> None:
    """Raise InputError if a budget for each window of `length` steps protects hardly anything."""
    if weakness := weakness_of(budget.guarantee):
        refuse_weak(budget, f"from the releases of a window of {length:,} steps together {weakness}")
