"""`deltahist refine` and `tighten`: a finer release of the same data, and a more private copy of a release."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.cli import console
from deltahist.cli.groups import (
    OVERWRITE,
    RELEASE,
    WEAK,
    AccountOptions,
    Spending,
    describe_state,
    open_release,
)
from deltahist.cli.maps import WorkloadOptions
from deltahist.cli.options import amount, argument, option
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.releases import BaseRelease


@dataclass(frozen=True, kw_only=True)
class _Budget(Spending):
    """The budget of the finer release: an amount, or as much as an error takes."""

    until: Fraction | None = option(
        "POINTS",
        "Instead: as much as it takes for this expected error (root mean square), from public figures.",
        amount,
    )

    def amounts(self, release: BaseRelease, asked: WorkloadOptions) -> dict[str, Any]:
        """Return the budget as keyword of `refine`."""
        if self.until is None:
            for name, value in vars(asked).items():
                if value:
                    raise InputError(f"--{name} is given without --until: it says which error is meant")
            if self.epsilon is None and self.rho is None:
                raise InputError(
                    "none of --epsilon, --rho and --until is given: it must be one of them; without RELEASE, too, the "
                    "state's own release is written once more"
                )
            return self.keywords()
        if self.epsilon is not None or self.rho is not None:
            raise InputError("--until is given with a budget: it must be one of --until, --epsilon and --rho")
        from deltahist.mechanisms import Mechanism
        from deltahist.planning import budget_for

        mechanism = release.mechanism
        if not isinstance(mechanism, Mechanism):
            raise InputError("--until is given with sorted points: it goes with counts; give --epsilon or --rho")
        queries, name = asked.queries(mechanism.domain)
        found = budget_for(mechanism, float(self.until), queries and queries(mechanism.domain))
        budget = f"{mechanism.letter} = {float(found.amount):g}"
        if found.amount <= mechanism.budget.amount:
            raise InputError(
                f"--until is {float(self.until):g} over {name}, which {budget} meets, and the release has "
                f"{float(mechanism.budget.amount):g}: it need not be refined"
            )
        console.note(f"{budget} for an error of {float(self.until):g} points over {name}")
        return {found.unit: found.amount}


def refine(
    *,
    release: Path | None = argument(
        "RELEASE", "The last release of the chain. [default: the one in the state]", default=None
    ),
    state: Path = option("FILE", "The state that `deltahist publish --state` wrote.", default=...),
    out: Path = option("FILE", "The finer release (Parquet).", default=...),
    relaxing: _Budget,
    asked: WorkloadOptions,
    accounts: AccountOptions,
    weak_protection_accepted: bool = WEAK,
    overwrite: bool = OVERWRITE,
) -> Any:
    """Publish a finer release of the same data: all releases of the chain together cost what this one does.

    The data are not read again: the state holds the noise, and goes on to the new release. The error is that of a
    single release at the new budget. The account that paid for the first release pays the difference. Without a budget
    the state's own release is written once more, which is how nothing is lost where a run ended in the middle; with
    the account, if one paid.

    \b
    Examples:
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 0.5 \\
          --state city.state --out city.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet
      deltahist refine --state city.state --until 25 --squares 5km --out city-3.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet \\
          --ledger city.ledger --account visits
    """
    from deltahist.publishers.gradual import State, check_payer, once_more, refine as finer

    console.check_target(out, state, *asked.files(), release, replace=overwrite)
    given: Any = State.load(state).release if release is None else open_release(release)
    check_payer(given, accounts.account)
    again = release is None and relaxing.until is None and relaxing.epsilon is None and relaxing.rho is None
    spent = given.mechanism.budget
    budget = {spent.unit: spent.amount} if again else relaxing.amounts(given, asked)
    chain = given.mechanism.chain
    accounts.check(budget, None if chain is None else chain.name, out=out, state=state)
    with accounts.open(budget) as account:
        if again:
            made = once_more(state, account=account)
        else:
            accepted: Any = {"weak_protection_accepted": weak_protection_accepted}
            made = finer(None if release is None else given, state, account=account, **accepted, **budget)
        made.save(out)
    print(_summarize(made, out, state))
    return made


def tighten(
    *,
    release: Path | str = RELEASE,
    out: Path = option("FILE", "The more private copy (Parquet).", default=...),
    spending: Spending,
    state: Path | None = option("FILE", "State of its chain; needed for flows with sums along the lines."),
    overwrite: bool = OVERWRITE,
) -> Any:
    """Make a more private copy of a release, for others than have it; the data are not needed.

    Further noise makes it as if it had been released at the smaller budget. Nothing is spent. Where the strategy is
    a flow with sums along the lines, which `auto` often takes, the release alone does not suffice: give the state
    of its chain.

    \b
    Examples:
      deltahist tighten city.parquet --epsilon 0.2 --out city-public.parquet
      deltahist tighten city.parquet --state city.state --epsilon 0.2 --out city-public.parquet
    """
    from deltahist.publishers.gradual import tighten as coarser

    console.check_target(out, release, state, replace=overwrite)
    made = coarser(open_release(release), state=state, **spending.keywords())
    made.save(out)
    print(_summarize(made, out, None))
    return made


def _summarize(release: BaseRelease, out: Path, state: Path | None) -> str:
    """Render a release of a chain, what pays for it, and where its state is."""
    mechanism = release.mechanism
    assert mechanism.chain is not None
    return console.facts(
        published=str(out),
        guarantee=mechanism.promise,
        chain=mechanism.chain.words(mechanism.letter),
        account=release.payment,
        state=describe_state(state),
    )
