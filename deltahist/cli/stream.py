"""`deltahist stream`: one release per step of time; and the page of figures of a stream before it spends anything."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from deltahist._files import check_creatable
from deltahist.cli import console, shared
from deltahist.cli.shared import parse_number
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Rule
    from deltahist.mechanisms import Mechanism
    from deltahist.preprocessing import Clock
    from deltahist.space.workloads import Workload

#: Steps that a stream may have, and districts that a line names.
MOST_STEPS, _NAMED = 10_000_000, 5

Every = Annotated[str | None, Option(metavar="PERIOD", help="Length of a step: 1d, 6h, 15min, 1w or month.")]
WindowLimit = Annotated[list[str] | None, Option(metavar="STEPS:FACTOR", help="Cap longer spans: 30:2, any:4.")]


def stream(
    source: shared.Input,
    *,
    bounds: shared.Bounds,
    delta: shared.Delta,
    start: Annotated[str, Option(metavar="T", help="First step: a date or date-time (UTC), or a number.")],
    until: Annotated[str, Option(metavar="T", help="Last step to publish now. Public, like --start.")],
    window: Annotated[int, Option(metavar="STEPS", min=1, help="Steps in a row that share one budget.")],
    state: Annotated[str, Option(metavar="FILE", help="The stream's ledger: a file, or postgresql://...")],
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="Folder of the releases, a file per step.")],
    account: Annotated[str, Option(metavar="NAME", help="Account of the stream in its ledger.")] = "stream",
    every: Every = None,
    time: Annotated[str | None, Option(metavar="COL", help="Column of times or step numbers.")] = None,
    time_format: Annotated[str | None, Option(metavar="FORMAT", help="Of --time: for strptime, unix, unix-ms.")] = None,
    tz: Annotated[str | None, Option(metavar="ZONE", help="Steps are local days or months: Europe/Berlin.")] = None,
    x: shared.X = None,
    y: shared.Y = None,
    crs: shared.PointsCrs = None,
    project: shared.Project = None,
    cell: shared.Cell = None,
    sources: shared.Sources = "boundary",
    limit: shared.Limit = None,
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    window_limit: WindowLimit = None,
    budgets: Annotated[Path | None, Option(metavar="FILE.csv", help="Columns step and epsilon (or rho).")] = None,
    strategy: shared.Strategy = "auto",
    regions: shared.Regions = None,
    points: shared.Points = None,
    user: shared.User = None,
    max_per_user: shared.MaxPerUser = None,
    where: shared.Where = None,
    outside: shared.Outside = None,
    drop_bad_rows: shared.DropBadRows = False,
    table: shared.Table = None,
    dry_run: shared.DryRun = False,
) -> Any:
    """Publish one map per step of time, with a budget for every window of steps.

    Every --window consecutive steps together spend at most --epsilon (or --rho). That protects an entity whose data
    differ within that many steps, each within δ in space. INPUT is a table with a column of times, or a folder with
    one file per step. Run it again with a later --until to go on. A step that was charged but not finished (the machine
    stopped) is lost. --points is the number of points in a step.

    \b
    Examples:
      deltahist stream visits.csv --time when --every 1d --start 2010-01-01 --until 2010-12-31 --window 30 \\
          --epsilon 1 --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --bounds 560000,4480000,610000,4530000 \\
          --cell 1km --delta 2km --state city.ledger --out city
    """
    from deltahist.accounts.ledger import Ledger, Rule
    from deltahist.budget import Budget
    from deltahist.counting import check_file
    from deltahist.counting.sql import Reading
    from deltahist.mechanisms.base import weakness_of
    from deltahist.preprocessing import Clock
    from deltahist.privacy import Guarantee
    from deltahist.publishers.stream import Stream, check_folders, refuse_weak_window, step_files
    from deltahist.statement.facts import explain_longer, explain_window

    budget = shared.read_budget(epsilon, rho)
    ((unit, total),) = budget.items()
    clock = Clock.of(start, every, time_format, tz)
    number = clock.step(until, "--until") + 1
    if not 1 <= number <= MOST_STEPS:
        raise InputError(f"--until is {until!r}: it must be from 1 to {MOST_STEPS:,} steps on from --start, {start!r}")
    labels = [clock.label(step) for step in range(number)]
    amounts = None if budgets is None else read_amounts(budgets, labels, unit)
    refuse_weak_window(Budget(**budget), window)
    longer = shared.read_limits(window_limit, "--window-limit") or []
    rule = Rule.from_budget(**budget, length=window, limits=longer)
    reading: dict[str, Any] = {"x": x, "y": y, "crs": None if crs == shared.PLAIN else crs, "where": where}
    reading |= {"max_per_user": max_per_user, "outside": outside, "drop_bad_rows": drop_bad_rows, "table": table}
    counting = Reading.of(user=user, **reading).preprocessing(None)
    if not dry_run:  # a misspelt column is found before cells and strategies are compared
        if "://" not in state:
            console.check_target(Path(state), option="--state")
        check_folders(Path(source), time, clock, out, table)
        check_creatable((out if out.is_dir() else out.parent) / "step.parquet")
        axes = len(bounds) // 2
        if time is not None:
            check_file(source, axes, clock=clock, time=time, user=user, **reading)
        elif files := step_files(Path(source), labels):
            check_file(next(iter(files.values())), axes, user=user, **reading)
    columns, cell = (x, y), delta if cell is None else cell
    place = shared.MapOptions(
        bounds=bounds, delta=delta, cell=cell, crs=crs, project=project, sources=sources, limit=limit, columns=columns
    )
    share = {unit: rule.equal_share if amounts is None else total / window}
    chosen = shared.choose(place, points, {"regions": regions}, strategy=strategy, counting=counting, **share)
    near, planned = chosen.mechanism.neighbourhood, chosen.mechanism.strategy
    plan = Stream(near, Budget(**budget), window, clock, state, planned, counting, user, time, longer, account)
    about = {**shared.about_map(near.domain), "strategy": planned.name}
    expected = None if points is None else float(points)
    page = describe_stream(chosen.mechanism, rule, clock, number, chosen.work, expected, amounts)
    print(f"{console.facts(**about)}\n\n{page}\n")
    shared.note_company(state, account)
    together = sum(amounts, Fraction(0)) if amounts is not None else number * rule.equal_share
    spent = Guarantee(epsilon=together) if unit == "epsilon" else Guarantee(rho=together)
    if together and (weakness := weakness_of(spent)):
        console.note(f"warning: all steps together cost {chosen.mechanism.letter} = {float(together):.6g}: {weakness}")
    if dry_run:
        plan.check(amounts, False)
        return None
    with console.show_progress("Publishing steps", number) as advance:
        tally = plan.publish(source, out, number, amounts=amounts, tell=console.note, advance=advance, **reading)
    lost = f", {tally['lost']:,} lost (charged, but never finished)" if tally["lost"] else ""
    first, paid = plan.step(0), Ledger(state).read_standing(account).population
    print(
        console.facts(
            published=f"{tally['published']:,} step{'s' * (tally['published'] != 1)} to {out}{lost}",
            guarantee=f"{explain_window(first)}, for moves up to {near.delta_ground:g} {near.domain.unit} in each",
            beyond=explain_longer(first),
            limit=f"in each step {shared.describe_limit(plan.costliest(amounts), limit)}",
            account=f"{account!r}; {paid}",
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
    points: float | None = None,
    amounts: Sequence[Fraction] | None = None,
) -> str:
    """Return the page of figures of a stream: costs and errors of a step, a window, a month, a year and all steps.

    The mechanism and the number of points are those of a step. Queries are boxes anywhere when `work` is None, and
    steps have equal shares when `amounts` is None.
    """
    from deltahist.budget import say_amount
    from deltahist.planning.advice import stream_figures

    spans = [(length, Fraction(limit, NANO)) for length, limit in rule.spans]
    names, most = getattr(work, "names", None), Fraction(rule.limit, NANO)
    rows, drowned = [], []
    for each in stream_figures(mechanism, spans, clock, steps, work, points, amounts):
        limit = "" if each.limit is None else say_amount(each.limit, most)
        error = "" if each.error is None else f"{each.error:,.4g}"
        few = "" if each.drowned is None else f"{len(each.drowned):,} of {each.queries:,}"
        rows.append((each.name, f"{each.steps:,}", say_amount(each.cost, most), limit, error, few))
        if names and each.drowned is not None and len(each.drowned):
            listed = ", ".join(names[at] for at in each.drowned[:_NAMED]) + ", …" * (len(each.drowned) > _NAMED)
            over = f"{each.steps:,} step{'s'[: each.steps != 1]}"
            drowned.append(f"Over {over} ({each.name}) noise exceeds the count in districts {listed}.")
    heads = ("sum over", "steps", f"costs {mechanism.letter}", "limit", "error of a query", "noise above count")
    about = "Errors are of noise alone, in points (root mean square). Points are taken to be evenly spread."
    return "\n".join([console.table(heads, rows), "", about, *drowned])


def read_amounts(file: Path, labels: Sequence[str], unit: str) -> list[Fraction]:
    """Read the amount of each step from a CSV file with the columns `step` and epsilon (or rho)."""
    steps, amounts = _read_steps(file, "--budgets", unit)
    if steps[: len(labels)] != list(labels):
        raise InputError(f"--budgets must have one row for each step, in order, from {labels[0]!r} to {labels[-1]!r}")
    return amounts[: len(labels)]


def allocate_steps(file: Path, rule: Rule, out: Path | None = None) -> list[Fraction]:
    """Return the amount of each step, so that the error weighted by a file's public weights is least.

    The CSV file has the column weight (0 for no release), and maybe step. `out` is written for `stream --budgets`.
    """
    import pandas as pd

    from deltahist.accounts.allocation import allocate_offline

    steps, weights = _read_steps(file, "--weights", "weight")
    power = 2.0 if rule.unit == "epsilon" else 1.0
    assert rule.length is not None
    limit = Fraction(rule.limit, NANO)
    found = allocate_offline(list(map(float, weights)), length=rule.length, epsilon=limit, power=power)
    amounts = [Fraction(round(each * NANO), NANO) for each in found]
    if out is not None:
        table = pd.DataFrame({"step": steps, rule.unit: [f"{float(amount):.9f}" for amount in amounts]})
        console.put(table.to_csv(index=False, lineterminator="\n"), out)
    return amounts


def _read_steps(file: Path, option: str, column: str) -> tuple[list[str], list[Fraction]]:
    """Read a CSV file of steps: their names, or else numbers from 1, and a column of numbers, zero or more."""
    import pandas as pd

    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, index_col=False, encoding="utf-8-sig")
    except ValueError as problem:
        raise InputError(f"{option} is {str(file)!r}: it must be CSV in UTF-8 ({problem})") from None
    numbers = [parse_number(text.strip()) for text in table.get(column, [])]
    amounts = [number for number in numbers if number is not None and number >= 0]
    if not amounts or len(amounts) < len(table):
        raise InputError(f"{option} is {str(file)!r}: it must have numbers, zero or more, in the column {column}")
    return [str(step).strip() for step in table.get("step", range(1, len(table) + 1))], amounts
