"""Sorted points of one dimension: `deltahist publish --sorted` and `deltahist quantile`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.accounts import Keeping, kept_secret
from deltahist.cli.groups import (
    Overwrite,
    SpendingWithFailure,
    Users,
    WeakProtection,
    argument,
    flag,
    option,
    spread,
)
from deltahist.cli.places import Delta, LimitsOrAccounts
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.counts import Located
    from deltahist.kinds import Quantile, SortedRelease
    from deltahist.neighbourhood import Neighbourhood

#: Cells of the line: the lattice has a million steps per cell.
_CELLS = 1000


@dataclass(frozen=True, kw_only=True)
class InOrder:
    """Whether `publish` publishes the sorted points, and how."""

    in_order: Annotated[
        bool, flag("--sorted", "One dimension: publish the sorted points themselves, not counts of cells.")
    ] = False
    group: Annotated[
        str | None, option("K", "With --sorted: points per sum. [default: from public figures]")
    ] = None
    most: Annotated[
        str | None, option("N", "With --sorted and --sources left or right: public bound on the points.")
    ] = None

    def wanted(self, strategy: str, rows: Any, budget: dict[str, Any]) -> bool:
        """Whether sorted points are asked for; InputError if other options do not go with that."""
        if not self.in_order:
            for name, value in (("--group", self.group), ("--most", self.most)):
                if value is not None:
                    raise InputError(f"{name} is given without --sorted: it goes with it")
            return False
        for name, value, usual in (
            ("--strategy", strategy, ("auto",)),
            ("--outside", rows.outside, ("clamp", None)),
        ):
            if value not in usual:
                raise InputError(f"{name} is {value!r} with --sorted: it must be left out")
        if rows.drop_bad_rows or "probability" in budget:
            name = "--drop-bad-rows" if rows.drop_bad_rows else "--probability"
            raise InputError(
                f"{name} is given with --sorted: it must be left out (the number of points is public)"
            )
        return True

    def publish(
        self, near: Neighbourhood, budget: dict[str, Any], out: Path, keeping: Keeping, **reading: Any
    ) -> SortedRelease:
        """Sorted points to a release file."""
        from deltahist.kinds.sorted.mechanism import check_membership
        from deltahist.publishers.sorted import publish_sorted

        check_membership(near)
        bound = None if self.most is None else options.whole_number(self.most, "--most")
        if near.fixed_membership and bound is not None:
            raise InputError(
                f"--most is {self.most!r} with --sources none: the number of points is public then, so it must be "
                "left out"
            )
        if not near.fixed_membership and bound is None:
            raise InputError(
                f"--most is missing with --sources {near.sources}: it must be a public bound on the number of points"
            )
        together: int | str = "auto" if self.group is None else options.whole_number(self.group, "--group")
        located = _points(near, **reading)
        with keeping.paying(budget) as account:
            release = publish_sorted(
                located.points, near, group=together, most=bound, account=account, **budget
            )
            release.save(out)
        print(_summary(release, out) + ("" if budget["state"] is None else f"\n{kept_secret(budget['state'])}"))
        return release


def _points(near: Neighbourhood, source: Path, **how: Any) -> Located:
    from deltahist.counts import points_file
    from deltahist.counts.files import choice_notes

    located = points_file(source, near.domain, **how)
    console.note(f"{located.rows:,} rows read, {located.kept:,} points")
    for text in choice_notes(located):
        console.note(text)
    if located.outside:
        console.note(f"{located.outside:,} points outside the bounds moved to the nearest end")
    return located


def _summary(release: SortedRelease, out: Path) -> str:
    near, domain = release.neighbourhood, release.domain
    what = "points" if near.fixed_membership else "places for points"
    return console.facts(
        published=str(out),
        line=f"{domain.low[0]:.10g} to {domain.high[0]:.10g}" + (f" in {domain.crs}" if domain.crs else ""),
        sorted=f"{release.number:,} {what}, {release.group:,} per sum",
        guarantee=f"{_cost(release)} for each {release.counting.who} moving up to {near.delta_ground:g} {domain.unit}",
        ask_it=f"deltahist query {out} --quantiles 0.25,0.5,0.75",
    )


@dataclass(frozen=True, kw_only=True)
class _Spending(SpendingWithFailure):
    probability: Annotated[
        str | None, option("P", "With --epsilon: failure probability that is allowed; more noises then.")
    ] = None


@spread
def quantile(
    *,
    source: Annotated[
        Path, argument("INPUT", "CSV, JSON lines, Parquet, Excel or another table; - for standard input.")
    ],
    q: Annotated[str, option("Q", "Which quantile: 0.5 is the median.", "--q")],
    x: Annotated[str, option("COL", "Column of the values: a name, or a number from 0.")],
    bounds: Annotated[str, option("LO,HI", "Ends of the line; values outside count as the ends.")],
    delta: Delta,
    limit: LimitsOrAccounts = None,
    spending: _Spending,
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
    keeping: Keeping,
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
    from deltahist.domain import Domain
    from deltahist.kinds.quantile.release import check_method, check_quantile
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.publishers.quantile import publish_quantile

    budget = spending.keywords()
    keeping.check(budget, out=out)
    budget["weak_protection_accepted"] = weak_protection_accepted
    try:
        share = float(q)
    except ValueError:
        raise InputError(f"--q is {q!r}: it must be a number between 0 and 1, such as 0.5") from None
    ends = options.corners(bounds, "--bounds")
    if len(ends) != 2:
        raise InputError(f"--bounds is {bounds!r}: a quantile takes two numbers, LO,HI")
    near = Neighbourhood(
        Domain(ends, (_CELLS,)),
        options.length(delta, "--delta"),
        limits=options.limits(options.of_moves(limit), "--limit"),
    )
    near.check_on_map()
    check_quantile(share, near)
    check_method(method)
    console.check_target(out, source, replace=overwrite)
    located = _points(near, source, x=x, outside=outside, **users.reading())
    with keeping.paying(budget) as account:
        found = publish_quantile(located.points, share, near, method=method, account=account, **budget)
        if out is not None:
            console.put(found.to_json(), out)
    cost, counting = _cost(found), found.counting
    if found.describe()["probability"] is not None:
        cost += f" but for {found.probability:g}"
    whose = f" for each {counting.who}" if counting.user else ""
    what = f"quantile {share:g} of {found.number:,}, {found.method}, {cost}, δ = {near.delta_ground:g}{whose}"
    print(f"{found.value:.12g}  ({what})")
    if compare:
        rows = [(m, f"{e:.4g}") for m, e in found.methods().itertuples(index=False)]
        print(console.table(["method", "expected error"], rows))
    return found


def _cost(release: SortedRelease | Quantile) -> str:
    if release.epsilon is not None:
        return f"ε = {float(release.epsilon):g}"
    return f"ρ = {float(release.rho or 0):.4g}"
