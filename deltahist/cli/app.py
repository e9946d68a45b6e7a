"""The commands. Help texts use `\b` so that examples keep their lines."""

from __future__ import annotations

from typing import Annotated

import typer

from deltahist.cli.advising import advise
from deltahist.cli.allocating import allocate
from deltahist.cli.keeping import ledger
from deltahist.cli.planning import plan
from deltahist.cli.publishing import demo, publish
from deltahist.cli.querying import query
from deltahist.cli.questions import ask
from deltahist.cli.reading import export, inspect, plot
from deltahist.cli.refining import refine, tighten
from deltahist.cli.sharing import share
from deltahist.cli.sorting import quantile
from deltahist.cli.stating import statement
from deltahist.cli.streaming import stream

# Plain help: half the time of the decorated one, and it can be piped.
app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        from deltahist import __version__

        print(f"deltahist {__version__}")
        raise typer.Exit


@app.callback()
def deltahist(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Publish location data under distance-aware differential privacy, and answer range queries from it.

    \b
    Start with:
      deltahist demo                      # a made-up city, from a table of visits to a map
      deltahist publish --help            # the same with your own file
    Errors are one line on stderr with exit status 2; no output file is ever half written.
    """


for command, line in (
    (demo, "Publish a made-up city end to end, to see how it works."),
    (publish, "Publish a file of points as one release file."),
    (refine, "Publish a finer release of the same data, for the difference."),
    (tighten, "Make a more private copy of a release, without the data."),
    (quantile, "Publish the median or another quantile of a column."),
    (allocate, "Spread a budget per window over steps of different weight."),
    (stream, "Publish one map per step of time, within a budget per window."),
    (share, "Answer what users of a network may know of each other."),
    (ask, "Ask a question that those pay for whose records it uses."),
    (query, "Count the points in boxes or regions, with intervals."),
    (advise, "What each choice of δ, ε and cells gives, in words."),
    (plan, "Rank strategies and cells by expected error, before any data."),
    (inspect, "Print the privacy statement of a release."),
    (statement, "Write the statement as a page for the web or for print."),
    (ledger, "Show the accounts of a ledger: limit, spent, left."),
    (plot, "Draw the map and the protection by distance."),
    (export, "Write the cells as GeoPackage, GeoParquet, GeoJSON, CSV or GeoTIFF."),
):
    app.command(short_help=line)(command)
