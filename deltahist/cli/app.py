"""The command line: its commands, and how one is run; errors and warnings become one line each.

Help texts use `\b` so that examples keep their lines.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import lazy_loader
import typer

from deltahist.cli.command import Command
from deltahist.cli.console import note
from deltahist.cli.options import spread
from deltahist.errors import DeltaHistWarning, InputError

#: Commands in the order of the help, each in a file of its name, and a line about it.
COMMANDS = {
    "demo": "Publish a made-up city end to end, to see how it works.",
    "publish": "Publish a file of points as one release file.",
    "refine": "Publish a finer release of the same data, for the difference.",
    "tighten": "Make a more private copy of a release, without the data.",
    "quantile": "Publish the median or another quantile of a column.",
    "allocate": "Spread a budget per window over steps of different weight.",
    "stream": "Publish one map per step of time, within a budget per window.",
    "share": "Answer what users of a network may know of each other.",
    "ask": "Ask a question that those pay for whose records it uses.",
    "query": "Count the points in boxes or regions, with intervals.",
    "advise": "What each choice of δ, ε and cells gives, in words.",
    "plan": "Rank strategies and cells by expected error, before any data.",
    "inspect": "Print the privacy statement of a release.",
    "statement": "Write the statement as a page for the web or for print.",
    "plot": "Draw the map and the protection by distance.",
    "export": "Write the cells as GeoPackage, GeoParquet, GeoJSON, CSV or GeoTIFF.",
    "ledger": "Show, check or export the accounts of a ledger.",
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
        imported, _, _ = lazy_loader.attach("deltahist.cli", submod_attrs={name: [name]})
        command = imported(name)
        if isinstance(command, typer.Typer):
            line.add_typer(command, name=name, short_help=COMMANDS[name])
        else:
            line.command(cls=Command, short_help=COMMANDS[name])(spread(command))
    return line


#: Exit status of every error that the user can mend.
FAILED = 2
#: New objects after which garbage is looked for. What imports leave stays, and to look through it again and again took
#: a tenth of a short command.
_OBJECTS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a one-line error on stderr.

    Only what was to be expected becomes a line; a programming error keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # δ and ε must not fail on a terminal without them
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:  # the process is the command's own: who is told to end sweeps up first
        # Matrices are small: threads that wait for each other, and for other programs, made planning 3 times as slow.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.set_threshold(_OBJECTS)
        for name in ("SIGTERM", "SIGHUP"):  # or whose terminal was closed, unless it is to be ignored (nohup)
            if (number := getattr(signal, name, None)) and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=DeltaHistWarning)
            warnings.showwarning = _show(warnings.showwarning)
            result = invoke(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except InputError as problem:
        return _fail(str(problem))
    except MemoryError as problem:
        return _fail(f"out of memory {problem}".strip() + ": use larger cells or a smaller domain")
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        return _fail(f"{problem.filename or 'input or output'}: {problem.strerror or problem}")
    except KeyboardInterrupt:
        return _fail("interrupted")
    except Exception as problem:
        # Usage errors of the option parser, whichever package it comes from in this version of Typer, and without
        # what its own helper puts before a rule.
        if hasattr(problem, "format_message"):
            return _fail(problem.format_message().replace("Value error, ", "") + " (see --help)")
        if type(problem).__name__ == "Abort":
            return _fail("interrupted")
        raise


def invoke(arguments: Sequence[str]) -> Any:
    """Run one command line and return what the command returns; errors are raised."""
    called = arguments[0] if arguments and arguments[0] in COMMANDS else None
    line = app() if called is None else app([called])  # the help names all of them
    return line(list(arguments) or ["--help"], prog_name="deltahist", standalone_mode=False)


def _fail(text: str) -> int:
    note("error: " + " ".join(text.split()))
    return FAILED


def _show(usual: Callable[..., None]) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, DeltaHistWarning):
            note("warning: " + " ".join(str(message).split()))
        else:
            usual(message, category, *rest, **more)

    return show
