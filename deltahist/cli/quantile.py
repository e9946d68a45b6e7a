"""`deltahist quantile`: the median or another quantile of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.accounts import AccountOptions
from deltahist.cli.groups import Overwrite, SpendingWithFailure, Users, WeakProtection
from deltahist.cli.options import argument, flag, option
from deltahist.cli.places import Delta, LimitsOrAccounts
from deltahist.errors import InputError, one_of

#: Cells of the line: the lattice has a million steps per cell.
_CELLS = 1000


def quantile(
    *,
    source: Annotated[
        Path, argument("INPUT", "CSV, JSON lines, Parquet, Excel or another table; - for standard input.")
    ],
    q: Annotated[float, option("Q", "Which quantile: 0.5 is the median.", read=options.decimal)],
    x: Annotated[str, option("COL", "Column of the values: a name, or a number from 0.")],
    bounds: Annotated[
        tuple[float, ...],
        option("LO,HI", "Ends of the line; values outside count as the ends.", read=options.corners),
    ],
    delta: Delta,
    limit: LimitsOrAccounts = None,
    spending: SpendingWithFailure,
    method: Annotated[
        str, option("NAME", "auto: the least expected error; or one of those that --compare lists.")
    ] = "auto",
    users: Users,
    outside: Annotated[
        Literal["clamp"] | None, option("HOW", "clamp: more than 1 value in 100 outside is meant.")
    ] = None,
    compare: Annotated[
        bool, flag("--compare", "List all methods by expected error too (from public figures).")
    ] = False,
    out: Annotated[Path | None, option("FILE", "Write the result as JSON.")] = None,
    accounts: AccountOptions,
    weak_protection_accepted: WeakProtection = False,
    overwrite: Overwrite = False,
) -> Any:
    """Publish the median or another quantile of one column.

    The number of values is public, and printed. The method is chosen by the expected error for evenly spread
    values; the scale of the noise is not published, since with smooth sensitivity it tells about the data.

    \b
    Examples:
      deltahist quantile ages.csv --x age --q 0.5 --bounds 0,120 --delta 5 --epsilon 1
      deltahist quantile trips.parquet --x metres --q 0.9 --bounds 0,50000 --delta 500 --rho 0.1 --compare
      deltahist quantile log.tsv.gz --x 2 --q 0.5 --bounds -90,90 --delta 0.01 --epsilon 0.5 --out median.json
    """
    from deltahist.kinds.quantile import METHODS, check_quantile
    from deltahist.publishers.points import publish_quantile
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood

    budget = spending.keywords()
    accounts.check(budget, out=out)
    budget["weak_protection_accepted"] = weak_protection_accepted
    if len(bounds) != 2:
        raise InputError(f"--bounds has {len(bounds)} numbers: a quantile takes two, LO,HI")
    near = Neighbourhood(
        Domain(bounds, (_CELLS,)), delta, limits=options.limits(options.of_moves(limit), "--limit")
    )
    near.check_on_map()
    check_quantile(q, near)
    one_of(("auto", *METHODS), method=method)
    console.check_target(out, source, replace=overwrite)
    located = users.points(source, near, x=x, outside=outside)
    with accounts.open(budget) as account:
        found = publish_quantile(located.points, q, near, method=method, account=account, **budget)
        if out is not None:
            console.put(found.to_json(), out)
    counting = found.counting
    cost = f"ρ = {float(found.rho or 0):.4g}" if found.epsilon is None else f"ε = {float(found.epsilon):g}"
    if found.describe()["probability"] is not None:
        cost += f" but for {found.probability:g}"
    whose = f" for each {counting.who}" if counting.user else ""
    what = f"quantile {q:g} of {found.total:,}, {found.method}, {cost}, δ = {near.delta_ground:g}{whose}"
    print(f"{found.value:.12g}  ({what})")
    if compare:
        rows = [(m, f"{e:.4g}") for m, e in found.methods().itertuples(index=False)]
        print(console.table(["method", "expected error"], rows))
    return found
