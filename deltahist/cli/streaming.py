"""`deltahist stream`: one release per step of time, under a budget for every window of steps."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counting import Counting
    from deltahist.counts.private import Private
    from deltahist.counts.steps import Clock
    from deltahist.ledger import Ledger
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.publishers import Window

#: Account of a stream in its ledger, the fact that tells late rows, and the one that tells how rows were counted.
_ACCOUNT, _ROWS, _COUNTING = "stream", "rows up to the last step", "counting"
#: What ledgers of the first version do not say of a stream.
_LATER = ("unit", "user", "time")
#: Steps from which on a bar is shown on a terminal.
_LONG = 20
_MOST_STEPS = 10_000_000


def stream(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="A table with a time column, or a folder with one file per step."
        ),
    ],
    start: Annotated[
        str, typer.Option(metavar="T", help="First step: a date or date-time (UTC), or a whole number.")
    ],
    until: Annotated[str, typer.Option(metavar="T", help="Last step to publish now; public, like --start.")],
    length: options.Length,
    bounds: options.Bounds,
    delta: options.Delta,
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="The ledger; made at first, needed for every later run.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the releases, one file per step.")],
    every: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="Length of a step: 1d, 6h, 15min, 1w. None for numbers."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Column of times (ISO 8601) or of step numbers; of a table."),
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Columns step and epsilon (or rho): what each step gets, 0 for none. [default: equal shares]",
        ),
    ] = None,
    gaps: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="Folder: error, or empty (a missing file is a step without points)."
        ),
    ] = "error",
    x: options.X = None,
    y: options.Y = None,
    crs: options.Crs = None,
    project: options.Project = None,
    cell: options.Cell = None,
    cells_per_delta: options.CellsPerDelta = None,
    sources: options.Sources = "boundary",
    epsilon: options.Epsilon = None,
    rho: options.Rho = None,
    strategy: Annotated[str, typer.Option(metavar="NAME", help="As for `deltahist publish`.")] = "auto",
    user: options.User = None,
    max_per_user: Annotated[
        str | None, typer.Option(metavar="K", help="Points of one user that are kept in each step.")
    ] = None,
    outside: options.Outside = "clamp",
) -> Any:
    """Publish one map per step of time, for ever, with a budget for every window of steps.

    Every --window consecutive steps together spend at most --epsilon (or --rho): that is what protects an entity
    whose data differ within so many steps, each within δ in space. Every step from --start to --until is published,
    those without points too. The ledger is charged before noise is drawn. Run it again with a later --until to go
    on; a step that was charged but not finished (the machine stopped) is lost, and said so.

    \b
    Examples:
      deltahist stream visits.csv --time when --every 1d --start 2010-01-01 --until 2010-12-31 --window 30 \\
          --epsilon 1 --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --bounds 560000,4480000,610000,4530000 \\
          --cell 1km --delta 2km --state city.ledger --out city
      deltahist stream daily/ --every 1d --start 2010-01-01 --until 2010-03-31 --window 7 --rho 0.1 --x x --y y \\
          --bounds 0,0,50000,50000 --delta 500 --state city.ledger --out city
    """
    from deltahist.cli.geometry import map_crs
    from deltahist.counting import Counting
    from deltahist.counts.steps import Clock

    points = options.user_bound(user, max_per_user)
    budget = options.budget(epsilon, rho)
    clock = Clock.of(start, every)
    steps = clock.step(until, "--until") + 1
    window_length = options.whole_number(length, "--window")
    if not 1 <= steps <= _MOST_STEPS:
        raise InputError(
            f"--until is {until!r}: it must be from 1 to {_MOST_STEPS:,} steps on from --start, {start!r}"
        )
    near = options.space(bounds, cell, cells_per_delta, delta, sources, map_crs(crs, project, bounds))
    _check_folders(source, time, gaps, out)
    if outside not in ("clamp", "drop") or (outside == "drop" and sources != "boundary"):
        raise InputError(
            f"--outside is {outside!r} with --sources {sources}: it must be clamp, or drop with --sources boundary"
        )
    labels = [clock.label(step) for step in range(steps)]
    amounts = None if budgets is None else _read_budgets(budgets, labels, next(iter(budget)))
    dropped = ("points outside",) if outside == "drop" else ()
    counting = Counting(points, user is not None, dropped)
    plan = _Plan(near, budget, strategy, counting, window_length, clock, {"user": user, "time": time})
    reading = {"x": x, "y": y, "crs": crs, "user": user, "max_per_user": user and points, "outside": outside}
    fresh = not state.exists()
    window = plan.window(state)
    with window.ledger.alone():  # type: ignore[union-attr]
        try:
            return _publish(source, time, gaps, out, labels, amounts, plan, window, reading)
        except InputError:
            # A ledger that nothing was charged to is no use, and would only get in the way of a corrected run.
            if fresh and window.last is None:
                state.unlink(missing_ok=True)
                Path(f"{state}-lock").unlink(missing_ok=True)
            raise


class _Plan:
    """What a stream publishes: all public, chosen before any data are read, and kept in the ledger."""

    def __init__(
        self,
        near: Neighbourhood,
        budget: dict[str, Any],
        strategy: str,
        counting: Counting,
        length: int,
        clock: Clock,
        columns: dict[str, str | None],
    ) -> None:
        from deltahist.planning import mechanism_for
        from deltahist.publishers import Window

        self.near, self.counting, self.columns = near, counting, columns
        self.length, self.clock = length, clock
        self.budget = budget
        self.unit = next(iter(budget))
        share: dict[str, Any] = {self.unit: Window(length=length, **budget).equal}
        self.strategy = mechanism_for(near, strategy, counting=counting, **share).strategy

    def window(self, state: Path) -> Window:
        """The accountant on the stream's ledger; refuses a ledger of another stream.

        The rule of the account is everything that the promise rests on, whatever else may differ between two runs:
        space and its relation, what is measured, whose points they are and how many of each are kept, what is left
        out, and which step a row belongs to. How coordinates came to the map is compared once they are read.
        """
        from deltahist.ledger import Ledger
        from deltahist.publishers import Window

        counting = self.counting.describe()
        del counting["projection"]
        about = {
            "domain": self.near.domain.describe(),
            "neighbourhood": self.near.describe(),
            "strategy": self.strategy.describe(),
            "start": self.clock.start,
            "every": self.clock.every,
            **counting,
            **self.columns,
        }
        opened = Ledger(state).accounts().get(_ACCOUNT) if state.exists() else None
        later = {} if opened is None else {k: about[k] for k in _LATER if k not in opened["about"]}
        known = {k: v for k, v in about.items() if k not in later}
        window = Window(length=self.length, ledger=state, name=_ACCOUNT, about=known, **self.budget)
        if later:
            window.ledger.amend(_ACCOUNT, "about", later)  # type: ignore[union-attr]
            listed = ", ".join(f"{k} {v!r}" for k, v in later.items())
            console.note(
                f"ledger {str(state)!r} is of a version that did not record it; from now on it says: {listed}"
            )
        return window

    def check(self, counts: Private, ledger: Ledger) -> None:
        """Raise InputError unless counts were made as those of the steps before; nothing has been charged yet."""
        from deltahist.ledger import differences

        assert counts.counting is not None
        now = counts.counting.describe()
        before = ledger.fact(_ACCOUNT, _COUNTING)
        if before is None:
            ledger.store(_ACCOUNT, _COUNTING, now)
        elif before != now:
            raise InputError(
                f"rows became counts in another way than in the steps before: {differences(before, now)}; the "
                "stream's promise rests on it (another --crs, or another version of the PROJ library?)"
            )

    def publish(self, counts: Private, amount: Fraction, out: Path) -> None:
        """Draw noise for an amount that has been charged, and write the release whole."""
        from deltahist.publishers import publish

        budget: dict[str, Any] = {self.unit: amount}
        publish(counts, self.near, self.strategy, **budget).save(out)


def _publish(
    source: Path,
    time: str | None,
    gaps: str,
    out: Path,
    labels: list[str],
    amounts: list[Fraction] | None,
    plan: _Plan,
    window: Window,
    reading: dict[str, Any],
) -> dict[str, int]:
    """Publish every step that is due, and say what became of the others."""
    import numpy as np

    from deltahist.counts.private import Private

    done = -1 if window.last is None else window.last
    files = [out / f"{label}.parquet" for label in labels]
    unknown = next((f for f in files[done + 1 :] if f.exists()), None)
    if unknown is not None:
        raise InputError(
            f"release {str(unknown)!r} is there, but the ledger knows nothing of it (another ledger's?): nothing was "
            "published; move it away, or take the ledger that belongs to it"
        )
    counts_of, rows_upto = _counter(source, time, gaps, labels, plan, reading, window, done)
    tally = {"published": 0, "lost": 0, "skipped": 0}
    with _bar(len(labels) - done - 1) as advance:
        for step, (label, file) in enumerate(zip(labels, files, strict=True)):
            amount = window.equal if amounts is None else amounts[step]
            if not amount:
                tally["skipped"] += 1
                continue
            if step <= done:
                if not file.exists():
                    tally["lost"] += 1
                    console.note(
                        f"step {label} was charged but never finished: its budget is spent, it is lost"
                    )
                continue
            counts = counts_of(step)
            if counts is None:
                counts = Private.of(np.zeros(plan.near.domain.shape, dtype=np.int64), plan.counting)
            else:
                plan.check(counts, window.ledger)  # type: ignore[arg-type]
            charged = window.charge(step, amount)
            plan.publish(counts, charged, file)
            if rows_upto is not None:
                window.ledger.store(_ACCOUNT, _ROWS, [step, rows_upto(step)])  # type: ignore[union-attr]
            tally["published"] += 1
            advance()
    print(_summary(plan, window, out, tally))
    return tally


def _counter(
    source: Path,
    time: str | None,
    gaps: str,
    labels: list[str],
    plan: _Plan,
    reading: dict[str, Any],
    window: Window,
    done: int,
) -> tuple[Callable[[int], Any], Callable[[int], int] | None]:
    """Counts of a step (None for a step without a file), and for a table the number of rows up to it."""
    from deltahist.counts import count_file
    from deltahist.counts.steps import count_steps, step_files

    domain = plan.near.domain
    if source.is_dir():
        found = step_files(source, labels)
        missing = [label for label in labels[done + 1 :] if label not in found]
        if missing and gaps == "error":
            raise InputError(
                f"step {missing[0]} has no file in {str(source)!r} ({len(missing):,} such steps): a gap; add the "
                "file, or say --gaps empty if nobody was there"
            )

        def of_file(step: int) -> Any:
            if labels[step] not in found:
                return None
            return count_file(found[labels[step]], domain, progress=False, **reading).counts

        return of_file, None
    assert time is not None
    stepped = count_steps(source, domain, plan.clock, len(labels), time=time, **reading)
    console.note(f"{stepped.rows:,} rows read, {len(stepped.keys):,} points kept")
    for number, where in ((stepped.before, "before --start"), (stepped.after, "after --until")):
        if number:
            console.note(f"{number:,} rows lie {where} and are left out")
    earlier = _rows_earlier(window, stepped.upto, labels)
    return stepped.counts, lambda step: earlier + int(stepped.upto[step])


def _rows_earlier(window: Window, upto: Any, labels: list[str]) -> int:
    """Rows that were published from and are not in this table: those of steps published already, or none.

    Raises InputError if the table has some rows of published steps, but not those that were there then.
    """
    stored = window.ledger.fact(_ACCOUNT, _ROWS)  # type: ignore[union-attr]
    if stored is None:
        return 0
    step, known = stored
    now = int(upto[min(step, len(upto) - 1)])
    if now not in (0, known) and step < len(upto):
        raise InputError(
            f"the input has {now:,} rows up to step {labels[step]}, which is published already; there were {known:,} "
            f"then ({abs(now - known):,} rows came late or were taken away): they cannot be published any more; "
            "leave them out, or give new rows only"
        )
    return 0 if now else int(known)


def _check_folders(source: Path, time: str | None, gaps: str, out: Path) -> None:
    if gaps not in ("error", "empty"):
        raise InputError(f"--gaps is {gaps!r}: it must be error or empty")
    if not source.exists():
        raise InputError(f"input {str(source)!r} does not exist")
    if source.is_dir() == (time is not None):
        rule = (
            "a folder has one file per step, so it must be left out"
            if source.is_dir()
            else "a table needs it"
        )
        raise InputError(f"--time is {time!r} with {str(source)!r}: {rule}")
    if out.exists() and (not out.is_dir() or (source.is_dir() and out.samefile(source))):
        raise InputError(f"--out is {str(out)!r}: it must be a folder, and not the input's")
    if not out.exists():
        if not out.parent.is_dir():
            raise InputError(f"output folder {str(out.parent)!r} does not exist: make it first")
        out.mkdir()


def _read_budgets(file: Path, labels: list[str], unit: str) -> list[Fraction]:
    """One amount per step; steps must rise, without repetition and gap."""
    if not file.is_file():
        raise InputError(f"--budgets {str(file)!r} does not exist")
    with file.open(newline="", encoding="utf-8-sig") as text:
        rows = list(csv.DictReader(text))
    if not rows or not {"step", unit} <= set(rows[0]):
        raise InputError(f"--budgets {file.name!r} must have a header with the columns step and {unit}")
    names = [str(row["step"]).strip() for row in rows]
    for place, (name, label) in enumerate(zip(names, labels, strict=False)):
        if name != label:
            why = "repeated" if name in names[:place] else "out of order, or after a gap"
            raise InputError(
                f"--budgets {file.name!r} has step {name!r} where {label!r} must be ({why}): one row for each step "
                "from --start on, in order"
            )
    if len(names) < len(labels):
        raise InputError(
            f"--budgets {file.name!r} ends at step {names[-1]!r}: it must reach {labels[-1]!r} (--until)"
        )
    out = []
    for row, label in zip(rows, labels, strict=False):
        said = str(row[unit]).strip()
        try:
            amount = Fraction(said)
        except (ValueError, ZeroDivisionError):
            amount = Fraction(-1)
        if amount < 0:
            raise InputError(
                f"--budgets {file.name!r} has {said!r} for step {label}: it must be a number, zero or more"
            )
        out.append(amount)
    return out


def _summary(plan: _Plan, window: Window, out: Path, tally: dict[str, int]) -> str:
    letter = "ε" if plan.unit == "epsilon" else "ρ"
    total = float(Fraction(window.limit, 10**9))
    lost = f", {tally['lost']:,} lost (charged, but never finished)" if tally["lost"] else ""
    near = plan.near
    return "\n".join(
        [
            f"published    {tally['published']:,} steps to {out}{lost}",
            f"strategy     {plan.strategy.name}",
            f"guarantee    {letter} = {total:g} for whoever's data differ within {plan.length} steps, each by up to "
            f"{near.delta_ground:g} {near.domain.unit}",
            f"go on        with the same options, --state {window.ledger.path} and a later --until",  # type: ignore[union-attr]
        ]
    )


@contextmanager
def _bar(steps: int) -> Iterator[Callable[[], None]]:
    import sys

    if steps < _LONG or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("publishing steps"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("steps", total=steps)
        yield lambda: bar.advance(task)
