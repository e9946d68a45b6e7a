"""`deltahist plan` ranks choices before any data are read. `deltahist stream` publishes a release per time step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from deltahist.cli import (
    check_target,
    format_facts,
    format_table,
    options,
    print_note,
    show_progress,
    write_json,
    write_text,
)
from deltahist.cli.options import Column, File, Name, parse_amount, parse_length, parse_list, require
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.accounts.ledger import Rule
    from deltahist.preprocessing import Clock


def plan(
    *,
    bounds: options.Bounds,
    project: Annotated[
        str | None, Option("--project", "--crs", metavar="CRS", help="CRS of the map, or auto for --bounds in degrees.")
    ] = None,
    delta: Annotated[
        Any, Option(metavar="LENGTHS", parser=parse_list(parse_length), help="Values of δ: 250m,500m,1km.")
    ],
    cell: options.Cell = None,
    epsilon: Annotated[
        Any, Option(metavar="E,...", parser=parse_list(parse_amount), help="Values of ε: 0.5,1,2.")
    ] = None,
    rho: options.Rho = None,
    limit: options.Limit = None,
    sources: options.Sources = "none",
    regions: options.Regions = None,
    points: options.Points = None,
    max_per_user: options.MaxPerUser = None,
    as_json: options.AsJson = False,
) -> None:
    """Rank choices of δ, ε, cells and strategies by expected error. No data are read.

    With one δ and one budget, the command ranks strategies and, without --cell, cell sizes. `publish` uses the best of
    these. With several δ or ε, the command finds the best cells for each choice, and recommends the strongest
    protection that is still useful. Errors are those of unbiased answers if there are as many points as --points says.
    They come from noise and from the unknown positions of points within cells.

    \b
    Examples:
      deltahist plan --bounds -74.3,40.45,-73.6,40.95 --project auto --delta 250m,500m,1km --epsilon 0.5,1,2 \\
          --points 140000
      deltahist plan --bounds 560000,4480000,610000,4530000 --project EPSG:32618 --delta 2km --epsilon 1 \\
          --regions districts.gpkg --points 3000
    """
    from deltahist.planning import advise, plan as rank_strategies
    from deltahist.preprocessing import Preprocessing
    from deltahist.space.domain import Domain

    place = options.MapOptions(bounds=bounds, delta=delta[0], cell=cell, project=project, sources=sources, limit=limit)
    if len(delta) > 1 or (epsilon is not None and len(epsilon) > 1):
        rule = "several δ or ε require --epsilon, and exclude --cell, --rho and --sources"
        require(cell is None and rho is None and sources == "none" and epsilon is not None, rule)
        box, crs = place.find_extent()
        queries, _ = options.read_queries(regions, Domain(box, (1,) * (len(box) // 2), crs))
        per_user = None if max_per_user is None else [max_per_user]
        choices: dict[str, Any] = {"deltas": delta, "epsilons": epsilon, "per_user": per_user}
        number = float(points or options.USUAL_POINTS)
        with show_progress("Comparing δ, ε and cells …"):
            found = advise(box, number, queries, crs=crs, limits=options.parse_limits(limit), **choices)
        if as_json:
            write_json(found.to_dict("records"))
        else:
            write_text(_recommend(found, crs))
        return
    how: dict[str, Any] = {"counting": Preprocessing(max_per_user or 1)}
    how |= options.BudgetOptions(epsilon=epsilon and epsilon[0], rho=rho).read()
    chosen = options.choose_mechanism(place, points, regions, **how)
    best = chosen.mechanism
    # If --cell is given, pass the neighbourhood without the default cap, because ranking adds it.
    near = best.neighbourhood if chosen.cells else place.make_neighbourhood()
    with show_progress("Comparing strategies …"):
        ranked = rank_strategies(near, chosen.work, **how)
    if as_json:
        records = [
            {"cell": near.domain.size_of_cells, "strategy": each.label, "noise": each.noise}
            | {each.mechanism.budget.unit: str(each.mechanism.budget.amount)}
            | {"sensitivity": each.cost, "rmse": each.rmse, "any_move": each.any_move}
            | {"determines_cells": each.resolves}
            for each in ranked
        ]
        write_json(records)
        return
    if near.domain.crs is not None:
        print_note(format_facts(**options.describe_map(near.domain)))
    rows = [
        (
            *(each.label, each.noise, f"{each.cost:.4g}", f"{each.rmse:,.4g}"),
            *(f"{best.letter} = {each.any_move:.4g}", "" if each.resolves else "plus unmeasured cells"),
        )
        for each in ranked
    ]
    ranking = format_table(("strategy", "noise", "sensitivity", "error", "any move", ""), rows, left=["noise"])
    over = chosen.name if chosen.work is not None else "all ranges of whole cells"
    parts = [
        f"Recommended: cells of {near.domain.size_of_cells} and the strategy {best.strategy.name}, as "
        f"`publish` chooses them. Any move costs at most {best.letter} = {best.any_move:.4g}.",
        chosen.describe_error(),
        f"Strategies by the error from noise, in points (root mean square) over {over}:\n{ranking}",
    ]
    if chosen.cells:
        parts.insert(2, f"Cells by total error, for about {chosen.points:,.0f} points:\n{chosen.describe_cells()}")
    write_text("\n\n".join(parts))


def _recommend(found: pd.DataFrame, crs: str | None) -> str:
    from deltahist.statement.facts import format_guess

    useful_error = 0.2  # half the width of a 95% interval, relative to a typical count
    unit, suffix = ("m", "m") if crs else ("units", "")
    records: list[dict[Any, Any]] = found.to_dict("records")
    useful = [row for row in records if 1.96 * row["of_count"] <= useful_error]
    best = min(useful or records, key=lambda row: (row["epsilon"], -row["delta"]) if useful else (row["of_count"], 0))
    area = f"{best['area'] / 1e6:,.3g} km²" if crs else f"{best['area']:,.3g} square units"
    reason = f"It is the strongest protection with intervals within ±{useful_error:.0%}."
    if not useful:
        reason = f"No choice has intervals within ±{useful_error:.0%}. This one comes closest."
    lines = [
        f"A typical query covers {area} and {best['count']:,.0f} points, if points are evenly spread.",
        f"Recommended: --delta {best['delta']:g}{suffix} --epsilon {best['epsilon']:g} "
        f"--cell {best['cell']:.6g}{suffix}: a 95% interval of {_format_interval(best)}. {reason}",
        "Errors are those of unbiased answers. An attacker who guesses between two places within δ is right at most as "
        "often as shown. A coin flip is right in 50 of 100.",
    ]
    rows = [
        (
            *(f"{row['delta']:,.6g} {unit}", f"{row['epsilon']:g}", f"{row['cell']:,.4g} {unit}"),
            *(_format_interval(row), format_guess(row["observer"]), f"ε = {row['any_move']:.3g}"),
        )
        for row in records
    ]
    heads = ("δ", "ε", "cell", "95% interval of a count", "a guess is right in", "any move costs")
    return "\n".join([*lines, "", format_table(heads, rows)])


def _format_interval(row: dict[Any, Any]) -> str:
    """Format a count, with half the width of its 95% interval in points and as a share of the count."""
    count, half = row["count"], 1.96 * row["error"]
    return f"{count:,.{0 if count >= 10 else 1}f} ± {float(f'{half:.2g}'):,.0f} ({half / count:,.0%})"


@dataclass(frozen=True, kw_only=True)
class StepMapOptions(options.MapOptions):
    """The map of each step. By default, points may appear at the map's boundary."""

    sources: options.Sources = "boundary"


def publish_stream(
    source: options.Input,
    *,
    start: Annotated[str, Option(metavar="T", help="First step: a date, a date-time (UTC) or a number.")],
    until: Annotated[str, Option(metavar="T", help="Last step to publish in this run (public, like --start).")],
    window: Annotated[int, Option(metavar="STEPS", min=1, help="Number of consecutive steps that share one budget.")],
    state: Annotated[str, File(help="Ledger of the stream: a file or postgresql://...")],
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="Folder for the releases, one file per step.")],
    account: Annotated[str, Name(help="The stream's account in its ledger.")] = "stream",
    every: Annotated[str | None, Option(metavar="PERIOD", help="Length of a step: 1d, 6h, 15min, 1w or month.")] = None,
    time: Annotated[str | None, Column(help="Column with times or step numbers.")] = None,
    time_format: Annotated[
        str | None, Option(metavar="FORMAT", help="Format of --time: a strptime pattern, unix or unix-ms.")
    ] = None,
    tz: Annotated[str | None, Option(metavar="ZONE", help="Time zone for days, such as Europe/Berlin.")] = None,
    place: StepMapOptions,
    rows: options.RowOptions,
    budget: options.BudgetOptions,
    about: options.AboutOptions,
    window_limit: Annotated[
        list[str] | None, Option(metavar="STEPS:FACTOR", help="Cap the cost: 30:2 means at most 2ε in any 30 steps.")
    ] = None,
    budgets: Annotated[Path | None, File(help="CSV file of budgets, with columns step and epsilon (or rho).")] = None,
    strategy: options.Strategy = "auto",
    regions: options.Regions = None,
    points: options.Points = None,
    dry_run: options.DryRun = False,
) -> Any:
    """Publish one map per time step, with a budget for every window of steps.

    Any --window consecutive steps together spend at most --epsilon (or --rho). The budget hides changes to a user's
    data within one window, if points move by at most δ. INPUT is a table with a time column, or a folder with one file
    per step. To continue, run the command again with a later --until. If the machine stops after a step is charged but
    before it is published, the step is lost. --points is the number of points in one step.

    \b
    Example:
      deltahist stream visits.csv --time when --every 1d --start 2010-01-01 --until 2010-12-31 --window 30 \\
          --epsilon 1 --x lon --y lat --crs EPSG:4326 --project EPSG:32618 --bounds 560000,4480000,610000,4530000 \\
          --cell 1km --delta 2km --state city.ledger --out city
    """
    from deltahist.accounts.ledger import Ledger, Rule
    from deltahist.budget import Budget
    from deltahist.counting import check_file
    from deltahist.counting.sql import Reading
    from deltahist.laws import Guarantee
    from deltahist.mechanisms.base import weakness_of
    from deltahist.preprocessing import Clock
    from deltahist.publishers.stream import Stream, check_folders, refuse_weak_window, step_files
    from deltahist.statement.facts import explain_longer, explain_window

    ((unit, total),), texts = budget.read().items(), about.read()
    amount = Budget(**{unit: total})
    clock = Clock.of(start, every, time_format, tz)
    number = clock.step(until, "--until") + 1
    until_rule = f"it must be from 1 to 10,000,000 steps after --start, {start!r}"
    require(1 <= number <= 10_000_000, f"--until is {until!r}: {until_rule}")
    labels = [clock.label(step) for step in range(number)]
    amounts = None if budgets is None else read_amounts(budgets, labels, unit)
    refuse_weak_window(amount, window)
    longer = options.parse_limits(window_limit, "--window-limit") or []
    rule = Rule.from_budget(**vars(budget), length=window, limits=longer)
    reading: dict[str, Any] = place.columns | vars(rows)
    counting = Reading.of(**reading).preprocessing(None)
    if not dry_run:  # catch a misspelt column before comparing cells and strategies
        if "://" not in state:
            check_target(Path(state), option="--state")
        check_folders(Path(source), time, clock, out, rows.table)
        axes = len(place.bounds) // 2
        if time is not None:
            check_file(source, axes, clock=clock, time=time, **reading)
        elif files := step_files(Path(source), labels):
            check_file(next(iter(files.values())), axes, **reading)
    place = place if place.cell is not None else replace(place, cell=place.delta)
    share = {unit: rule.equal_share if amounts is None else total / window}
    chosen = options.choose_mechanism(place, points, regions, strategy=strategy, counting=counting, **share)
    near, planned = chosen.mechanism.neighbourhood, chosen.mechanism.strategy
    stream = Stream(near, amount, window, clock, state, planned, counting, rows.user, time, longer, account, texts)
    print(f"{describe_stream(chosen, rule, clock, number, amounts)}\n")
    options.warn_of_new_account(state, account)
    together = sum(amounts, Fraction(0)) if amounts is not None else number * rule.equal_share
    spent = Guarantee(epsilon=together) if unit == "epsilon" else Guarantee(rho=together)
    if together and (weakness := weakness_of(spent)):
        letter = chosen.mechanism.letter
        print_note(f"warning: all steps together cost {letter} = {float(together):.6g}: {weakness}")
    if dry_run:
        stream.check(amounts, False)
        return None
    with show_progress("Publishing steps", number) as advance:
        reading.pop("user")
        tally = stream.publish(source, out, number, amounts=amounts, tell=print_note, advance=advance, **reading)
    lost = f", {tally['lost']:,} lost (charged, but never finished)" if tally["lost"] else ""
    first, paid = stream.step(0), Ledger(state).read_standing(account).population
    print(
        format_facts(
            published=f"{tally['published']:,} step{'s' * (tally['published'] != 1)} to {out}{lost}",
            guarantee=f"{explain_window(first)}, for moves up to {near.delta_words} in each step",
            beyond=explain_longer(first),
            limit=f"in each step {options.describe_limit(stream.costliest(amounts), place.limit)}",
            account=f"{account!r}; {paid}",
            to_go_on=f"the same options, --state {Ledger.name_of(state)} and a later --until",
        )
    )
    return tally


def describe_stream(
    chosen: options.Chosen, rule: Rule, clock: Clock, steps: int, amounts: Sequence[Fraction] | None
) -> str:
    """Describe a stream's map, and the costs and errors of a step, a window, a month, a year and all steps."""
    from deltahist.budget import format_amount
    from deltahist.planning.advice import stream_figures

    mechanism, work = chosen.mechanism, chosen.work
    spans = [(length, Fraction(limit, NANO)) for length, limit in rule.spans]
    most, rows = Fraction(rule.limit, NANO), []
    for each in stream_figures(mechanism, spans, clock, steps, work, amounts):
        limit = "" if each.limit is None else format_amount(each.limit, most)
        error = "" if each.error is None else f"{each.error:,.4g}"
        rows.append((each.name, f"{each.steps:,}", format_amount(each.cost, most), limit, error))
    heads = ("sum over", "steps", f"costs {mechanism.letter}", "limit", "error of a query")
    about = format_facts(**options.describe_map(mechanism.domain), strategy=mechanism.strategy.name)
    note = "Errors come from noise alone, in points (root mean square)."
    return "\n".join([about, "", format_table(heads, rows), "", note])


def read_amounts(file: Path, labels: Sequence[str], unit: str) -> list[Fraction]:
    """Read the budget of each step from a CSV file with the columns `step` and `epsilon` (or `rho`)."""
    import pandas as pd

    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, index_col=False, encoding="utf-8-sig")
    except ValueError as problem:
        raise InputError(f"--budgets is {str(file)!r}: it must be CSV in UTF-8 ({problem})") from None
    numbers = [options.parse_number(text.strip()) for text in table.get(unit, [])]
    amounts = [number for number in numbers if number is not None and number >= 0]
    rule = f"its column {unit} must contain only numbers of at least zero"
    require(amounts and len(amounts) == len(table), f"--budgets is {str(file)!r}: {rule}")
    steps = [step.strip() for step in table.get("step", [])]
    rule = f"one row for each step, in order, from {labels[0]!r} to {labels[-1]!r}"
    require(steps[: len(labels)] == list(labels), f"--budgets must have {rule}")
    return amounts[: len(labels)]
