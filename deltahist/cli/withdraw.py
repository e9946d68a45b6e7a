"""`deltahist withdraw`: withdraw a release, in the ledger and by a notice beside the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deltahist.cli import console


def withdraw(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release file.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, one line; public.")],
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="The ledger that paid for it, or a postgresql:// URL.")
    ] = None,
) -> None:
    """Withdraw a release: enter it in the ledger that paid for it, then write a notice beside the file.

    The notice, city.withdrawn.json beside city.parquet, is public: put it wherever the release was put. Every command,
    the service and the library heed it. What was spent stays spent, since the release was seen.

    \b
    Example:
      deltahist withdraw city.parquet --reason "the column of longitudes was wrong" --ledger city.ledger
    """
    from deltahist.kinds import read_release
    from deltahist.publishers.withdrawal import withdraw as enter
    from deltahist.releases.notices import notice_path

    notice = enter(release, reason, ledger=ledger)
    payment = read_release(release).payment
    print(console.facts(withdrawn=f"{release}, {notice.words}", notice=notice_path(release)))
    if payment is not None and ledger is None:
        console.note(f"note: account {payment.account!r} paid for {release}: run this again with its --ledger")
