"""Publishing a stream: one release per step of time, under a budget for every window of steps, resumable for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from deltahist.accounts.ledger import Ledger, differences
from deltahist.accounts.window import Account, Window
from deltahist.budget import Budget
from deltahist.counting import Counts, count_file, count_steps
from deltahist.counting.reading import refuse_outside
from deltahist.counting.steps import check_folders, step_files
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import MOST_CERTAIN, Step
from deltahist.planning import mechanism_for
from deltahist.preprocessing import POINTS, Clock, Preprocessing
from deltahist.publishers.histogram import publish
from deltahist.publishers.publication import check_protection
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy

#: Account of a stream in its ledger, and the facts kept there: what tells late rows, how rows were counted, which steps
#: are whole and which were lost.
_ACCOUNT, _ROWS, _COUNTING = "stream", "rows up to the last step", "counting"
_WHOLE, _LOST = "last whole step", "lost steps"

#: Counts of a step, None for one without a file; and for a table the number of rows up to it.
_Counts = Callable[[int], Counts | None]
_RowsUpto = Callable[[int], int] | None


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of releases: all public choices, made before any data are read, and kept in its ledger.

    Every `length` consecutive steps together spend at most the budget: that protects an entity whose data
    differ within `length` steps, each within δ in space (`Window`). Source: 2014, section 6.3, section 6.5.

    Parameters
    ----------
    near : who may be confused with whom.
    budget : of a window of steps, ε or ρ. length : steps of a window. clock : defines steps.
    ledger : path or URL of the ledger; made at first, needed for every later run.
    strategy : of every step, by name or itself; "auto" chooses for equal shares.
    counting : how rows become counts, but for the way to the map, which is compared once they are read.
    user : the column that says whose a row is, if rows are of users.
    time : the column of times; None for a folder with one file per step.
    limits : for data that differ in more steps than a window (`Window`).
    """

    near: Neighbourhood
    budget: Budget
    length: int
    clock: Clock
    ledger: str | Path = field(repr=False)  # a URL may hold a password
    strategy: Strategy | str = "auto"
    counting: Preprocessing = POINTS
    user: str | None = None
    time: str | None = None
    limits: Iterable[tuple[float, Any]] = ()

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of a step with an equal share of the window's budget."""
        share: dict[str, Any] = {self.budget.unit: Window(self.length, *self.budget.exact).equal}
        near = self.near
        if near.limits is None and "limits" not in self._begun.get("neighbourhood", {"limits"}):
            near = near.without_limits()  # it goes on as it began
        return mechanism_for(near, self.strategy, counting=self.counting, **share)

    @cached_property
    def _begun(self) -> Mapping[str, Any]:
        """The ledger's description of its stream; empty before that begins."""
        opened = Ledger(self.ledger).accounts().get(_ACCOUNT) if Ledger.exists(self.ledger) else None
        return {} if opened is None else opened.get("about", {})

    def step(self, number: int) -> Step:
        """Return the place of a step's release in the stream."""
        return Step(self.clock, number, self.length, self.budget, self.shape.limits)  # type: ignore[arg-type]

    @cached_property
    def shape(self) -> Window:
        """The accountant without its ledger."""
        return Window(self.length, *self.budget.exact, limits=self.limits)

    def window(self) -> Window:
        """Open the accountant on the stream's ledger; InputError for a ledger of another stream.

        The rule of the account is everything that the promise rests on, but how coordinates came to the map.
        """
        counting = replace(self.counting, project_file=None).describe()  # a project's file may change
        del counting["projection"]
        near = self.mechanism.neighbourhood
        about: dict[str, Any] = {
            "domain": near.domain.describe(),
            "neighbourhood": near.describe(),
            "strategy": self.mechanism.strategy.describe(),
            "start": self.clock.start,
            "every": self.clock.every,
            "time_format": self.clock.format,
            "user": self.user,
            "time": self.time,
            **counting,
        }
        # 2km and 2000m are one length: the ledger's own words are taken for it.
        said = self._begun.get("neighbourhood", {}).get("delta")
        if said is not None and self._begun.get("domain") == about["domain"]:
            length = self.near.domain.length
            if length(said, name="delta") == length(self.near.delta, name="delta"):
                about["neighbourhood"] = about["neighbourhood"] | {"delta": said}
        return replace(self.shape, ledger=self.ledger, name=_ACCOUNT, about=about)

    def publish(
        self,
        source: str | Path,
        out: str | Path,
        steps: int,
        *,
        amounts: Sequence[Fraction] | None = None,
        gaps: str = "error",
        weak_protection_accepted: bool = False,
        tell: Callable[[str], None] = lambda text: None,
        advance: Callable[[], None] = lambda: None,
        **reading: Any,
    ) -> dict[str, int]:
        """Publish every step that is due, the ledger being charged before noise is drawn.

        Run it again with more steps to go on; a step that was charged but not finished (the machine stopped) is lost.
        Return how many steps were "published" now, were "lost", and "skipped" (no amount).

        Parameters
        ----------
        source : a table with a column of times (`time`), or a folder with one file per step; with `table` a database.
        out : the folder of the releases, one file per step, named by the clock; it is made if need be.
        steps : how many there are up to now.
        amounts : what each step gets, 0 for none; equal shares when None.
        gaps : of a folder: "error", or "empty" (a missing file is a step without points).
        weak_protection_accepted : as for `publish`; it is about all releases of a window together, too.
        tell : is told what the person at the keyboard should know; not for publication.
        advance : is called after every step.
        reading : as for `count_file`, but for `user`.

        Raises
        ------
        InputError
            On a ledger of another stream, releases that the ledger does not know or that are missing, rows that came
            too late, or counts that were made in another way than before. What was published stays.
        OutsideBounds
            If many points of the steps that are due lie outside; nothing is charged then.
        BudgetExceeded
            If a step's amount is more than its window has left.
        """
        out = Path(out)
        check_folders(Path(source), self.time, self.clock, gaps, out, reading.get("table"))
        self.check(amounts, weak_protection_accepted)
        fresh, made = not Ledger.exists(self.ledger), not out.exists()
        if made:
            out.mkdir()
        try:
            window = self.window()
            with _ledger(window).exclusive():
                try:
                    run = _Run(self, window, out, [self.clock.label(step) for step in range(steps)], tell)
                    return run.publish(source, amounts, gaps, advance, reading)
                except BaseException:
                    # A ledger that nothing was charged to is no use, and would only be in the way of a corrected run.
                    if fresh and window.last is None:
                        _ledger(window).close_if_unused(_ACCOUNT)
                    raise
        except BaseException:
            if made and not any(out.iterdir()):
                out.rmdir()
            raise

    def check(self, amounts: Sequence[Fraction] | None, accepted: bool) -> None:
        """Refuse budgets that hardly protect, in a step or in a whole window, or that would run out."""
        if amounts is None:
            _ = self.shape.equal
        most, mechanism = max(amounts or [Fraction(0)]), self.mechanism
        if most:
            mechanism = mechanism.with_budget(self.budget.of(most))
        check_protection(mechanism, accepted)
        if not accepted:
            refuse_weak_window(self.budget, self.length)


def refuse_weak_window(budget: Budget, length: int) -> None:
    """Raise InputError if a budget for every window of some steps hardly protects anything."""
    sure = budget.guarantee.certainty
    if sure > MOST_CERTAIN:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):g} for every window of {length:,} steps: from its releases "
            f"together an observer can be {100 * sure:.6g}% sure; take less, or say weak_protection_accepted=True"
        )


class _Run:
    """One run of a stream, alone on its ledger."""

    def __init__(
        self, stream: Stream, window: Window, out: Path, labels: list[str], tell: Callable[[str], None]
    ) -> None:
        self.stream, self.window, self.labels, self.tell = stream, window, labels, tell
        self.ledger = _ledger(window)
        self.out, self.files = out, [out / f"{label}.parquet" for label in labels]
        self.done = -1 if window.last is None else window.last

    def publish(
        self,
        source: str | Path,
        amounts: Sequence[Fraction] | None,
        gaps: str,
        advance: Callable[[], None],
        reading: dict[str, Any],
    ) -> dict[str, int]:
        lost = self._look_at_what_is_there(amounts)
        counts_of, rows_upto = self._counter(source, gaps, amounts, reading)
        tally = {"published": 0, "lost": len(lost), "skipped": 0}
        # How rows become counts is the mechanism's to say, on days without rows as on all others.
        nobody = np.zeros(self.stream.near.domain.shape, dtype=np.int64)
        for step, file in enumerate(self.files):
            advance()
            amount = self.window.equal if amounts is None else amounts[step]
            if not amount:
                tally["skipped"] += 1
                continue
            if step <= self.done:
                continue
            counts = counts_of(step)
            if counts is not None:
                self._check_counting(counts.preprocessing)
            self.window.check(step, amount)
            publish(
                nobody if counts is None else counts,
                self.stream.mechanism.with_budget(self.stream.budget.of(amount)).with_step(self.stream.step(step)),
                account=Account(self.window, step),
                weak_protection_accepted=True,  # looked at before the first charge
            ).save(file)
            self.ledger.store(_ACCOUNT, _WHOLE, step)
            if rows_upto is not None:
                self.ledger.store(_ACCOUNT, _ROWS, [step, rows_upto(step)])
            tally["published"] += 1
        return tally

    def _look_at_what_is_there(self, amounts: Sequence[Fraction] | None) -> list[int]:
        """Return lost steps, which were charged and have no release; nothing is charged before."""
        unknown = next((f for f in self.files[self.done + 1 :] if f.exists()), None)
        if unknown is not None:
            raise InputError(
                f"release {str(unknown)!r} is there, but the ledger knows nothing of it (another ledger's?): nothing "
                "was published; move it away, or take the ledger that belongs to it"
            )
        # What a process that was killed had begun to write; no other one writes here now.
        begun = {f".{file.name}" for file in self.files}
        for part in self.out.glob(".*.parquet.*"):
            if part.name[: part.name.rindex(".parquet.") + len(".parquet")] in begun:
                part.unlink(missing_ok=True)
        missing = [
            step
            for step, file in enumerate(self.files[: self.done + 1])
            if not file.exists() and (amounts is None or amounts[step])
        ]
        whole, known = self.ledger.fact(_ACCOUNT, _WHOLE), self.ledger.fact(_ACCOUNT, _LOST)
        if whole is not None:
            lost = set(known or [])
            moved = [step for step in missing if step <= whole and step not in lost]
            if moved:
                raise InputError(
                    f"release {str(self.files[moved[0]])!r} of a step that was published is not there "
                    f"({len(moved):,} such steps): was it moved away, or published to another folder "
                    "(or given no amount then)? nothing was published now"
                )
        for step in missing:
            self.tell(
                f"warning: step {self.labels[step]} was charged but never finished: its budget is spent, it is lost"
            )
        if missing and (known or []) != missing:
            self.ledger.store(_ACCOUNT, _LOST, missing)
            self.ledger.store(_ACCOUNT, _WHOLE, self.done)
        return missing

    def _check_counting(self, counting: Preprocessing) -> None:
        """Raise InputError unless rows become counts as in the steps before."""
        if replace(counting, projection=None) != replace(self.stream.counting, projection=None, project_file=None):
            raise InputError(
                f"the stream is for counts with {self.stream.counting.how}, but the rows were read with "
                f"{counting.how}: say the same of both"
            )
        self.stream.mechanism.with_counting(counting)  # refuses what could not be published
        now = counting.describe()
        before = self.ledger.fact(_ACCOUNT, _COUNTING)
        if before is None:
            self.ledger.store(_ACCOUNT, _COUNTING, now)
        elif before != now:
            raise InputError(
                f"rows became counts in another way than in the steps before: {differences(before, now)}; the "
                "stream's promise rests on it (points in another CRS, or another version of the PROJ library?)"
            )

    def _counter(
        self, source: str | Path, gaps: str, amounts: Sequence[Fraction] | None, reading: dict[str, Any]
    ) -> tuple[_Counts, _RowsUpto]:
        """Return counts of each step, and for a table the number of rows up to it."""
        domain, labels = self.stream.near.domain, self.labels
        reading = dict(user=self.stream.user, **reading)
        if self.stream.time is None:
            found = step_files(Path(source), labels)
            missing = [label for label in labels[self.done + 1 :] if label not in found]
            if missing and gaps == "error":
                raise InputError(
                    f"step {missing[0]} has no file in {str(source)!r} ({len(missing):,} such steps): a gap; add the "
                    "file, or let gaps be empty steps if nobody was there"
                )

            due = enumerate(labels[self.done + 1 :], start=self.done + 1)
            files = [found[name] for k, name in due if name in found and (amounts is None or amounts[k])]
            # All of them before the first is charged: a stream must not end halfway for what one file holds.
            judged = reading.get("outside") is None
            reading["outside"] = reading.get("outside") or "clamp"
            counted = {file: count_file(file, domain, **reading) for file in files}
            for each in counted.values():
                self._check_counting(each.preprocessing)
            if judged:
                usable = sum(each.rows - each.bad_rows - each.unmatched for each in counted.values())
                refuse_outside(sum(each.outside for each in counted.values()), usable, domain)

            def of_file(step: int) -> Counts | None:
                return counted[found[labels[step]]].counts if labels[step] in found else None

            return of_file, None
        time = self.stream.time
        stepped = count_steps(source, domain, self.stream.clock, len(labels), time=time, due=self.done + 1, **reading)
        self.tell(f"{stepped.rows:,} rows read, {stepped.kept:,} points kept")
        if stepped.unmatched:
            self.tell(f"{stepped.unmatched:,} rows left out that are not {stepped.preprocessing.where}")
        if stepped.bad_rows:
            self.tell(f"{stepped.bad_rows:,} rows dropped that cannot be used")
        for number, where in ((stepped.before, "before the first step"), (stepped.after, "after the last")):
            if number:
                self.tell(f"{number:,} rows lie {where} and are left out")
        upto = stepped.upto
        assert upto is not None
        earlier = self._rows_earlier(upto)
        return stepped.counts_of, lambda step: earlier + int(upto[step])

    def _rows_earlier(self, upto: Any) -> int:
        """Return the number of published rows that are not in this table; InputError if it has some of them."""
        stored = self.ledger.fact(_ACCOUNT, _ROWS)
        if stored is None:
            return 0
        step, known = stored
        now = int(upto[min(step, len(upto) - 1)])
        if now not in (0, known) and step < len(upto):
            raise InputError(
                f"the input has {now:,} rows up to step {self.labels[step]}, which is published already; there were "
                f"{known:,} then ({abs(now - known):,} rows came late or were taken away): they cannot be published "
                "any more; leave them out, or give new rows only"
            )
        return 0 if now else int(known)


def _ledger(window: Window) -> Ledger:
    assert isinstance(window.ledger, Ledger)
    return window.ledger
