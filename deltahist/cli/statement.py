"""`deltahist inspect` and `statement`: the privacy statement, printed, and as a page to be put beside a release.

Of a folder of a stream it is about all steps: what they cost together, and what may still be spent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltahist.cli import console
from deltahist.cli.groups import PUBLISHED, is_folder, open_release, open_series
from deltahist.cli.options import flag, option
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.releases import BaseRelease, Series

_LEDGER = option("FILE", "Of a folder: its ledger, which also knows what was charged and never finished.")


def inspect(
    release: Path | str = PUBLISHED,
    as_json: bool = flag("The same as data.", names="--json"),
    ledger: str | None = _LEDGER,
) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    Of a folder of `deltahist stream`: the promise of a step and of its windows, the steps that are missing, what all
    releases together cost, and what the next step may spend.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
      deltahist inspect city/ --ledger city.ledger     # of a folder: all steps together
    """
    published = _open(release, ledger)
    if as_json:
        console.put_json(published.facts())
    else:
        console.put(published.statement())


def statement(
    release: Path | str = PUBLISHED,
    out: Path | None = option("FILE", ".html (one page for the web and for print), .md or .txt."),
    title: str | None = option("TEXT", "Title of the page, such as the name of the data."),
    ledger: str | None = _LEDGER,
) -> None:
    """Write the privacy statement of a release as a page for whoever reads the map; without --out print it.

    The page says in plain words whether the release may be published, who is protected and how strongly, what was
    done with the rows, and how to use the figures; a table and a curve show the protection by distance. It is one file
    that needs no other. Of a folder of `deltahist stream` it is one page for all steps, with what they cost together,
    a table of steps and small maps.

    \b
    Examples:
      deltahist statement city.parquet --out statement.html --title "Check-ins in New York, 2010"
      deltahist statement city.parquet --out statement.md
      deltahist statement city.parquet
      deltahist statement city/ --ledger city.ledger --out year.html     # of a folder
    """
    from deltahist.releases.page import check_page, render_page, save_statement

    if out is None:
        console.put(render_page(_open(release, ledger), "text", title))
        return
    check_page(out)
    console.check_target(out, release)
    save_statement(_open(release, ledger), out, title)
    console.note(f"wrote {out}")


def _open(release: Path | str, ledger: str | None) -> BaseRelease | Series:
    """Open a release, or a folder of them, maybe with its ledger."""
    if not is_folder(release):
        if ledger is not None:
            raise InputError(
                f"--ledger is given, but {str(release)!r} is one release, which says what its account had spent: it "
                "goes with a folder that `deltahist stream` wrote (`deltahist ledger show` tells what is left now)"
            )
        return open_release(release, refuse_withdrawn=False)
    opened = None
    if ledger is not None:
        from deltahist.cli.ledger import open_ledger

        opened = open_ledger(ledger)
    series = open_series(release)
    if opened is None:
        return series
    account = series.costs.account
    if account is None:
        raise InputError(f"--ledger is given, but no account paid for all releases in {str(release)!r}: leave it out")
    spans = [(steps, limit) for steps, limit, _ in opened.standing(account).spans]
    return series.with_ledger(spans, opened.charges(account))
