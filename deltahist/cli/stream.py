"""`deltahist stream`: one release per step of time; and the page of figures of a stream before it spends anything."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typer import Context

from deltahist._files import read_rows
from deltahist._progress import progress
from deltahist.cli import console
from deltahist.cli.groups import PLAN, ROWS, WEAK, WINDOW, RowOptions, Spending
from deltahist.cli.maps import (
    Coordinates,
    MapOptions,
    PlanOptions,
    about_map,
    choose_map,
    describe_limit,
    sources_option,
)
from deltahist.cli.options import argument, flag, length as read_length, option, whole_number, window_limit
from deltahist.errors import NANO, InputError, typed

if TYPE_CHECKING:
    from deltahist.accounts.rules import Rule
    from deltahist.mechanisms import Mechanism
    from deltahist.preprocessing import Clock
    from deltahist.space.workloads import Workload

#: Steps that a stream may have, and districts that a line names.
MOST_STEPS, _NAMED = 10_000_000, 5

WINDOW_LIMIT = option(
    "STEPS:TIMES",
    "STEPS in a row spend at most TIMES the budget: 30:2 (repeatable). any:4 limits all steps, and needs --budgets.",
    window_limit,
    several=True,
)


@dataclass(frozen=True, kw_only=True)
class StreamPlace(MapOptions):
    """The map of a stream, on which people may appear and vanish."""

    cell: float | str | None = option(
        "LENGTH", "Side of a cell: 250m, a plain number, or auto: the least error of a step. [default: δ]", read_length
    )
    sources: str = sources_option("boundary")
    _CHOOSES: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """The steps of time, and their budgets."""

    start: str = option("T", "First step: a date or date-time (UTC), or a whole number.", default=...)
    until: str = option("T", "Last step to publish now; public, like --start.", default=...)
    length: int = WINDOW
    every: str | None = option("PERIOD", "Length of a step: 1d, 6h, 15min, 1w. None for numbers.")
    time: str | None = option("COL", "Column of times (ISO 8601) or of step numbers; of a table.")
    time_format: str | None = option(
        "FORMAT", "Of other times, such as '%d/%m/%Y %H:%M'; unix or unix-ms since 1970."
    )
    budgets: Path | None = option(
        "FILE.csv", "Columns step and epsilon (or rho): what each step gets, 0 for none. [default: equal shares]"
    )
    gaps: Literal["error", "empty"] = option(
        "HOW", "Folder: error, or empty (a missing file is a step without points).", default="error"
    )
    window_limit: list[Any] | None = WINDOW_LIMIT


@dataclass(frozen=True, kw_only=True)
class _Rows(RowOptions):
    max_per_user: int | None = option("K", "Points kept of one user in each step.", whole_number, panel=ROWS)


def stream(
    context: Context,
    *,
    source: str = argument(
        "INPUT", "A table with its times (--time; - is stdin; --table), or a folder with one file per step."
    ),
    steps: _Steps,
    coordinates: Coordinates,
    place: StreamPlace,
    state: str = option(
        "FILE", "The ledger, or a postgresql:// URL; made at first, needed for every later run.", default=...
    ),
    out: Path = option("DIR", "Folder of the releases, one file per step.", default=...),
    spending: Spending,
    strategy: str = option("NAME", "As for `deltahist publish`.", default="auto", panel=PLAN),
    asked: PlanOptions,
    rows: _Rows,
    weak_protection_accepted: bool = WEAK,
    dry_run: bool = flag("Tell what steps would cost, and their errors; read no rows, draw nothing."),
) -> Any:
    """Publish one map per step of time, for ever, with a budget for every window of steps.

    Every --window consecutive steps together spend at most --epsilon (or --rho): that is what protects an entity
    whose data differ within that many steps, each within δ in space. Every step from --start to --until is published,
    those without points too. The ledger is charged before noise is drawn. Run it again with a later --until to go
    on; a step that was charged but not finished (the machine stopped) is lost, and said so. --points is about a step.

    \b
    Examples:
      deltahist stream visits.csv --time when --every 1d --start 2010-01-01 --until 2010-12-31 --window 30 \\
          --epsilon 1 --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --bounds 560000,4480000,610000,4530000 \\
          --cell 1km --delta 2km --state city.ledger --out city
      deltahist stream daily/ --every 1d --start 2010-01-01 --until 2010-03-31 --window 7 --rho 0.1 --x x --y y \\
          --bounds 0,0,50000,50000 --delta 500 --state city.ledger --out city
    """
    from deltahist.accounts.ledger import Ledger
    from deltahist.accounts.rules import Rule
    from deltahist.budget import Budget
    from deltahist.counting import check_file
    from deltahist.counting.steps import check_folders, step_files
    from deltahist.preprocessing import Clock
    from deltahist.publishers.stream import Stream, refuse_weak_window
    from deltahist.strategies import Strategy
    from deltahist.strategies.base import kind_named

    budget = spending.keywords()
    clock = Clock.of(steps.start, steps.every, steps.time_format)
    number = clock.step(steps.until, "--until") + 1
    if not 1 <= number <= MOST_STEPS:
        raise InputError(
            f"--until is {steps.until!r}: it must be from 1 to {MOST_STEPS:,} steps on from --start, {steps.start!r}"
        )
    counting = rows.counting(context)
    if not weak_protection_accepted:
        refuse_weak_window(Budget(**budget), steps.length)
    if strategy != "auto":
        kind_named(strategy)
    axes = len(place.bounds) // 2
    columns = coordinates.columns(axes)
    labels = [clock.label(step) for step in range(number)]
    ((unit, total),) = budget.items()
    amounts = None if steps.budgets is None else read_amounts(steps.budgets, labels, unit)
    if not dry_run:  # a cheap mistake is told before anything takes long
        if "://" not in state:
            console.check_target(Path(state), option="--state")
        check_folders(Path(source), steps.time, clock, steps.gaps, out, rows.table)
        console.check_writable(out if out.is_dir() else out.parent, f"--out is {str(out)!r}")
        how = {**columns, **vars(rows)}
        if steps.time is not None:
            check_file(source, axes, clock=clock, time=steps.time, **how)
        elif files := step_files(Path(source), labels):
            check_file(next(iter(files.values())), axes, **how)
    longer = steps.window_limit or ()
    rule = Rule.of(**budget, length=steps.length, limits=longer)
    equal = total / steps.length if amounts else rule.equal
    share = {"strategy": strategy, "counting": counting, unit: equal}
    chosen = choose_map(place, coordinates, asked, **share)
    near = chosen.near
    planned: Strategy | str = strategy
    if chosen.work is not None or chosen.cells:
        best = chosen.mechanism(**share)
        near, planned = best.neighbourhood, best.strategy
    plan = Stream(
        near, Budget(**budget), steps.length, clock, state, planned, counting, rows.user, steps.time, longer
    )
    mechanism = plan.mechanism if amounts else plan.mechanism.with_budget(plan.budget.of(rule.equal))
    names = [] if chosen.work is None else asked.names(chosen.work, plan.near.domain)
    points = None if asked.points is None else asked.number
    print(console.facts(**about_map(plan.near.domain), strategy=mechanism.strategy.name), "", sep="\n")
    print(describe_stream(mechanism, rule, clock, number, chosen.work, names, points, amounts))
    if dry_run:
        plan.check(amounts, weak_protection_accepted)
        return None
    reading = {name: value for name, value in vars(rows).items() if name != "user"}  # the stream's own
    bar = progress("publishing steps", number)
    with bar as advance:
        tally = plan.publish(
            source,
            out,
            number,
            amounts=amounts,
            gaps=steps.gaps,
            weak_protection_accepted=weak_protection_accepted,
            tell=console.note,
            advance=lambda: advance(1),
            **columns,
            **reading,
        )
    lost = f", {tally['lost']:,} lost (charged, but never finished)" if tally["lost"] else ""
    first = plan.step(0)
    print(
        console.facts(
            published=f"{tally['published']:,} step{'s' * (tally['published'] != 1)} to {out}{lost}",
            **about_map(plan.near.domain),
            strategy=plan.mechanism.strategy.name,
            guarantee=f"{first.words}, for whoever moves up to {near.delta_ground:g} {near.domain.unit} in each",
            beyond="; ".join(first.beyond),
            limit=f"in each step {describe_limit(plan.mechanism, place.limits)}",
            go_on=f"with the same options, --state {Ledger.name_of(state)} and a later --until",
        )
    )
    return tally


def describe_stream(
    mechanism: Mechanism,
    rule: Rule,
    clock: Clock,
    steps: int,
    work: Workload | None = None,
    names: Sequence[str] = (),
    points: float | None = None,
    amounts: Sequence[Fraction] | None = None,
) -> str:
    """Return the page of figures of a stream: costs and errors of a step, a window, a month, a year and all steps.

    Parameters
    ----------
    mechanism : of a step. rule : of the stream's account. clock, steps : defines steps, and how many are planned.
    work : the queries; boxes anywhere when None. names : of the queries, if they have any.
    points : about how many points a step has. amounts : what each step gets; equal shares when None.
    """
    from deltahist.budget import say_amount
    from deltahist.planning.streams import stream_figures

    spans = [(length, Fraction(limit, NANO)) for length, limit in rule.spans]
    found, rows, drowned = stream_figures(mechanism, spans, clock, steps, work, points, amounts), [], []
    most = Fraction(rule.limit, NANO)
    for each in found:
        limit = "" if each.limit is None else say_amount(each.limit, most)
        error = "" if each.error is None else f"{each.error:,.4g}"
        few = "" if each.drowned is None else f"{len(each.drowned):,}"
        rows.append((each.name, f"{each.steps:,}", say_amount(each.cost, most), limit, error, few))
        if names and each.drowned is not None and len(each.drowned):
            listed = ", ".join(names[at] for at in each.drowned[:_NAMED]) + ", …" * (len(each.drowned) > _NAMED)
            drowned.append(f"In {each.name} ({each.steps:,} steps) the noise exceeds the count in {listed}.")
    heads = ("sum over", "steps", f"costs {mechanism.letter}", "limit", "error of a query", "noise above count")
    about = "Errors are of noise alone, in points (root mean square); counts are spread evenly over the map."
    return "\n".join([console.table(heads, rows), "", about, *drowned])


def read_amounts(file: Path, labels: Sequence[str], unit: str) -> list[Fraction]:
    """Read the amount of each step from a CSV file with the columns `step` and epsilon (or rho).

    Raises InputError unless steps rise, without repetition and gap, and amounts are numbers, zero or more.
    """
    rows = read_rows(file, "--budgets")
    said = f"--budgets {str(file)!r}"
    if not rows or not {"step", unit} <= set(rows[0]):
        raise InputError(f"{said} must have a header with the columns step and {unit}")
    names = [str(row["step"]).strip() for row in rows]
    for name, label in zip(names, labels, strict=False):
        if name != label:
            raise InputError(
                f"{said} has step {name!r} where {label!r} must be: one row for each step from the first on, in order "
                "(is one repeated, or after a gap?)"
            )
    if len(names) < len(labels):
        raise InputError(f"{said} ends at step {names[-1]!r}: it must reach the last step, {labels[-1]!r}")
    out = []
    for row, label in zip(rows, labels, strict=False):
        text = str(row[unit]).strip()
        number = typed(text)
        if number is None or number < 0:
            raise InputError(f"{said} has {text[:80]!r} for step {label}: it must be a number, zero or more")
        out.append(number)
    return out


# --- how the budget of a window is best spread ---------------------------------------------------------------


def allocate_steps(file: Path, rule: Rule, out: Path | None = None) -> tuple[list[str], list[Fraction]]:
    """Spread the budget of a window over steps of different weight, so that the weighted error is least.

    Parameters
    ----------
    file : a CSV file with the columns weight and maybe step, a row per step, 0 for no release. Weights must be public.
    rule : of the stream's account. out : a CSV file for `stream --budgets`.

    Return the names of the steps and their amounts.
    """
    from deltahist.accounts.allocation import allocate_offline

    rows = read_rows(file, "--weights")
    if not rows or "weight" not in rows[0]:
        raise InputError(f"--weights {str(file)!r}: it must have the column weight (and maybe step), and rows")
    names = [str(row.get("step") or place) for place, row in enumerate(rows, start=1)]
    weights = [float(typed(str(row["weight"])) or 0) for row in rows]
    power = 2.0 if rule.unit == "epsilon" else 1.0
    assert rule.length is not None
    found = allocate_offline(weights, length=rule.length, epsilon=Fraction(rule.limit, NANO), power=power)
    amounts = [Fraction(round(each * NANO), NANO) for each in found]
    if out is not None:
        text = io.StringIO()
        written = [f"{float(amount):.9f}" for amount in amounts]
        csv.writer(text, lineterminator="\n").writerows([("step", rule.unit), *zip(names, written, strict=True)])
        console.put(text.getvalue(), out)
    return names, amounts
