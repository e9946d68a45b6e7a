"""Output that all commands share: notes, tables, files that are written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.mechanisms import BaseMechanism
    from deltahist.space.domain import Domain


#: What steers a terminal, and has no place in a line.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def note(text: str) -> None:
    """Tell the person at the keyboard something that does not belong into the output."""
    print(text, file=sys.stderr)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, words: Sequence[str] = ()
) -> str:
    """Aligned columns; the first `left`, and those called `words`, are flush left, the others (figures) flush right."""
    from rich.cells import cell_len

    # A table of rich's own takes 0.4 ms for each row, more than the answer in it.
    columns, rule = [], ""
    for number, column in enumerate(zip(header, *rows, strict=True)):
        texts = [_STEERING.sub(" ", text) for text in column]
        sizes = [len(text) if text.isascii() else cell_len(text) for text in texts]
        width = max(sizes)
        rule += "-" * (width + 1) + " "
        gaps = [" " * (width - size) for size in sizes]
        pair = (texts, gaps) if number < left or header[number] in words else (gaps, texts)
        columns.append(map("".join, zip(*pair, strict=True)))
    head, *lines = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
    return "\n".join([head, rule[:-2], *lines])


def facts(**values: str) -> str:
    """Render a line for each value, with its name before it."""
    return "\n".join(f"{name.replace('_', ' '):<12} {value}" for name, value in values.items())


def about_map(domain: Domain) -> dict[str, str]:
    """Cells, bounds and map, for `facts`."""
    from deltahist.space.crs import words

    bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" in {domain.crs}" if domain.crs else "")
    cells = f"{' × '.join(map(str, domain.shape))} of {domain.size_of_cells}"
    if domain.crs is None:
        return {"cells": cells, "bounds": bounds}
    if domain.grid is not None:
        cells += ", on the grid of their multiples; only δ is in ground metres"
    return {"cells": cells, "bounds": bounds, "map": words(domain)}


def limit_in_words(mechanism: BaseMechanism, asked: bool) -> str:
    """Describe the promise beyond δ, and whether the caller asked for it, in one line."""
    from deltahist.statement import explain_limits

    letter, norm = mechanism.letter, mechanism.norm
    if not mechanism.neighbourhood.profile:
        return f"none: any move at all costs {letter} = {mechanism.any_move:.4g}" + (
            "" if asked else " (--limit any:4 allows 4 times what a move within δ may cost)"
        )
    words = explain_limits(mechanism.neighbourhood, letter, norm)
    if not mechanism.neighbourhood.profile[-1].any:
        words += f"; none for any move at all, which costs {letter} = {mechanism.any_move:.4g}"
    return words if asked else f"{words} (nobody asked for another; --limit any:none lifts it)"


def put(text: str, out: Path | None) -> None:
    """Print text, or write it to a file that appears whole or not at all."""
    if out is None:
        print(text.rstrip("\n"))
        return
    from deltahist._files import write_whole

    content = text if text.endswith("\n") else text + "\n"
    write_whole(out, lambda part: part.write_text(content, encoding="utf-8"))


def check_target(out: Path | None, *sources: str | Path, replace: bool = True) -> None:
    """Raise InputError if a file cannot be written, is itself read, or exists and must not be replaced.

    To be called before long work, so that nothing is lost for a misspelt folder.
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
    if out.exists() and not replace:
        raise InputError(
            f"output {str(out)!r} exists already, and is not replaced unasked: choose another name, or add --overwrite"
        )
