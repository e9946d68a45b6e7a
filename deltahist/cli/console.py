"""Output that all commands share: notes, tables, files that are written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltahist._files import check_creatable, write_whole
from deltahist.errors import InputError

#: Characters that steer a terminal, and have no place in a line.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Whether --quiet suppresses notes and progress.
STATE = {"quiet": False}


def note(text: str) -> None:
    """Print a note on stderr; with --quiet, only warnings and errors."""
    if not STATE["quiet"] or text.startswith(("error: ", "warning: ", "wrong: ", "not served: ")):
        print(text, file=sys.stderr)


@contextmanager
def show_progress(text: str, steps: int | None = None) -> Iterator[Callable[[], None]]:
    """Show on a terminal that work goes on, with a bar if the steps are known; yield the function that ends a step."""
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


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, words: Sequence[str] = ()) -> str:
    """Align columns; the first `left`, and those called `words`, are flush left, the others (figures) flush right."""
    from rich.cells import cell_len

    # A table of rich's own takes 0.4 ms for each row, more than the answer in it.
    columns = []
    for number, column in enumerate(zip(header, *rows, strict=True)):
        texts = [_STEERING.sub(" ", text) for text in column]
        sizes = [len(text) if text.isascii() else cell_len(text) for text in texts]
        gaps = [" " * (max(sizes) - size) for size in sizes]
        flush_left = number < left or header[number] in words
        padded = [text + gap if flush_left else gap + text for text, gap in zip(texts, gaps, strict=True)]
        columns.append([padded[0], "-" * max(sizes), *padded[1:]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def facts(**values: object) -> str:
    """Render a line for each value that is not None, with its name before it."""
    return "\n".join(f"{name.replace('_', ' '):<12} {value}" for name, value in values.items() if value is not None)


def put(text: str, out: Path | None = None) -> None:
    """Print text, or write it to a file that appears whole or not at all."""
    if out is None:
        print(text.rstrip("\n"))
        return
    write_whole(out, lambda part: part.write_text(text.rstrip("\n") + "\n", encoding="utf-8"))


def put_json(data: Any, out: Path | None = None) -> None:
    """Print data as JSON, or write it to a file."""
    put(json.dumps(data, indent=2, ensure_ascii=False), out)


def check_target(out: Path | None, *used: str | Path | None, replace: bool = True, option: str = "--out") -> None:
    """Raise InputError if a file cannot be written, exists and must not be replaced, or is part of what is `used`.

    Call it before long work, which a misspelt folder would otherwise lose.
    """
    if out is None:
        return
    try:
        check_creatable(out)
    except InputError as problem:
        raise InputError(f"{option}: {problem}") from None
    target, said = out.resolve(), f"{option} is {str(out)!r}"
    for each in used:
        if each is not None and Path(each).resolve() in (target, *target.parents):
            raise InputError(f"{said}: it must differ from {str(each)!r}, and not lie in it")
    if (notice := Path(str(out).removesuffix(".parquet") + ".withdrawn.json")).exists():
        raise InputError(f"{said}, but a release of that name was withdrawn ({notice.name}): choose another name")
    if out.exists() and not replace:
        raise InputError(f"{said}, which exists already: choose another name")
