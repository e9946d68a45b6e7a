"""The command line: its commands, the project file, and how errors become one line on stderr.

Help texts use `\b` so that examples keep their lines.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

from deltahist.cli import console
from deltahist.errors import DeltaHistWarning, InputError

#: Commands in the order of the help, each with one line about it.
COMMANDS = {
    "demo": "Publish a made-up city end to end, to see how it works.",
    "plan": "Rank δ, cells and strategies by expected error, before any data.",
    "publish": "Publish a file of points as one release file.",
    "stream": "Publish one map per step of time, within a budget per window.",
    "refine": "Publish a finer release of the same data, for the difference in budget.",
    "tighten": "Make a more private copy of a release, without the data.",
    "withdraw": "Withdraw a release, in the ledger and by a notice next to the file.",
    "sorted": "Publish the sorted values of a column, for quantiles and ranges.",
    "quantile": "Publish the median or another quantile of a column.",
    "share": "Share noisy values over a network: the closer the user, the less noise.",
    "ask": "Answer a query, charged to the people whose records it uses.",
    "query": "Count the points in boxes or regions, with intervals.",
    "statement": "Show the privacy statement of a release, or write it as a page.",
    "plot": "Draw the map and the protection by distance.",
    "export": "Write the cells as GeoPackage, GeoParquet, GeoJSON, CSV or GeoTIFF.",
    "serve": "Answer range queries over HTTP from published releases.",
    "ledger": "Show, check or export the accounts of a ledger.",
}
#: Commands whose function is in the file of another one.
_FILES = {
    **{"tighten": "refine", "withdraw": "refine", "sorted": "publish", "quantile": "publish"},
    **{"statement": "show", "plot": "show", "export": "show"},
}
#: The project file of the current folder, and the commands that use its keys above all headings.
PROJECT = Path("deltahist.toml")
_SHARING = ("publish", "stream", "plan")
#: A password in a URL: between a user's name and the host, or among the settings.
_PASSWORD = re.compile(r"://[^:/]*:[^@]+@|://.*[?&]\w*password=", re.IGNORECASE)
#: A database on a server.
_SERVER = re.compile(r"postgres(ql)?(\+psycopg)?://", re.IGNORECASE)


def _version(asked: bool) -> None:
    if asked:
        from deltahist import __version__

        print(f"deltahist {__version__}")
        raise typer.Exit


def deltahist(
    config: Annotated[Path | None, Option(metavar="FILE", help="Project file, instead of deltahist.toml.")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Suppress notes and progress.")] = False,
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Publish location data under distance-aware differential privacy, and answer range queries from it.

    \b
    Start with:
      deltahist demo                      # a made-up city, from a table of visits to a map
      deltahist publish --help
    Errors are one line on stderr with exit status 2. No output file is ever half written.
    """
    console.STATE["quiet"] = quiet


def load_command(name: str) -> Any:
    """Import the file of a command, and return the command as Typer takes it: a function or an app."""
    module = importlib.import_module(f"deltahist.cli.{_FILES.get(name, name)}")
    return getattr(module, "publish_sorted" if name == "sorted" else name)


def app(called: str | None = None) -> typer.Typer:
    """Return the command line, in which only the called command is imported; the others are lines of the help."""
    # Plain help takes half the time of the decorated one, and it can be piped.
    line = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    line.callback()(deltahist)
    for name, text in COMMANDS.items():
        command = load_command(name) if name == called else _version  # any function will do
        if isinstance(command, typer.Typer):
            line.add_typer(command, name=name, short_help=text)
        else:
            settings = {"auto_envvar_prefix": "DELTAHIST_SERVE"} if name == "serve" else None
            line.command(name, cls=Command, short_help=text, context_settings=settings)(command)
    return line


def invoke(arguments: Sequence[str]) -> Any:
    """Run one command line and return what the command returns; errors are raised."""
    called = next((each for each in arguments if each in COMMANDS), None)
    return app(called)(list(arguments) or ["--help"], prog_name="deltahist", standalone_mode=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a one-line error on stderr.

    A programming error keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # δ and ε must not fail on a terminal without them
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:  # the process belongs to the command
        # Matrices are small: threads that wait for each other made planning 3 times as slow.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        for name in ("SIGTERM", "SIGHUP"):  # become SystemExit, so that temporary files are removed
            if (number := getattr(signal, name, None)) and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: sys.exit(128 + number))
    console.STATE["quiet"] = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=DeltaHistWarning)
            warnings.showwarning = lambda message, *rest, **more: console.note(
                "warning: " + " ".join(str(message).split())
            )
            result = invoke(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except InputError as problem:
        text = str(problem)
    except MemoryError as problem:
        text = f"out of memory: use larger cells or a smaller map ({problem})"
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        text = f"{problem.filename or 'input or output'}: {problem.strerror or problem}"
    except (KeyboardInterrupt, typer.Abort):
        text = "interrupted"
    except Exception as problem:
        if not hasattr(problem, "format_message"):  # Typer's usage errors have it
            raise
        text = f"{problem.format_message()} (see --help)"
    console.note("error: " + " ".join(text.split()))
    return 2


# --- the project file ----------------------------------------------------------------------------------------


class Command(TyperCommand):
    """A command whose options may come from the project file; typed values win."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with the options of the project file as defaults."""
        file = ctx.find_root().params.get("config")
        if ctx.parent is not None and (file is not None or PROJECT.is_file()):
            ctx.default_map = _read_project(file or PROJECT, self)
        rest = super().parse_args(ctx, args)
        for name in ("epsilon", "rho"):
            if name in ctx.params and ctx.get_parameter_source(name).name == "DEFAULT_MAP":
                console.note(f"{name} is {ctx.params[name]}, from {file or PROJECT}")
        for name, value in ctx.params.items():
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "DEFAULT_MAP" and _SERVER.match(str(value)):
                # An empty password keeps the driver from sending PGPASSWORD to whatever host the file names.
                ctx.params[name] = f"{value}{'&' if '?' in value else '?'}password="
                console.note(f"{name} is a server from {file or PROJECT}: PGPASSWORD is not sent to it")
        return rest


def _read_project(file: Path, command: TyperCommand) -> dict[str, Any]:
    """Return the options that a project file has for a command, by parameter.

    Keys above all headings are for `publish`, `stream` and `plan`, where they have such an option. Keys below the
    heading of a command are for that command.
    """
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=str)
    except OSError as problem:
        raise InputError(f"--config is {str(file)!r}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"--config is {str(file)!r}: it must be TOML in UTF-8 ({problem})") from None
    check_passwords(found)
    headings = {key: found.pop(key) for key in [*found] if isinstance(found[key], dict)}
    own, known = headings.get(str(command.name), {}), {str(each.name) for each in command.params}
    shared = {key.replace("-", "_"): value for key, value in found.items()}
    if unknown := [*(headings.keys() - COMMANDS.keys()), *(key for key in own if key.replace("-", "_") not in known)]:
        raise InputError(f"{file} has {unknown[0]!r}: no command or option of `{command.name}` has that name")
    names = {name for each in _SHARING for name in inspect.signature(load_command(each)).parameters}
    if unknown := [key for key in shared if key not in names]:
        raise InputError(f"{file} has {unknown[0]!r} above all headings: no option of publish, stream or plan")
    mine = {key: shared[key] for key in shared.keys() & known} if command.name in _SHARING else {}
    return mine | {key.replace("-", "_"): value for key, value in own.items()}


def check_passwords(options: dict[str, Any]) -> None:
    """Raise InputError if an option of a project file holds a password."""
    for key, value in options.items():
        if _PASSWORD.search(str(value)):
            raise InputError(f"{key} holds a password: keep it in PGPASSWORD or ~/.pgpass, not in a project file")


def write_project(context: typer.Context, file: Path) -> None:
    """Write the options of a command line that were typed, or read from a project file, as a project file."""
    import json
    from fractions import Fraction

    given: dict[str, Any] = {}
    for each in context.command.params:
        value, name = context.params.get(str(each.name)), str(each.name).replace("_", "-")
        typed = context.get_parameter_source(str(each.name))
        if each.param_type_name == "argument" or name in ("dry-run", "write-config"):
            continue
        if typed is not None and typed.name in ("COMMANDLINE", "DEFAULT_MAP"):
            given[name] = ",".join(map(str, value)) if isinstance(value, tuple) else value
            if isinstance(value, str):  # the empty password is added again when the file is read
                given[name] = re.sub(r"[?&]password=$", "", value)
    check_passwords(given)
    lines = [f"[{context.command.name}]"]
    for name, value in given.items():
        text = str(value) if isinstance(value, Path | Fraction) else value
        lines.append(f"{name} = {json.dumps(text, ensure_ascii=False)}")
    console.put("\n".join(lines), file)
