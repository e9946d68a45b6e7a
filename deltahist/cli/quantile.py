"""`deltahist quantile`: the median or another quantile of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from typer import Context

from deltahist.cli import console
from deltahist.cli.groups import (
    DELTA,
    OVERWRITE,
    WEAK,
    AccountOptions,
    SpendingWithFailure,
    Users,
    read_line,
)
from deltahist.cli.maps import LIMITS_OR_ACCOUNTS, move_limits
from deltahist.cli.options import argument, corners, decimal, flag, option
from deltahist.errors import InputError, one_of

#: Cells of the line: the lattice has a million steps per cell.
_CELLS = 1000


def quantile(
    context: Context,
    *,
    source: Path = argument("INPUT", "CSV, JSON lines, Parquet, Excel or another table; - for standard input."),
    q: float = option("Q", "Which quantile: 0.5 is the median.", decimal, default=...),
    x: str = option("COL", "Column of the values: a name, or a number from 0.", default=...),
    bounds: tuple[float, ...] = option(
        "LO,HI", "Ends of the line; values outside count as the ends.", corners, default=...
    ),
    delta: Any = DELTA,
    limit: list[Any] | None = LIMITS_OR_ACCOUNTS,
    spending: SpendingWithFailure,
    method: str = option(
        "NAME", "auto: the least expected error; or one of those that --compare lists.", default="auto"
    ),
    users: Users,
    outside: Literal["clamp"] | None = option("HOW", "clamp: more than 1 value in 100 outside is meant."),
    compare: bool = flag("List all methods by expected error too (from public figures)."),
    out: Path | None = option("FILE", "Write the result as JSON."),
    accounts: AccountOptions,
    weak_protection_accepted: bool = WEAK,
    overwrite: bool = OVERWRITE,
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
    if len(bounds) != 2:
        raise InputError(f"--bounds has {len(bounds)} numbers: a quantile takes two, LO,HI")
    near = Neighbourhood(Domain(bounds, (_CELLS,)), delta, limits=move_limits(limit))
    near.check_on_map()
    check_quantile(q, near)
    one_of(("auto", *METHODS), method=method)
    console.check_target(out, source, replace=overwrite)
    located = read_line(source, near.domain, x=x, outside=outside, **vars(users))
    points = located.points
    with accounts.open(budget) as account:
        found = publish_quantile(
            points,
            q,
            near,
            method=method,
            account=account,
            weak_protection_accepted=weak_protection_accepted,
            **budget,
        )
        if out is not None:
            console.put(found.to_json(), out)
    what = f"quantile {q:g} of {found.total:,}, {found.method}, {found.mechanism.promise}"
    print(f"{found.value:.12g}  ({what})")
    if found.payment is not None:
        print(f"account {found.payment}")
    if compare:
        rows = [(name, f"{error:.4g}") for name, error in found.mechanism.methods().itertuples(index=False)]
        print(console.table(["method", "expected error"], rows))
    return found
