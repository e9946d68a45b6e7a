"""What every script shares: its two options, tables on the screen, CSV and PNG files."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What a script returns: its main figures by name.
Found = dict[str, Any]
Row = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED, GREY = "#1f5fa8", "#e07b00", "#2a8a3e", "#b3261e", "#6f6f6f"


def parser_of(what: str | None) -> argparse.ArgumentParser:
    """The options that every script has; `what` is its docstring, of which the first line describes it."""
    parser = argparse.ArgumentParser(description=(what or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a reduced run of a few seconds, to see that it works")
    parser.add_argument(
        "--out", type=_folder, default="experiments/out", metavar="DIR", help="where CSV and PNG files go"
    )
    return parser


def _folder(name: str) -> Path:
    out = Path(name)
    out.mkdir(parents=True, exist_ok=True)
    return out


def command(run: Callable[[Path, bool], Found], what: str | None, arguments: Sequence[str] | None) -> None:
    """Run one script from the command line and print its main figures."""
    chosen = parser_of(what).parse_args(arguments)
    print_found(run(chosen.out, chosen.small))
    print(f"CSV and PNG files are in {chosen.out}")


def print_found(found: Found) -> None:
    """Print a script's main figures, a line each."""
    print()
    for name, value in found.items():
        print(f"{name}: {text_of(value)}")


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write rows that share their columns; numbers in full."""
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.DictWriter(target, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def print_table(rows: Sequence[Row]) -> None:
    """Print rows that share their columns, aligned."""
    table = [list(rows[0]), *([text_of(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_markdown(rows: Sequence[Row]) -> None:
    """Print rows that share their columns as a table of Markdown, to be pasted into a page."""
    for line in (rows[0], ["---"] * len(rows[0]), *(map(text_of, row.values()) for row in rows)):
        print(f"| {' | '.join(line)} |")


def text_of(value: Any) -> str:
    """A number with five significant digits at least, anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"


def figure(width: float, height: float) -> Figure:
    """An empty figure, size in inches, that needs no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(out)
    return out


def save(drawn: Figure, file: Path) -> None:
    """Write the figure as PNG; the same run gives the same bytes."""
    drawn.savefig(file, dpi=130, metadata={"Software": None})
