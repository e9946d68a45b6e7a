"""`deltahist stream` and `allocate`: one release per step of time, and the budget of each step of a window."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Context

from deltahist._files import read_rows
from deltahist._progress import progress
from deltahist.cli import console
from deltahist.cli.groups import LETTERS, PLAN, ROWS, WEAK, WINDOW, RowOptions, Spending
from deltahist.cli.maps import (
    Coordinates,
    PlanOptions,
    about_map,
    choose_map,
    describe_limit,
)
from deltahist.cli.options import (
    amount,
    argument,
    flag,
    option,
    whole_number,
)
from deltahist.cli.outlook import (
    MOST_STEPS,
    WINDOW_LIMIT,
    OutlookTable,
    StreamPlace,
    describe_shares,
    share_of_step,
)
from deltahist.errors import NANO, InputError, shortened, typed

if TYPE_CHECKING:
    from deltahist.publishers.stream import Stream


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
    anyway: bool = flag("Publish although regions would drown in noise (--regions and --points).", panel=PLAN),
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
    from deltahist.accounts.databases import database
    from deltahist.accounts.window import Window
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
        console.check_target(database(state).path, option="--state")
        check_folders(Path(source), steps.time, clock, steps.gaps, out, rows.table)
        console.check_writable(out if out.is_dir() else out.parent, f"--out is {str(out)!r}")
        how = {**columns, **vars(rows)}
        if steps.time is not None:
            check_file(source, axes, clock=clock, time=steps.time, **how)
        elif files := step_files(Path(source), labels):
            check_file(next(iter(files.values())), axes, **how)
    longer = steps.window_limit or ()
    equal = total / steps.length if amounts else share_of_step(Window(steps.length, **budget, limits=longer))
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
    told = describe_shares(plan.shape, clock, number, amounts)
    told["steps"] += f", {labels[0]} to {labels[-1]}" + " (UTC)" * bool(clock.every)
    about = {**about_map(plan.near.domain), "strategy": plan.mechanism.strategy.name} if dry_run else {}
    print(console.facts(**about, **told, left=_left(plan)))
    if amounts is None:
        sums = OutlookTable(plan.mechanism.with_budget(plan.budget.of(plan.shape.equal)), clock, number, chosen, asked)
        print("", sums.describe(plan.budget.amount), sep="\n")
        if not anyway:
            sums.refuse_drowning()
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
            go_on=f"with the same options, --state {database(plan.ledger).place} and a later --until",
        )
    )
    return tally


def _left(plan: Stream) -> str | None:
    """Tell what the ledger has left for the next step; None before there is a ledger."""
    from deltahist.accounts.ledger import Ledger
    from deltahist.budget import say_amount

    if not Ledger.exists(plan.ledger):
        return None
    window = plan.window()
    following = 0 if window.last is None else window.last + 1
    left = say_amount(window.available(following), plan.budget.amount)
    return f"{LETTERS[plan.budget.unit]} = {left} for step {plan.clock.label(following)}"


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
            raise InputError(f"{said} has {shortened(text)} for step {label}: it must be a number, zero or more")
        out.append(number)
    return out


# --- how the budget of a window is best spread ---------------------------------------------------------------


def allocate(
    *,
    weights: Path = argument("WEIGHTS.csv", "Columns weight and maybe step: a row per step, 0 for no release."),
    length: int = WINDOW,
    spending: Spending,
    power: Fraction | None = option(
        "A", "Error falls as budget^-A. [default: 2 for --epsilon, 1 for --rho]", amount
    ),
    online: Fraction | None = option(
        "P", "Decide step by step, as if later weights were not known: 1 with probability P, else 0.", amount
    ),
    scenarios: int = option("N", "With --online: futures per decision.", whole_number, default=1000),
    out: Path | None = option("FILE", "Write step and amount as CSV, for `stream --budgets`."),
) -> Any:
    """Spread a budget over steps so that the weighted error is least and no window exceeds it.

    Weights say how much a step's release matters; they must be public, never taken from the private data.

    \b
    Examples:
      deltahist allocate demand.csv --window 7 --epsilon 1
      deltahist allocate demand.csv --window 7 --epsilon 1 --out budgets.csv
      deltahist allocate demand.csv --window 7 --epsilon 1 --online 0.5
    """
    import numpy as np

    from deltahist.accounts.allocation import Independent, allocate_offline, allocate_online

    budget = spending.keywords()
    ((unit, limit),) = budget.items()
    console.check_target(out, weights)
    steps, wanted = _read_weights(weights)
    how: dict[str, Any] = {"length": length, "epsilon": limit, "power": float(power or (2 if unit == "epsilon" else 1))}
    if online is None:
        found = allocate_offline(wanted, **how)
    else:
        chance = float(online)
        if chance > 1:
            raise InputError(f"--online is {chance:g}: it must be a probability, at most 1")
        model = Independent((0.0, 1.0), (1 - chance, chance))
        made: list[float] = []
        for step in range(len(wanted)):
            first = max(0, step - length + 1)
            known, left = wanted[first : step + 1], len(wanted) - first
            made.append(allocate_online(made[first:], known, steps=left, model=model, scenarios=scenarios, **how))
        found = np.array(made)
    amounts = [f"{round(each * NANO) / NANO:.9f}".rstrip("0").rstrip(".") for each in found]
    if out is None:
        rows = zip(steps, [f"{weight:g}" for weight in wanted], amounts, strict=True)
        print(console.table(["step", "weight", unit], rows))
    else:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("step", unit), *zip(steps, amounts, strict=True)])
        console.put(text.getvalue(), out)
    print(_comparison(wanted, found, float(limit) / length, how["power"]))
    return found


def _comparison(wanted: Any, found: Any, share: float, power: float) -> str:
    """Compare the weighted error of what was found with that of equal shares."""
    import numpy as np

    on = wanted > 0
    if not on.any():
        return "all weights are 0: nothing is published"
    equal = float((wanted[on] * share**-power).sum())
    with np.errstate(divide="ignore"):
        error = float((wanted[on] * found[on] ** -power).sum())
    return f"weighted error {error:.6g}, {error / equal:.4g} of that of equal shares ({equal:.6g})"


def _read_weights(file: Path) -> tuple[list[str], Any]:
    """Read the names of the steps, in order if they are numbers or dates, and their weights."""
    import numpy as np

    from deltahist.accounts.allocation import check_weights
    from deltahist.preprocessing import seconds

    rows = read_rows(file, "weights")
    if not rows or "weight" not in rows[0]:
        raise InputError(f"{file.name!r} must have a header with the column weight (and maybe step), and rows")
    names = [str(row.get("step") or place) for place, row in enumerate(rows, start=1)]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InputError(f"{file.name!r} has step {twice!r} more than once: one row for each step, in order")
    for key in (float, lambda name: float(seconds(name, "step"))):
        try:
            keys = [key(name) for name in names]
        except ValueError:
            continue
        if keys != sorted(keys):
            back = next(place for place in range(1, len(keys)) if keys[place] < keys[place - 1])
            raise InputError(
                f"{file.name!r} has step {names[back]!r} after {names[back - 1]!r}: steps must be in order"
            )
        break
    values = []
    for name, row in zip(names, rows, strict=True):
        try:
            values.append(float(str(row["weight"])))
        except ValueError:
            raise InputError(
                f"{file.name!r} has the weight {row['weight']!r} at step {name}: it must be a number"
            ) from None
    return names, check_weights(np.array(values))
