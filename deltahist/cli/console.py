"""What every command shares with the terminal: notes, tables, files that are written."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deltahist.errors import InputError


def note(text: str) -> None:
    """Tell the person at the keyboard something that does not belong into the output."""
    print(text, file=sys.stderr)


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
