"""`deltahist inspect` and `statement`: the privacy statement, printed, and as a page to be put beside a release."""

from __future__ import annotations

from pathlib import Path

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, open_release
from deltahist.cli.options import flag, option


def inspect(release: Path | str = RELEASE, as_json: bool = flag("The same as data.", names="--json")) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
    """
    published = open_release(release, refuse_withdrawn=False)
    if as_json:
        console.put_json(published.facts())
    else:
        console.put(published.statement())


def statement(
    release: Path | str = RELEASE,
    out: Path | None = option("FILE", ".html (one page for the web and for print), .md or .txt."),
    title: str | None = option("TEXT", "Title of the page, such as the name of the data."),
) -> None:
    """Write the privacy statement of a release as a page for whoever reads the map; without --out print it.

    The page says in plain words whether the release may be published, who is protected and how strongly, what was
    done with the rows, and how to use the figures; a table and a curve show the protection by distance. It is one file
    that needs no other.

    \b
    Examples:
      deltahist statement city.parquet --out statement.html --title "Check-ins in New York, 2010"
      deltahist statement city.parquet --out statement.md
      deltahist statement city.parquet
    """
    from deltahist.releases.page import check_page, render_page, save_statement

    if out is None:
        console.put(render_page(open_release(release, refuse_withdrawn=False), "text", title))
        return
    check_page(out)
    console.check_target(out, release)
    save_statement(open_release(release, refuse_withdrawn=False), out, title)
    console.note(f"wrote {out}")
