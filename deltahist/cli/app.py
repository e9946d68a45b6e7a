"""The command line: its commands, how one is run, and options from a file; errors become one line each.

Help texts use `\b` so that examples keep their lines.
"""

from __future__ import annotations

import datetime
import gc
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import lazy_loader
import typer
from typer.core import TyperCommand

from deltahist.cli import console
from deltahist.cli.options import spread
from deltahist.errors import DeltaHistWarning, InputError

#: Commands in the order of the help, each with a line about it; most in a file of their name.
COMMANDS = {
    "demo": "Publish a made-up city end to end, to see how it works.",
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
        function = name.replace("-", "_")
        imported, _, _ = lazy_loader.attach("deltahist.cli", submod_attrs={_BESIDE.get(name, function): [function]})
        command = imported(function)
        if isinstance(command, typer.Typer):
            line.add_typer(command, name=name, short_help=COMMANDS[name])
        else:
            # Services are set up by their environment; what publishes must be typed, or stand in a file that is named.
            context = {"auto_envvar_prefix": "DELTAHIST_SERVE"} if name == "serve" else None
            line.command(cls=_Command, short_help=COMMANDS[name], context_settings=context)(spread(command))
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

#: Options that no file holds: the file itself, and what is about a single run.
_NEVER, _ONCE = ("config", "write_config", "help"), ("dry_run", "overwrite")
#: A password in a URL: between a user's name and the host, or among the settings.
_PASSWORD = re.compile(r"://[^:/@]*:[^@]+@|://.*[?&]\w*password=", re.IGNORECASE)


class _Command(TyperCommand):
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
        """Parse a command line, with a file's options where it has none; keep all of them as they were typed."""
        _refuse_unknown_variables(ctx.auto_envvar_prefix, self)
        typed, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        config = next((each for each in self.params if each.name == "config"), None)
        file = typed.get("config") or (config and config.resolve_envvar_value(ctx))
        if file is not None:
            ctx.default_map = _read_config(Path(str(file)), self)
        ctx.meta["typed"] = (ctx.default_map or {}) | typed
        return super().parse_args(ctx, args)


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


def _key(parameter: Any) -> str:
    """Return the name of an option without its dashes."""
    return str(parameter.opts[0]).lstrip("-")


def refuse_passwords(context: typer.Context) -> None:
    """Raise InputError if an option holds a password: others may read the file that `write_options` writes."""
    for each in context.command.params:
        # Arguments are not written.
        if each.param_type_name == "option" and _PASSWORD.search(str(context.meta["typed"].get(each.name))):
            raise InputError(
                f"--{_key(each)} holds a password, and others may read what --write-config writes: leave the password "
                "out, and keep it in PGPASSWORD or ~/.pgpass"
            )


def write_options(context: typer.Context, file: Path) -> None:
    """Write the options of a command line as they were typed, as a file that --config reads."""
    import json

    lines = [f"# deltahist {context.info_name} INPUT --config {file}"]
    for each in context.command.params:
        value = context.meta["typed"].get(each.name)
        if value is not None and each.param_type_name == "option" and each.name not in (*_NEVER, *_ONCE):
            lines.append(f"{_key(each)} = {json.dumps(value, ensure_ascii=False)}")
    console.put("\n".join(lines), file)


def _read_config(file: Path, command: TyperCommand) -> dict[str, Any]:
    """Return the options of a file, as texts, by the names of their parameters."""
    import difflib
    import tomllib

    said = f"--config {str(file)!r}"
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=str)  # editors write a mark first
    except UnicodeDecodeError:
        raise InputError(f"{said} cannot be read: it must be text in UTF-8") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{said} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    known: dict[str, Any] = {_key(each): each for each in command.params if each.param_type_name == "option"}
    for name in _NEVER:
        known.pop(name.replace("_", "-"), None)
    out: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            raise InputError(f"{said} has the heading [{key}]: options must stand without one")
        if key not in known:
            (near,) = difflib.get_close_matches(key, known, n=1, cutoff=0)
            raise InputError(
                f"{said} has the key {key!r}: no option of `deltahist {command.name}` in a file is called so; is "
                f"{near!r} meant?"
            )
        parameter = known[key]
        values = value if isinstance(value, list) and parameter.multiple else [value]
        plain = bool if parameter.is_flag else str | int | datetime.date
        if not all(isinstance(each, plain) and isinstance(each, bool) == parameter.is_flag for each in values):
            rule = f"a text, a number or a date, as in --{key} {parameter.metavar}"
            rule = "true or false" if parameter.is_flag else rule + ", or a list of them" * parameter.multiple
            raise InputError(f"{said} has {key} = {value!r}: it must be {rule}")
        texts = [each.isoformat() if isinstance(each, datetime.date) else str(each) for each in values]
        out[parameter.name] = value if parameter.is_flag else texts if parameter.multiple else texts[0]
    return out
