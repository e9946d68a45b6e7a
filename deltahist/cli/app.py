"""The commands. Help texts use `\b` so that examples keep their lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import lazy_loader
import typer

#: Commands in the order of the help: the module of each, and a line about it.
COMMANDS = {
    "demo": ("publishing", "Publish a made-up city end to end, to see how it works."),
    "publish": ("publishing", "Publish a file of points as one release file."),
    "refine": ("refining", "Publish a finer release of the same data, for the difference."),
    "tighten": ("refining", "Make a more private copy of a release, without the data."),
    "quantile": ("sorting", "Publish the median or another quantile of a column."),
    "allocate": ("allocating", "Spread a budget per window over steps of different weight."),
    "stream": ("streaming", "Publish one map per step of time, within a budget per window."),
    "share": ("sharing", "Answer what users of a network may know of each other."),
    "ask": ("questions", "Ask a question that those pay for whose records it uses."),
    "query": ("querying", "Count the points in boxes or regions, with intervals."),
    "advise": ("advising", "What each choice of δ, ε and cells gives, in words."),
    "plan": ("planning", "Rank strategies and cells by expected error, before any data."),
    "inspect": ("reading", "Print the privacy statement of a release."),
    "statement": ("stating", "Write the statement as a page for the web or for print."),
    "plot": ("reading", "Draw the map and the protection by distance."),
    "export": ("reading", "Write the cells as GeoPackage, GeoParquet, GeoJSON, CSV or GeoTIFF."),
    "ledger": ("ledgers", "Show, check or export the accounts of a ledger."),
}


def _version(asked: bool) -> None:
    if asked:
        from deltahist import __version__

        print(f"deltahist {__version__}")
        raise typer.Exit


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


def app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the command line with some commands; only the modules of these are imported."""
    # Plain help: half the time of the decorated one, and it can be piped.
    line = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    line.callback()(deltahist)
    for name in names:
        module, about = COMMANDS[name]
        imported, _, _ = lazy_loader.attach("deltahist.cli", submod_attrs={module: [name]})
        command = imported(name)
        if isinstance(command, typer.Typer):
            line.add_typer(command, name=name, short_help=about)
        else:
            line.command(short_help=about)(command)
    return line
