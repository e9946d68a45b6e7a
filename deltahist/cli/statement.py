"""`deltahist statement`: the privacy statement, printed, or as a page to put next to a release."""

from __future__ import annotations

from pathlib import Path

from deltahist.cli import console
from deltahist.cli.groups import PUBLISHED, is_folder, open_release, open_series
from deltahist.cli.options import flag, option


def statement(
    release: Path | str = PUBLISHED,
    out: Path | None = option("FILE", ".html (one page for the web and for print), .md or .txt."),
    title: str | None = option("TEXT", "Title of the page, such as the name of the data."),
    as_json: bool = flag("Print the statement as data.", names="--json"),
) -> None:
    """Print the privacy statement of a release, or write it as a page with --out.

    It says whether the release may be published, who is protected and how strongly at which distance, what was done
    with the rows, and how to use the figures. The statement of a folder of `deltahist stream` is about all steps and
    what they cost together.

    \b
    Examples:
      deltahist statement city.parquet
      deltahist statement city.parquet --json
      deltahist statement city.parquet --out statement.html --title "Check-ins in New York, 2010"
      deltahist statement city/ --out year.html     # of a folder
    """
    from deltahist._files import form_of
    from deltahist.releases.page import FORMS, render_page, save_statement

    if out is not None:
        form_of(out, FORMS)
        console.check_target(out, release)
    published = open_series(release) if is_folder(release) else open_release(release, refuse_withdrawn=False)
    if as_json:
        console.put_json(published.facts())
    elif out is None:
        console.put(render_page(published, "text", title))
    else:
        save_statement(published, out, title)
        console.note(f"wrote {out}")
