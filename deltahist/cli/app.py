"""The command line: its commands, how one is run, and options from a file; errors become one line each.

Help texts use `\b` so that examples keep their lines.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import lazy_loader
import typer
from typer.core import TyperCommand

from deltahist.cli import console
from deltahist.cli.options import spread
from deltahist.cli.project import fill_in
from deltahist.errors import DeltaHistWarning, InputError

#: Commands in the order of the help, each with a line about it; most in a file of their name.
COMMANDS = {
    "demo": "Publish a made-up city end to end, to see how it works.",
    "init": "Write deltahist.toml, the choices that all commands share: five questions.",
    "publish": "Publish a file of points as one release file.",
    "refine": "Publish a finer release of the same data, for the difference.",
    "tighten": "Make a more private copy of a release, without the data.",
    "withdraw": "Withdraw a release: in the ledger that paid, and by a notice beside it.",
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
    "serve": "Answer range queries over HTTP from published releases.",
    "serve-private": "Answer questions over HTTP that people pay for, for clients with keys.",
    "ledger": "Show, check or export the accounts of a ledger.",
}


#: Commands whose options no project file holds, and those that may have a heading there.
_UNFILED = ("demo", "serve-private", "init")
_FILED = {name: text for name, text in COMMANDS.items() if name not in (*_UNFILED, "ledger")}
#: Commands that stand in the file of another one.
_BESIDE = {"tighten": "refine", "inspect": "statement", "allocate": "stream"}


def _version(asked: bool) -> None:
    if asked:
        from deltahist import __version__

        print(f"deltahist {__version__}")
        raise typer.Exit


def deltahist(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="As of every command.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="As of every command.")] = False,
) -> None:
    """Publish location data under distance-aware differential privacy, and answer range queries from it.

    \b
    Start with:
      deltahist demo                      # a made-up city, from a table of visits to a map
      deltahist init                      # the same with your own file: five questions
      deltahist publish --help
    Errors are one line on stderr with exit status 2; no output file is ever half written.
    """
    console.tell(quiet=quiet, verbose=verbose)


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
        function = name.replace("-", "_")
        imported, _, _ = lazy_loader.attach("deltahist.cli", submod_attrs={_BESIDE.get(name, function): [function]})
        command = imported(function)
        if isinstance(command, typer.Typer):
            line.add_typer(command, name=name, short_help=COMMANDS[name])
        else:
            # Services are set up by their environment; what publishes must be typed, or stand in a file that is named.
            context = {"auto_envvar_prefix": "DELTAHIST_SERVE"} if name == "serve" else None
            line.command(cls=Command, short_help=COMMANDS[name], context_settings=context)(
                spread(command, reads_file=name not in _UNFILED)
            )
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
    started = time.monotonic()
    console.TELLING.quiet = console.TELLING.verbose = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=DeltaHistWarning)
            warnings.showwarning = _show(warnings.showwarning)
            result = invoke(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
            if console.TELLING.verbose:
                console.note(f"took {time.monotonic() - started:.2f} s in all")
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
    called = next((each for each in arguments if each not in ("-q", "--quiet", "-v", "--verbose")), None)
    line = app([called]) if called in COMMANDS else app()  # the help names all of them
    return line(list(arguments) or ["--help"], prog_name="deltahist", standalone_mode=False)


def _fail(text: str) -> int:
    console.note("error: " + " ".join(text.split()))
    return FAILED


def _show(usual: Callable[..., None]) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, DeltaHistWarning):
            console.note("warning: " + " ".join(str(message).split()))
        else:
            usual(message, category, *rest, **more)

    return show


# --- help in panels, and options from a file ----------------------------------------------------------------

class Command(TyperCommand):
    """A command whose options stand in panels, and may come from a file."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the usual options, and below them a section for each panel."""
        panels: dict[str, list[Any]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if each.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(each, "rich_help_panel", None) or usual, []).append(record)
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with a project file's options where it has none; keep them all as they were typed."""
        _refuse_unknown_variables(ctx.auto_envvar_prefix, self)
        found, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        typed = {name: value for name, value in found.items() if value is not None}
        console.tell(quiet=bool(typed.get("quiet")), verbose=bool(typed.get("verbose")))
        ctx.default_map = fill_in(ctx, typed, _FILED)
        rest = super().parse_args(ctx, args)
        for each in self.params:
            if typed.get(str(each.name)) == "" and not each.required and each.default is None:
                ctx.params[str(each.name)] = None
        if "limit" in ctx.default_map:  # of two kinds, of which one may be typed
            ctx.params["limit"] = ctx.default_map["limit"]
        return rest


def _refuse_unknown_variables(prefix: str | None, command: TyperCommand) -> None:
    """Raise InputError if a variable of the environment has the prefix of a command, but no option's name."""
    if prefix is None:
        return
    import difflib

    known = [f"{prefix}_{str(each.name).upper()}" for each in command.params]
    for name in os.environ:
        if name.startswith(f"{prefix}_") and name not in known:
            (near,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise InputError(f"{name} is set, but no option is called so: is {near} meant?")
