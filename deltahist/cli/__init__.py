"""The command line: its commands, the project file, and what it prints.

Help texts use `\b` to keep the line breaks of examples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import json
import os
import re
import signal
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

from deltahist.errors import DeltaHistWarning, InputError

#: Commands in the order of `--help`, each with its function and a one-line description.
COMMANDS = {
    "demo": ("demo.publish_demo", "Publish a made-up city from start to finish."),
    "plan": ("stream.plan", "Rank δ, cells and strategies by expected error. Reads no data."),
    "publish": ("publish.publish", "Publish a file of points as one release file."),
    "stream": ("stream.publish_stream", "Publish one map per time step, with a budget for each window of steps."),
    "refine": ("publish.refine", "Publish a more accurate release of the same data for the difference in budget."),
    "tighten": ("publish.tighten", "Make a more private copy of a release, without reading the data."),
    "withdraw": ("publish.withdraw", "Withdraw a release, with a record in its ledger and a public notice."),
    "sorted": ("publish.publish_sorted", "Publish the sorted values of a column, for quantiles and ranges."),
    "quantile": ("publish.publish_quantile", "Publish the median or another quantile of a column."),
    "share": ("people.share", "Share noisy values over a network: the closer the user, the less noise."),
    "ask": ("people.ask", "Answer a query, charged to the people whose records it uses."),
    "query": ("query.query", "Count the points in boxes or regions, with intervals."),
    "statement": ("query.show_statement", "Print the privacy statement of a release, or write it as a page."),
    "plot": ("query.plot", "Draw the map and the protection at each distance."),
    "export": ("query.export", "Export all cells to GeoPackage, GeoParquet, GeoJSON, CSV or GeoTIFF."),
    "serve": ("serve.serve", "Serve releases over HTTP, with a web map."),
    "ledger": ("ledger.ledger", "Show, open or check the accounts of a ledger."),
}
#: Whether to suppress notes and progress (--quiet).
STATE = {"quiet": False}


def _print_version(context: typer.Context, asked: bool) -> None:
    if asked:
        from deltahist import __version__

        print(f"deltahist {__version__}")
        context.exit()


def deltahist(
    config: Annotated[Path | None, Option(metavar="FILE", help="Project file. [default: deltahist.toml]")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Suppress notes and progress.")] = False,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Publish location data under distance-aware differential privacy, and answer range queries from the releases.

    \b
    Start with:
      deltahist demo                      # a made-up city, from a table of visits to a map
      deltahist publish --help
    A failing command prints one line on stderr and exits with status 2. No command leaves half-written files.
    """
    STATE["quiet"] = quiet


def load_command(name: str) -> Any:
    """Import a command's module, and return its function or Typer app."""
    module, function = COMMANDS[name][0].split(".")
    command = getattr(importlib.import_module(f"deltahist.cli.{module}"), function)
    return command if isinstance(command, typer.Typer) else expand_groups(command)


def expand_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each dataclass parameter of a command with one option per field, as Typer has no option groups."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            own = typing.get_type_hints(groups[name], include_extras=True)
            fields = inspect.signature(groups[name]).parameters
            parameters += [field.replace(annotation=own[field.name]) for field in fields.values()]
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        return command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def make_app(called: str | None) -> typer.Typer:
    """Return the Typer app, importing only the module of the command that is called."""
    # Plain help takes half the time of rich help, and can be piped.
    shared = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=shared)
    app.callback()(deltahist)
    for name, (_, text) in COMMANDS.items():
        command = load_command(name) if name == called else _print_version  # any function serves as a placeholder
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=text)
        else:
            settings = {"auto_envvar_prefix": "DELTAHIST_SERVE"} if name == "serve" else None
            app.command(name, cls=Command, short_help=text, context_settings=settings)(command)
    return app


def invoke(arguments: Sequence[str]) -> Any:
    """Run a command line and return the command's result. Errors propagate."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")  # from a shell that completes
    called = next((each for each in [*arguments, *line.split()] if each in COMMANDS), None)
    return make_app(called)(list(arguments) or ["--help"], prog_name="deltahist", standalone_mode=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0, or 2 after printing a one-line error on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the terminal may be unable to print δ and ε
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:  # Running as a program, not called from Python.
        # Matrices are small. With several threads, planning took 3 times as long.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        for name in ("SIGTERM", "SIGHUP"):  # raise SystemExit, so that temporary files are removed
            if (number := getattr(signal, name, None)) and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: sys.exit(128 + number))
    STATE["quiet"] = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=DeltaHistWarning)
            warnings.showwarning = lambda message, *_, **__: print_note("warning: " + " ".join(str(message).split()))
            result = invoke(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except InputError as problem:
        text = str(problem)
    except MemoryError as problem:
        text = f"out of memory: use larger cells or a smaller map ({problem})"
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        text = f"{problem.filename or 'input or output'}: {problem.strerror or problem}"
    except ModuleNotFoundError as problem:
        if str(problem.name).startswith("deltahist"):
            raise
        extra = "geotiff" if problem.name == "rasterio" else "serve"
        text = f"{problem.name} is not installed: use pip install '.[{extra}]'"
    except (KeyboardInterrupt, typer.Abort):
        text = "interrupted"
    except Exception as problem:
        if not hasattr(problem, "format_message"):  # only Typer's usage errors have this method
            raise
        text = f"{problem.format_message()} (see --help)"
    print_note("error: " + " ".join(text.split()))
    return 2


class Command(TyperCommand):
    """A command that reads missing options from the project file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with options from the project file as defaults."""
        file = Path(ctx.find_root().params.get("config") or "deltahist.toml")  # old Typers give a string
        if ctx.parent is not None and (file.is_file() or file != Path("deltahist.toml")):
            ctx.default_map = _read_project(file, self)
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if getattr(ctx.get_parameter_source(name), "name", "") != "DEFAULT_MAP":
                continue
            if name in ("epsilon", "rho"):
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                print_note(f"{name} is {shown}, from {file}")
            if re.match(r"postgres(ql)?(\+psycopg)?://", str(value), re.IGNORECASE):
                os.environ.pop("PGPASSWORD", None)  # otherwise the driver would send the password to this server
                print_note(f"{name} is a server named in {file}: PGPASSWORD is not sent to it")
        return rest


def _read_project(file: Path, command: TyperCommand) -> dict[str, Any]:
    """Return a command's options: keys below its heading and, for `publish`, `stream` and `plan`, top-level keys."""
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=str)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"--config is {str(file)!r}: it must be TOML in UTF-8 ({problem})") from None
    for key, value in found.items():
        if re.search(r"://[^:/]*:[^@]+@|://.*[?&]\w*password=", str(value), re.IGNORECASE):
            raise InputError(f"{key} contains a password: keep it in PGPASSWORD or ~/.pgpass, not in a project file")
    headings = {key: found.pop(key) for key in [*found] if isinstance(found[key], dict)}
    shared, own = ({key.replace("-", "_"): value for key, value in part.items()}
                   for part in (found, headings.get(str(command.name), {})))  # fmt: skip
    known, sharing = {str(each.name) for each in command.params}, ("publish", "stream", "plan")
    shareable = {name for each in sharing for name in inspect.signature(load_command(each)).parameters}
    if unknown := [*(headings.keys() - COMMANDS.keys()), *(own.keys() - known), *(shared.keys() - shareable)]:
        raise InputError(f"{file} has {unknown[0]!r}: each name must be a command or an option allowed in its section")
    return ({key: shared[key] for key in shared.keys() & known} if command.name in sharing else {}) | own


def print_note(text: str) -> None:
    """Print a note on stderr. With --quiet, print only warnings and errors."""
    if not STATE["quiet"] or text.startswith(("error: ", "warning: ", "wrong: ", "not served: ")):
        print(text, file=sys.stderr)


@contextlib.contextmanager
def show_progress(text: str, steps: int | None = None) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, with a bar if `steps` is given. Yield a function that advances the bar by a step."""
    if STATE["quiet"] or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = [] if steps is None else [BarColumn(), MofNCompleteColumn()]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(text, total=steps)
        yield lambda: bar.advance(task)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[str] = ()) -> str:
    """Return a text table. The first column and those named in `left` align left. The others align right."""
    from rich.cells import cell_len

    # A rich table takes 0.4 ms per row, longer than computing the answer.
    columns: list[list[str]] = []
    for name, *texts in zip(header, *rows, strict=True):
        # Control characters in the data could manipulate the terminal.
        texts = [re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text) for text in (name, *texts)]
        sizes = [len(text) if text.isascii() else cell_len(text) for text in texts]
        width = max(sizes)
        gaps = [" " * (width - size) for size in sizes]
        flush_left = not columns or name in left
        padded = [text + gap if flush_left else gap + text for text, gap in zip(texts, gaps, strict=True)]
        columns.append([padded[0], "-" * width, *padded[1:]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def format_facts(**values: object) -> str:
    """Return names and values as text, one pair per line. Values that are None are left out."""
    return "\n".join(f"{name.replace('_', ' '):<12} {value}" for name, value in values.items() if value is not None)


def write_text(text: str, out: Path | None = None) -> None:
    """Print text, or write it to a file atomically."""
    from deltahist._files import write_whole

    if out is None:
        print(text.rstrip("\n"))
    else:
        write_whole(out, lambda part: part.write_text(text.rstrip("\n") + "\n", encoding="utf-8"))


def write_json(data: Any, out: Path | None = None) -> None:
    write_text(json.dumps(data, indent=2, ensure_ascii=False), out)


def _is_release(path: Path) -> bool:
    from deltahist.kinds import read_release

    try:
        return path.suffix == ".parquet" and read_release(path) is not None
    except InputError:
        return False


def check_target(out: Path | None, *used: str | Path | None, replace: bool = True, option: str = "--out") -> None:
    """Raise InputError early if a file cannot be written, must not be replaced, or is among `used`."""
    from deltahist._files import check_creatable

    if out is None:
        return
    check_creatable(out)
    target, notice = out.resolve(), Path(str(out).removesuffix(".parquet") + ".withdrawn.json")
    clash = [each for each in used if each is not None and Path(each).resolve() in (target, *target.parents)]
    if clash:
        rule = f"it must be neither {str(clash[0])!r} nor inside it"
    elif notice.exists():
        rule = f"a release of that name was withdrawn ({notice.name}); choose another name"
    elif out.exists() and (not replace or _is_release(out)):
        rule = "it already exists; choose another name"
    else:
        return
    raise InputError(f"{option} is {str(out)!r}: {rule}")
