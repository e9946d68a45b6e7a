"""`deltahist refine`, `tighten` and `withdraw`: a finer release, a more private copy, and the end of a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from deltahist.cli import shared
from deltahist.cli.console import check_target, facts, note, show_progress
from deltahist.cli.publish import describe_state

if TYPE_CHECKING:
    from deltahist.releases import BaseRelease


def refine(
    release: Annotated[Path | None, Argument(metavar="RELEASE", help="[default: the state's last release]")] = None,
    *,
    state: Annotated[Path, Option(metavar="FILE", help="The state that `deltahist publish --state` wrote.")],
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The finer release (Parquet).")],
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    ledger: shared.LedgerFile = None,
    account: shared.AccountName = None,
) -> Any:
    """Publish a finer release of the same data: all releases of the chain together cost what this one does.

    The data are not read again. The state holds the noise, and is updated for the new release. The account that paid
    for the first release pays the difference. Without RELEASE and budget the state's own release is written once more,
    for a run that was interrupted.

    \b
    Examples:
      deltahist publish visits.csv --x x --y y --bounds 0,0,50000,50000 --delta 500 --epsilon 0.5 \\
          --state city.state --out city.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet
      deltahist refine city.parquet --state city.state --epsilon 2 --out city-2.parquet \\
          --ledger city.ledger --account visits
    """
    from deltahist.publishers.revisions import check_payer, once_more, refine as finer
    from deltahist.publishers.state import State

    check_target(out, state, release, ledger, replace=False)
    given: Any = State.load(state).release if release is None else shared.open_release(release)
    check_payer(given, account)
    again = release is None and epsilon is None and rho is None
    spent = given.mechanism.budget
    budget = {spent.unit: spent.amount} if again else shared.read_budget(epsilon, rho)
    chain = given.mechanism.chain
    payer = shared.open_account(ledger, account, None, budget, None if chain is None else chain.name)
    with shared.warn_of_charges(payer), show_progress("Drawing noise …"):
        if again:
            made = once_more(state, account=payer)
        else:
            made = finer(None if release is None else given, state, account=payer, **budget)
        made.save(out)
    print(_summarize(made, out, state))
    return made


def tighten(
    release: shared.Release,
    *,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The more private copy (Parquet).")],
    epsilon: shared.Epsilon = None,
    rho: shared.Rho = None,
    state: Annotated[Path | None, Option(metavar="FILE", help="State of its chain, if it is needed.")] = None,
) -> Any:
    """Make a more private copy of a release, for readers who may see less. The data are not needed.

    Further noise makes it as if it had been released at the smaller budget. Nothing is spent. Flows with sums along
    the lines, which `auto` often takes, need the state of their chain.

    \b
    Examples:
      deltahist tighten city.parquet --epsilon 0.2 --out city-public.parquet
    """
    from deltahist.publishers.revisions import tighten as coarser

    check_target(out, release, state, replace=False)
    given, budget = shared.open_release(release), shared.read_budget(epsilon, rho)
    with show_progress("Drawing noise …"):
        made = coarser(given, state=state, **budget)
    made.save(out)
    print(_summarize(made, out, None))
    return made


def withdraw(
    release: Annotated[Path, Argument(metavar="RELEASE", help="A release file.")],
    *,
    reason: Annotated[str, Option(metavar="TEXT", help="Why, in one line. Public.")],
    ledger: shared.LedgerFile = None,
) -> None:
    """Withdraw a release: enter it in the ledger that paid for it, then write a notice next to the file.

    The notice, city.withdrawn.json next to city.parquet, is public: copy it to wherever the release went. Commands, the
    service and the library honour it. The budget stays spent, since the release was seen.

    \b
    Example:
      deltahist withdraw city.parquet --reason "the column of longitudes was wrong" --ledger city.ledger
    """
    from deltahist.accounts.ledger import Ledger
    from deltahist.kinds import read_release
    from deltahist.publishers.revisions import withdraw as enter
    from deltahist.releases.notices import notice_path

    notice = enter(release, reason, ledger=ledger)
    payment = read_release(release).payment
    left = None
    if payment is not None and ledger is not None:
        standing = str(Ledger(ledger).read_standing(payment.account).binding)
        left = f"{payment.account!r}: {standing.removeprefix(f'account {payment.account!r} ')}"
    print(facts(withdrawn=f"{release}, {notice.words}", notice=notice_path(release), account=left))
    if payment is not None and ledger is None:
        note(f"note: account {payment.account!r} paid for {release}: run this again with its --ledger")


def _summarize(release: BaseRelease, out: Path, state: Path | None) -> str:
    """Return a release of a chain, what pays for it, and where its state is, as text."""
    from deltahist.statement.facts import explain_chain

    mechanism = release.mechanism
    assert mechanism.chain is not None
    return facts(
        published=out,
        guarantee=mechanism.promise,
        chain=explain_chain(mechanism.chain, mechanism.letter),
        account=release.payment,
        state=describe_state(state),
    )
