"""What every command shares with the terminal: one line per error and per warning, exit status, tables, files."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltahist.errors import DeltaHistWarning, InputError

#: Exit status of every error that the user can mend.
FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a one-line error on stderr.

    Only what was to be expected becomes a line; a programming error keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # δ and ε must not fail on a terminal without them
            stream.reconfigure(errors="backslashreplace")
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
        # Usage errors of the option parser, whichever package it comes from in this version of Typer.
        if hasattr(problem, "format_message"):
            return _fail(f"{problem.format_message()} (see --help)")
        if type(problem).__name__ == "Abort":
            return _fail("interrupted")
        raise


def invoke(arguments: Sequence[str]) -> Any:
    """Run one command line and return what the command returns; errors are raised."""
    from deltahist.cli.app import app

    return app(list(arguments) or ["--help"], prog_name="deltahist", standalone_mode=False)


def note(text: str) -> None:
    """Tell the person at the keyboard something that does not belong into the output."""
    print(text, file=sys.stderr)


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Aligned columns; the first `left` are flush left, the others (figures) flush right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def put(text: str, out: Path | None) -> None:
    """Print text, or write it to a file that appears whole or not at all."""
    if out is None:
        print(text.rstrip("\n"))
        return
    from deltahist._files import write_whole

    content = text if text.endswith("\n") else text + "\n"
    write_whole(out, lambda part: part.write_text(content, encoding="utf-8"))


def check_target(out: Path | None, *sources: str | Path) -> None:
    """Raise InputError if a file cannot be written, or is one of those that are read.

    Asked before long work, so that nothing is lost for a misspelt folder.
    """
    if out is None:
        return
    if not out.parent.is_dir():
        raise InputError(f"output folder {str(out.parent)!r} does not exist: make it first")
    if out.is_dir():
        raise InputError(f"output {str(out)!r} is a folder: it must be a file")
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"output folder {str(out.parent)!r} cannot be written")
    for source in map(Path, sources):
        if out.exists() and source.exists() and out.samefile(source):
            raise InputError(f"output {str(out)!r} is the file that is read: choose another name")
